"""Turns changes into rows, exactly as `SELECT *` would give them: the newest write wins, ties are broken as the server does.

`merge` adds changes to the state of one partition. Everything in a state is the greatest of what was merged, by a total
order, so the result is the same however often, in whatever order and in whatever pieces changes arrive; copies from three
replicas are one. `rows` shows a state at a moment, `next_expiry` says when it will look different by itself.

A TRUNCATE goes by positions in the log and not by timestamps: `Truncations` says which mutations it took, and these
must not be merged.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

from runnel.connectors.cassandra import cells
from runnel.connectors.cassandra.cells.live_rows import NEVER, deleted_until, row_deleted_until, rows
from runnel.errors import Terminal

if TYPE_CHECKING:
    import uuid
    from collections.abc import Iterable, Iterator

    from runnel.connectors.cassandra.cells import ChangeTuple, Clustering, Mutation, Range
    from runnel.connectors.cassandra.schema.tables import TableSchema

__all__ = ["PartitionState", "RowState", "Truncations", "changes", "merge", "next_expiry", "purge", "rows"]

PLAIN, EXPIRING, TOMBSTONE = 0, 1, 2
EXPIRED_TTL = (1 << 31) - 1
"""The time to live that says in the server's views: this row is not there, whatever the clock says."""

Deletion = tuple[int, int]
"""Timestamp and local deletion time."""
Version = tuple[int, int, int, int, bytes]
"""A cell, so that the greatest one wins: timestamp, PLAIN < EXPIRING < TOMBSTONE, local deletion time, -ttl, value."""
Liveness = tuple[int, int, int, int]
"""As a version, without a value; a TOMBSTONE is a row of a server's view that is not there.

A PLAIN one with a local deletion time comes from a snapshot: the row was seen there at that second, and nobody says how
long it will stay.
"""
SEEN = NEVER + 1
"""The timestamp of a row that was only seen: anything that is known counts more."""
_OLDEST: Version = (-(1 << 63), -1, 0, 0, b"")
Shard = tuple[int, int, int]
"""Clock, count, timestamp."""


class RowState:
    """What is known of one row."""

    __slots__ = ("cells", "complex", "counters", "deletion", "liveness", "shadowable")

    def __init__(self) -> None:
        """Begin with nothing."""
        self.liveness: Liveness | None = None
        self.deletion: Deletion | None = None
        self.shadowable: Deletion | None = None
        self.cells: dict[tuple[str, bytes | None], Version] = {}
        self.complex: dict[str, Deletion] = {}
        self.counters: dict[str, dict[bytes, tuple[Shard, ...]]] = {}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RowState) and all(
            getattr(self, name) == getattr(other, name) for name in RowState.__slots__
        )

    __hash__ = None  # type: ignore[assignment]


class PartitionState:
    """What is known of one partition; the row under None is the static one."""

    __slots__ = ("deletion", "key", "ranges", "rows")

    def __init__(self, key: bytes = b"") -> None:
        """Begin with nothing."""
        self.key = key
        self.deletion: Deletion | None = None
        self.ranges: dict[Range, Deletion] = {}
        self.rows: dict[Clustering | None, RowState] = {}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PartitionState) and all(
            getattr(self, name) == getattr(other, name) for name in PartitionState.__slots__
        )

    __hash__ = None  # type: ignore[assignment]


def merge(state: PartitionState, added: Iterable[ChangeTuple]) -> PartitionState:
    """Add changes of one partition to its state, and give it back."""
    row = RowState()
    last: object = state
    equal_forms = False
    for kind, table, key, clustering, column, path, value, timestamp, ttl, ldt in added:
        if kind >= cells.RANGE_DELETE:
            _merge_deletion(state, kind, key, value, (timestamp, ldt))
            continue
        # The changes of one row come together and share its clustering.
        if clustering is not last:
            last = clustering
            equal_forms = table.has_equal_forms
            row = _row(state, key, table.canonical_clustering(clustering) if equal_forms and clustering else clustering)
        if kind == cells.SET:
            at = (column or "", path if path is None or not equal_forms else _canonical(table, column or "", path))
            version = (timestamp, EXPIRING if ttl else PLAIN, ldt, -ttl, value)
            before = row.cells.get(at)
            if before is None or version > before:
                row.cells[at] = version
        elif kind == cells.LIVENESS:
            live = (timestamp, (TOMBSTONE if ttl == EXPIRED_TTL else EXPIRING) if ttl else PLAIN, ldt, -ttl)
            if row.liveness is None or live > row.liveness:
                row.liveness = live
        elif kind == cells.CELL_DELETE:
            at = (column or "", path if path is None or not equal_forms else _canonical(table, column or "", path))
            row.cells[at] = max((timestamp, TOMBSTONE, ldt, 0, b""), row.cells.get(at, _OLDEST))
        else:
            _merge_other(row, kind, column or "", value, timestamp, ldt)
    return state


def _row(state: PartitionState, key: bytes, clustering: Clustering | None) -> RowState:
    row = state.rows.get(clustering)
    if row is None:
        state.key = key
        row = state.rows[clustering] = RowState()
    return row


def _canonical(table: TableSchema, column: str, path: bytes) -> bytes:
    form = table.path_form(column)
    return path if form is None else form(path)


def _merge_deletion(state: PartitionState, kind: int, key: bytes, value: Any, deletion: Deletion) -> None:
    if kind == cells.PARTITION_DELETE:
        state.deletion = _greater(state.deletion, deletion)
    elif kind == cells.RANGE_DELETE:
        state.ranges[value] = _greater(state.ranges.get(value), deletion)
    else:
        raise Terminal(
            "RUNNEL-CASSANDRA-MERGE",
            f"a {cells.KIND_NAMES[kind]} is no change of one partition",
            hint="leave the mutations out that `Truncations.covers` names",
        )
    state.key = key


def _merge_other(row: RowState, kind: int, column: str, value: Any, timestamp: int, ldt: int) -> None:
    if kind == cells.ROW_DELETE:
        row.deletion = _greater(row.deletion, (timestamp, ldt))
    elif kind == cells.SHADOWABLE_DELETE:
        row.shadowable = _greater(row.shadowable, (timestamp, ldt))
    elif kind == cells.COMPLEX_DELETE:
        row.complex[column] = _greater(row.complex.get(column), (timestamp, ldt))
    elif kind == cells.COUNTER:
        shards = row.counters.setdefault(column, {})
        for counter, clock, count in counter_shards(value):
            shards[counter] = _undominated((*shards.get(counter, ()), (clock, count, timestamp)))


def _greater(known: Deletion | None, added: Deletion) -> Deletion:
    return added if known is None or added > known else known


def _undominated(shards: tuple[Shard, ...]) -> tuple[Shard, ...]:
    """Keep the states of a shard that a deletion between them could leave as the newest: mostly one.

    A counter that was deleted begins with a lower clock again, at a later time.
    """
    kept: list[Shard] = []
    newest: int | None = None
    for shard in sorted(set(shards), reverse=True):
        if newest is None or shard[2] > newest:
            kept.append(shard)
            newest = shard[2]
    return tuple(kept)


_SHARD = struct.Struct(">16sqq")


def is_only_seen(row: RowState) -> bool:
    """Say whether all that is known of a row's insertion is that a snapshot saw the row."""
    return row.liveness is not None and row.liveness[1] == PLAIN and row.liveness[2] > 0


def may_outlive(row: RowState, deleted: int) -> bool:
    """Say whether a row that was only seen may be there still: the deletion is dated before that."""
    return row.liveness is not None and is_only_seen(row) and deleted < row.liveness[2] * 1_000_000


def counter_shards(context: bytes) -> list[tuple[bytes, int, int]]:
    """Give (counter id, clock, count) of the shards of a counter's value.

    Shards that a server before 2.1 wrote as its own part are added up there, not compared: they are refused.
    """
    if len(context) < 2:
        raise _no_counter(context)
    marked = int.from_bytes(context[:2], "big", signed=True)
    body = 2 + 2 * marked
    if marked < 0 or body > len(context) or (len(context) - body) % _SHARD.size:
        raise _no_counter(context)
    if any(context[at] < 0x80 for at in range(2, body, 2)):
        raise Terminal(
            "RUNNEL-CASSANDRA-COUNTER", "a counter has shards from before Cassandra 2.1, which cannot be merged"
        )
    return list(_SHARD.iter_unpack(context[body:]))


def _no_counter(context: bytes) -> Terminal:
    return Terminal("RUNNEL-CASSANDRA-COUNTER", f"the {len(context)} bytes {context[:16].hex()} are no counter")


def changes(state: PartitionState, table: TableSchema) -> Iterator[ChangeTuple]:
    """Give the changes that make up a state: merging them gives it again, so they are the form to keep it in."""
    key = state.key
    if state.deletion is not None:
        yield (cells.PARTITION_DELETE, table, key, None, None, None, None, state.deletion[0], 0, state.deletion[1])
    for range_, (timestamp, ldt) in state.ranges.items():
        yield (cells.RANGE_DELETE, table, key, None, None, None, range_, timestamp, 0, ldt)
    for clustering, row in state.rows.items():
        for kind, column, path, value, timestamp, ttl, ldt in _row_changes(row):
            yield (kind, table, key, clustering, column, path, value, timestamp, ttl, ldt)


def _row_changes(row: RowState) -> Iterator[tuple[int, str | None, bytes | None, Any, int, int, int]]:
    if row.liveness is not None:
        timestamp, _, ldt, ttl = row.liveness
        yield (cells.LIVENESS, None, None, None, timestamp, -ttl, ldt)
    for kind, deletion in ((cells.ROW_DELETE, row.deletion), (cells.SHADOWABLE_DELETE, row.shadowable)):
        if deletion is not None:
            yield (kind, None, None, None, deletion[0], 0, deletion[1])
    for column, (timestamp, ldt) in row.complex.items():
        yield (cells.COMPLEX_DELETE, column, None, None, timestamp, 0, ldt)
    for (column, path), (timestamp, rank, ldt, ttl, value) in row.cells.items():
        kind = cells.CELL_DELETE if rank == TOMBSTONE else cells.SET
        yield (kind, column, path, None if rank == TOMBSTONE else value, timestamp, -ttl, ldt)
    for column, shards in row.counters.items():
        for counter, versions in shards.items():
            for clock, count, timestamp in versions:
                context = b"\x00\x01\x80\x00" + _SHARD.pack(counter, clock, count)
                yield (cells.COUNTER, column, None, context, timestamp, 0, 0)


def next_expiry(state: PartitionState, now: int) -> int | None:
    """Give the first second after `now` at which something expires, or None: until then `rows` stays as it is."""
    times = [
        version[2]
        for row in state.rows.values()
        for version in (*row.cells.values(), *([row.liveness] if row.liveness else ()))
        if version[1] == EXPIRING and version[2] > now
    ]
    return min(times, default=None)


def purge(state: PartitionState, table: TableSchema, before: int) -> PartitionState:
    """Forget what is deleted, then the tombstones and expired cells from before a second; give the state back.

    `rows` stays as it is from that second on. What was deleted must not come again: call it only when no older copy can
    still arrive, which the server calls gc_grace_seconds.
    """
    for clustering, row in list(state.rows.items()):
        deleted = (
            deleted_until(state, table, clustering) if clustering is not None else (state.deletion or (NEVER, 0))[0]
        )
        _drop_deleted(row, max(deleted, row_deleted_until(row)))
        _drop_tombstones(row, before)
        if row == RowState():
            del state.rows[clustering]
    if state.deletion is not None and state.deletion[1] < before:
        state.deletion = None
    state.ranges = {range_: deletion for range_, deletion in state.ranges.items() if deletion[1] >= before}
    return state


def _drop_deleted(row: RowState, deleted: int) -> None:
    if row.liveness is not None and row.liveness[0] <= deleted and not may_outlive(row, deleted):
        row.liveness = None
    row.cells = {
        at: version
        for at, version in row.cells.items()
        if version[0] > max(deleted, row.complex.get(at[0], (NEVER, 0))[0])
    }
    for column, shards in list(row.counters.items()):
        dead = (column, None) in row.cells
        left = {c: tuple(s for s in versions if s[2] > deleted and not dead) for c, versions in shards.items()}
        row.counters[column] = {counter: versions for counter, versions in left.items() if versions}
        if not row.counters[column]:
            del row.counters[column]


def _drop_tombstones(row: RowState, before: int) -> None:
    row.cells = {at: version for at, version in row.cells.items() if version[1] == PLAIN or version[2] >= before}
    row.complex = {column: deletion for column, deletion in row.complex.items() if deletion[1] >= before}
    if row.liveness is not None and row.liveness[1] != PLAIN and row.liveness[2] < before:
        row.liveness = None
    if row.deletion is not None and row.deletion[1] < before:
        row.deletion = None
    if row.shadowable is not None and row.shadowable[1] < before:
        row.shadowable = None


class Truncations:
    """Which mutations a TRUNCATE took: those its host had logged up to the truncation's position."""

    def __init__(self) -> None:
        """Begin with none."""
        self._taken: dict[tuple[str, uuid.UUID], tuple[int, int]] = {}

    def note(self, host: str, change: ChangeTuple) -> None:
        """Remember a `TRUNCATE` of a host's log."""
        at = (host, change[1].id)
        self._taken[at] = max(self._taken.get(at, (0, 0)), (change[6].segment, change[6].position))

    def covers(self, host: str, table: TableSchema, mutation: Mutation) -> bool:
        """Say whether a mutation of a host's log was there before the table was truncated on that host."""
        return (mutation.segment, mutation.position) <= self._taken.get((host, table.id), (-1, -1))
