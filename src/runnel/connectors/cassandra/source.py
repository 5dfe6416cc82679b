"""Cassandra tables as a source: a snapshot first, then the log, reconciled cell by cell into rows.

A position is how far each node's log was read, and the second up to which expiry is known. The position of a snapshot is noted
before it is taken, so that nothing falls between the two; what is read twice changes nothing.

Cells are kept with their timestamps in a file of the project. It never stands behind the state: it is saved after the state has
committed, and catches up from the log when that did not happen. Segments are given back only after it.
"""

from __future__ import annotations

import time
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

from runnel.connectors.base import ChangeSet, Offset, TableInfo
from runnel.connectors.cassandra import cells
from runnel.connectors.cassandra.cell_store import CellStore
from runnel.connectors.cassandra.client import Client, name_of
from runnel.connectors.cassandra.commitlog.positions import covers, position_of
from runnel.connectors.cassandra.doubts import gone_rows
from runnel.connectors.cassandra.followed import Followed
from runnel.connectors.cassandra.log_files import open_files, open_live
from runnel.connectors.cassandra.logs import Logs
from runnel.connectors.cassandra.read_again import merge_exactly
from runnel.connectors.cassandra.reconcile import merge, rows
from runnel.connectors.cassandra.row_changes import Batch, Window, by_partition
from runnel.connectors.cassandra.seed import partition_key, seed
from runnel.connectors.cassandra.settings import read_settings
from runnel.connectors.cassandra.snapshot import Wanted, read_table
from runnel.connectors.cassandra.technique import Cycle
from runnel.connectors.cassandra.twins import captured_columns, where
from runnel.connectors.cassandra.types import quoted
from runnel.errors import Terminal, UsageError
from runnel.model.relation import Column, check_columns

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from runnel import config
    from runnel.connectors.cassandra.cells import ChangeTuple, Clustering
    from runnel.connectors.cassandra.row_changes import Exists
    from runnel.connectors.cassandra.schema import TableSchema
    from runnel.connectors.cassandra.settings import Settings

BATCH = 20_000
BYTES_PER_ROW = 100
"""About how many bytes of log a changed row takes."""


def open_source(source: config.Source, folder: Path) -> CassandraSource:
    """Open the tables that `[sources.NAME]` names."""
    settings = read_settings(source, folder)
    if settings.capture != "log":
        raise UsageError(
            "RUNNEL-CASSANDRA-CAPTURE",
            f"sources.{source.name}: views are kept from the log, not by {settings.capture}",
            place=source.at("capture"),
            hint=f"set capture = 'log'; by {settings.capture} there is: runnel capture {source.name}",
        )
    if settings.start == "latest":
        raise UsageError(
            "RUNNEL-CASSANDRA-START",
            f"sources.{source.name}: Cassandra's log has no whole rows, so views need a snapshot to start with",
            place=source.at("start"),
            hint="set start = 'snapshot', or leave it away",
        )
    return CassandraSource(settings, folder / ".runnel" / "cassandra" / source.name)


class CassandraSource:
    """Reads Cassandra's tables and the log of their changes."""

    HAS_BEFORE_IMAGE: ClassVar[bool] = False
    TRANSACTIONS: ClassVar[bool] = False

    def __init__(self, settings: Settings, folder: Path) -> None:
        """Connect, unless there are only log files."""
        self.settings, self._folder = settings, folder
        self._client = None if settings.logs else Client(settings)
        try:
            nodes = open_files(settings) if self._client is None else open_live(settings, self._client)
            self._logs = Logs(nodes, settings.keyspace, self._client, release=settings.release)
            self._followed = Followed(self._described(), self._logs, self._client)
        except BaseException:
            self.close()
            raise
        self._path = folder / "cells.sqlite"
        self._read_up_to: Offset | None = None
        self._quiet: tuple[Offset, Offset] = ({}, {})

    def _described(self) -> list[TableSchema]:
        if self._client is not None:
            return self._client.chosen_tables()
        # Log files may define their tables anywhere, so they are gone through once.
        for _ in self._logs.mutations(Cycle(None, self._logs.position(), self._folder)):
            pass
        found = {table.name: table for node in self._logs.nodes for table in node.reader.catalog.tables()}
        return [
            table
            for name, table in found.items()
            if table.keyspace == self.settings.keyspace and name in (self.settings.tables or found)
        ]

    @cached_property
    def _store(self) -> CellStore:
        """The cells; opened by whoever reads changes, for it lets nobody else in."""
        self._folder.mkdir(parents=True, exist_ok=True)
        return CellStore(self._path, self._logs.table)

    def tables(self) -> tuple[TableInfo, ...]:
        """Give the chosen tables; their key is the primary key."""
        infos = []
        for table in self._followed.tables.values():
            followed = self._followed.columns[table.name]
            columns = tuple(Column(column.name, column.type.model_type) for column in followed)
            key = tuple(column.name for column in (*table.partition_key, *table.clustering))
            check_columns(table.name, columns, key)
            infos.append(TableInfo(table.name, columns, key))
        return tuple(infos)

    def initial_offset(self) -> Offset:
        """Give the position before the snapshot."""
        return {}

    def latest_offset(self, start: Offset, max_rows: int) -> Offset:
        """Give the position after what can be read now, about `max_rows` of it; `start` where nothing of it is ours."""
        now = int(time.time())
        self._followed.look()
        if not start:
            return self._logs.position() | {"tables": self._followed.versions()}
        hosts = {}
        for node in self._logs.nodes:
            begin = position_of(start["hosts"], node.host)
            hosts[node.host] = list(node.folder.latest(begin, max_rows * BYTES_PER_ROW))
        end = {"hosts": hosts, "time": max(now, int(start["time"])), "tables": self._followed.versions()}
        return end if self._has_news(start, end) else start

    def _has_news(self, start: Offset, end: Offset) -> bool:
        """Say whether something of ours happened, or a segment is through and may go.

        The server's own tables write to the same log: an epoch for each of their writes would be one for nothing.
        """
        if any(position_of(end["hosts"], host).segment > at[0] > 0 for host, at in start["hosts"].items()):
            return True
        if self._followed.replaced(start, end):
            return True
        known, upto = self._quiet
        begin = upto if known == start else start
        if next(self._logs.mutations(Cycle(begin, end, self._folder)), None) is not None:
            return True
        self._quiet = (start, end)
        self._align(start)
        now = int(end["time"])
        return next(self._store.expiring(now), None) is not None or self._is_row_gone(start, now)

    def _is_row_gone(self, start: Offset, now: int) -> bool:
        """Say whether a row has expired of which only a snapshot told."""
        if self._client is None or not self._store.doubtful(now - int(self.settings.recheck)):
            return False
        if next(gone_rows(self._client, self._store, now), None) is not None:
            return True
        self._store.save(start)  # the others were seen again, and that is to be remembered
        return False

    def read(self, start: Offset, end: Offset) -> Iterator[ChangeSet]:
        """Give the rows that changed in (start, end] as they are at the end of it, and the keys of those that went."""
        self._read_up_to = None
        if not start and self._client is not None:
            yield from self._snapshot(self._client, end)
            self._store.save(end)
        else:
            self._align(start)
            yield from self._changes(start, end)
        self._read_up_to = end

    def commit(self, end: Offset) -> None:
        """Keep the cells as of `end`, then let the server forget its log up to there."""
        if self._read_up_to == end:
            self._store.save(end)
        if self._store.position() == end:
            self._logs.release(end)

    def covers(self, have: Offset, wanted: Offset) -> bool:
        """Say whether the logs were read so far: `{"hosts": {folder: [segment, position]}}`, or without `hosts`."""
        return covers(have.get("hosts", {}), wanted.get("hosts", wanted))

    def lag(self, start: Offset) -> Mapping[str, Any]:
        """Say which logs have more, and how many bytes the server keeps for this reader."""
        behind = []
        for node in self._logs.nodes:
            begin = position_of(start.get("hosts", {}), node.host)
            if node.folder.latest(begin) > begin:
                behind.append(node.host)
        return {"behind": behind, "kept_bytes": sum(node.folder.kept() for node in self._logs.nodes)}

    def close(self) -> None:
        """Let go of the connection and the file."""
        if self._client is not None:
            self._client.close()
        if "_store" in self.__dict__:
            self._store.close()

    def _align(self, start: Offset) -> None:
        """Bring the cells to where the state stands."""
        self._store.rollback()
        at = self._store.position() or {}
        if at == start:
            return
        if not start:
            self._restart()
            return
        # The log of a table that was dropped since cannot be read again.
        lost = self._client is not None and (not at or self._renewed(at, {"tables": self._followed.versions()}))
        if lost or not covers(start["hosts"], at.get("hosts", {})):
            raise Terminal(
                "RUNNEL-CASSANDRA-CELLS",
                f"sources.{self.settings.name}: the cells in {self._path.name} are not those of the state",
                hint="put the file back that belongs to the state, or begin with a new state and a new snapshot",
            )
        for _ in self._changes(at, start, again=True):
            pass
        self._store.save(start)

    def _restart(self) -> None:
        self._store.close()
        self._path.unlink()
        del self._store

    def _snapshot(self, client: Client, end: Offset) -> Iterator[ChangeSet]:
        self._align({})
        now = int(end["time"])
        for table in self._followed.tables.values():
            batch = self._batch(table)
            last: bytes | None = None
            for key in self._seeded(client, table, now):
                if last is not None and key != last:
                    batch.upserts += rows(self._store.get(table, last), table, now)
                    if len(batch.upserts) >= BATCH:
                        yield batch.taken()
                last = key
            if last is not None:
                batch.upserts += rows(self._store.get(table, last), table, now)
            yield batch.taken()

    def _seeded(self, client: Client, table: TableSchema, now: int) -> Iterator[bytes]:
        """Read a whole table into the cells; give the key of each row."""
        for row in read_table(client, table, Wanted(captured_columns(table), ttls=True)):
            key = partition_key(table, row.key)
            merge(self._store.get(table, key), seed(table, row, now))
            self._store.changed(table, key)
            yield key

    def _batch(self, table: TableSchema) -> Batch:
        return Batch(table, self._followed.columns[table.name])

    def _renewed(self, start: Offset, end: Offset) -> set[str]:
        """Give the tables that were dropped and made anew in a window."""
        tables = self._followed.tables
        return {old.name for old in self._followed.replaced(start, end) if old.id != tables[old.name].id}

    def _changes(self, start: Offset, end: Offset, *, again: bool = False) -> Iterator[ChangeSet]:
        """Merge what the logs bring in a window and what expires in it; give the rows that differ.

        `again` says that these rows were handed over before, and nobody takes them: what the server would have to be asked for
        is then left as it is, to be asked for when somebody does.
        """
        window = Window(self._store, int(start.get("time", 0)), int(end["time"]))
        renewed = self._renewed(start, end)
        for old in self._followed.replaced(start, end):
            window.all_of(old)
            if old.name in renewed:
                self._store.forget(old)
        for mutation in self._logs.mutations(Cycle(start or None, end, self._folder)):
            for table, key, added in by_partition(mutation.changes):
                current = self._followed.tables.get(table.name)
                if current is None or current.id != table.id or (table.name in renewed and self._client is not None):
                    continue  # of a table that is not followed, or not yet: it is then read as a whole
                self._merge(window, table, key, added)
        window.expire(set(self._followed.tables))
        if self._client is not None and not again:
            self._ask(self._client, window, renewed)
        yield from self._difference(window, self._still_there if again else self._exists)

    def _merge(self, window: Window, table: TableSchema, key: bytes, added: list[ChangeTuple]) -> None:
        if added[0][0] == cells.TRUNCATE:
            window.all_of(table)
            self._store.truncate(table, added[0][7], exactly=len(self._logs.nodes) == 1)
            return
        state = self._store.get(table, key)
        window.touch(table, key).by(state, added)
        merge_exactly(self._client, table, state, added, window.now)
        self._store.changed(table, key)

    def _ask(self, client: Client, window: Window, renewed: set[str]) -> None:
        """Ask the server for what the log does not tell: tables made anew, and rows that may have expired."""
        for name in renewed:
            table = self._followed.tables[name]
            for key in self._seeded(client, table, window.now):
                window.touch(table, key).born()
        for table, key, places in gone_rows(client, self._store, window.now):
            if table.name in self._followed.tables:
                state = self._store.get(table, key)
                window.touch(table, key).all_rows(state)
                for place in places:
                    state.rows[place].liveness = None
                self._store.changed(table, key)

    def _exists(self, table: TableSchema, key: bytes, clustering: Clustering) -> bool:
        """Ask the server whether a row is there without any value."""
        if self._client is None:
            return False
        names = ", ".join(quoted(column.name) for column in table.regular) or quoted(table.partition_key[0].name)
        cql = f"SELECT {names} FROM {name_of(table)} WHERE {where(table, static=False)}"
        found = self._client.rows(cql, [*table.key_parts(key), *clustering])
        return any(not table.regular or all(value is None for value in row) for row in found)

    def _still_there(self, table: TableSchema, key: bytes, clustering: Clustering) -> bool:
        """Say that a row is there until somebody asks for it."""
        return self._client is not None

    def _difference(self, window: Window, exists: Exists) -> Iterator[ChangeSet]:
        batches = {name: self._batch(table) for name, table in self._followed.tables.items()}
        for (name, key), partition in window.touched.items():
            batch = batches[name]
            state = self._store.get(batch.table, key)
            if partition.compare(state, window.now, batch, exists):
                self._store.changed(batch.table, key)
            if len(batch.upserts) + len(batch.deletes) >= BATCH:
                yield batch.taken()
        yield from (batch.taken() for batch in batches.values() if batch.upserts or batch.deletes)
