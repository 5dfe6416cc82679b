"""Keeps the cells of captured partitions with their timestamps, for capture by the full log: later changes are held against them.

One SQLite file. A partition is kept as the changes that make it up; merging them gives its state again. Nothing is kept for good
before `save`, which notes the position the cells stand at in the same transaction.
"""

from __future__ import annotations

import json
import sqlite3
import time
import uuid
from typing import TYPE_CHECKING, Any

from runnel.connectors.cassandra import cells
from runnel.connectors.cassandra.cells import Range
from runnel.connectors.cassandra.cells.reconcile import PartitionState, changes, merge, next_expiry, purge
from runnel.connectors.cassandra.cells.single_row import unproven
from runnel.errors import Transient

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from runnel.connectors.cassandra.cells import ChangeTuple, Clustering
    from runnel.connectors.cassandra.schema.tables import TableSchema

    Tables = Callable[[uuid.UUID], TableSchema | None]

_SCHEMA = """
CREATE TABLE IF NOT EXISTS partitions (
    tbl TEXT, key BLOB, seen INTEGER, expires INTEGER, changes TEXT, PRIMARY KEY (tbl, key)) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS by_expiry ON partitions (expires) WHERE expires IS NOT NULL;
CREATE TABLE IF NOT EXISTS doubtful (tbl TEXT, key BLOB, seen INTEGER, PRIMARY KEY (tbl, key)) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS by_sight ON doubtful (seen);
CREATE TABLE IF NOT EXISTS position (at TEXT);
"""
MOST_CACHED = 50_000
Place = tuple[uuid.UUID, bytes]


class CellStore:
    """The cells of a source. Its definitions of tables come from `tables`, by id."""

    def __init__(self, path: Path, tables: Tables) -> None:
        """Open the file, or make it."""
        self._tables = tables
        self._connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        try:
            self._connection.executescript(_SCHEMA)
            self._connection.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError as error:
            self._connection.close()
            raise Transient(
                "RUNNEL-CASSANDRA-BUSY",
                f"{path.name} is in use: {error}",
                hint="wait until the other process has ended",
            ) from error
        self._cached: dict[Place, PartitionState] = {}
        self._changed: dict[Place, TableSchema] = {}
        self._seen: dict[Place, int] = {}

    def position(self) -> dict[str, Any] | None:
        """Give the position the cells stand at."""
        row = self._connection.execute("SELECT at FROM position").fetchone()
        return None if row is None else dict(json.loads(row[0]))

    def get(self, table: TableSchema, key: bytes) -> PartitionState:
        """Give the state of a partition, to be changed and handed to `changed`."""
        place = (table.id, key)
        known = self._cached.get(place)
        if known is None:
            if len(self._cached) >= MOST_CACHED:
                self._flush()
                self._forget()
            query = "SELECT changes, seen FROM partitions WHERE tbl = ? AND key = ?"
            row = self._connection.execute(query, (table.id.hex, key)).fetchone()
            known = PartitionState(key)
            if row is not None:
                merge(known, _decoded(row[0], table, key))
            self._cached[place] = known
            self._seen[place] = 0 if row is None else row[1]
        return known

    def changed(self, table: TableSchema, key: bytes) -> None:
        """Remember that a partition was changed."""
        self._changed[table.id, key] = table

    def truncate(self, table: TableSchema, when: int, *, exactly: bool) -> None:
        """Forget what a TRUNCATE took: everything that was logged before it, where there is one log.

        Each of several nodes logs the TRUNCATE for itself, so there it takes what was written up to its time (µs).
        """
        if not exactly:
            for key in self.keys(table):
                deleted = (cells.PARTITION_DELETE, table, key, None, None, None, None, when, 0, when // 1_000_000)
                merge(self.get(table, key), [deleted])
                self.changed(table, key)
            return
        self.forget(table)

    def forget(self, table: TableSchema) -> None:
        """Forget everything of a table."""
        for place in [place for place in self._cached if place[0] == table.id]:
            del self._cached[place]
            self._changed.pop(place, None)
            self._seen.pop(place, None)
        self._connection.execute("DELETE FROM partitions WHERE tbl = ?", (table.id.hex,))
        self._connection.execute("DELETE FROM doubtful WHERE tbl = ?", (table.id.hex,))

    def doubtful(self, before: int) -> list[tuple[TableSchema, list[bytes]]]:
        """Give the partitions with rows of which only the snapshot knows, by table: those last seen up to a second."""
        self._flush()
        found: dict[str, list[bytes]] = {}
        for tbl, key in self._connection.execute("SELECT tbl, key FROM doubtful WHERE seen <= ?", (before,)):
            found.setdefault(tbl, []).append(bytes(key))
        known = ((self._tables(uuid.UUID(tbl)), keys) for tbl, keys in found.items())
        return [(table, keys) for table, keys in known if table is not None]

    def seen_again(self, table: TableSchema, keys: Iterable[bytes], at: int) -> None:
        """Note that such rows of partitions are still there at a second."""
        self._connection.executemany(
            "UPDATE doubtful SET seen = ? WHERE tbl = ? AND key = ?", ((at, table.id.hex, key) for key in keys)
        )

    def keys(self, table: TableSchema) -> list[bytes]:
        """Give the keys of all partitions of a table."""
        self._flush()
        rows = self._connection.execute("SELECT key FROM partitions WHERE tbl = ?", (table.id.hex,))
        return [bytes(key) for (key,) in rows]

    def expiring(self, upto: int) -> Iterator[tuple[TableSchema, bytes, PartitionState]]:
        """Give the partitions in which something expires up to a second."""
        self._flush()
        query = "SELECT tbl, key FROM partitions WHERE expires <= ? ORDER BY expires, tbl, key"
        for tbl, key in self._connection.execute(query, (upto,)).fetchall():
            table = self._tables(uuid.UUID(tbl))
            if table is not None:
                yield table, bytes(key), self.get(table, bytes(key))

    def seen(self, table: TableSchema, key: bytes) -> int:
        """Give the second up to which it is known what has expired in a partition."""
        return self._seen.get((table.id, key), 0)

    def see(self, table: TableSchema, key: bytes, upto: int) -> None:
        """Note that what expires in a partition up to a second is known."""
        self._seen[table.id, key] = max(upto, self.seen(table, key))
        self.changed(table, key)

    def save(self, position: dict[str, Any]) -> None:
        """Keep everything, with the position it stands at."""
        self._flush()
        self._connection.execute("DELETE FROM position")
        self._connection.execute("INSERT INTO position VALUES (?)", (json.dumps(position),))
        self._connection.execute("COMMIT")
        self._connection.execute("BEGIN IMMEDIATE")

    def rollback(self) -> None:
        """Forget everything since the last `save`."""
        self._forget()
        self._connection.execute("ROLLBACK")
        self._connection.execute("BEGIN IMMEDIATE")

    def close(self) -> None:
        """Close the file; what was not saved is forgotten."""
        self._connection.close()

    def _flush(self) -> None:
        rows, certain = [], []
        now = int(time.time())
        for (tbl, key), table in self._changed.items():
            state = purge(self._cached[tbl, key], table, now - table.gc_grace_seconds)
            seen = self._seen[tbl, key]
            rows.append((tbl.hex, key, seen, next_expiry(state, seen), _encoded(state, table)))
            if unproven(state, table, now):
                self._connection.execute("INSERT OR IGNORE INTO doubtful VALUES (?, ?, ?)", (tbl.hex, key, now))
            else:
                certain.append((tbl.hex, key))
        self._connection.executemany("INSERT OR REPLACE INTO partitions VALUES (?, ?, ?, ?, ?)", rows)
        self._connection.executemany("DELETE FROM doubtful WHERE tbl = ? AND key = ?", certain)
        self._changed.clear()

    def _forget(self) -> None:
        self._cached.clear()
        self._changed.clear()
        self._seen.clear()


def _encoded(state: PartitionState, table: TableSchema) -> str:
    return json.dumps([_plain(change) for change in changes(state, table)], separators=(",", ":"))


def _plain(change: ChangeTuple) -> list[Any]:
    kind, _, _, clustering, column, path, value, timestamp, ttl, ldt = change
    if kind == cells.RANGE_DELETE:
        value = [_hexed(value.start), value.start_inclusive, _hexed(value.end), value.end_inclusive]
    else:
        value = None if value is None else value.hex()
    place = None if clustering is None else _hexed(clustering)
    return [kind, place, column, None if path is None else path.hex(), value, timestamp, ttl, ldt]


def _decoded(text: str, table: TableSchema, key: bytes) -> Iterator[ChangeTuple]:
    for kind, place, column, path, value, timestamp, ttl, ldt in json.loads(text):
        clustering = None if place is None else _unhexed(place)
        if kind == cells.RANGE_DELETE:
            value = Range(_unhexed(value[0]), value[1], _unhexed(value[2]), value[3])
        elif value is not None:
            value = bytes.fromhex(value)
        element = None if path is None else bytes.fromhex(path)
        yield (kind, table, key, clustering, column, element, value, timestamp, ttl, ldt)


def _hexed(parts: Clustering) -> list[str | None]:
    return [None if part is None else part.hex() for part in parts]


def _unhexed(parts: list[str | None]) -> Clustering:
    return tuple(None if part is None else bytes.fromhex(part) for part in parts)
