"""Makes changes of the rows of a snapshot, so that the log that follows can be reconciled with them.

CQL does not tell everything that the log does:

- the elements of a collection get the time of the newest one, and those of a list ids of their own, behind a deletion of
  what was there up to that time: what the log brings of it again is then left out;
- a counter gets one shard of its own;
- whether a row was inserted, and so stays when its last value is deleted, is not told: it is taken to be, for as long as
  its values last.

Where the log later speaks of an element or a shard that has another id here, the value is read from the server again.
"""

from __future__ import annotations

import struct
from dataclasses import replace
from typing import TYPE_CHECKING

from runnel.connectors.cassandra import cells
from runnel.connectors.cassandra.types import ListOf, MapOf, SetOf, Udt
from runnel.connectors.cassandra.value_bytes import frozen_items, tuple_items

if TYPE_CHECKING:
    from collections.abc import Iterator

    from runnel.connectors.cassandra.cells import ChangeTuple
    from runnel.connectors.cassandra.schema import TableSchema
    from runnel.connectors.cassandra.snapshot import Cell, SnapshotRow
    from runnel.connectors.cassandra.types import CqlType

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
    key = partition_key(table, row.key)
    for cell in row.cells:
        yield from seed_cell(table, row, cell, now)
    if row.clustering is not None:
        yield _liveness(table, key, row, now)


def seed_cell(table: TableSchema, row: SnapshotRow, cell: Cell, now: int) -> Iterator[ChangeTuple]:
    """Give the changes that make one column of a row."""
    key, type_ = partition_key(table, row.key), table.by_name[cell.column].type
    if isinstance(type_, ListOf) and not isinstance(type_, SetOf) and type_.multicell and cell.time is not None:
        yield (cells.COMPLEX_DELETE, table, key, row.clustering, cell.column, None, None, cell.time, 0, now)
        cell = replace(cell, time=cell.time + 1)
    for path, value in _parts(type_, cell):
        yield _set(table, key, row, cell, path, value, now)


def _set(
    table: TableSchema, key: bytes, row: SnapshotRow, cell: Cell, path: bytes | None, value: bytes, now: int
) -> ChangeTuple:
    if cell.time is None:
        context = b"\x00\x01\x80\x00" + SHARD + struct.pack(">q", 1) + value
        return (cells.COUNTER, table, key, row.clustering, cell.column, None, context, 0, 0, 0)
    expiry = now + cell.ttl if cell.ttl else 0
    return (cells.SET, table, key, row.clustering, cell.column, path, value, cell.time, cell.ttl or 0, expiry)


def _liveness(table: TableSchema, key: bytes, row: SnapshotRow, now: int) -> ChangeTuple:
    times = [cell.time for cell in row.cells if cell.time is not None]
    lasting = [cell.ttl for cell in row.cells if cell.ttl]
    ttl = max(lasting) if row.cells and len(lasting) == len(row.cells) else 0
    born = min(times, default=0)
    return (cells.LIVENESS, table, key, row.clustering, None, None, None, born, ttl, now + ttl if ttl else 0)


def _parts(type_: CqlType, cell: Cell) -> Iterator[tuple[bytes | None, bytes]]:
    """Cut a collection into its elements."""
    if not type_.multicell:
        yield None, cell.value
        return
    match type_:
        case SetOf():
            yield from ((item or b"", b"") for item in frozen_items(cell.value))
        case ListOf():
            for at, item in enumerate(frozen_items(cell.value)):
                yield _list_id(cell.time or 0, at), item or b""
        case MapOf():
            items = frozen_items(cell.value, per_entry=2)
            yield from ((items[at] or b"", items[at + 1] or b"") for at in range(0, len(items), 2))
        case Udt():
            for at, item in enumerate(tuple_items(cell.value)):
                if item is not None:
                    yield at.to_bytes(2, "big"), item


def _list_id(microseconds: int, at: int) -> bytes:
    ticks = microseconds * 10 + _GREGORIAN
    low, middle, high = ticks & 0xFFFFFFFF, ticks >> 32 & 0xFFFF, ticks >> 48 & 0x0FFF
    return struct.pack(">IHH", low, middle, 0x1000 | high) + SEEDED + at.to_bytes(4, "big")
