"""Makes changes of the rows of a snapshot, so that the log that follows can be reconciled with them.

CQL does not tell everything that the log does:

- the elements of a list get ids of their own, and the time of the newest of them, behind a deletion of what was there up
  to that time: what the log brings of it again is then left out;
- a counter gets one shard of its own;
- whether a row that has values was inserted, and so stays when its last value goes, is not told;
- neither is when a row of nothing but its key goes.

Where the log later speaks of an element or a shard that has another id here, the value is read from the server again; where a
row loses its last value, the server is asked whether it is still there; rows without values are looked at again now and then
(`expired_rows`).
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from runnel.connectors.cassandra import cells
from runnel.connectors.cassandra.cells.reconcile import SEEN
from runnel.connectors.cassandra.values.decode import frozen_items, tuple_items
from runnel.connectors.cassandra.values.types import ListOf, MapOf, SetOf

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from runnel.connectors.cassandra.cells import ChangeTuple
    from runnel.connectors.cassandra.schema.tables import TableSchema
    from runnel.connectors.cassandra.snapshot import Cell, SnapshotRow
    from runnel.connectors.cassandra.values.types import CqlType

SEEDED = b"rnnl"
"""What the ids that list elements get here have in their second half, by which they are known again."""
SHARD = bytes(16)
"""The id of a counter's shard that was made here."""
_GREGORIAN = 0x01B21DD213814000


def partition_key(table: TableSchema, parts: tuple[bytes, ...]) -> bytes:
    """Put the parts of a partition key together as the log has it."""
    if len(table.partition_key) == 1:
        return parts[0]
    return b"".join(len(part).to_bytes(2, "big") + part + b"\x00" for part in parts)


def seed(table: TableSchema, row: SnapshotRow, now: int) -> Iterator[ChangeTuple]:
    """Give the changes that make a row as it was read at a second."""
    for cell in row.cells:
        yield from seed_cell(table, row, cell, now)
    if row.clustering is not None and not row.cells:
        yield (cells.LIVENESS, table, partition_key(table, row.key), row.clustering, None, None, None, SEEN, 0, now)


def seed_cell(table: TableSchema, row: SnapshotRow, cell: Cell, now: int) -> Iterator[ChangeTuple]:
    """Give the changes that make one column of a row."""
    key, type_ = partition_key(table, row.key), table.by_name[cell.column].type
    place = (table, key, row.clustering, cell.column)
    if type_.name == "counter":
        context = b"\x00\x01\x80\x00" + SHARD + struct.pack(">q", 1) + cell.value
        yield (cells.COUNTER, *place, None, context, 0, 0, 0)
        return
    if not type_.multicell:
        yield (cells.SET, *place, None, cell.value, cell.time or 0, *_lasting(cell.ttl, now))
        return
    times: Sequence[int | None] = cell.times
    if isinstance(type_, ListOf) and not isinstance(type_, SetOf):
        newest = cell.time or 0
        yield (cells.COMPLEX_DELETE, *place, None, None, newest, 0, now)
        times = [newest + 1] * len(cell.times)
    for (path, value), time, ttl in zip(_elements(type_, cell), times, cell.ttls, strict=True):
        if value is not None:
            yield (cells.SET, *place, path, value, time or 0, *_lasting(ttl, now))


def _lasting(ttl: int | None, now: int) -> tuple[int, int]:
    return (ttl, now + ttl) if ttl else (0, 0)


def _elements(type_: CqlType, cell: Cell) -> list[tuple[bytes, bytes | None]]:
    """Cut a collection into the paths and values of its elements."""
    match type_:
        case SetOf():
            return [(item or b"", b"") for item in frozen_items(cell.value)]
        case ListOf():
            return [(_list_id(cell.time or 0, n), item or b"") for n, item in enumerate(frozen_items(cell.value))]
        case MapOf():
            items = frozen_items(cell.value, per_entry=2)
            return [(items[n] or b"", items[n + 1] or b"") for n in range(0, len(items), 2)]
    return [(n.to_bytes(2, "big"), item) for n, item in enumerate(tuple_items(cell.value))]


def _list_id(microseconds: int, at: int) -> bytes:
    ticks = microseconds * 10 + _GREGORIAN
    low, middle, high = ticks & 0xFFFFFFFF, ticks >> 32 & 0xFFFF, ticks >> 48 & 0x0FFF
    return struct.pack(">IHH", low, middle, 0x1000 | high) + SEEDED + at.to_bytes(4, "big")
