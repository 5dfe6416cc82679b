"""A range of cells becomes signed cells and signed rows: here where it is small, by the engine's tasks where it is not.

The source's function is the same in both places. Where a source begins, what was stored before is taken away in the same epoch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from runnel.connectors.cells import CELLS, CHANGED, ROWS, STORED, VERSIONS, schema_of
from runnel.engine.counts import DRIVER
from runnel.engine.inputs import stored
from runnel.errors import RunnelError
from runnel.lake.compaction import fold
from runnel.model.program import quote
from runnel.model.relation import WEIGHT
from runnel.pipeline.cells import cells_name, stored_cells, wanted_places
from runnel.pipeline.large_cells import changed_rows, reconcile_by_engine, reconcile_table
from runnel.pipeline.signed_rows import negated, signed_rows
from runnel.pipeline.transaction import find_table
from runnel.pipeline.versions import SUFFIX as VERSIONS_SUFFIX
from runnel.pipeline.versions import files_in_force, is_versions, new_versions

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from runnel.connectors.base import Offset, Source
    from runnel.connectors.cells import Reconciliation
    from runnel.lake.entries import DataFile, NewFile
    from runnel.lake.snapshot import Snapshot
    from runnel.model.relation import Relation
    from runnel.pipeline.runtime import Runtime
    from runnel.pipeline.step import Change

SPILLED = 500_000
"""Signed rows of a relation from which on they are written to files while the rest is still being read."""


def capture_cells(
    runtime: Runtime, head: Snapshot, name: str, source: Source, bounds: tuple[Offset, Offset], whole: Change
) -> bool:
    """Add what a range of cells makes of rows to a change; say whether the position after it has to be kept."""
    cells, (start, end) = source.cells(), bounds
    assert cells is not None
    made = _Made(runtime, head, name)
    try:
        known = {one.table: one for one in cells.reconciliations(start, end)}
        if any(one.afresh for one in known.values()):
            for table in known:
                made.clear(table)
        partitions = source.partitions(start, end) or ()
        if runtime.engine.reads(max(1, sum(part.rows for part in partitions))):
            made.take(reconcile_by_engine(runtime, head, name, partitions, known))
        elif any(one.afresh for one in known.values()):
            _afresh(made, source, known, bounds)
        else:
            _onto_stored(made, source, known, bounds)
        made.finish(whole)
    except RunnelError as error:
        made.discard()
        located = cells.located(error, start, end)
        if located is error:
            raise
        raise located from error
    except BaseException:
        made.discard()
        raise
    return made.rows > 0 or not cells.is_idle(start, end)


def _afresh(made: _Made, source: Source, known: dict[str, Reconciliation], bounds: tuple[Offset, Offset]) -> None:
    """Take what a source begins with, piece by piece."""
    nothing = _nothing_stored()
    made.count_read()
    for changes in source.read(*bounds):
        if changes.cells is not None:
            made.add(changes.table, known[changes.table].function(nothing, changes.cells))


def _onto_stored(made: _Made, source: Source, known: dict[str, Reconciliation], bounds: tuple[Offset, Offset]) -> None:
    """Reconcile changes with what is stored, table by table."""
    read: dict[str, list[pa.Table]] = {table: [] for table in known}
    made.count_read()
    for changes in source.read(*bounds):
        if changes.cells is not None:
            read[changes.table].append(changes.cells)
    for table, one in known.items():
        changed = pa.concat_tables([schema_of(CHANGED).empty_table(), *read[table]])
        relation = made.cells_of(table)
        places = wanted_places(made.head, relation, one, changed)
        asked = sum(file.rows for file in made.head.files(relation)) if places is None else len(places)
        if made.runtime.engine.reads(asked):
            told = changed_rows(table, changed)
            made.take(reconcile_table(made.runtime, made.head, made.source, one, told))
        elif asked:
            held = stored_cells(made.runtime.lake, made.head, relation, places)
            made.add(table, one.function(held, changed))
        elif changed.num_rows:
            made.add(table, one.function(_nothing_stored(), changed))


def _nothing_stored() -> pa.Table:
    return schema_of(STORED).append(pa.field(WEIGHT, pa.int64())).empty_table()


class _Made:
    """What reconciliations gave: signed rows by relation, in files as soon as they are many."""

    def __init__(self, runtime: Runtime, head: Snapshot, source: str) -> None:
        self.runtime, self.head, self.source = runtime, head, source
        self.rows = 0
        self._parts: dict[str, list[pa.Table]] = {}
        self._files: dict[str, list[NewFile]] = {}
        self._versions: dict[str, list[pa.Table]] = {}

    def cells_of(self, table: str) -> Relation:
        return self.head.relations[cells_name(self.source, table)]

    def take(self, files: Mapping[str, list[NewFile]]) -> None:
        """Take what tasks wrote; versions of an earlier epoch make room for theirs."""
        for name, written in files.items():
            self._files.setdefault(name, []).extend(written)
            self.rows += sum(file.rows for file in written)
            if written and name.endswith(VERSIONS_SUFFIX):
                relation = self.head.relations[name]
                self._retract(relation, *files_in_force(self.head, relation))

    def add(self, table: str, outcome: Mapping[str, pa.Table]) -> None:
        """Take what one call of a function gave."""
        relation = find_table(self.head, f"{self.source}.{table}")
        self.runtime.engine.counted.work("keyed", DRIVER)
        self._put(self.cells_of(table), outcome[CELLS])
        self._put(relation, fold(relation, signed_rows(relation, outcome[ROWS])))
        if VERSIONS in outcome and outcome[VERSIONS].num_rows:
            self._versions.setdefault(relation.name, []).append(outcome[VERSIONS])

    def count_read(self) -> None:
        """Count a range that the driver reads."""
        self.runtime.engine.counted.work("read", DRIVER)

    def clear(self, table: str) -> None:
        """Take everything away that is stored of a table."""
        for relation in (find_table(self.head, f"{self.source}.{table}"), self.cells_of(table)):
            self._retract(relation, self.head.files(relation))

    def _retract(self, relation: Relation, files: Sequence[DataFile], only_added: bool = False) -> None:  # noqa: FBT001, FBT002
        """Retract what some files of a relation hold, or only what they have added: by the engine where that is much."""
        runtime = self.runtime
        if not runtime.engine.reads(sum(file.rows for file in files)):
            rows = runtime.lake.read(relation, files)
            kept = rows.filter(pc.greater(rows[WEIGHT], 0)) if only_added else rows
            self._put(relation, negated(fold(relation, kept)))
            return
        columns = ", ".join(quote(column.name) for column in relation.columns)
        where = f" WHERE {quote(WEIGHT)} > 0" if only_added else ""
        sql = f"SELECT {columns}, -{quote(WEIGHT)} AS {quote(WEIGHT)} FROM `~held`{where}"
        order = relation.key or tuple(c.name for c in relation.columns[:1])
        schema, folder = runtime.lake.arrow_schema(relation), runtime.lake.unpublished(relation.name)
        written = runtime.engine.write(sql, {"~held": stored(relation, files)}, schema, folder, order)
        self._files.setdefault(relation.name, []).extend(runtime.lake.adopt(relation, written.paths, written.rows))
        self.rows += written.rows

    def _put(self, relation: Relation, signed: pa.Table) -> None:
        if not signed.num_rows:
            return
        self.rows += signed.num_rows
        parts = self._parts.setdefault(relation.name, [])
        parts.append(signed)
        if sum(part.num_rows for part in parts) >= SPILLED:
            self._spill(relation)

    def _spill(self, relation: Relation) -> None:
        together = self._together(relation)
        if together.num_rows:
            written = self.runtime.lake.write(relation, together, remembered=False)
            self._files.setdefault(relation.name, []).append(written)

    def _together(self, relation: Relation) -> pa.Table:
        """Give the signed rows that are in memory, netted, in the order in which they are looked up.

        Versions are not netted: one that is equal to a version of the epoch before is a version of this epoch all the same.
        """
        parts = [part.select([*(c.name for c in relation.columns), WEIGHT]) for part in self._parts.pop(relation.name)]
        whole = pa.concat_tables(parts, promote_options="permissive")
        return whole if len(parts) == 1 or is_versions(relation.name) else fold(relation, whole)

    def finish(self, whole: Change) -> None:
        """Hand everything over to a change."""
        for name, told in self._versions.items():
            versions = self.head.relations.get(name + VERSIONS_SUFFIX)
            if versions is not None:
                self._retract(versions, *files_in_force(self.head, versions))
                self._put(versions, new_versions(versions, told))
        for name in list(self._parts):
            relation = self.head.relations[name]
            if name in self._files:
                self._spill(relation)
            else:
                whole.signed[name] = self._together(relation)
        whole.written.update(self._files)
        whole.transactions += 1

    def discard(self) -> None:
        """Delete the files that were written."""
        self.runtime.lake.discard([file for files in self._files.values() for file in files])
