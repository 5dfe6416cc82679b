"""Applies deltas to Cassandra tables: the copy then holds what the captured tables hold.

Each delta is written with its own time, so the order does not matter and applying twice changes nothing; counters are the
exception, they are added to. Deletes of whole tables, which have no key, are refused. A range of rows is written as one delete per clustering column that it differs in. Deltas without times, and elements of collections as the partial log tells them, are refused.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple

from runnel.connectors.cassandra.schema.tables import name_of
from runnel.connectors.cassandra.values.text import to_json
from runnel.connectors.cassandra.values.types import quoted
from runnel.connectors.deltas.model import Operation, Span
from runnel.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from runnel.connectors.cassandra.client import Client
    from runnel.connectors.cassandra.schema.tables import ColumnSchema, TableSchema
    from runnel.connectors.deltas.model import Delta, Parts

    Statement = tuple[str, list[bytes | None]]

_LONG = struct.Struct(">q")


def apply_deltas(client: Client, deltas: Iterable[Delta]) -> int:
    """Write deltas to the tables of the same names in the client's keyspace; give how many."""
    tables, applied = client.tables(), 0

    def statements() -> Iterator[Statement]:
        nonlocal applied
        for delta in deltas:
            yield from _statements(delta, tables)
            applied += 1

    client.write(statements())
    return applied


def _statements(delta: Delta, tables: Mapping[str, TableSchema]) -> Iterator[Statement]:
    table = tables.get(delta.table)
    known = table is not None and (not delta.column or delta.column in table.by_name)
    if table is None or not known or delta.time is None or not delta.key:
        raise UsageError(
            "RUNNEL-CAPTURE-APPLY",
            f"a delta of {delta.table} cannot be applied: {delta.column or 'its row'}",
            hint="there must be a table of that name and column, and deltas need their times",
        )
    if isinstance(delta.cluster, Span):
        yield from _range_removals(table, delta, delta.cluster, delta.time)
    elif delta.operation is Operation.DEL:
        yield _removal(table, delta, delta.time)
    else:
        yield _change(table, delta, delta.time)


def _change(table: TableSchema, delta: Delta, time: int) -> Statement:
    place = list(_place(table, delta))
    names = [column.name for column, _ in place]
    values = [_json(column, text) for column, text in place]
    if delta.counter:
        added = int(delta.value or 0) - int(delta.previous or 0)
        name = quoted(delta.column or "")
        cql = f"UPDATE {name_of(table)} SET {name} = {name} + ? WHERE {_equal(names)}"
        return cql, [_LONG.pack(added), *values]
    if delta.column:
        column = table.by_name[delta.column]
        value = _json(column, delta.value or "")
        if not delta.row:
            cql = f"UPDATE {name_of(table)} USING TIMESTAMP ? SET {quoted(column.name)} = fromJson(?) WHERE {_equal(names)}"
            return cql, [_LONG.pack(time), value, *values]
        names, values = [*names, column.name], [*values, value]
    listed, marks = ", ".join(map(quoted, names)), ", ".join("fromJson(?)" for _ in names)
    return f"INSERT INTO {name_of(table)} ({listed}) VALUES ({marks}) USING TIMESTAMP ?", [*values, _LONG.pack(time)]


def _removal(table: TableSchema, delta: Delta, time: int) -> Statement:
    place = list(_place(table, delta))
    column = f"{quoted(delta.column)} " if delta.column else ""
    return _delete(table, column, [column.name for column, _ in place], [_json(*part) for part in place], time)


def _delete(table: TableSchema, column: str, names: Sequence[str], values: Sequence[bytes], time: int) -> Statement:
    cql = f"DELETE {column}FROM {name_of(table)} USING TIMESTAMP ? WHERE {_equal(names)}"
    return cql, [_LONG.pack(time), *values]


def _range_removals(table: TableSchema, delta: Delta, span: Span, time: int) -> Iterator[Statement]:
    """Write a range, which goes by the order of the table, in conditions, which go by the order of the values."""
    key = list(zip(table.partition_key, delta.key, strict=True))
    for piece in pieces(span):
        place = [*key, *zip(table.clustering, piece.equal, strict=False)]
        cql, values = _delete(table, "", [c.name for c, _ in place], [_json(*part) for part in place], time)
        for bound, toward_end in ((piece.start, True), (piece.end, False)):
            if bound is not None:
                column = table.clustering[len(piece.equal)]
                sign = (">" if toward_end != column.descending else "<") + ("=" if bound[1] else "")
                cql += f" AND {quoted(column.name)} {sign} fromJson(?)"
                values.append(_json(column, bound[0]))
        yield cql, values


Bound = tuple[str, bool]
"""A value, and whether it belongs to the range."""


class Piece(NamedTuple):
    """Rows whose first clustering values are these, and whose next one lies between two bounds."""

    equal: Parts
    start: Bound | None = None
    end: Bound | None = None


def pieces(span: Span) -> Iterator[Piece]:
    """Cut a range of rows into pieces that differ in one clustering column each: only these can be written for any order.

    >>> list(pieces(Span(("1", "5"), False, ("1",), True)))
    [Piece(equal=('1',), start=('5', False), end=None)]
    >>> list(pieces(Span(("1", "5"), True, ("3",), False)))
    [Piece(equal=(), start=('1', False), end=('3', False)), Piece(equal=('1',), start=('5', True), end=None)]
    """
    start, end = span.start, span.end
    same = 0
    while same < min(len(start), len(end)) and start[same] == end[same]:
        same += 1
    if (same == len(start) and start and not span.start_inclusive) or (
        same == len(end) and end and not span.end_inclusive
    ):
        return  # a bound that leaves all rows of the shared beginning out
    equal, start, end = start[:same], start[same:], end[same:]
    if not start and not end:
        yield Piece(equal)
        return
    yield Piece(
        equal,
        (start[0], span.start_inclusive and len(start) == 1) if start else None,
        (end[0], span.end_inclusive and len(end) == 1) if end else None,
    )
    if len(start) > 1:
        yield from pieces(Span((*equal, *start), span.start_inclusive, (*equal, start[0]), end_inclusive=True))
    if len(end) > 1:
        yield from pieces(Span((*equal, end[0]), end=(*equal, *end), end_inclusive=span.end_inclusive))


def _place(table: TableSchema, delta: Delta) -> Iterator[tuple[ColumnSchema, str]]:
    yield from zip(table.partition_key, delta.key, strict=True)
    if isinstance(delta.cluster, tuple):
        yield from zip(table.clustering, delta.cluster, strict=False)


def _equal(names: Sequence[str]) -> str:
    return " AND ".join(f"{quoted(name)} = fromJson(?)" for name in names)


def _json(column: ColumnSchema, text: str) -> bytes:
    return to_json(column.type, text).encode()
