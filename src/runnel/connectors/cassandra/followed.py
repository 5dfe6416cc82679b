"""The tables that a source follows: with the columns they had when it was opened, and as the server defines them now."""

from __future__ import annotations

import time
import uuid
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from runnel.connectors.cassandra.log_files import check_cdc
from runnel.connectors.cassandra.row_changes import row_columns
from runnel.errors import Terminal

if TYPE_CHECKING:
    from collections.abc import Mapping

    from runnel.connectors.cassandra.client import Client
    from runnel.connectors.cassandra.logs import Logs
    from runnel.connectors.cassandra.schema import ColumnSchema, TableSchema

LOOK_SECONDS = 5.0
"""How often the server is asked for its definitions when the log tells nothing of a change: the log may have lost it."""
Versions = dict[str, list[Any]]
"""By name a table's id, and when a column of it was last dropped: when one of these changes, all rows may have."""


class Followed:
    """Tables by name. A table that is made anew is followed on; one without a column that it had is an error."""

    def __init__(self, tables: list[TableSchema], logs: Logs, client: Client | None) -> None:
        """Begin with the tables as they are; without a `client` they stay so."""
        self.tables = {table.name: table for table in tables}
        self.columns = {table.name: row_columns(table) for table in tables}
        self._logs, self._client = logs, client
        self._looked = self._moment()

    def _moment(self) -> tuple[float, int]:
        generation = sum(node.reader.catalog.generation for node in self._logs.nodes)
        return time.monotonic() // LOOK_SECONDS, generation

    def look(self) -> None:
        """Learn how the tables are defined now, if that may have changed since the last time."""
        moment = self._moment()
        if self._client is None or moment == self._looked:
            return
        there = self._client.tables()
        for name in self.tables:
            if name not in there:
                raise Terminal(
                    "RUNNEL-CASSANDRA-DROPPED",
                    f"{self.tables[name].keyspace}.{name} was dropped",
                    hint="its rows are kept as they were; create it again, or take it out of the source's tables",
                )
            self._check_columns(there[name])
        self.tables = {name: there[name] for name in self.tables}
        self._looked = moment

    def _check_columns(self, table: TableSchema) -> None:
        check_cdc([table])
        for column in self.columns[table.name]:
            if _shape(table.by_name.get(column.name)) != _shape(column):
                raise Terminal(
                    "RUNNEL-CASSANDRA-CHANGED",
                    f"{table.keyspace}.{table.name}: the column {column.name!r} is not there any more as it was",
                    hint="its rows are kept as they were; define it as it was, or begin with a new state",
                )

    def versions(self) -> Versions:
        """Give what tells one making of each table from another."""
        return {name: [table.id.hex, self._dropped(table)] for name, table in self.tables.items()}

    def _dropped(self, table: TableSchema) -> int:
        return max((table.dropped_at.get(column.name, 0) for column in self.columns[table.name]), default=0)

    def replaced(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> list[TableSchema]:
        """Give the tables that changed between two positions as they were before; what was dropped is there in them."""
        before, after = start.get("tables", {}), end.get("tables", {})
        changed = [name for name in self.tables if before.get(name, after.get(name)) != after.get(name)]
        return [replace(self.tables[name], id=uuid.UUID(before[name][0]), dropped=()) for name in changed]


def _shape(column: ColumnSchema | None) -> tuple[str, str] | None:
    return None if column is None else (str(column.type), column.kind)
