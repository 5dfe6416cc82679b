"""The load of the capture benchmark, after YCSB: one table of text columns, keys drawn by Zipf's law, in a keyspace of its own.

An update writes one column, an insert all of them, a delete takes a key. Deletes take what was inserted before, so that a
round leaves the table as large as it was.
"""

from __future__ import annotations

import uuid
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

TABLE = "usertable"
ZIPF = 0.99
IN_FLIGHT = 32


@dataclass(frozen=True)
class Server:
    """Where a Cassandra is reached; `cdc_raw` are its log folders where it does not tell them, or not as they are seen from here."""

    hosts: tuple[str, ...]
    port: int = 9042
    cdc_raw: tuple[str, ...] = ()


@dataclass(frozen=True)
class Change:
    """One operation on one key: `update`, `insert` or `delete`."""

    kind: str
    key: str
    values: Mapping[str, str]


class Writer(Protocol):
    """Writes rows: plainly, or through the application's wrapper."""

    def set(self, key: Mapping[str, Any], values: Mapping[str, Any]) -> None:
        """Set columns of a row."""
        ...

    def delete(self, key: Mapping[str, Any]) -> None:
        """Delete a key."""
        ...


class Load:
    """A table of `rows` keys, and the changes made to it."""

    def __init__(self, rows: int, columns: int, width: int, seed: int = 1) -> None:
        """Choose the size: so many columns of so many characters."""
        self.rows, self.columns = rows, [f"field{n}" for n in range(columns)]
        self._width = width
        self._random = np.random.default_rng(seed)
        weights = 1.0 / np.arange(1, rows + 1) ** ZIPF
        self._chances = weights / weights.sum()
        self._next = rows

    def definition(self, keyspace: str) -> str:
        """Give the statement that makes the table."""
        columns = ", ".join(f"{name} text" for name in self.columns)
        return f"CREATE TABLE {keyspace}.{TABLE} (y_id text PRIMARY KEY, {columns}) WITH cdc = true"

    def first_rows(self) -> Iterator[Change]:
        """Give the rows to begin with."""
        return (Change("insert", f"user{n}", self._values(self.columns)) for n in range(self.rows))

    def changes(self, kind: str, share: float) -> list[Change]:
        """Give as many changes as this share of the rows; deletes are of the keys inserted last."""
        count = max(1, round(self.rows * share))
        if kind == "update":
            keys = self._random.choice(self.rows, count, p=self._chances)
            fields = self._random.choice(self.columns, count)
            return [Change(kind, f"user{k}", self._values([f])) for k, f in zip(keys, fields, strict=True)]
        if kind == "insert":
            self._next += count
            return [Change(kind, f"user{n}", self._values(self.columns)) for n in range(self._next - count, self._next)]
        return [Change(kind, f"user{n}", {}) for n in range(self._next - count, self._next)]

    def _values(self, names: Sequence[str]) -> dict[str, str]:
        return {name: self._random.bytes(self._width // 2).hex() for name in names}


class PlainWriter:
    """Writes without any helper structure, one statement after the other."""

    def __init__(self, session: Any, keyspace: str) -> None:
        """Prepare nothing yet."""
        self._session, self._table = session, f"{keyspace}.{TABLE}"
        self._prepared: dict[str, Any] = {}

    def set(self, key: Mapping[str, Any], values: Mapping[str, Any]) -> None:
        """Set columns of a row."""
        columns = ", ".join(f"{name} = ?" for name in values)
        self._run(f"UPDATE {self._table} SET {columns} WHERE y_id = ?", [*values.values(), *key.values()])

    def delete(self, key: Mapping[str, Any]) -> None:
        """Delete a key."""
        self._run(f"DELETE FROM {self._table} WHERE y_id = ?", list(key.values()))

    def _run(self, cql: str, values: list[Any]) -> None:
        if cql not in self._prepared:
            self._prepared[cql] = self._session.prepare(cql)
        self._session.execute(self._prepared[cql], values)


def write(writer: Writer, changes: Sequence[Change]) -> None:
    """Make changes, one after the other."""
    for change in changes:
        if change.kind == "delete":
            writer.delete({"y_id": change.key})
        else:
            writer.set({"y_id": change.key}, change.values)


@contextmanager
def connected(server: Server) -> Iterator[Any]:
    """Give a session of the driver."""
    from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile

    profiles = {EXEC_PROFILE_DEFAULT: ExecutionProfile(request_timeout=60)}
    with Cluster(list(server.hosts), server.port, execution_profiles=profiles) as cluster:
        yield cluster.connect()


@contextmanager
def loaded(session: Any, load: Load) -> Iterator[str]:
    """Make a keyspace with the table and its first rows; give its name, and drop it in the end."""
    from cassandra.concurrent import execute_concurrent_with_args

    keyspace = "runnel_bench_" + uuid.uuid4().hex[:8]
    how = "{'class': 'SimpleStrategy', 'replication_factor': 1}"
    session.execute(f"CREATE KEYSPACE {keyspace} WITH replication = {how}")
    try:
        session.execute(load.definition(keyspace))
        names, marks = ", ".join(load.columns), ", ".join("?" for _ in load.columns)
        insert = session.prepare(f"INSERT INTO {keyspace}.{TABLE} (y_id, {names}) VALUES (?, {marks})")
        rows = ([row.key, *row.values.values()] for row in load.first_rows())
        execute_concurrent_with_args(session, insert, rows, concurrency=IN_FLIGHT, raise_on_first_error=True)
        yield keyspace
    finally:
        session.execute(f"DROP KEYSPACE {keyspace}")
