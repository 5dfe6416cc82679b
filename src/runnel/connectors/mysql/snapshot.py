"""Reads a table by SELECT, in pieces by its key, without locks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from runnel.connectors.mysql.client import connect, quoted, translate_errors
from runnel.connectors.mysql.types import selected, selected_array

if TYPE_CHECKING:
    from collections.abc import Iterator

    from runnel.connectors.mysql.definitions import Definition
    from runnel.connectors.mysql.settings import Settings

PIECE = 20_000
"""Rows that are turned into Arrow together."""


def read_table(settings: Settings, definition: Definition, where: str = "") -> Iterator[pa.Table]:
    """Give the rows of a table, or those that a condition names, as they are while they are read."""
    columns = ", ".join(selected(column) for column in definition.columns)
    sql = f"SELECT {columns} FROM {quoted(settings.database, definition.name)}" + (f" WHERE {where}" if where else "")
    with translate_errors(settings):
        connection = connect(settings)
        try:
            with connection.cursor() as cursor:
                cursor.execute(sql)
                while rows := cursor.fetchmany(PIECE):
                    yield _table(settings, definition, rows)
        finally:
            connection.close()


def _table(settings: Settings, definition: Definition, rows: list[tuple[Any, ...]]) -> pa.Table:
    by_column = zip(*rows, strict=True)
    arrays = [
        selected_array(column, values, settings.zero_dates)
        for column, values in zip(definition.columns, by_column, strict=True)
    ]
    return pa.table(arrays, names=[column.name for column in definition.columns])
