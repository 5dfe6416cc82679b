"""Capture by the full log: every mutation is held against the cells before it, which tells insert from update.

Cells are kept with their timestamps in the state, so the server's segments can go. A write that loses to a newer
one, or comes again from another replica, changes nothing and is not told. What expires is a delete at its time; a collection
that loses an element is updated then. What was told to have expired is kept as deleted, so that it is not told again.

The deletes of rows, ranges and keys in a mutation are told before its values, as the server lets them work.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from runnel.connectors.cassandra import cells
from runnel.connectors.cassandra.cells import Change
from runnel.connectors.cassandra.cells.expired_rows import gone_rows
from runnel.connectors.cassandra.cells.read_again import merge_exactly
from runnel.connectors.cassandra.cells.reconcile import (
    EXPIRED_TTL,
    EXPIRING,
    TOMBSTONE,
    PartitionState,
    RowState,
    changes,
    merge,
    next_expiry,
    rows,
)
from runnel.connectors.cassandra.cells.seed import partition_key, seed
from runnel.connectors.cassandra.cells.single_row import Row, row_at, unproven
from runnel.connectors.cassandra.schema.tables import ColumnSchema
from runnel.connectors.cassandra.schema.twins import PREFIX, captured_columns, is_twin
from runnel.connectors.cassandra.snapshot import Wanted, read_table
from runnel.connectors.cassandra.techniques.captured_cells import CapturedCells
from runnel.connectors.cassandra.techniques.clock import MICROSECONDS, Clock
from runnel.connectors.cassandra.techniques.expiring import covers
from runnel.connectors.cassandra.techniques.log_deltas import COARSE, Teller
from runnel.connectors.cassandra.values.text import decoded_text
from runnel.connectors.deltas.kept import leave_lines, lines_left
from runnel.connectors.deltas.model import Delta, Operation
from runnel.connectors.deltas.technique import Abilities
from runnel.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from runnel.connectors.cassandra.cells import ChangeTuple, Clustering, Mutation
    from runnel.connectors.cassandra.client import Client
    from runnel.connectors.cassandra.log.all_nodes import Logs
    from runnel.connectors.cassandra.schema.tables import TableSchema
    from runnel.connectors.deltas.technique import Cycle, Position

ASKED = "asked"
"""Under which it is kept when the server was last asked for rows of which only the snapshot told."""
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
        if not cycle.once:
            self._logs.hold(cycle.after or cycle.upto)
        store = CapturedCells(cycle, self._logs.table)
        if cycle.after is not None and cycle.once:
            self._trace_back(store, cycle)
        if cycle.after is None and self._client is not None:
            leave_lines(cycle.kept, ASKED, [str(cycle.upto["time"])])
            yield from self._snapshot(store, self._client, int(cycle.upto["time"]))
        else:
            yield from self._window(store, cycle)
        store.save()

    def _window(self, store: CapturedCells, cycle: Cycle) -> Iterator[Delta]:
        now = int(cycle.upto["time"])
        clock = Clock(int((cycle.after or {}).get("time", 0)), now)
        for mutation in store.batches(self._logs.mutations(cycle, drops=True)):
            yield from self._mutation(store, mutation, clock)
        for table, key, state in store.expiring():
            yield from self._expire(table, key, state, now)
            store.changed(table, key)
        if self._client is not None:
            asked = max((int(line) for line in lines_left(cycle.kept, ASKED)), default=0)
            is_due = now - asked >= int(self._client.settings.recheck)
            leave_lines(cycle.kept, ASKED, [str(now if is_due else asked)])
            if is_due:
                yield from self._gone(store, self._client, now)

    def _gone(self, store: CapturedCells, client: Client, now: int) -> Iterator[Delta]:
        """Tell the rows without values that the server has no more."""
        for table, keys in store.doubtful():
            found = {key: set(unproven(store.get(table, key), table, now)) for key in keys}
            doubtful = {key: places for key, places in found.items() if places}
            for key, places in gone_rows(client, table, doubtful).items() if doubtful else ():
                state = store.get(table, key)
                for place in places:
                    state.rows[place].liveness = None
                    yield self._row_delete(table, key, place, now * MICROSECONDS)
                store.changed(table, key)

    def _trace_back(self, store: CapturedCells, cycle: Cycle) -> None:
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

    def _snapshot(self, store: CapturedCells, client: Client, now: int) -> Iterator[Delta]:
        for table in client.chosen_tables():
            writer = self._teller.writer(table)
            for row in read_table(client, table, Wanted(captured_columns(table), ttls=True)):
                key = partition_key(table, row.key)
                merge(store.first(table, key), seed(table, row, now))
                store.changed(table, key)
                for cell in row.cells:
                    yield writer.delta(Operation.INS, row.key, row.clustering, cell)
                if not row.cells and row.clustering is not None:
                    place = (table.keyspace, table.name, writer.key(row.key), writer.cluster(row.clustering))
                    yield Delta(Operation.INS, *place, "", "", row=True)

    def _mutation(self, store: CapturedCells, mutation: Mutation, clock: Clock) -> Iterator[Delta]:
        at = clock.of(mutation.changes)
        by_partition: dict[tuple[int, bytes], list[ChangeTuple]] = {}
        for change in mutation.changes:
            if change[0] == cells.TRUNCATE:
                yield from self._truncate(store, Change(*change), at)
            elif change[0] == cells.COLUMN_DROP:
                yield from self._drop_column(store, Change(*change), at)
            else:
                by_partition.setdefault((id(change[1]), change[2]), []).append(change)
        for (_, key), added in by_partition.items():
            table = added[0][1]
            state = store.get(table, key)
            yield from self._expire(table, key, state, at)
            for change in added:
                if change[0] in COARSE:
                    yield from self._delete(table, state, Change(*change), at)
            yield from self._merge(table, state, [change for change in added if change[0] not in COARSE], at)
            store.changed(table, key)

    def _delete(self, table: TableSchema, state: PartitionState, change: Change, at: int) -> Iterator[Delta]:
        """Merge the delete of a row, a range of rows or a key, and tell it, or the columns that it took."""
        below = [place for place in state.rows if covers(change, place)] if self._expand else []
        before = {place: row_at(state, table, place, at) for place in below}
        known = _deletion(state, change)
        merge(state, [tuple(change)])
        if _deletion(state, change) == known:
            return  # it came from another replica before
        if not self._expand:
            yield self._teller.coarse(change)
        for place, was in before.items():
            if was is not None:
                now = row_at(state, table, place, at)
                yield from self._losses(table, state, place, (was, now or {}), change.timestamp)

    def _merge(self, table: TableSchema, state: PartitionState, added: list[ChangeTuple], at: int) -> Iterator[Delta]:
        """Merge the changes of a mutation, and tell what each column was before and is after it."""
        touched, inserted = _touched(table, added), {c[3]: Change(*c) for c in added if c[0] == cells.LIVENESS}
        places = touched | {(place, ""): change for place, change in inserted.items()}
        before = {place: self._column(state, table, place, at) for place in places}
        marks = {place: _version(state, place) for place in places}
        merge_exactly(table, state, added, at, lambda: self._client)
        told: list[Delta] = []
        for place, change in places.items():
            was, now = before[place], self._column(state, table, place, at)
            if _version(state, place) != marks[place] and (was is not None or now is not None):
                row = place[0] in inserted and now is not None
                told.append(self._change(table, state.key, change, (was, now), name=place[1], row=row))
        carried = {delta.cluster for delta in told if delta.row and delta.column}
        rows_first = sorted(told, key=lambda delta: delta.column != "")
        yield from (delta for delta in rows_first if delta.column != "" or delta.cluster not in carried)

    def _change(
        self,
        table: TableSchema,
        key: bytes,
        change: Change,
        values: tuple[str | None, str | None],
        *,
        name: str,
        row: bool,
    ) -> Delta:
        """Tell what one column was before and is after a change; the column "" stands for the row itself."""
        was, now = values
        operation = Operation.DEL if now is None else Operation.INS if was is None else Operation.UPD
        writer = self._teller.writer(table)
        place = (writer.key(table.key_parts(key)), writer.cluster(change.clustering), name)
        counter = change.kind == cells.COUNTER
        delta = Delta(operation, table.keyspace, table.name, *place, now, change.timestamp, was)
        return replace(delta, ttl=change.ttl or None if now is not None else None, row=row, counter=counter)

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

    def _losses(
        self,
        table: TableSchema,
        state: PartitionState,
        place: Clustering | None,
        rows_: tuple[Row, Row],
        time: int,
        ttls: Mapping[str, int] | None = None,
    ) -> Iterator[Delta]:
        """Tell what a row lost between two moments: columns that are gone, collections that have fewer elements."""
        was, now = rows_
        writer = self._teller.writer(table)
        at = (table.keyspace, table.name, writer.key(table.key_parts(state.key)), writer.cluster(place))
        for column in table.static if place is None else table.regular:
            old, new = was.get(column.name), now.get(column.name)
            if old is None or old == new or is_twin(table, column.name):
                continue
            previous = decoded_text(column.type, old)
            if new is None:
                yield Delta(Operation.DEL, *at, column.name, None, time, previous, (ttls or {}).get(column.name))
            else:
                yield Delta(Operation.UPD, *at, column.name, decoded_text(column.type, new), time, previous)

    def _expire(self, table: TableSchema, key: bytes, state: PartitionState, upto: int) -> Iterator[Delta]:
        """Tell what has expired in a partition up to a second, each at its time."""
        moment = next_expiry(state, 0)
        while moment is not None and moment <= upto:
            time = moment * MICROSECONDS
            for place, row in state.rows.items():
                ttls = _expiring(row, moment)
                was = row_at(state, table, place, moment - 1) if ttls else None
                if was is None:
                    continue
                now = row_at(state, table, place, moment)
                yield from self._losses(table, state, place, (was, now or {}), time, ttls)
                if place is not None and now is None and all(was[column.name] is None for column in table.regular):
                    yield replace(self._row_delete(table, key, place, time), ttl=ttls.get(""))
            _bury(state, moment)
            moment = next_expiry(state, 0)

    def _row_delete(self, table: TableSchema, key: bytes, clustering: Clustering, time: int) -> Delta:
        """Tell the end of a row that has nothing but its key."""
        place = (table, key, clustering, None, None, None, time, 0, 0)
        return self._teller.coarse(Change(cells.ROW_DELETE, *place))

    def _truncate(self, store: CapturedCells, change: Change, at: int) -> Iterator[Delta]:
        """Tell the keys that a TRUNCATE took, which is dated after all they had: it does not go by write times."""
        table = change.table
        writer, exactly = self._teller.writer(table), len(self._logs.nodes) == 1
        before: dict[bytes, tuple[int, dict[Clustering | None, Row | None]]] = {}
        for key in store.keys(table):
            state = store.get(table, key)
            yield from self._expire(table, key, state, at)
            if rows(state, table, at):
                places = {place: row_at(state, table, place, at) for place in state.rows} if self._expand else {}
                before[key] = (_newest(state, table) if exactly else 0, places)
        store.truncate(table, change.timestamp, exactly=exactly)
        for key, (newest, places) in before.items():
            state, time = store.get(table, key), max(change.timestamp, newest)
            if not self._expand and not rows(state, table, at):
                place = (table.keyspace, table.name, writer.key(table.key_parts(key)))
                yield Delta(Operation.DEL, *place, time=time)
            state.key = key
            for at_row, was in places.items():
                if was is not None:
                    now = row_at(state, table, at_row, at)
                    yield from self._losses(table, state, at_row, (was, now or {}), time)

    def _drop_column(self, store: CapturedCells, change: Change, at: int) -> Iterator[Delta]:
        """Tell the values that went with their column."""
        table, name = change.table, change.column or ""
        type_ = table.type_of(name)
        if type_ is None or name.startswith(PREFIX):
            return
        for key in store.keys(table):
            state = store.get(table, key)
            for place in state.rows:
                column = (ColumnSchema(name, type_, "static" if place is None else "regular"),)
                static, regular = (column, ()) if place is None else ((), column)
                alone = replace(table, static=static, regular=regular, dropped=())
                value = self._column(_up_to(state, name, change.timestamp), alone, (place, name), at)
                if value is not None:
                    here = change._replace(clustering=place, ttl=0)
                    yield self._change(table, key, here, (value, None), name=name, row=False)


def _touched(table: TableSchema, added: list[ChangeTuple]) -> dict[tuple[Clustering | None, str], Change]:
    """Give the columns that a mutation speaks of, each with its last change."""
    names = {column.name for column in captured_columns(table)}
    found: dict[tuple[Clustering | None, str], Change] = {}
    for change in added:
        if change[4] is not None and change[4] in names:
            found[change[3], change[4]] = Change(*change)
    return found


def _expiring(row: RowState, moment: int) -> dict[str, int]:
    """Give the columns of which something expires at a second, with its time to live; "" is the row itself."""
    found = {name: -version[3] for (name, _), version in row.cells.items() if version[1:3] == (EXPIRING, moment)}
    if row.liveness is not None and row.liveness[1:3] == (EXPIRING, moment):
        found[""] = -row.liveness[3]
    return found


def _bury(state: PartitionState, moment: int) -> None:
    """Keep as deleted what expires at a second: that is what it is to the server from then on."""
    for row in state.rows.values():
        for at, version in row.cells.items():
            if version[1:3] == (EXPIRING, moment):
                row.cells[at] = (version[0], TOMBSTONE, moment, 0, b"")
        if row.liveness is not None and row.liveness[1:3] == (EXPIRING, moment):
            row.liveness = (row.liveness[0], TOMBSTONE, moment, -EXPIRED_TTL)


def _newest(state: PartitionState, table: TableSchema) -> int:
    return max(change[7] for change in changes(state, table))


def _up_to(state: PartitionState, column: str, time: int) -> PartitionState:
    """Give what a partition has of one column up to a write time."""
    made = PartitionState(state.key)
    made.deletion, made.ranges = state.deletion, state.ranges
    for place, row in state.rows.items():
        own = made.rows[place] = RowState()
        own.deletion, own.shadowable, own.complex = row.deletion, row.shadowable, row.complex
        own.cells = {at: version for at, version in row.cells.items() if at[0] == column and version[0] <= time}
        own.counters = {name: shards for name, shards in row.counters.items() if name == column}
    return made


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
