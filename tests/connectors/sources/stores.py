"""The stores as the suite writes to them. A new store registers here: a class of this form, and a line in `STORES`.

Each has a table `t` with the columns `id` (its key), `g` (text) and `x` (a whole number).
"""

from __future__ import annotations

import datetime
import json
import shutil
import sqlite3
from contextlib import closing
from decimal import Decimal
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import psycopg
import pytest

from tests.connectors.cassandra.conftest import wait_for_mark
from tests.connectors.sources.mysql_store import MysqlStore

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.servers.cassandra import CassandraNode
    from tests.servers.postgres import PostgresServer

Row = dict[str, Any]


class Store(Protocol):
    """What the suite needs of a store."""

    TYPE: str
    """As in `[sources.NAME]`."""
    BAD: str
    """The code of the error that `damage` leads to."""

    def settings(self) -> dict[str, Any]:
        """Give the settings of the source."""
        ...

    def create(self) -> None:
        """Make the table `t`, without rows."""
        ...

    def put(self, *rows: Row) -> None:
        """Insert rows, or put them in place of those with the same key."""
        ...

    def delete(self, *ids: int) -> None:
        """Delete rows."""
        ...

    def settle(self) -> None:
        """Wait until what was written can be read from the log."""
        ...

    def rows(self) -> list[Row]:
        """Give the rows of `t` that the store has, by id."""
        ...

    def damage(self) -> None:
        """Write something that cannot be read, or held."""
        ...

    def mend(self) -> None:
        """Make it readable, or set how it is passed; what it was has no row then, or one without values."""
        ...

    def typed(self) -> tuple[dict[str, str], Row]:
        """Make a table `typed` with a row; give the types that its columns have, and the row as it is read."""
        ...

    def close(self) -> None:
        """Leave nothing that would disturb the next test."""
        ...


class FilesStore:
    """Envelopes with whole old rows, a file for each write."""

    TYPE, BAD = "files", "RUNNEL-FILES-SYNTAX"
    SCHEMA: ClassVar[dict[str, str]] = {"t": "id BIGINT, g STRING, x INT, PRIMARY KEY (id)"}

    def __init__(self, folder: Path) -> None:
        self.folder, self.known, self.number = folder / "feed", dict[int, Row](), 0
        self.schema = dict(self.SCHEMA)

    def settings(self) -> dict[str, Any]:
        return {"path": str(self.folder), "schema": self.schema}

    def create(self) -> None:
        (self.folder / "t").mkdir(parents=True)

    def put(self, *rows: Row) -> None:
        changes = []
        for row in rows:
            old = self.known.get(row["id"])
            changes.append({"op": "c" if old is None else "u", "before": old, "after": row})
            self.known[row["id"]] = row
        self._write("\n".join(map(json.dumps, changes)))

    def delete(self, *ids: int) -> None:
        gone = [{"op": "d", "before": self.known.pop(id_), "after": None} for id_ in ids]
        self._write("\n".join(map(json.dumps, gone)))

    def _write(self, text: str, table: str = "t") -> None:
        self.number += 1
        hidden = self.folder / table / f".{self.number:05}.jsonl"
        hidden.write_text(text + "\n")
        hidden.rename(hidden.with_name(hidden.name[1:]))

    def settle(self) -> None:
        pass

    def rows(self) -> list[Row]:
        return sorted(self.known.values(), key=lambda row: int(row["id"]))

    def damage(self) -> None:
        self._write('{"id": 1, "g":')
        self.damaged = self.folder / "t" / f"{self.number:05}.jsonl"

    def mend(self) -> None:
        self.damaged.write_text("\n")

    def typed(self) -> tuple[dict[str, str], Row]:
        kinds = {"id": "bigint", "b": "boolean", "d": "decimal(12,2)", "f": "double", "s": "string", "day": "date"}
        kinds |= {"at": "timestamp", "l": "array<int>", "m": "map<string,int>"}
        self.schema["typed"] = ", ".join(f"{name} {kind}" for name, kind in kinds.items()) + ", PRIMARY KEY (id)"
        (self.folder / "typed").mkdir(parents=True)
        row = {"id": 2**62, "b": True, "d": "-1.50", "f": 0.5, "s": "ü'\n", "day": "2024-02-29"}
        row |= {"at": "2024-02-29T12:00:00.000001Z", "l": [1, None], "m": {"a": 1}}
        self._write(json.dumps(row), "typed")
        at = datetime.datetime(2024, 2, 29, 12, 0, 0, 1, datetime.UTC)
        read = row | {"d": Decimal("-1.50"), "day": datetime.date(2024, 2, 29), "at": at, "m": [("a", 1)]}
        return kinds, read

    def close(self) -> None:
        pass


class ToyStore:
    """Tables in a SQLite file, with triggers."""

    TYPE, BAD = "tests.connectors.toy_store", "TOY-LOG-ROW"

    def __init__(self, folder: Path) -> None:
        self.path = folder / "toy.db"

    def settings(self) -> dict[str, Any]:
        return {"path": str(self.path)}

    def _run(self, *statements: str) -> list[Any]:
        with closing(sqlite3.connect(self.path)) as db:
            found = [row for statement in statements for row in db.execute(statement).fetchall()]
            db.commit()
            return found

    def create(self) -> None:
        self._run("CREATE TABLE log (seq INTEGER PRIMARY KEY AUTOINCREMENT, tab TEXT, op TEXT, row TEXT)")
        self._table("t", "id INTEGER PRIMARY KEY, g TEXT, x INTEGER", ["id", "g", "x"])

    def _table(self, name: str, columns: str, names: list[str]) -> None:
        def trigger(on: str, operation: str, which: str) -> str:
            row = ", ".join(f"'{column}', {which}.{column}" for column in names)
            insert = f"INSERT INTO log (tab, op, row) VALUES ('{name}', '{operation}', json_object({row}));"
            return f"CREATE TRIGGER {name}_{on} AFTER {on} ON {name} BEGIN {insert} END"

        made = [
            trigger("INSERT", "upsert", "NEW"),
            trigger("UPDATE", "upsert", "NEW"),
            trigger("DELETE", "remove", "OLD"),
        ]
        self._run(f"CREATE TABLE {name} ({columns})", *made)

    def put(self, *rows: Row) -> None:
        values = ", ".join(f"({row['id']}, '{row['g']}', {row['x']})" for row in rows)
        same = "ON CONFLICT (id) DO UPDATE SET g = excluded.g, x = excluded.x"
        self._run(f"INSERT INTO t (id, g, x) VALUES {values} {same}")

    def delete(self, *ids: int) -> None:
        self._run(f"DELETE FROM t WHERE id IN ({', '.join(map(str, ids))})")

    def settle(self) -> None:
        pass

    def rows(self) -> list[Row]:
        return [{"id": i, "g": g, "x": x} for i, g, x in self._run("SELECT id, g, x FROM t ORDER BY id")]

    def damage(self) -> None:
        self._run("INSERT INTO log (tab, op, row) VALUES ('t', 'upsert', 'nonsense')")

    def mend(self) -> None:
        self._run("DELETE FROM log WHERE row = 'nonsense'")

    def typed(self) -> tuple[dict[str, str], Row]:
        self._table("typed", "id INTEGER PRIMARY KEY, s TEXT, f REAL", ["id", "s", "f"])
        self._run("INSERT INTO typed VALUES (4611686018427387904, 'ü''\n', 0.5)")
        return {"id": "bigint", "s": "string", "f": "double"}, {"id": 2**62, "s": "ü'\n", "f": 0.5}

    def close(self) -> None:
        pass


class CassandraStore:
    """A keyspace of its own on the shared node."""

    TYPE, BAD = "cassandra", "RUNNEL-CASSANDRA-VALUE"

    def __init__(self, node: CassandraNode) -> None:
        self.node, self.keyspace, self.marks = node, node.keyspace(1), 0
        self.unrepresentable = "error"

    def settings(self) -> dict[str, Any]:
        where = {"hosts": [self.node.host], "port": self.node.port, "keyspace": self.keyspace}
        return where | {"unrepresentable": self.unrepresentable, "release": False}

    def _run(self, *statements: str) -> list[Any]:
        return self.node.cql(*(statement.replace("KS", self.keyspace) for statement in statements))

    def create(self) -> None:
        self._run("CREATE TABLE KS.t (id bigint PRIMARY KEY, g text, x int) WITH cdc = true")

    def put(self, *rows: Row) -> None:
        self._run(*(f"INSERT INTO KS.t (id, g, x) VALUES ({row['id']}, '{row['g']}', {row['x']})" for row in rows))

    def delete(self, *ids: int) -> None:
        self._run(*(f"DELETE FROM KS.t WHERE id = {id_}" for id_ in ids))

    def settle(self) -> None:
        self.marks += 1
        self._run(
            "CREATE TABLE IF NOT EXISTS KS.marks (n int PRIMARY KEY) WITH cdc = true",
            f"INSERT INTO KS.marks (n) VALUES ({self.marks})",
        )
        wait_for_mark(self.node, self.keyspace, self.marks)

    def rows(self) -> list[Row]:
        return sorted(
            (dict(row._asdict()) for row in self._run("SELECT id, g, x FROM KS.t")), key=lambda row: int(row["id"])
        )

    def damage(self) -> None:
        self._run(
            "CREATE TABLE KS.far (id int PRIMARY KEY, d date) WITH cdc = true",
            "INSERT INTO KS.far (id, d) VALUES (1, '-0400-01-01')",
        )

    def mend(self) -> None:
        self.unrepresentable = "null"

    def typed(self) -> tuple[dict[str, str], Row]:
        kinds = "id bigint PRIMARY KEY, b boolean, d decimal, f double, s text, day date, at timestamp, l list<int>, m map<text, int>"
        self._run(
            f"CREATE TABLE KS.typed ({kinds}) WITH cdc = true",
            "INSERT INTO KS.typed (id, b, d, f, s, day, at, l, m) VALUES (4611686018427387904, true, -1.50, 0.5, 'ü''\n', "
            "'2024-02-29', '2024-02-29T12:00:00.001Z', [1, 2], {'a': 1})",
        )
        read = {"id": "bigint", "b": "boolean", "d": "decimal(38,18)", "f": "double", "s": "string", "day": "date"}
        read |= {"at": "timestamp", "l": "array<int>", "m": "map<string,int>"}
        at = datetime.datetime(2024, 2, 29, 12, 0, 0, 1000, datetime.UTC)
        row = {"id": 2**62, "b": True, "d": Decimal("-1.50"), "f": 0.5, "s": "ü'\n", "day": datetime.date(2024, 2, 29)}
        return read, row | {"at": at, "l": [1, 2], "m": [("a", 1)]}

    def close(self) -> None:
        shutil.rmtree(self.node.cdc_raw / "runnel-readers", ignore_errors=True)  # they would hold the log for ever


class PostgresStore:
    """A database of its own on the shared server; with `whole` its log has old rows."""

    TYPE, BAD = "postgres", "RUNNEL-POSTGRES-VALUE"

    def __init__(self, server: PostgresServer, *, whole: bool) -> None:
        self.url, self.unrepresentable = server.database(), "error"
        self.identity = "FULL" if whole else "DEFAULT"

    def settings(self) -> dict[str, Any]:
        return {"url": self.url, "unrepresentable": self.unrepresentable}

    def _run(self, *statements: str) -> list[Any]:
        with psycopg.connect(self.url) as db:
            cursors = [db.execute(statement) for statement in statements]
            return [row for cursor in cursors if cursor.description for row in cursor.fetchall()]

    def create(self) -> None:
        self._run(
            "CREATE TABLE t (id bigint PRIMARY KEY, g text, x int)",
            "CREATE TABLE far (id int PRIMARY KEY, d date)",
            f"ALTER TABLE t REPLICA IDENTITY {self.identity}",
        )

    def put(self, *rows: Row) -> None:
        same = "ON CONFLICT (id) DO UPDATE SET g = excluded.g, x = excluded.x"
        self._run(*(f"INSERT INTO t VALUES ({row['id']}, '{row['g']}', {row['x']}) {same}" for row in rows))

    def delete(self, *ids: int) -> None:
        self._run(f"DELETE FROM t WHERE id IN ({', '.join(map(str, ids))})")

    def settle(self) -> None:
        pass

    def rows(self) -> list[Row]:
        return [{"id": i, "g": g, "x": x} for i, g, x in self._run("SELECT id, g, x FROM t ORDER BY id")]

    def damage(self) -> None:
        self._run("INSERT INTO far VALUES (1, 'infinity')")

    def mend(self) -> None:
        self.unrepresentable = "null"

    def typed(self) -> tuple[dict[str, str], Row]:
        self._run(
            "CREATE TABLE typed (id bigint PRIMARY KEY, b boolean, d numeric(12,2), f float8, s text, day date,"
            " at timestamptz, l int[])",
            "INSERT INTO typed VALUES (4611686018427387904, true, -1.50, 0.5, E'ü''\\n', '2024-02-29',"
            " '2024-02-29 13:00:00.000001+01', '{1,NULL}')",
        )
        read = {"id": "bigint", "b": "boolean", "d": "decimal(12,2)", "f": "double", "s": "string", "day": "date"}
        at = datetime.datetime(2024, 2, 29, 12, 0, 0, 1, datetime.UTC)
        row = {"id": 2**62, "b": True, "d": Decimal("-1.50"), "f": 0.5, "s": "ü'\n", "day": datetime.date(2024, 2, 29)}
        return read | {"at": "timestamp", "l": "array<int>"}, row | {"at": at, "l": [1, None]}

    def close(self) -> None:
        slots = (
            "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots"
            " WHERE database = current_database() AND NOT temporary"
        )
        self._run(slots)  # the server has room for a few


def _postgres(request: pytest.FixtureRequest, *, whole: bool) -> Store:
    return PostgresStore(request.getfixturevalue("postgres_server"), whole=whole)


def _cassandra(folder: Path, request: pytest.FixtureRequest) -> Store:
    return CassandraStore(request.getfixturevalue("cassandra_node"))


STORES: dict[str, tuple[Callable[[Path, pytest.FixtureRequest], Store], tuple[pytest.MarkDecorator, ...]]] = {
    "files": (lambda folder, _: FilesStore(folder), ()),
    "toy": (lambda folder, _: ToyStore(folder), ()),
    "cassandra": (_cassandra, (pytest.mark.cassandra,)),
    "postgres": (lambda _, request: _postgres(request, whole=False), (pytest.mark.postgres,)),
    "postgres-full": (lambda _, request: _postgres(request, whole=True), (pytest.mark.postgres,)),
    "mariadb": (lambda _, request: MysqlStore(request.getfixturevalue("mariadb_server")), (pytest.mark.mariadb,)),
    "mysql": (lambda _, request: MysqlStore(request.getfixturevalue("mysql_server")), (pytest.mark.mysql,)),
    "mysql-trusted": (
        lambda _, request: MysqlStore(request.getfixturevalue("mysql_server"), "trusted"),
        (pytest.mark.mysql,),
    ),
    "mysql-minimal": (
        lambda _, request: MysqlStore(request.getfixturevalue("mysql_server"), image="minimal"),
        (pytest.mark.mysql,),
    ),
}
