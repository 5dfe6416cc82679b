"""Cassandra tables as a source: a snapshot first, then the log; both give cells, which are reconciled with the stored ones into rows.

A position is how far each node's log was read, and the second up to which expiry is known. The position of a snapshot is noted
before it is taken, so that nothing falls between the two; what is read twice changes nothing.

Nothing is remembered here: cells are in the lake, and what becomes of them is `reconciliations`.
"""

from __future__ import annotations

import json
import time
from functools import cached_property
from typing import TYPE_CHECKING, Any

from runnel.connectors.base import Offset, Partition, TableInfo
from runnel.connectors.cassandra.cells.asking import Server
from runnel.connectors.cassandra.cells.keyed import Reconcile
from runnel.connectors.cassandra.cells.packed import ChangedCells
from runnel.connectors.cassandra.cells.row_changes import ValueNotHeld, row_columns
from runnel.connectors.cassandra.client import Client
from runnel.connectors.cassandra.followed import Followed
from runnel.connectors.cassandra.log.all_nodes import Logs
from runnel.connectors.cassandra.log.nodes import open_files, open_live
from runnel.connectors.cassandra.log.positions import position_of
from runnel.connectors.cassandra.log.space import advice, log_settings, space_problems
from runnel.connectors.cassandra.log.stretches import LogStretch, TokenRanges, collect, seeded, taken
from runnel.connectors.cassandra.log.written import WrittenLogs, open_written
from runnel.connectors.cassandra.settings import read_settings
from runnel.connectors.cassandra.snapshot import BYTES_PER_ROW, estimated_rows, ranges_of
from runnel.connectors.cassandra.values.held import held_type
from runnel.connectors.cells import Reconciliation
from runnel.connectors.deltas.technique import Window
from runnel.connectors.skips import Skips, SourceState
from runnel.errors import RunnelError, UsageError
from runnel.model.relation import Column, check_columns

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from runnel import config
    from runnel.connectors.base import ChangeSet
    from runnel.connectors.cassandra.log.stretches import Ids
    from runnel.connectors.cassandra.schema.tables import TableSchema
    from runnel.connectors.cassandra.settings import Settings

RANGES_PER_TASK = 5
"""Ranges of a table that one task reads: to connect to the server takes as long as to read some thousand rows."""
LEAST_TASKS = 16
"""Tasks that a table is read by before one of them reads several ranges."""
SPACE_SECONDS = 30.0
"""How often the space of the logs is looked at."""


def open_source(source: config.Source, folder: Path, state: SourceState | None = None) -> CassandraSource:
    """Open the tables that `[sources.NAME]` names, for a state with this id: whoever goes on with it needs the same segments."""
    settings = read_settings(source, folder)
    if settings.capture != "log":
        raise UsageError(
            "RUNNEL-CASSANDRA-CAPTURE",
            f"sources.{source.name}: views are kept from the log, not by {settings.capture}",
            place=source.at("capture"),
            hint=f"set capture = 'log'; by {settings.capture} there is: runnel capture {source.name}",
        )
    if settings.start == "latest" or (isinstance(settings.start, dict) and "hosts" not in settings.start):
        raise UsageError(
            "RUNNEL-CASSANDRA-START",
            f"sources.{source.name}: Cassandra's log has no whole rows, so views need a snapshot to start with, or a position of the log "
            "before which the tables were empty",
            place=source.at("start"),
            hint="set start = 'snapshot', or leave it away",
        )
    reader = f"views: {folder}" if state is None else f"views: {source.name} of the state {state.id}"
    return CassandraSource(settings, folder, reader, Skips(state))


class CassandraSource:
    """Reads Cassandra's tables and the log of their changes."""

    def __init__(self, settings: Settings, folder: Path, reader: str, skips: Skips) -> None:
        """Connect, unless there are only log files; `reader` is whom segments are kept for."""
        self.settings, self._folder = settings, folder
        self._client = None if settings.logs else Client(settings)
        try:
            nodes = open_files(settings) if self._client is None else open_live(settings, self._client)
            self._logs = Logs(nodes, settings, self._client, reader, skips)
            self._followed = Followed(self._described(), self._logs, self._client)
        except BaseException:
            self.close()
            raise
        self._server = Server(settings, self._client)
        self._quiet: tuple[Offset, Offset] = ({}, {})
        self._rechecked = 0
        self._looked_at_space, self._space = -SPACE_SECONDS, tuple[RunnelError, ...]()

    def _described(self) -> list[TableSchema]:
        if self._client is not None:
            return self._client.chosen_tables()
        self._logs.learn()  # log files may define their tables anywhere
        found = {table.name: table for node in self._logs.nodes for table in node.reader.catalog.tables()}
        return [
            table
            for name, table in found.items()
            if table.keyspace == self.settings.keyspace and name in (self.settings.tables or found)
        ]

    def tables(self) -> tuple[TableInfo, ...]:
        """Give the chosen tables with the columns they have now; their key is the primary key."""
        self._followed.adopt()
        infos, policy = [], self.settings.unrepresentable
        for table in self._followed.tables.values():
            followed = self._followed.columns[table.name]
            columns = tuple(Column(column.name, held_type(column.type, policy)) for column in followed)
            key = tuple(column.name for column in (*table.partition_key, *table.clustering))
            check_columns(table.name, columns, key)
            infos.append(TableInfo(table.name, columns, key, grows=True, versioned=True, cells=True))
        return tuple(infos)

    def problems(self) -> tuple[RunnelError, ...]:
        """Give what is wrong with the nodes' space for logs; a table that cannot be followed is an error of the source."""
        if self._client is None:
            return ()
        if time.monotonic() - self._looked_at_space > SPACE_SECONDS:
            self._looked_at_space = time.monotonic()
            folders = [node.folder.folder for node in self._logs.nodes if not node.folder.is_served]
            kept = log_settings(self._client.server_settings())
            self._space = tuple(space_problems(self.settings.label, kept, folders))
        return self._space

    def advice(self) -> tuple[str, ...]:
        """Give what is worth knowing about the server's settings."""
        if self._client is None:
            return ()
        return tuple(advice(self.settings.label, log_settings(self._client.server_settings())))

    def initial_offset(self) -> Offset:
        """Give the position before the snapshot, or the one that the settings name."""
        start = self.settings.start
        return {"time": 0, "tables": {}} | start if isinstance(start, dict) else {}

    def latest_offset(self, start: Offset, max_rows: int, *, single: bool = False) -> Offset:
        """Give the position after what can be read now, about `max_rows` of it; `start` where nothing of it is ours."""
        self._followed.look()
        self._logs.skips.carry(start.get("skipped", ()))
        skipped = self._logs.skips.carried()
        now: Offset = {"tables": self._followed.versions()} | ({"skipped": skipped} if skipped else {})
        if not start and self._client is not None:
            return self._logs.position() | now
        hosts = {}
        for node in self._logs.nodes:
            begin = position_of(start.get("hosts", {}), node.host)
            hosts[node.host] = list(self._logs.next_end(node, begin, 1 if single else max_rows))
        end = self.later(start) | {"hosts": hosts} | now
        return end if not start or self._has_news(start, end) else start

    def later(self, start: Offset) -> Offset:
        """Give the position at which the log was read as far, and time has passed."""
        now = max(int(time.time()), int(start.get("time", 0)))
        asked = max(self._rechecked, int(start.get("rechecked", 0)))
        due = self._client is not None and now - asked >= int(self.settings.recheck)
        return start | {"time": now} | ({"rechecked": now} if due else {})

    def is_idle(self, start: Offset, end: Offset) -> bool:
        """Say whether nothing but time has passed, so that a position need not be kept where that has changed nothing."""
        self._rechecked = max(self._rechecked, int(end.get("rechecked", 0)))
        return bool(start) and all(start.get(part) == end.get(part) for part in ("hosts", "tables"))

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
        if self._logs.has_any(Window(begin, end)):
            return True
        self._quiet = (start, end)
        return False

    def read(self, start: Offset, end: Offset) -> Iterator[ChangeSet]:
        """Give the cells that changed in (start, end], in the order of the log; at first, those that the tables have."""
        self._logs.hold(start or end)
        if not start and self._client is not None:
            for table in self._followed.tables.values():
                yield from seeded(self._client, table, int(end["time"]))
            return
        renewed = self._renewed(start, end) if self._client is not None else set()
        ids, several = self._ids(renewed), len(self._logs.nodes) > 1
        found = {name: ChangedCells() for name in ids}
        for at, mutation in enumerate(self._logs.mutations(Window(start or None, end))):
            collect(found, ids, mutation, at, several=several)
        yield from taken(self.settings.keyspace, found, 1)
        for name in renewed:
            assert self._client is not None
            yield from seeded(self._client, self._followed.tables[name], int(end["time"]))

    def _ids(self, renewed: set[str]) -> Ids:
        """Give the ids of the tables that the log is read for: one that was made anew is read as a whole."""
        return {name: table.id for name, table in self._followed.tables.items() if name not in renewed}

    def partitions(self, start: Offset, end: Offset) -> list[Partition]:
        """Cut a range into stretches of segments, and tables that are read as a whole into ranges of tokens."""
        self._logs.hold(start or end)
        renewed, found = set[str](), list[Partition]()
        if self._client is not None:
            renewed = self._renewed(start, end) if start else set(self._followed.tables)
            for name in renewed:
                found += self._token_ranges(self._client, self._followed.tables[name], int(end["time"]), len(found))
        if not start and self._client is not None:
            return found
        ids, several = self._ids(renewed), len(self._logs.nodes) > 1
        for node in self._logs.nodes:
            begin, until = (position_of(at.get("hosts", {}), node.host) for at in (start, end))
            how = (node.reader.catalog, self._logs.skipped(node), ids)
            for part in node.folder.between(begin, until):
                read = LogStretch(self.settings, node.host, part, len(found), *how, several=several)
                found.append(Partition("", max(1, part.bytes // BYTES_PER_ROW), read))
        return found

    def _token_ranges(self, client: Client, table: TableSchema, now: int, first: int) -> list[Partition]:
        ranges = ranges_of(client, table)
        each = min(RANGES_PER_TASK, -(-len(ranges) // LEAST_TASKS))
        rows = max(1, estimated_rows(client, table) // len(ranges)) * each
        pieces = [ranges[at : at + each] for at in range(0, len(ranges), each)]
        return [
            Partition("", rows, TokenRanges(self.settings, table, tuple(piece), now, first + at))
            for at, piece in enumerate(pieces)
        ]

    def reconciliations(self, start: Offset, end: Offset) -> tuple[Reconciliation, ...]:
        """Say of each table how its cells in (start, end] become rows."""
        replaced = {table.name: table for table in self._followed.replaced(start, end)}
        made = [self._function(table, replaced.get(name), start, end) for name, table in self._followed.tables.items()]
        return tuple(
            Reconciliation(
                one.table.name,
                one,
                one.was,
                one.now,
                one.table.gc_grace_seconds,
                everything=one.replaced,
                recheck=one.recheck,
                afresh=not start or start == self.initial_offset(),
            )
            for one in made
        )

    def _function(self, table: TableSchema, before: TableSchema | None, start: Offset, end: Offset) -> Reconcile:
        """Give what reconciles the cells of a table; `before` is as it was where it changed since."""
        columns, connected = self._followed.columns[table.name], self._client is not None
        renewed = before is not None and before.id != table.id
        return Reconcile(
            table,
            columns,
            before or table,
            columns if before is None else row_columns(before),
            int(start.get("time", 0)),
            int(end["time"]),
            self._server,
            self.settings.unrepresentable,
            one_log=len(self._logs.nodes) == 1,
            renewed=renewed,
            replaced=before is not None,
            seeded=connected and (renewed or not start),
            snapshot=connected and not start,
            recheck=end.get("rechecked") != start.get("rechecked"),
        )

    def cells(self) -> CassandraSource:
        """Say that changes are cells."""
        return self

    def located(self, error: RunnelError, start: Offset, end: Offset) -> RunnelError:
        """Say of a value that cannot be held where in the logs it is."""
        if not isinstance(error, ValueNotHeld):
            return error
        found: dict[str, list[int]] = {}
        if start or self._client is None:
            found = self._logs.find(Window(start or None, end), error.is_in)
        where = f", at {json.dumps(found)} of the log" if found else ", in the table as it is now"
        told = ValueNotHeld(error.table, error.column, error.key, error.why, where)
        if found:
            told.hint = f"{told.hint}; or {self._logs.way_past(found)}"
        return told

    def commit(self, end: Offset) -> None:
        """Let the server forget its log up to `end`."""
        self._rechecked = max(self._rechecked, int(end.get("rechecked", 0)))
        self._logs.release(end)
        self._looked_at_space = -SPACE_SECONDS if self._space else self._looked_at_space

    def covers(self, have: Offset, wanted: Offset) -> bool:
        """Say whether the logs were read so far: `{"hosts": {folder: [segment, position]}}`, or without `hosts`."""
        return self._written.covers(have.get("hosts", {}), wanted)

    def end_offset(self) -> Offset:
        """Give the position after everything that clients wrote so far."""
        return self._written.end()

    @cached_property
    def _written(self) -> WrittenLogs:
        return open_written(self.settings, self._client, self._folder, self._logs.skips)

    def lag(self, start: Offset) -> Mapping[str, Any]:
        """Say which logs have more, and how many bytes the server keeps for this reader."""
        behind = []
        self._logs.skips.carry(start.get("skipped", ()))
        for node in self._logs.nodes:
            begin = position_of(start.get("hosts", {}), node.host)
            if node.folder.latest(begin) > begin:
                behind.append(node.host)
        kept = sum(node.folder.kept() for node in self._logs.nodes)
        held = self._logs.held_by()
        further = {"held_by": held, "skipped": [skip.position for skip in self._logs.skips.all()]}
        return {"behind": behind, "kept_bytes": kept} | {name: value for name, value in further.items() if value}

    def close(self) -> None:
        """Let go of the connection."""
        if self._client is not None:
            self._client.close()

    def _renewed(self, start: Offset, end: Offset) -> set[str]:
        """Give the tables that were dropped and made anew in a window."""
        tables = self._followed.tables
        return {old.name for old in self._followed.replaced(start, end) if old.id != tables[old.name].id}
