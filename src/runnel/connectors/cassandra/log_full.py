"""Capture by the full log: every mutation is held against the cells before it, which tells insert from update.

Cells are kept with their timestamps in a file of runnel's own, so the server's segments can go. A write that loses to a newer
one, or comes again from another replica, changes nothing and is not told. What expires is a delete at its time.
"""

from __future__ import annotations

import shutil
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from runnel.connectors.cassandra import cells
from runnel.connectors.cassandra.cell_store import CellStore
from runnel.connectors.cassandra.cells import Change
from runnel.connectors.cassandra.deltas import Delta, Operation
from runnel.connectors.cassandra.doubts import gone_rows
from runnel.connectors.cassandra.live_rows import compare
from runnel.connectors.cassandra.log_deltas import COARSE, MICROSECONDS, Teller
from runnel.connectors.cassandra.read_again import merge_exactly
from runnel.connectors.cassandra.reconcile import PartitionState, merge, next_expiry, rows
from runnel.connectors.cassandra.seed import partition_key, seed
from runnel.connectors.cassandra.single_row import Row, row_at
from runnel.connectors.cassandra.snapshot import Wanted, read_table
from runnel.connectors.cassandra.technique import Abilities
from runnel.connectors.cassandra.twins import captured_columns
from runnel.connectors.cassandra.value_text import decoded_text
from runnel.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from runnel.connectors.cassandra.cells import ChangeTuple, Clustering, Mutation
    from runnel.connectors.cassandra.client import Client
    from runnel.connectors.cassandra.logs import Logs
    from runnel.connectors.cassandra.schema import TableSchema
    from runnel.connectors.cassandra.technique import Cycle, Position

CELLS = "cells.sqlite"
ABILITIES = Abilities(
    "log",
    (Operation.INS, Operation.UPD, Operation.DEL),
    frozenset(),
    "the nodes' log folders, cells kept by runnel",
    level="any",
    previous=True,
    expiry=True,
    counters=True,
)


class LogFull:
    """Capture by mutations and what was before them."""

    def __init__(self, logs: Logs, *, expand: bool = False) -> None:
        """Read these logs; without a connection there is no snapshot, and the logs are all there is."""
        self._logs, self._client, self._expand = logs, logs.client, expand
        self._teller = Teller()

    def now(self) -> Position:
        """Give how far each log can be read now."""
        return self._logs.position()

    def read(self, cycle: Cycle) -> Iterator[Delta]:
        """Give a delta per mutation and column, in the order of the log; a first cycle tells what is there."""
        if cycle.before is not None and (cycle.before / CELLS).exists():
            shutil.copyfile(cycle.before / CELLS, cycle.kept / CELLS)
        store = CellStore(cycle.kept / CELLS, self._logs.table)
        try:
            if cycle.after is not None and cycle.before is None:
                self._trace_back(store, cycle)
            if cycle.after is None and self._client is not None:
                yield from self._snapshot(store, self._client, int(cycle.upto["time"]))
            else:
                yield from self._window(store, cycle)
            store.save(cycle.upto)
        finally:
            store.close()

    def _window(self, store: CellStore, cycle: Cycle) -> Iterator[Delta]:
        for mutation in self._logs.mutations(cycle):
            yield from self._mutation(store, mutation)
        now = int(cycle.upto["time"])
        for table, key, state in store.expiring(now):
            yield from self._expire(store, table, key, state, now)
        for table, key, places in gone_rows(self._client, store, now) if self._client is not None else ():
            state = store.get(table, key)
            for place in places:
                state.rows[place].liveness = None
                yield self._row_delete(table, key, place, now * MICROSECONDS)
            store.changed(table, key)

    def _trace_back(self, store: CellStore, cycle: Cycle) -> None:
        """Learn from the whole log what was before a position that somebody asks from; a live log has lost its beginning."""
        after = cycle.after or {}
        if self._client is not None or "hosts" not in after:
            raise UsageError(
                "RUNNEL-CAPTURE-SINCE",
                "the full log tells what was before, which it knows only where its last cycle ended",
                hint="leave --since away, or use --technique log-partial",
            )
        for _ in self._window(store, replace(cycle, after=None, upto=after)):
            pass

    def settle(self, cycle: Cycle) -> None:
        """Let the server forget the segments that were read."""
        self._logs.release(cycle.upto)

    def close(self) -> None:
        """Close the connection, if there is one."""
        self._logs.close()

    def _snapshot(self, store: CellStore, client: Client, now: int) -> Iterator[Delta]:
        for table in client.chosen_tables():
            writer = self._teller.writer(table)
            for row in read_table(client, table, Wanted(captured_columns(table), ttls=True)):
                key = partition_key(table, row.key)
                merge(store.get(table, key), seed(table, row, now))
                store.changed(table, key)
                for cell in row.cells:
                    yield writer.delta(Operation.INS, row.key, row.clustering, cell)
                if not row.cells and row.clustering is not None:
                    place = (table.keyspace, table.name, writer.key(row.key), writer.cluster(row.clustering))
                    yield Delta(Operation.INS, *place, "", "", row=True)

    def _mutation(self, store: CellStore, mutation: Mutation) -> Iterator[Delta]:
        by_partition: dict[tuple[int, bytes], list[ChangeTuple]] = {}
        for change in mutation.changes:
            if change[0] == cells.TRUNCATE:
                yield from self._truncate(store, Change(*change))
            else:
                by_partition.setdefault((id(change[1]), change[2]), []).append(change)
        for (_, key), added in by_partition.items():
            table = added[0][1]
            state = store.get(table, key)
            at = max(change[7] for change in added) // MICROSECONDS
            yield from self._expire(store, table, key, state, at)
            yield from self._merge(table, state, added, at)
            store.changed(table, key)

    def _merge(self, table: TableSchema, state: PartitionState, added: list[ChangeTuple], at: int) -> Iterator[Delta]:
        """Merge the changes of a mutation, and tell what each column was before and is after it."""
        coarse = [Change(*change) for change in added if change[0] in COARSE]
        expanded = {id(change): self._below(table, state, change, at) for change in coarse} if self._expand else {}
        touched = _touched(table, added)
        before = {place: self._column(state, table, place, at) for place in touched}
        marks = {place: _version(state, place) for place in touched}
        deletions = [_deletion(state, change) for change in coarse]
        merge_exactly(self._client, table, state, added, at)
        for change, deleted in zip(coarse, deletions, strict=True):
            if _deletion(state, change) != deleted:  # else it came from another replica before
                yield from expanded[id(change)] if self._expand else (self._teller.coarse(change),)
        writer, parts = self._teller.writer(table), table.key_parts(state.key)
        for (clustering, name), change in touched.items():
            if _version(state, (clustering, name)) == marks[clustering, name]:
                continue
            was, now = before[clustering, name], self._column(state, table, (clustering, name), at)
            if was is None and now is None:
                continue
            operation = Operation.DEL if now is None else Operation.INS if was is None else Operation.UPD
            place = (table.keyspace, table.name, writer.key(parts), writer.cluster(clustering), name)
            inserted = any(c[0] == cells.LIVENESS and c[3] == clustering for c in added)
            yield Delta(
                operation,
                *place,
                now,
                change.timestamp,
                was,
                change.ttl or None,
                row=inserted and now is not None,
                counter=change.kind == cells.COUNTER,
            )

    def _column(
        self, state: PartitionState, table: TableSchema, place: tuple[Clustering | None, str], at: int
    ) -> str | None:
        """Give the text of one column at a second, or None where it is not there."""
        clustering, name = place
        row = row_at(state, table, clustering, at)
        if row is None:
            return None
        if name == "":
            return ""
        value = row[name]
        return None if value is None else decoded_text(table.by_name[name].type, value)

    def _below(self, table: TableSchema, state: PartitionState, change: Change, at: int) -> list[Delta]:
        """Give a delete for each column that lives below a coarse delete."""
        found: list[Delta] = []
        for clustering in state.rows:
            if not _covers(table, change, clustering):
                continue
            row = row_at(state, table, clustering, at)
            if row is not None:
                found += self._deletes(table, state.key, clustering, row, {}, change.timestamp)
        return found

    def _deletes(
        self, table: TableSchema, key: bytes, clustering: Clustering | None, was: Row, now: Row, time: int
    ) -> Iterator[Delta]:
        """Give a delete for each column of a row that had a value and has none."""
        writer = self._teller.writer(table)
        place = (table.keyspace, table.name, writer.key(table.key_parts(key)), writer.cluster(clustering))
        for column in table.static if clustering is None else table.regular:
            if was.get(column.name) is not None and now.get(column.name) is None:
                previous = decoded_text(column.type, was[column.name])
                yield Delta(Operation.DEL, *place, column.name, None, time, previous)

    def _expire(
        self, store: CellStore, table: TableSchema, key: bytes, state: PartitionState, upto: int
    ) -> Iterator[Delta]:
        """Tell what has expired in a partition up to a second, each at its time."""
        moment = next_expiry(state, store.seen(table, key))
        while moment is not None and moment <= upto:
            for clustering in list(state.rows):
                was = row_at(state, table, clustering, moment - 1)
                if was is not None:
                    now = row_at(state, table, clustering, moment)
                    yield from self._deletes(table, key, clustering, was, now or {}, moment * MICROSECONDS)
                    if clustering is not None and now is None and all(was[c.name] is None for c in table.regular):
                        yield self._row_delete(table, key, clustering, moment * MICROSECONDS)
            moment = next_expiry(state, moment)
        store.see(table, key, upto)

    def _row_delete(self, table: TableSchema, key: bytes, clustering: Clustering, time: int) -> Delta:
        """Tell the end of a row that has nothing but its key."""
        place = (table, key, clustering, None, None, None, time, 0, 0)
        return self._teller.coarse(Change(cells.ROW_DELETE, *place))

    def _truncate(self, store: CellStore, change: Change) -> Iterator[Delta]:
        table = change.table
        writer = self._teller.writer(table)
        at = change.timestamp // MICROSECONDS
        gone = [key for key in store.keys(table) if rows(store.get(table, key), table, at)]
        store.truncate(table, change.timestamp, exactly=len(self._logs.nodes) == 1)
        for key in gone:
            if not rows(store.get(table, key), table, at):
                place = (table.keyspace, table.name, writer.key(table.key_parts(key)))
                yield Delta(Operation.DEL, *place, time=change.timestamp)


def _touched(table: TableSchema, added: list[ChangeTuple]) -> dict[tuple[Clustering | None, str], Change]:
    """Give the columns that a mutation speaks of, each with its last change; "" stands for a row of nothing else."""
    names = {column.name for column in captured_columns(table)}
    found: dict[tuple[Clustering | None, str], Change] = {}
    for change in added:
        if change[4] is not None and change[4] in names:
            found[change[3], change[4]] = Change(*change)
    told = {clustering for clustering, _ in found}
    for change in added:
        if change[0] == cells.LIVENESS and change[3] not in told:
            found[change[3], ""] = Change(*change)
    return found


def _version(state: PartitionState, place: tuple[Clustering | None, str]) -> Any:
    """Give something that differs when a column was changed."""
    row = state.rows.get(place[0])
    if row is None:
        return None
    name = place[1]
    if name == "":
        return row.liveness
    own = {at: version for at, version in row.cells.items() if at[0] == name}
    return own, row.complex.get(name), dict(row.counters.get(name, {}))


def _deletion(state: PartitionState, change: Change) -> Any:
    """Give the deletion that is known where a coarse delete stands."""
    if change.kind == cells.PARTITION_DELETE:
        return state.deletion
    if change.kind == cells.RANGE_DELETE:
        return state.ranges.get(change.value)
    row = state.rows.get(change.clustering)
    return None if row is None else row.deletion


def _covers(table: TableSchema, change: Change, clustering: Clustering | None) -> bool:
    if change.kind == cells.PARTITION_DELETE:
        return True
    if clustering is None:
        return False
    if change.kind == cells.ROW_DELETE:
        return clustering == change.clustering
    after, before = compare(table, clustering, change.value.start), compare(table, clustering, change.value.end)
    return (after > 0 or (after == 0 and change.value.start_inclusive)) and (
        before < 0 or (before == 0 and change.value.end_inclusive)
    )
