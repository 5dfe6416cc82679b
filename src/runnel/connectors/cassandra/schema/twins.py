"""Audit columns: the twin of a column tells when it was inserted, or which of its values was analysed last.

The twin of `Math` is `audit-Math`. In *time mode* it holds the time of insertion, in *value mode* the value last
analysed, with its own write time for the time of insertion.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from runnel.connectors.cassandra.schema.tables import name_of
from runnel.connectors.cassandra.values.types import quoted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from runnel.connectors.cassandra.schema.tables import ColumnSchema, TableSchema

PREFIX = "audit-"


def twin_of(column: str) -> str:
    """Give the name of a column's twin.

    >>> twin_of("Math")
    'audit-Math'
    """
    return PREFIX + column


def is_twin(table: TableSchema, column: str) -> bool:
    """Say whether a column is the twin of another one."""
    return column.startswith(PREFIX) and column.removeprefix(PREFIX) in table.by_name


def captured_columns(table: TableSchema) -> tuple[ColumnSchema, ...]:
    """Give the columns that are data: neither keys nor twins."""
    return tuple(column for column in (*table.static, *table.regular) if not is_twin(table, column.name))


def twin_type(column: ColumnSchema, mode: str) -> str:
    """Give the type of a column's twin; a collection is kept whole."""
    if mode == "time":
        return "bigint"
    return f"frozen<{column.type}>" if column.type.multicell else str(column.type)


def where(table: TableSchema, *, static: bool) -> str:
    """Write the condition that finds a row, or the static row of a partition."""
    columns: Sequence[ColumnSchema] = table.partition_key if static else (*table.partition_key, *table.clustering)
    return " AND ".join(f"{quoted(column.name)} = ?" for column in columns)


def set_twin(table: TableSchema, column: str) -> str:
    """Write the statement that sets a twin: time to live, timestamp, value, then the row's key."""
    static = column in {c.name for c in table.static}
    twin = quoted(twin_of(column))
    return f"UPDATE {name_of(table)} USING TTL ? AND TIMESTAMP ? SET {twin} = ? WHERE {where(table, static=static)}"


def remove_twin(table: TableSchema, column: str) -> str:
    """Write the statement that deletes a twin: timestamp, then the row's key."""
    static = column in {c.name for c in table.static}
    twin = quoted(twin_of(column))
    return f"DELETE {twin} FROM {name_of(table)} USING TIMESTAMP ? WHERE {where(table, static=static)}"
