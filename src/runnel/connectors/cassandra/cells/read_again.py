"""Reads again from the server what a snapshot could not tell exactly, when the log speaks of it.

That is a list changed by index and a counter, both only in rows that a snapshot has brought (see `seed`). The value is then
the one of the moment of reading; what the log still brings of it from before is left out.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from runnel.connectors.cassandra import cells
from runnel.connectors.cassandra.cells.reconcile import merge
from runnel.connectors.cassandra.cells.seed import SEEDED, SHARD, seed_cell
from runnel.connectors.cassandra.snapshot import Wanted, read_partition

if TYPE_CHECKING:
    from collections.abc import Callable

    from runnel.connectors.cassandra.cells import ChangeTuple, Clustering
    from runnel.connectors.cassandra.cells.reconcile import PartitionState
    from runnel.connectors.cassandra.client import Client
    from runnel.connectors.cassandra.schema.tables import TableSchema
    from runnel.connectors.cassandra.snapshot import Cell, SnapshotRow

_LONG = struct.Struct(">q")
_TICKS_OF_1970 = 0x01B21DD213814000
Places = set[tuple["Clustering | None", str]]


def merge_exactly(
    table: TableSchema,
    state: PartitionState,
    added: list[ChangeTuple],
    now: int,
    connected: Callable[[], Client | None],
) -> None:
    """Merge changes into a partition; what they do not tell exactly is read from the server, if there is one."""
    vague = {(change[3], change[4] or "") for change in added if _is_vague(state, change)}
    merge(state, [change for change in added if (change[3], change[4] or "") not in vague])
    client = connected() if vague else None
    if client is not None:
        _read(client, table, state, vague, now)


def _is_vague(state: PartitionState, change: ChangeTuple) -> bool:
    """Say whether a change may be about an element that has another id here: one made before the write, or the snapshot."""
    kind, _, _, clustering, column, path, _, timestamp, *_ = change
    row = state.rows.get(clustering)
    if row is None or column is None:
        return False
    if kind == cells.COUNTER:
        return SHARD in row.counters.get(column, {})
    if (column, path) in row.cells or not any(name == column and _is_seeded(at) for name, at in row.cells):
        return False
    barrier, read_at = row.complex.get(column, (0, 0))
    if timestamp <= barrier:
        return True
    made = _microseconds(path) if path is not None and len(path) == 16 else timestamp
    return made < max(timestamp, (read_at + 1) * 1_000_000)


def _is_seeded(path: bytes | None) -> bool:
    return path is not None and len(path) == 16 and path[8:12] == SEEDED


def _microseconds(path: bytes) -> int:
    """Give when an element's id was made; that of a new last element is the time of its write."""
    low, middle, high = struct.unpack_from(">IHH", path)
    return int(((high & 0x0FFF) << 48 | middle << 32 | low) - _TICKS_OF_1970) // 10


def _read(client: Client, table: TableSchema, state: PartitionState, places: Places, now: int) -> None:
    names = {name for _, name in places}
    wanted = Wanted(tuple(column for column in table.columns if column.name in names), ttls=True)
    found: dict[tuple[Clustering | None, str], tuple[SnapshotRow, Cell]] = {}
    for row in read_partition(client, table, wanted, table.key_parts(state.key)):
        at = table.canonical_clustering(row.clustering) if row.clustering else row.clustering
        found |= {(at, cell.column): (row, cell) for cell in row.cells}
    for place in places:
        known = state.rows[place[0]]
        if place[1] in known.counters:
            known.counters.pop(place[1])
        elif place not in found:
            newest = max(version[0] for (name, _), version in known.cells.items() if name == place[1])
            known.complex[place[1]] = (newest, now)
        if place in found:
            row, cell = found[place]
            merge(state, seed_cell(table, row, cell, now))
