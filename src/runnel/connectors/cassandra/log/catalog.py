"""The definitions a log is read with: given at the start, and changed by the log's own mutations of `system_schema`.

A table stays known by its id after it was dropped or altered, because the log may still hold mutations of it.
"""

from __future__ import annotations

import time
import uuid
from typing import TYPE_CHECKING, Any

from runnel.connectors.cassandra import cells
from runnel.connectors.cassandra.cells.live_rows import deleted_until, row_deleted_until
from runnel.connectors.cassandra.cells.reconcile import PartitionState, changes, merge, rows
from runnel.connectors.cassandra.log.errors import BadBody
from runnel.connectors.cassandra.schema.system_tables import (
    OWN_TABLE_IDS,
    SCHEMA_TABLES,
    SYSTEM_KEYSPACES,
    system_tables,
)
from runnel.connectors.cassandra.schema.tables import Problems, Row, SchemaRows, TableSchema, build_tables

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from runnel.connectors.cassandra.cells import ChangeTuple, Clustering

_TRUNCATION_BYTES = 20
"""Segment, position and time."""


class Catalog:
    """Tables by id. `generation` grows whenever one is added or changed; `problems` says which could not be made."""

    def __init__(
        self,
        baseline: SchemaRows | None = None,
        *,
        read_at: int | None = None,
        wanted: Collection[tuple[str, str]] | None = None,
        ask: Callable[[], SchemaRows] | None = None,
    ) -> None:
        """Begin with the rows of `system_schema` that were read at a time (µs; None: now).

        `wanted` names the tables to read as (keyspace, table); None means all that are not the server's own. A mutation
        of a table that is not known is an error, unless all wanted tables are known: then it is not wanted. `ask` reads
        the definitions anew when the log names something that is not known: a log may have lost the definition itself.
        """
        self.generation = 0
        self.problems: Problems = {}
        self._wanted = None if wanted is None else frozenset(wanted)
        self._system = {table.id: table for table in system_tables()}
        self._tables: dict[uuid.UUID, TableSchema] = {}
        self._states: dict[tuple[str, bytes], PartitionState] = {}
        self._baseline: dict[tuple[str, bytes], dict[Clustering, Row]] = {}
        self._read_at = 0
        self._unsettled: set[bytes] = set()
        self._ask = ask
        self._asked: set[object] = set()
        if baseline is not None:
            self.refresh(baseline, read_at=read_at)

    def __getstate__(self) -> dict[str, Any]:
        """Leave the connection behind by which definitions are asked for: a copy elsewhere knows what is known here."""
        return self.__dict__ | {"_ask": None}

    def ask_by(self, ask: Callable[[], SchemaRows]) -> None:
        """Read definitions this way when the log names something that is not known, unless there is a way already."""
        self._ask = self._ask or ask

    def refresh(self, baseline: SchemaRows, *, read_at: int | None = None) -> None:
        """Know what the server says now; what the log says later counts more, what it said earlier less."""
        self._read_at = time.time_ns() // 1000 if read_at is None else read_at
        self._baseline = {}
        for name, table_id in SCHEMA_TABLES.items():
            clustering = [column.name for column in self._system[table_id].clustering]
            for row in getattr(baseline, name):
                at = tuple(str(row[column]).encode() for column in clustering)
                self._baseline.setdefault((name, row["keyspace_name"].encode()), {})[at] = row
        self._build(baseline)

    def _build(self, described: SchemaRows) -> None:
        for table in build_tables(described, self.problems):
            self.problems.pop(table.id, None)
            if self._tables.get(table.id) != table:
                self._tables[table.id] = table
                self.generation += 1

    def table(self, table_id: uuid.UUID) -> TableSchema | None:
        """Give the newest definition of a table."""
        if self._unsettled:
            self.settle()
        return self._tables.get(table_id) or self._system.get(table_id)

    def tables(self) -> list[TableSchema]:
        """Give the users' tables, dropped ones too."""
        self.settle()
        return [table for table in self._tables.values() if table.keyspace not in SYSTEM_KEYSPACES]

    def wants(self, table: TableSchema) -> bool:
        """Say whether changes of a table are asked for."""
        if table.id in self._system:
            return True
        if self._wanted is None:
            return table.keyspace not in SYSTEM_KEYSPACES
        return (table.keyspace, table.name) in self._wanted

    def is_system(self, table: TableSchema) -> bool:
        """Say whether a table's changes are the catalog's own business."""
        return table.id in self._system

    def may_skip(self, table_id: uuid.UUID) -> bool:
        """Say whether a table that is not known can be passed over."""
        if table_id in OWN_TABLE_IDS or table_id in self._asked:
            return True
        if self._wanted is None:
            return False
        return self._wanted <= {(table.keyspace, table.name) for table in self._tables.values()}

    def asked_for(self, unknown: object) -> bool:
        """Read the definitions anew because of something that is not known, once for each such thing; say whether it was done."""
        if self._ask is None or unknown in self._asked or unknown in OWN_TABLE_IDS:
            return False
        self.refresh(self._ask())
        self._asked.add(unknown)
        return True

    def take(self, added: list[ChangeTuple]) -> list[ChangeTuple]:
        """Take changes of the server's own tables in; give what they do to rows: TRUNCATEs and dropped columns of wanted tables."""
        truncated: list[ChangeTuple] = []
        dropped: list[ChangeTuple] = []
        touched: set[bytes] = set()
        for change in added:
            table = change[1]
            if table.keyspace == "system_schema":
                if table.name in SCHEMA_TABLES:
                    at = (table.name, change[2])
                    merge(self._states.setdefault(at, PartitionState(change[2])), [change])
                    touched.add(change[2])
                if table.name == "dropped_columns" and change[0] == cells.SET and change[4] == "dropped_time":
                    dropped.append(change)
            elif change[4] == "truncated_at" and change[0] == cells.SET:
                truncated += self._truncation(change)
        if touched:
            self._unsettled |= touched
            self.generation += 1
        return truncated + [drop for change in dropped for drop in self._column_drop(change)]

    def settle(self) -> None:
        """Make the tables anew whose keyspaces the log has spoken of: once, however many definitions came in a row."""
        for keyspace in self._unsettled:
            self._define(keyspace)
        self._unsettled.clear()

    def _truncation(self, change: ChangeTuple) -> list[ChangeTuple]:
        path, value = change[5], change[6]
        if path is None or len(path) != 16 or len(value) != _TRUNCATION_BYTES:
            raise BadBody("a truncation record has another form")
        table = self.table(uuid.UUID(bytes=path))
        if table is None or not self.wants(table):
            return []
        segment, position, when = (int.from_bytes(part, "big") for part in (value[:8], value[8:12], value[12:]))
        what = cells.Truncation(segment, position)
        return [(cells.TRUNCATE, table, b"", None, None, None, what, when * 1000, 0, 0)]

    def _column_drop(self, change: ChangeTuple) -> list[ChangeTuple]:
        names = [part.decode() for part in change[3] or () if part is not None]
        defined = [
            row for row in self._rows("tables", change[2]) if row.get("table_name") == names[0] and row.get("id")
        ]
        table = self.table(uuid.UUID(str(defined[0]["id"]))) if defined else None
        if table is None or not self.wants(table):
            return []
        when = int.from_bytes(change[6], "big", signed=True) * 1000
        return [(cells.COLUMN_DROP, table, b"", None, names[1], None, None, when, 0, 0)]

    def _define(self, keyspace: bytes) -> None:
        """Make the tables of a keyspace anew from the baseline and what the log has said of it so far."""
        self._build(SchemaRows(**{name: self._rows(name, keyspace) for name in SCHEMA_TABLES}))

    def _rows(self, name: str, keyspace: bytes) -> list[Row]:
        """Lay what the log says over the baseline, row by row."""
        table = self._system[SCHEMA_TABLES[name]]
        state = self._states.get((name, keyspace))
        found: dict[Any, Row] = dict(self._baseline.get((name, keyspace), {}))
        if state is None:
            return list(found.values())
        for clustering in [at for at in found if _deleted(state, table, at) > self._read_at]:
            del found[clustering]
        newest: dict[Clustering | None, int] = {}
        for change in changes(state, table):
            newest[change[3]] = max(newest.get(change[3], change[7]), change[7])
        for row in rows(state, table, int(time.time())):
            if any(row[column.name] is None for column in table.clustering):
                # Something without a name, which no server writes.
                continue
            at = tuple(str(row[column.name]).encode() for column in table.clustering)
            if at not in found or newest.get(at, 0) > self._read_at:
                said = {column: value for column, value in row.items() if value is not None}
                found[at] = {**found.get(at, {}), **said}
        return list(found.values())


def _deleted(state: PartitionState, table: TableSchema, clustering: Clustering) -> int:
    row = state.rows.get(clustering)
    deleted = deleted_until(state, table, clustering)
    return deleted if row is None else max(deleted, row_deleted_until(row))
