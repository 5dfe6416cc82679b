"""The tables that a source follows: with the columns they had when it was opened, and as the server defines them now."""

from __future__ import annotations

import time
import uuid
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from runnel.connectors.cassandra.cells.row_changes import row_columns
from runnel.connectors.cassandra.log.nodes import check_cdc
from runnel.connectors.cassandra.schema.tables import ColumnSchema
from runnel.errors import Terminal

if TYPE_CHECKING:
    from collections.abc import Mapping

    from runnel.connectors.cassandra.client import Client
    from runnel.connectors.cassandra.log.all_nodes import Logs
    from runnel.connectors.cassandra.schema.tables import TableSchema

LOOK_SECONDS = 5.0
"""How often the server is asked for its definitions when the log tells nothing of a change: the log may have lost it."""
Versions = dict[str, list[Any]]
"""By name a table's id, when a column of it was last dropped, and the columns that are followed: when one of these changes, all
rows may have. Positions of earlier builds do not name the columns."""


class Followed:
    """Tables by name, and the columns of each that are followed.

    A table that is made anew is followed on. Columns that come or go are taken up by `adopt`, when whoever reads can take them:
    until then added ones are left out, and dropped ones are NULL. A key or type that changes is an error.
    """

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

    def adopt(self) -> None:
        """Follow the columns that the tables have now."""
        self.columns = {name: row_columns(table) for name, table in self.tables.items()}

    def _check_columns(self, table: TableSchema) -> None:
        check_cdc([table])
        for column in self.columns[table.name]:
            now = table.by_name.get(column.name)
            dropped = now is None and column.kind in ("static", "regular")
            if not dropped and _shape(now) != _shape(column):
                raise Terminal(
                    "RUNNEL-CASSANDRA-CHANGED",
                    f"{table.keyspace}.{table.name}: the column {column.name!r} is no longer what it was",
                    hint="its rows are kept as they were; define it as it was, or begin with a new state",
                )

    def versions(self) -> Versions:
        """Give what tells one making of each table from another."""
        return {
            name: [table.id.hex, max(table.dropped_at.values(), default=0), self._named(name)]
            for name, table in self.tables.items()
        }

    def _named(self, name: str) -> list[str]:
        return [column.name for column in self.columns[name] if column.kind in ("static", "regular")]

    def replaced(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> list[TableSchema]:
        """Give the tables that changed between two positions as they were before: what was dropped since is there in them."""
        before, after = start.get("tables", {}), end.get("tables", {})
        found = []
        for name, table in self.tables.items():
            then, now = before.get(name, after.get(name)), after.get(name)
            if then is not None and now is not None and then != now[: len(then)]:
                found.append(_as_it_was(table, then))
        return found


def _as_it_was(table: TableSchema, version: list[Any]) -> TableSchema:
    """Give a table with the id, the columns and the dropped ones of an earlier version."""
    id_, upto, *named = version
    gone = [ColumnSchema(d.name, d.type, d.kind) for d in table.dropped if d.name not in table.by_name]
    known = [*table.static, *table.regular, *gone]
    wanted = set(named[0]) if named else {column.name for column in (*table.static, *table.regular)}
    static = tuple(column for column in known if column.name in wanted and column.kind == "static")
    regular = tuple(column for column in known if column.name in wanted and column.kind != "static")
    dropped = tuple(d for d in table.dropped if d.dropped_at <= upto)
    return replace(table, id=uuid.UUID(id_), static=static, regular=regular, dropped=dropped)


def _shape(column: ColumnSchema | None) -> tuple[str, str] | None:
    return None if column is None else (str(column.type), column.kind)
