"""Random work on a server: transactions over several tables, rollbacks, savepoints, XA, definitions, other ways of logging."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pymysql

if TYPE_CHECKING:
    from tests.connectors.mysql.conftest import Shop

TABLES = ("orders", "items", "people")
CREATE = {
    "orders": "CREATE TABLE orders (id INT PRIMARY KEY, region VARCHAR(20), amount DECIMAL(12,2), at DATETIME(3))",
    "items": "CREATE TABLE items (o INT, n SMALLINT UNSIGNED, what TEXT, price DOUBLE, PRIMARY KEY (o, n))",
    "people": "CREATE TABLE people (name VARCHAR(30) PRIMARY KEY, kind ENUM('a', 'b', 'ü'), data BLOB, born DATE)",
}
KEYS = 30


class Workload:
    """Does random things to three tables; the same seed does the same."""

    def __init__(self, shop: Shop, seed: int, *, images: bool = False) -> None:
        """Create the tables; with `images` sessions log rows with or without all of their columns."""
        self.shop, self.chance, self.images = shop, random.Random(seed), images
        self.statements = self._xa = 0
        shop.sql(*CREATE.values())

    def run(self, count: int) -> None:
        """Run about so many statements."""
        until = self.statements + count
        while self.statements < until:
            with self.shop.server.connect(self.shop.database, autocommit=False) as connection:
                self._set(connection)
                for _ in range(self.chance.randint(1, 8)):
                    self._transaction(connection)
            if self.chance.random() < 0.06:
                self._define()

    def _set(self, connection: Any) -> None:
        """Let a session log in its own way."""
        if self.images:
            image = self.chance.choice(["FULL", "NOBLOB", "MINIMAL", "MINIMAL"])
            self._do(connection, f"SET SESSION binlog_row_image = {image}")
        if self.shop.family == "mysql":
            compressed = self.chance.choice(["ON", "OFF"])
            self._do(connection, f"SET SESSION binlog_transaction_compression = {compressed}")
        elif self.chance.random() < 0.2:
            self._do(connection, f"SET GLOBAL log_bin_compress = {self.chance.choice(['ON', 'OFF'])}")

    def _transaction(self, connection: Any) -> None:
        if self.chance.random() < 0.08:
            self._prepared(connection)
            return
        saved = False
        for _ in range(self.chance.randint(1, 6)):
            self._do(connection, self._change())
            if self.chance.random() < 0.1:
                self._do(connection, "SAVEPOINT s")
                saved = True
            elif saved and self.chance.random() < 0.2:
                self._do(connection, "ROLLBACK TO SAVEPOINT s")
        connection.rollback() if self.chance.random() < 0.15 else connection.commit()

    def _prepared(self, connection: Any) -> None:
        connection.commit()
        self._xa += 1
        name = f"{self.shop.database}-{self._xa}"
        for statement in (f"XA START '{name}'", self._change(), f"XA END '{name}'", f"XA PREPARE '{name}'"):
            self._do(connection, statement)
        self._do(connection, f"XA {self.chance.choice(['COMMIT', 'COMMIT', 'ROLLBACK'])} '{name}'")

    def _do(self, connection: Any, statement: str) -> None:
        self.statements += 1
        with connection.cursor() as cursor:
            try:
                cursor.execute(statement)
            except pymysql.IntegrityError:  # a key that exists: the statement did nothing
                return

    def _change(self) -> str:
        table, draw = self.chance.choice(TABLES), self.chance.random()
        where = self._where(table)
        if draw < 0.45:
            rows = ", ".join(self._row(table) for _ in range(self.chance.choice([1, 1, 3, 40])))
            return f"{self.chance.choice(['INSERT IGNORE', 'REPLACE', 'REPLACE'])} INTO {table} ({self._columns(table)}) VALUES {rows}"
        if draw < 0.75:
            return f"UPDATE {table} SET {self._setting(table)} WHERE {where}"
        if draw < 0.8 and table == "orders":
            return f"UPDATE IGNORE orders SET id = id + {self.chance.randrange(5)} WHERE {where} ORDER BY id DESC"
        return f"DELETE FROM {table} WHERE {where}"

    @staticmethod
    def _columns(table: str) -> str:
        return {"orders": "id, region, amount, at", "items": "o, n, what, price", "people": "name, kind, data, born"}[
            table
        ]

    def _where(self, table: str) -> str:
        number = self.chance.randrange(KEYS)
        if table == "people":
            return f"name < 'p{number}'" if self.chance.random() < 0.1 else f"name = 'p{number}'"
        column = "id" if table == "orders" else "o"
        return f"{column} {self.chance.choice(['=', '=', '>='])} {number}"

    def _row(self, table: str) -> str:
        chance, number = self.chance, self.chance.randrange(KEYS)
        region = chance.choice(["'north'", "'süd'", "NULL", "''"])
        if table == "orders":
            time = f"'2024-0{chance.randint(1, 9)}-11 10:20:30.{chance.randrange(1000):03d}'"
            return f"({number}, {region}, {chance.choice(['NULL', chance.randrange(-9999, 9999) / 100])}, {time})"
        if table == "items":
            text = f"REPEAT('{chance.choice('xyü')}', {chance.choice([0, 3, 5000])})"
            return f"({number}, {chance.randrange(4)}, {text}, {chance.choice(['NULL', chance.random(), -0.0])})"
        data = "NULL" if chance.random() < 0.2 else f"X'{chance.randbytes(chance.randrange(1, 9)).hex()}'"
        return f"('p{number}', {chance.choice([1, 2, 3])}, {data}, '19{chance.randint(10, 99)}-02-28')"

    def _setting(self, table: str) -> str:
        number = self.chance.randrange(100)
        return {
            "orders": f"amount = amount + {number}.5, region = 'r{number % 7}'",
            "items": f"price = price / {number + 1}, what = CONCAT(COALESCE(LEFT(what, 9), ''), 'ä{number}')",
            "people": f"kind = {number % 3 + 1}, born = '2000-01-{number % 28 + 1:02d}'",
        }[table]

    def _define(self) -> None:
        """Change a definition; added columns have a default, so that rows change without an event."""
        self.statements += 1
        table, number = self.chance.choice(TABLES), self.statements
        column = f"c{number}"
        there = [
            name
            for (name,) in self.shop.sql(
                "SELECT COLUMN_NAME FROM information_schema.COLUMNS WHERE TABLE_SCHEMA = DATABASE()"
                f" AND TABLE_NAME = '{table}' AND COLUMN_NAME REGEXP '^c[0-9]+$'"
            )
        ]
        draw = self.chance.random()
        if draw < 0.15:
            self.shop.sql(f"TRUNCATE TABLE {table}")
        elif draw < 0.3:
            self.shop.sql(f"DROP TABLE {table}", CREATE[table])
        elif there and draw < 0.6:
            self.shop.sql(f"ALTER TABLE {table} DROP COLUMN {there[0]}")
        else:
            self.shop.sql(
                f"ALTER TABLE {table} ADD COLUMN {column} INT DEFAULT {number} {self.chance.choice(['', 'FIRST'])}"
            )
