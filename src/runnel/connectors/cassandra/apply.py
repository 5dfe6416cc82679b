"""Applies deltas to Cassandra tables: the copy then holds what the captured tables hold.

Each delta is written with its own time, so the order does not matter and applying twice changes nothing; counters are the
exception, they are added to. Deltas without times, and elements of collections as the partial log tells them, are refused.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from runnel.connectors.cassandra.client import name_of
from runnel.connectors.cassandra.deltas import Operation, Span
from runnel.connectors.cassandra.types import quoted
from runnel.connectors.cassandra.value_text import to_json
from runnel.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from runnel.connectors.cassandra.client import Client
    from runnel.connectors.cassandra.deltas import Delta
    from runnel.connectors.cassandra.schema import ColumnSchema, TableSchema

    Statement = tuple[str, list[bytes | None]]

_LONG = struct.Struct(">q")


def apply_deltas(client: Client, deltas: Iterable[Delta]) -> int:
    """Write deltas to the tables of the same names in the client's keyspace; give how many."""
    tables = client.tables()
    return client.write(_statement(delta, tables) for delta in deltas)


def _statement(delta: Delta, tables: Mapping[str, TableSchema]) -> Statement:
    table = tables.get(delta.table)
    if table is None or delta.time is None or (delta.column and delta.column not in table.by_name):
        raise UsageError(
            "RUNNEL-CAPTURE-APPLY",
            f"a delta of {delta.table} cannot be applied: {delta.column or 'its row'}",
            hint="there must be a table of that name and column, and deltas need their times",
        )
    if delta.operation is Operation.DEL:
        return _removal(table, delta, delta.time)
    return _change(table, delta, delta.time)


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
    where = _equal([column.name for column, _ in place])
    values: list[bytes | None] = [_LONG.pack(time), *(_json(column, text) for column, text in place)]
    if isinstance(delta.cluster, Span):
        bounds = [
            (delta.cluster.start, ">", delta.cluster.start_inclusive),
            (delta.cluster.end, "<", delta.cluster.end_inclusive),
        ]
        for parts, sign, inclusive in bounds:
            if parts:
                where += f" AND {_bound(table, parts, sign + ('=' if inclusive else ''))}"
                values += [_json(c, text) for c, text in zip(table.clustering, parts, strict=False)]
    return f"DELETE {column}FROM {name_of(table)} USING TIMESTAMP ? WHERE {where}", values


def _bound(table: TableSchema, parts: Sequence[str], sign: str) -> str:
    names = ", ".join(quoted(column.name) for column in table.clustering[: len(parts)])
    return f"({names}) {sign} ({', '.join('fromJson(?)' for _ in parts)})"


def _place(table: TableSchema, delta: Delta) -> Iterator[tuple[ColumnSchema, str]]:
    yield from zip(table.partition_key, delta.key, strict=True)
    if isinstance(delta.cluster, tuple):
        yield from zip(table.clustering, delta.cluster, strict=False)


def _equal(names: Sequence[str]) -> str:
    return " AND ".join(f"{quoted(name)} = fromJson(?)" for name in names)


def _json(column: ColumnSchema, text: str) -> bytes:
    return to_json(column.type, text).encode()
