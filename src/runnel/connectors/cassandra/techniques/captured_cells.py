"""The cells of captured partitions with their timestamps, for capture by the full log: later changes are held against them.

They are kept as views keep theirs, one row each, in a relation for each table. A window looks up the partitions that it is about, some
thousand mutations at a time, and those in which something falls due.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from itertools import islice
from operator import itemgetter
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from runnel.connectors.cassandra import cells
from runnel.connectors.cassandra.cells.packed import Cell, change_of, plain_cells, read_cells, signed_cells
from runnel.connectors.cassandra.cells.reconcile import PartitionState, changes, merge, next_expiry, purge
from runnel.connectors.cells import EXPIRES, PARTITION, SEEN, partition_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from runnel.connectors.cassandra.cells import Mutation
    from runnel.connectors.cassandra.schema.tables import TableSchema
    from runnel.connectors.deltas.technique import Cycle

    Tables = Callable[[uuid.UUID], TableSchema | None]

MUTATIONS_AT_ONCE = 5_000
"""Mutations whose partitions are looked up together: one by one, each look-up costs as much as the work on what it finds."""
MOST_HELD = 50_000
"""Partitions that are held in memory."""


@dataclass
class _Partition:
    """A partition on its way through a window, and its cells as they are stored."""

    state: PartitionState
    stored: set[Cell] = field(default_factory=set)
    is_changed: bool = False


@dataclass
class _Table:
    """What is held of a table; `due` are partitions that this cycle has changed and in which something expires before its end."""

    schema: TableSchema
    held: dict[bytes, _Partition] = field(default_factory=dict)
    due: set[bytes] = field(default_factory=set)


class CapturedCells:
    """The cells of a source, from the end of the last cycle to the end of this one. Definitions of tables come from `tables`, by id."""

    def __init__(self, cycle: Cycle, tables: Tables) -> None:
        """Look nothing up yet."""
        self._kept, self._definitions = cycle.kept, tables
        self._was, self._now = int((cycle.after or {}).get("time", 0)), int(cycle.upto["time"])
        self._tables: dict[uuid.UUID, _Table] = {}

    def batches(self, mutations: Iterable[Mutation]) -> Iterator[Mutation]:
        """Give mutations, after the partitions that they are about have been looked up, for many at once."""
        coming = iter(mutations)
        while batch := list(islice(coming, MUTATIONS_AT_ONCE)):
            if sum(len(table.held) for table in self._tables.values()) > MOST_HELD:
                self.save()
            wanted: dict[uuid.UUID, tuple[TableSchema, set[bytes]]] = {}
            for mutation in batch:
                for change in mutation.changes:
                    if change[0] not in (cells.TRUNCATE, cells.COLUMN_DROP):
                        wanted.setdefault(change[1].id, (change[1], set()))[1].add(change[2])
            for table, keys in wanted.values():
                self._load(table, keys)
            yield from batch

    def get(self, table: TableSchema, key: bytes) -> PartitionState:
        """Give the state of a partition, to be changed and handed to `changed`."""
        held = self._of(table).held
        if key not in held:
            self._load(table, {key})
        return held[key].state

    def first(self, table: TableSchema, key: bytes) -> PartitionState:
        """Give the state of a partition of which nothing is stored yet."""
        own = self._of(table)
        if key not in own.held and len(own.held) > MOST_HELD:
            self.save()
        return own.held.setdefault(key, _Partition(PartitionState(key))).state

    def changed(self, table: TableSchema, key: bytes) -> None:
        """Remember that a partition was changed."""
        own = self._of(table)
        partition = own.held[key]
        partition.is_changed = True
        moment = next_expiry(partition.state, 0)
        if moment is not None and moment <= self._now:
            own.due.add(key)

    def truncate(self, table: TableSchema, when: int, *, exactly: bool) -> None:
        """Forget what a TRUNCATE took: everything that was logged before it, where there is one log.

        Each of several nodes logs the TRUNCATE for itself, so there it takes what was written up to its time (µs).
        """
        for key in self.keys(table):
            partition = self._of(table).held[key]
            if exactly:
                partition.state = PartitionState(key)
            else:
                deleted = (cells.PARTITION_DELETE, table, key, None, None, None, None, when, 0, when // 1_000_000)
                merge(partition.state, [deleted])
            self.changed(table, key)

    def keys(self, table: TableSchema) -> list[bytes]:
        """Give the keys of all partitions of a table, which are all held then."""
        self._take(table, self._kept.whole(table.id.hex), None)
        return list(self._of(table).held)

    def expiring(self) -> Iterator[tuple[TableSchema, bytes, PartitionState]]:
        """Give the partitions in which something expires up to the end of the cycle, the first one first."""
        found: list[tuple[int, str, bytes, TableSchema]] = []
        for table in self._known():
            for key in {*self._due(table, EXPIRES, self._was), *self._of(table).due}:
                moment = next_expiry(self.get(table, key), 0)
                if moment is not None and moment <= self._now:
                    found.append((moment, table.id.hex, key, table))
        for _, _, key, table in sorted(found, key=itemgetter(0, 1, 2)):
            yield table, key, self.get(table, key)

    def doubtful(self) -> Iterator[tuple[TableSchema, list[bytes]]]:
        """Give the partitions that may have rows of which only the snapshot knows, by table."""
        for table in self._known():
            of_now = [key for key, partition in self._of(table).held.items() if partition.is_changed]
            yield table, [*{*self._due(table, SEEN, -1), *of_now}]

    def save(self) -> None:
        """Leave what has changed, and hold nothing any more."""
        for own in self._tables.values():
            came: list[Cell] = []
            went: list[Cell] = []
            grace = own.schema.gc_grace_seconds
            for partition in own.held.values():
                if partition.is_changed:
                    state = purge(partition.state, own.schema, self._now - grace)
                    new = set(plain_cells(changes(state, own.schema)))
                    came += new - partition.stored
                    went += partition.stored - new
            if came or went:
                self._kept.change(own.schema.id.hex, signed_cells(came, went, grace))
            own.held.clear()

    def _of(self, table: TableSchema) -> _Table:
        known = self._tables.get(table.id)
        if known is None:
            known = self._tables[table.id] = _Table(table)
        known.schema = table
        return known

    def _known(self) -> list[TableSchema]:
        """Give the tables that have cells and still are tables."""
        ids = {*self._tables, *map(uuid.UUID, self._kept.changed())}
        return [table for id_ in sorted(ids) if (table := self._definitions(id_)) is not None]

    def _load(self, table: TableSchema, keys: set[bytes]) -> None:
        """Look partitions up that are not held."""
        missing = keys - self._of(table).held.keys()
        if missing:
            hashes = pa.array(sorted({partition_of(key) for key in missing}), pa.int32())
            self._take(table, self._kept.find(table.id.hex, pa.table({PARTITION: hashes})), missing)

    def _take(self, table: TableSchema, found: pa.Table | None, wanted: set[bytes] | None) -> None:
        """Hold partitions, those `wanted` of whose cells none were found included, as far as they are not held."""
        held = self._of(table).held
        stored: dict[bytes, list[Cell]] = {key: [] for key in sorted(wanted or ())}
        for cell in read_cells(found) if found is not None and found.num_rows else ():
            if cell[1] not in held and (wanted is None or cell[1] in stored):
                stored.setdefault(cell[1], []).append(cell)
        for key, own in stored.items():
            state = PartitionState(key)
            merge(state, [change_of(cell, table) for cell in own])
            held[key] = _Partition(state, set(own))

    def _due(self, table: TableSchema, column: str, after: int) -> list[bytes]:
        """Give, and hold, the partitions that have a time of this kind after one second, up to the end of the cycle."""
        hashes = self._kept.due(table.id.hex, column, PARTITION, (after, self._now))
        if not len(hashes):
            return []
        found = self._kept.find(table.id.hex, pa.table({PARTITION: pa.array(hashes.astype(np.int32))}))
        keys = set(found["key"].to_pylist()) if found is not None else set()
        self._take(table, found, keys)
        return list(keys)
