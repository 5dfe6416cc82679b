"""Rows rebuilt from a log, and the same rows as a server gives them, in one form."""

from __future__ import annotations

import datetime as dt
import time
from contextlib import suppress
from decimal import Context, Decimal
from typing import TYPE_CHECKING, Any

from runnel.connectors.cassandra import cells
from runnel.connectors.cassandra.cells.reconcile import PartitionState, Truncations, merge, rows
from runnel.connectors.cassandra.schema.tables import SchemaRows, TableSchema
from runnel.connectors.cassandra.values.types import CqlType, ListOf, MapOf, TupleOf, Udt, Vector, quoted

if TYPE_CHECKING:
    from collections.abc import Iterable

    from runnel.connectors.cassandra.cells import Mutation

HOST = "host"
READS = 5
States = dict[tuple[Any, bytes], PartitionState]


def rebuild(mutations: Iterable[Mutation], truncations: Truncations | None = None) -> States:
    """Merge mutations, in any order, into a state per partition; what a TRUNCATE took is left out."""
    every = list(mutations)
    taken = truncations or truncated(every)
    states: States = {}
    for mutation in every:
        for change in mutation.changes:
            if change[0] < cells.TRUNCATE and not taken.covers(HOST, change[1], mutation):
                merge(states.setdefault((change[1].id, change[2]), PartitionState(change[2])), [change])
    return states


def truncated(mutations: Iterable[Mutation]) -> Truncations:
    """Give what the TRUNCATEs among mutations took."""
    found = Truncations()
    for mutation in mutations:
        for change in mutation.changes:
            if change[0] == cells.TRUNCATE:
                found.note(HOST, change)
    return found


def rebuilt_rows(states: States, table: TableSchema, now: int) -> list[str]:
    """Give the rows of a table, sorted, as text that shows every difference."""
    found = [row for (table_id, _), state in states.items() if table_id == table.id for row in rows(state, table, now)]
    return sorted(shown(row) for row in found)


def shown(row: dict[str, Any]) -> str:
    return repr([(name, row[name]) for name in sorted(row)])


def selected_rows(session: Any, table: TableSchema) -> tuple[list[str], int]:
    """Give what `SELECT *` gives, in the same form, and the second it was asked in."""
    while True:
        before = int(time.time())
        found = _read(session, f"SELECT * FROM {table.keyspace}.{quoted(table.name)}")
        if int(time.time()) == before:
            break
    names = [column.name for column in table.columns]
    clustering = {column.name for column in table.clustering}
    rows_ = [
        {name: normal(table.by_name[name].type, value) for name, value in zip(names, row, strict=True)} for row in found
    ]
    # Of equal decimals in a key the server shows the one that came first, runnel the shortest.
    for row in rows_:
        for name in clustering:
            if isinstance(row[name], Decimal):
                row[name] = row[name].normalize(Context(prec=100))
    return sorted(shown(row) for row in rows_), before


def _read(session: Any, query: str) -> list[Any]:
    """Read rows; a busy node may give up a read on its own, which says nothing about its rows."""
    from cassandra import ReadFailure, ReadTimeout

    for _ in range(READS - 1):
        with suppress(ReadFailure, ReadTimeout):
            return list(session.execute(query))
    return list(session.execute(query))


def normal(type_: CqlType, value: Any) -> Any:
    """Give a driver's value in the form `decode` gives it."""
    if value is None:
        # The driver gives a collection without elements as None, like one that is not there.
        return None
    match type_:
        case ListOf(_, _, element) | Vector(_, _, element):
            return [normal(element, item) for item in value]
        case MapOf(_, _, key, item):
            return [(normal(key, k), normal(item, v)) for k, v in value.items()]
        case TupleOf(_, _, items):
            return {f"_{n}": normal(item, part) for n, (item, part) in enumerate(zip(items, value, strict=True), 1)}
        case Udt(_, _, fields):
            return {name: normal(field, part) for (name, field), part in zip(fields, value, strict=True)}
    if type_.name == "timestamp":
        return value.replace(tzinfo=dt.UTC)
    if type_.name in ("uuid", "timeuuid"):
        return str(value)
    if type_.name == "date":
        return value.date()
    if type_.name == "time":
        return value.nanosecond_time
    if type_.name == "duration":
        return {"months": value.months, "days": value.days, "nanoseconds": value.nanoseconds}
    return value


def schema_rows(session: Any, keyspace: str) -> SchemaRows:
    """Read a keyspace's definitions from the server."""
    found = SchemaRows()
    for name in ("tables", "columns", "dropped_columns", "types", "views"):
        result = session.execute(f"SELECT * FROM system_schema.{name} WHERE keyspace_name = %s", (keyspace,))
        setattr(found, name, [row._asdict() for row in result])
    return found
