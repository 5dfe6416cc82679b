"""Random work on a server: transactions over several tables, rollbacks, savepoints, keys that change, large values, definitions."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import psycopg

if TYPE_CHECKING:
    from tests.connectors.postgres.conftest import Shop

TABLES = ("orders", "items", "people", "events")
CREATE = {
    "orders": "CREATE TABLE orders (id int PRIMARY KEY, region varchar(20), amount numeric(12,2), at timestamptz(3))",
    "items": "CREATE TABLE items (o int, n smallint, what text, more text, price float8, PRIMARY KEY (o, n))",
    "people": "CREATE TABLE people (name text PRIMARY KEY, kind mood, data bytea, born date, tags text[])",
    "events": "CREATE TABLE events (what text, big text, n numeric(9,3))",
}
SET = {
    "orders": "ALTER TABLE orders REPLICA IDENTITY FULL",
    "items": "ALTER TABLE items ALTER what SET STORAGE EXTERNAL, ALTER more SET STORAGE EXTERNAL",
    "people": "ALTER TABLE people ALTER data SET STORAGE EXTERNAL",
    "events": "ALTER TABLE events REPLICA IDENTITY FULL, ALTER big SET STORAGE EXTERNAL",
}
KEYS = 30


class Workload:
    """Does random things to four tables; the same seed does the same."""

    def __init__(self, shop: Shop, seed: int) -> None:
        """Create the tables."""
        self.shop, self.chance = shop, random.Random(seed)
        self.statements = self._prepared = 0
        shop.sql("CREATE TYPE mood AS ENUM ('glad', 'sad', 'ü')", *CREATE.values(), *SET.values())

    def run(self, count: int) -> None:
        """Run about so many statements."""
        until = self.statements + count
        while self.statements < until:
            with psycopg.connect(self.shop.url) as db:
                for _ in range(self.chance.randint(1, 8)):
                    self._transaction(db)
            if self.chance.random() < 0.06:
                self._define()

    def _transaction(self, db: psycopg.Connection[Any]) -> None:
        saved = False
        for _ in range(self.chance.randint(1, 6)):
            self._do(db, self._change())
            if self.chance.random() < 0.1:
                db.execute("SAVEPOINT s")
                saved = True
            elif saved and self.chance.random() < 0.2:
                db.execute("ROLLBACK TO SAVEPOINT s")
        draw = self.chance.random()
        if draw < 0.15:
            db.rollback()
        elif draw < 0.22:
            self._in_two_phases(db)
        else:
            db.commit()

    def _in_two_phases(self, db: psycopg.Connection[Any]) -> None:
        self._prepared += 1
        name = f"{self.shop.url.rpartition('/')[2]}-{self._prepared}"
        db.execute(f"PREPARE TRANSACTION '{name}'")
        with psycopg.connect(self.shop.url, autocommit=True) as other:
            other.execute(f"{self.chance.choice(['COMMIT', 'COMMIT', 'ROLLBACK'])} PREPARED '{name}'")
        db.rollback()

    def _do(self, db: psycopg.Connection[Any], statement: str) -> None:
        self.statements += 1
        db.execute("SAVEPOINT before")
        try:
            db.execute(statement)
        except psycopg.IntegrityError:  # a key that exists: the statement did nothing
            db.execute("ROLLBACK TO SAVEPOINT before")

    def _change(self) -> str:
        table, draw = self.chance.choice(TABLES), self.chance.random()
        where = self._where(table)
        if draw < 0.45:
            rows = ", ".join(self._row(table) for _ in range(self.chance.choice([1, 1, 3, 40])))
            again = "" if table == "events" else "ON CONFLICT DO NOTHING"
            return f"INSERT INTO {table} ({self._columns(table)}) VALUES {rows} {again}"
        if draw < 0.75:
            return f"UPDATE {table} SET {self._setting(table)} WHERE {where}"
        if draw < 0.85 and table in ("orders", "items"):
            key = "id" if table == "orders" else "o"
            return f"UPDATE {table} SET {key} = {key} + {self.chance.randint(1, 50)} WHERE {where}"
        if draw < 0.86:
            return f"TRUNCATE {table}"
        return f"DELETE FROM {table} WHERE {where}"

    @staticmethod
    def _columns(table: str) -> str:
        return {
            "orders": "id, region, amount, at",
            "items": "o, n, what, more, price",
            "people": "name, kind, data, born, tags",
            "events": "what, big, n",
        }[table]

    def _where(self, table: str) -> str:
        number = self.chance.randrange(KEYS)
        if table == "people":
            return f"name < 'p{number}'" if self.chance.random() < 0.1 else f"name = 'p{number}'"
        if table == "events":
            return f"what = 'e{number}'"
        column = "id" if table == "orders" else "o"
        return f"{column} {self.chance.choice(['=', '=', '>='])} {number}"

    def _text(self) -> str:
        return f"repeat('{self.chance.choice('xyü')}', {self.chance.choice([0, 3, 5000])})"

    def _row(self, table: str) -> str:
        chance, number = self.chance, self.chance.randrange(KEYS)
        region = chance.choice(["'north'", "'süd'", "NULL", "''"])
        if table == "orders":
            time = f"'2024-0{chance.randint(1, 9)}-11 10:20:30.{chance.randrange(1000):03d}+02'"
            return f"({number}, {region}, {chance.choice(['NULL', chance.randrange(-9999, 9999) / 100])}, {time})"
        if table == "items":
            price = chance.choice(["NULL", chance.random(), "'-0'", "'NaN'"])
            return f"({number}, {chance.randrange(4)}, {self._text()}, {self._text()}, {price})"
        if table == "events":
            return f"('e{number}', {self._text()}, {chance.choice(['NULL', chance.randrange(999)])})"
        data = chance.choice(["NULL", r"'\x00ff'", r"decode(repeat('00ff', 5000), 'hex')"])
        tags = chance.choice(["NULL", "'{}'", "'{a,NULL,\"b c\"}'"])
        return f"('p{number}', '{chance.choice(['glad', 'sad', 'ü'])}', {data}, '19{chance.randint(10, 99)}-02-28', {tags})"

    def _setting(self, table: str) -> str:
        number = self.chance.randrange(100)
        return {
            "orders": f"amount = amount + {number}.5, region = 'r{number % 7}'",
            "items": self.chance.choice([f"price = price / {number + 1}", f"what = 'ä{number}'", "more = NULL"]),
            "people": f"kind = 'glad', born = '2000-01-{number % 28 + 1:02d}'",
            "events": f"n = {number}",
        }[table]

    def _define(self) -> None:
        """Change a definition; added columns have a default, so that rows change without being logged."""
        self.statements += 1
        table, number = self.chance.choice(TABLES), self.statements
        sql = "SELECT attname FROM pg_attribute WHERE attrelid = %s::regclass AND attname ~ '^c[0-9]+$' AND NOT attisdropped"
        with psycopg.connect(self.shop.url) as db:
            there = [name for (name,) in db.execute(sql, [table]).fetchall()]
        draw = self.chance.random()
        if draw < 0.1:
            self.shop.sql(f"DROP TABLE {table}", CREATE[table], SET[table])
        elif draw < 0.2:
            self.shop.sql(f"VACUUM FULL {table}")
        elif draw < 0.3 and table in ("orders", "items"):
            self.shop.sql(f"ALTER TABLE {table} REPLICA IDENTITY {self.chance.choice(['FULL', 'DEFAULT'])}")
        elif there and draw < 0.6:
            self.shop.sql(f"ALTER TABLE {table} DROP COLUMN {there[0]}")
        else:
            self.shop.sql(f"ALTER TABLE {table} ADD COLUMN c{number} int DEFAULT {number}")
