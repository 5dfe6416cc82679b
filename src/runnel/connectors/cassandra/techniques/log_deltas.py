"""Writes changes of the log as deltas, each at its own granularity.

An element of a collection is told as a column with its place in brackets: `m[x]` of a map, `s[a]` of a set, `u[street]` of a
user-defined type, `l[id]` of a list, whose elements have ids.
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

from runnel.connectors.cassandra import cells
from runnel.connectors.cassandra.cells import Change
from runnel.connectors.cassandra.cells.reconcile import counter_shards
from runnel.connectors.cassandra.schema.twins import PREFIX, is_twin
from runnel.connectors.cassandra.techniques.writing import Writer
from runnel.connectors.cassandra.values.text import to_text
from runnel.connectors.cassandra.values.types import ListOf, MapOf, SetOf, Udt
from runnel.connectors.deltas.model import Delta, Operation, Span

if TYPE_CHECKING:
    from collections.abc import Sequence

    from runnel.connectors.cassandra.cells import ChangeTuple, Range
    from runnel.connectors.cassandra.schema.tables import TableSchema

COARSE = (cells.ROW_DELETE, cells.RANGE_DELETE, cells.PARTITION_DELETE)


class Teller:
    """Writes changes; it remembers how each table's values are written."""

    def __init__(self) -> None:
        """Begin without a table."""
        self._writers: dict[int, tuple[TableSchema, Writer]] = {}

    def writer(self, table: TableSchema) -> Writer:
        """Give the writer of a table."""
        known = self._writers.get(id(table))
        if known is None:
            known = self._writers[id(table)] = (table, Writer(table))
        return known[1]

    def coarse(self, change: Change) -> Delta:
        """Write the delete of a row, a range of rows or a key."""
        writer = self.writer(change.table)
        place = (change.table.keyspace, change.table.name, writer.key(change.table.key_parts(change.key)))
        cluster = None
        if change.kind == cells.RANGE_DELETE:
            cluster = self._range(writer, change.value)
        elif change.kind == cells.ROW_DELETE and change.table.clustering:
            cluster = writer.cluster(change.clustering)
        return Delta(Operation.DEL, *place, cluster, time=change.timestamp)

    def _range(self, writer: Writer, range_: Range) -> tuple[str, ...] | Span:
        """Write a range; all rows with the same first values are named by these."""
        start, end = writer.cluster(range_.start), writer.cluster(range_.end)
        if range_.start == range_.end and range_.start and range_.start_inclusive and range_.end_inclusive:
            return start
        return Span(start, range_.start_inclusive, end, range_.end_inclusive)

    def partial(self, change_tuple: ChangeTuple, together: Sequence[ChangeTuple]) -> Delta | None:
        """Write a change for itself, or give None where it is not told; `together` are those of its mutation."""
        change = Change(*change_tuple)
        if change.kind in COARSE:
            return self.coarse(change)
        if change.kind == cells.SHADOWABLE_DELETE:
            return None
        if change.kind in (cells.TRUNCATE, cells.COLUMN_DROP):
            return whole_table(change)
        if change.kind == cells.LIVENESS and any(_carries(other, change) for other in together):
            return None
        if change.column is not None and (
            change.table.by_name.get(change.column) is None or is_twin(change.table, change.column)
        ):
            return None
        return self._cell(change, together)

    def _cell(self, change: Change, together: Sequence[ChangeTuple]) -> Delta:
        writer = self.writer(change.table)
        place = (
            change.table.keyspace,
            change.table.name,
            writer.key(change.table.key_parts(change.key)),
            writer.cluster(change.clustering),
            column_name(change),
        )
        if change.kind in (cells.CELL_DELETE, cells.COMPLEX_DELETE):
            return Delta(Operation.DEL, *place, time=change.timestamp)
        if change.kind == cells.COUNTER:
            total = sum(count for _, _, count in counter_shards(change.value))
            return Delta(Operation.UPS, *place, str(total), change.timestamp, counter=True)
        inserted = change.kind == cells.LIVENESS or any(
            other[0] == cells.LIVENESS and other[3] == change.clustering for other in together
        )
        value = "" if change.kind == cells.LIVENESS else element_text(change)
        return Delta(Operation.UPS, *place, value, change.timestamp, ttl=change.ttl or None, row=inserted)


def _carries(other: ChangeTuple, liveness: Change) -> bool:
    """Say whether a change tells of the same row as its liveness does, so that the latter need not be told.

    A value does. A NULL does not: it deletes its column, and the row is there all the same.
    """
    return (
        other[0] == cells.SET
        and other[2:4] == (liveness.key, liveness.clustering)
        and other[4] in liveness.table.by_name
        and not is_twin(liveness.table, other[4] or "")
    )


def whole_table(change: Change) -> Delta | None:
    """Write the end of all rows of a table, or of a column in all of them; None for a column that is not captured."""
    if change.column is not None and change.column.startswith(PREFIX):
        return None
    place = (change.table.keyspace, change.table.name, ())
    return Delta(Operation.DEL, *place, None, change.column, time=change.timestamp)


def column_name(change: Change) -> str:
    """Name a column, and the element of it that was changed."""
    name = change.column or ""
    if change.path is None:
        return name
    type_ = change.table.type_of(name)
    match type_:
        case SetOf(_, _, element):
            inner = to_text(element)(change.path)
        case MapOf(_, _, key, _):
            inner = to_text(key)(change.path)
        case Udt(_, _, fields):
            at = int.from_bytes(change.path, "big")
            inner = fields[at][0] if at < len(fields) else str(at)
        case _:
            inner = str(uuid.UUID(bytes=change.path))
    return f"{name}[{inner}]"


def element_text(change: Change) -> str:
    """Write the value of a cell, or of the element of a collection that it is."""
    type_ = change.table.type_of(change.column or "")
    if change.path is None:
        assert type_ is not None
        return to_text(type_)(change.value)
    match type_:
        case SetOf():
            return ""
        case ListOf(_, _, element):
            return to_text(element)(change.value)
        case MapOf(_, _, _, value):
            return to_text(value)(change.value)
        case Udt(_, _, fields):
            return to_text(fields[int.from_bytes(change.path, "big")][1])(change.value)
    return str(change.value.hex())
