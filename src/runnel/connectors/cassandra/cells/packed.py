"""Changes as Arrow and back: the form in which cells are stored in the lake, and in which they travel to wherever they are reconciled."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from runnel.connectors.cassandra import cells
from runnel.connectors.cassandra.cells import Range
from runnel.connectors.cassandra.cells.reconcile import EXPIRED_TTL
from runnel.connectors.cells import CHANGED, ORDER, STORED, partition_of, place_of, schema_of
from runnel.model.relation import WEIGHT

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from runnel.connectors.cassandra.cells import ChangeTuple, Clustering
    from runnel.connectors.cassandra.schema.tables import TableSchema

_LENGTH = struct.Struct(">i")
_STORED_SCHEMA = schema_of(STORED).append(pa.field(WEIGHT, pa.int64()))
_CHANGED_SCHEMA = schema_of(CHANGED)
_FIELDS = ("kind", "key", "clustering", "column", "path", "value", "timestamp", "ttl", "ldt")

Cell = tuple[int, bytes, bytes | None, str | None, bytes | None, bytes | None, int, int, int]
"""A cell as plain values, in the order of `_FIELDS`; equal cells are equal tuples."""


def pack(clustering: Clustering) -> bytes:
    """Write a clustering, or a bound of one, as bytes: each part with its length, -1 for none.

    >>> unpack(pack((b"a", None, b""))), unpack(pack(()))
    ((b'a', None, b''), ())
    """
    return b"".join(_LENGTH.pack(-1) if part is None else _LENGTH.pack(len(part)) + part for part in clustering)


def unpack(packed: bytes) -> Clustering:
    """Read what `pack` has written."""
    parts: list[bytes | None] = []
    at = 0
    while at < len(packed):
        length = _LENGTH.unpack_from(packed, at)[0]
        at += 4
        parts.append(None if length < 0 else packed[at : at + length])
        at += max(0, length)
    return tuple(parts)


def _pack_range(range_: Range) -> bytes:
    start = pack(range_.start)
    flags = bytes((range_.start_inclusive, range_.end_inclusive))
    return flags + _LENGTH.pack(len(start)) + start + pack(range_.end)


def _unpack_range(packed: bytes) -> Range:
    cut = 6 + _LENGTH.unpack_from(packed, 2)[0]
    return Range(unpack(packed[6:cut]), bool(packed[0]), unpack(packed[cut:]), bool(packed[1]))


def _cell(change: ChangeTuple) -> Cell:
    kind, _, key, clustering, column, path, value, timestamp, ttl, ldt = change
    if kind == cells.RANGE_DELETE:
        value = _pack_range(value)
    elif kind == cells.TRUNCATE:
        value = None
    place = pack(clustering) if clustering else None if clustering is None else b""
    return (kind, key, place, column, path, value, timestamp, ttl, ldt)


class ChangedCells:
    """Changes of one table on their way into Arrow, in the order of their log."""

    def __init__(self, part: int = 0) -> None:
        """Begin without a change; `part` is the number of the stretch of log that they come from."""
        self._cells: list[Cell] = []
        self._order: list[tuple[int, int, int]] = []
        self._part = part

    def __len__(self) -> int:
        return len(self._cells)

    def add(self, changes: Iterable[ChangeTuple], mutation: int, at: int = 0) -> None:
        """Add the changes of one mutation."""
        before = len(self._cells)
        self._cells += map(_cell, changes)
        self._order += [(at, self._part, mutation)] * (len(self._cells) - before)

    def taken(self) -> pa.Table:
        """Give the changes and begin again."""
        columns = _columns(self._cells)
        whole_table = [kind == cells.TRUNCATE for kind in columns["kind"]]
        for name in ("place", "partition", "key"):
            columns[name] = [None if of_table else v for v, of_table in zip(columns[name], whole_table, strict=True)]
        order = zip(*self._order, strict=True) if self._order else ((), (), ())
        columns |= dict(zip(ORDER, order, strict=True))
        self._cells, self._order = [], []
        return pa.table([pa.array(columns[f.name], f.type) for f in _CHANGED_SCHEMA], schema=_CHANGED_SCHEMA)


def _columns(listed: list[Cell]) -> dict[str, Any]:
    found = dict(zip(_FIELDS, zip(*listed, strict=True), strict=True)) if listed else dict.fromkeys(_FIELDS, ())
    hashes: dict[bytes, int] = {}
    partitions = [hashes[key] if key in hashes else hashes.setdefault(key, partition_of(key)) for key in found["key"]]
    rows = found["clustering"]
    places = [place_of(partition, row) for partition, row in zip(partitions, rows, strict=True)]
    return found | {"partition": partitions, "place": places}


def signed_cells(came: Iterable[Cell], went: Iterable[Cell], grace: int) -> pa.Table:
    """Give cells that came and that went as signed rows of the lake, sorted by their places."""
    plus, minus = list(came), list(went)
    columns = _columns([*plus, *minus])
    columns["expires"] = [_due(cell, grace) for cell in (*plus, *minus)]
    columns["seen"] = [_seen(cell) for cell in (*plus, *minus)]
    columns[WEIGHT] = [1] * len(plus) + [-1] * len(minus)
    table = pa.table([pa.array(columns[f.name], f.type) for f in _STORED_SCHEMA], schema=_STORED_SCHEMA)
    return table.sort_by("place")


def _due(cell: Cell, grace: int) -> int | None:
    """Give the second at which a cell expires, or at which a deletion is past its grace."""
    kind, ttl, ldt = cell[0], cell[7], cell[8]
    if kind in (cells.SET, cells.LIVENESS):
        return ldt if ttl and ttl != EXPIRED_TTL else None
    return None if kind == cells.COUNTER else ldt + grace + 1


def _seen(cell: Cell) -> int | None:
    return cell[8] if cell[0] == cells.LIVENESS and not cell[7] and cell[8] else None


def plain_cells(changes: Iterable[ChangeTuple]) -> Iterator[Cell]:
    """Give changes as plain values that can be compared with stored ones."""
    return map(_cell, changes)


def read_cells(table: pa.Table) -> Iterator[Cell]:
    """Give the rows of a table in one of both forms as plain values."""
    return zip(*(_values(table[name]) for name in _FIELDS), strict=True)


def _values(column: pa.ChunkedArray) -> list[Any]:
    found: list[Any] = column.to_pylist() if column.null_count else column.to_numpy(zero_copy_only=False).tolist()
    return found


def change_of(cell: Cell, table: TableSchema) -> ChangeTuple:
    """Give a cell as the change that it was made from."""
    kind, key, place, column, path, value, timestamp, ttl, ldt = cell
    clustering = unpack(place) if place else None if place is None else ()
    read: Any = value
    if kind == cells.RANGE_DELETE and value is not None:
        read = _unpack_range(value)
    return (kind, table, key or b"", clustering, column, path, read, timestamp, ttl, ldt)
