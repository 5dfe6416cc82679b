"""The tables of outside sources: made when they are first seen, given their foreign keys when these are declared."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from runnel.connectors.guarded import translate_errors
from runnel.errors import Conflict, RunnelError, Terminal
from runnel.model.foreign_keys import with_references
from runnel.model.relation import Kind
from runnel.pipeline.alter import alter_table
from runnel.pipeline.cells import keep_cells
from runnel.pipeline.definitions import create_table
from runnel.pipeline.reshape import like, unchanged
from runnel.pipeline.versions import keep_versions

if TYPE_CHECKING:
    from collections.abc import Mapping

    from runnel.connectors.base import TableInfo
    from runnel.lake.snapshot import Snapshot
    from runnel.model.relation import Relation
    from runnel.pipeline.runtime import Runtime


log = logging.getLogger("runnel")


def check_source_tables(runtime: Runtime, sources: Mapping[str, Any]) -> dict[str, RunnelError]:
    """Create the tables of sources that do not exist yet; give the error of each source for which that fails.

    A table whose columns changed in the source is such an error. Foreign keys come after all tables: a table may refer to
    one that is described later, or that does not exist yet.
    """
    known = runtime.lake.snapshot().relations
    described: dict[str, dict[str, TableInfo]] = {}
    errors: dict[str, RunnelError] = {}
    for name, source in sources.items():
        try:
            with translate_errors(f"sources.{name}"):
                described[name] = {f"{name}.{table.name}": table for table in source.tables()}
                _create(runtime, name, described[name], known)
        except Conflict:
            raise
        except RunnelError as error:
            errors[name] = error
    for name, tables in described.items():
        if name in errors:
            continue
        try:
            for called, table in tables.items():
                if table.references or (called in known and known[called].references):
                    _declare(runtime, called, _Declared(table, frozenset(sources)))
        except Conflict:
            raise
        except RunnelError as error:
            errors[name] = error
    return errors


def _create(runtime: Runtime, source: str, tables: Mapping[str, TableInfo], known: Mapping[str, Relation]) -> None:
    for name, table in tables.items():
        if table.cells:
            keep_cells(runtime, source, name)
        if table.versioned:
            keep_versions(runtime, name, table)
        if table.columns == getattr(known.get(name), "columns", None):
            continue
        if table.grows and name in known:
            _grow(runtime, known[name], table)
            continue
        try:
            create_table(runtime, name, table.columns, table.key)
        except Terminal as error:
            error.hint = error.hint or "its columns changed in the source"
            raise


def _grow(runtime: Runtime, relation: Relation, table: TableInfo) -> None:
    """Add the columns that a table has got in its store; those that it lost stay, and get no values any more."""
    named = {column.name.lower(): column for column in table.columns}
    lost = tuple(column for column in relation.columns if column.name.lower() not in named)
    there = {column.name.lower() for column in relation.columns}
    added = tuple(column for column in table.columns if column.name.lower() not in there)
    kept = tuple(named.get(column.name.lower(), column) for column in relation.columns)
    if (*kept, *added) != relation.columns:
        said = alter_table(runtime, relation.name, lambda now: like(now, (*kept, *added), table.key))
        log.info("%s", "; ".join(said))
    elif lost:
        log.debug("%s: %s dropped in the source", relation.name, ", ".join(column.name for column in lost))


@dataclass(frozen=True)
class _Declared:
    """Gives a source's table the foreign keys its settings name, as far as the tables they reference are there."""

    table: TableInfo
    sources: frozenset[str]

    def __call__(self, relation: Relation, head: Snapshot) -> Relation:
        there = {r.name.lower() for r in head.relations.values() if r.kind is Kind.TABLE}
        source = relation.name.partition(".")[0]
        found = [r for r in self.table.references if {f"{source}.{r.table}".lower(), r.table.lower()} & there]
        return with_references(relation, found, head.relations, self.sources)


def _declare(runtime: Runtime, name: str, declared: _Declared) -> None:
    head = runtime.lake.snapshot()
    if declared(head.relations[name], head) != head.relations[name]:
        alter_table(runtime, name, unchanged, declared)
