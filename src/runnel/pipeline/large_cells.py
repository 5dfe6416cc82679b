"""Ranges of cells that are too large for the driver: decoded by tasks, reconciled with the stored cells by tasks, written where they are.

The driver sees partitions, paths and counts, never cells. Tasks read the partitions and write what they find; then the source's function is
called over ranges of keys, with the cells that are stored for them. It is the function that the driver calls for small ranges.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from runnel.connectors.cells import CELLS, CHANGED, EXPIRES, KEY, PARTITION, ROWS, SEEN, VERSIONS
from runnel.connectors.guarded import translate_errors
from runnel.engine.base import Files, Rows, Written
from runnel.engine.inputs import stored
from runnel.engine.keyed import Keyed
from runnel.lake import files as lake_files
from runnel.model import types
from runnel.model.program import quote
from runnel.model.relation import Column
from runnel.pipeline.cells import cells_name, due_windows
from runnel.pipeline.signed_rows import in_lookup_order, signed_rows, version_rows
from runnel.pipeline.transaction import find_table
from runnel.pipeline.versions import SUFFIX as VERSIONS_SUFFIX

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from runnel.connectors.base import Partition
    from runnel.connectors.cells import CellFunction, Reconciliation
    from runnel.engine.base import Input
    from runnel.lake.entries import NewFile
    from runnel.lake.snapshot import Snapshot
    from runnel.model.relation import Relation
    from runnel.pipeline.runtime import Runtime

TABLE = "table"
TOLD, HELD = "~changed", "~stored"
COLUMNS = (*CHANGED, Column(TABLE, types.parse("string")))


def reconcile_by_engine(
    runtime: Runtime,
    head: Snapshot,
    source: str,
    partitions: Sequence[Partition],
    known: Mapping[str, Reconciliation],
) -> dict[str, list[NewFile]]:
    """Read partitions and reconcile what they hold by tasks; give the signed rows of every relation as files."""
    folder = runtime.lake.unpublished(cells_name(source, next(iter(known))))
    tasks = [partial(_cells_of, source, part) for part in partitions]
    written = runtime.engine.read(tasks, COLUMNS, folder) if tasks else Written((), 0)
    told = Files(written.paths, COLUMNS, written.rows, sum(map(_size, written.paths)))
    made: dict[str, list[NewFile]] = {}
    try:
        for one in known.values():
            made |= reconcile_table(runtime, head, source, one, told)
    except BaseException:
        runtime.lake.discard([file for files in made.values() for file in files])
        raise
    finally:
        for path in written.paths:
            lake_files.delete(path)
    return made


def changed_rows(table: str, changed: pa.Table) -> Rows:
    """Give changes that the driver has read as an engine's input."""
    name = pa.repeat(pa.scalar(table, pa.string()), changed.num_rows)
    return Rows(changed.append_column(TABLE, name), COLUMNS)


def _cells_of(source: str, partition: Partition) -> Iterator[pa.RecordBatch]:
    """Give the changed cells of a partition with the names of their tables; runs in a task."""
    with translate_errors(f"sources.{source}"):
        for changes in partition.read():
            if changes.cells is not None and changes.cells.num_rows:
                name = pa.repeat(pa.scalar(changes.table, pa.string()), changes.cells.num_rows)
                yield from changes.cells.append_column(TABLE, name).combine_chunks().to_batches()


def reconcile_table(
    runtime: Runtime, head: Snapshot, source: str, one: Reconciliation, told: Files | Rows
) -> dict[str, list[NewFile]]:
    """Reconcile the changes of one table with what is stored, by tasks; give the signed rows of its relations as files."""
    table = find_table(head, f"{source}.{one.table}")
    cells = head.relations[cells_name(source, one.table)]
    versions = head.relations.get(table.name + VERSIONS_SUFFIX)
    held = stored(cells, () if one.afresh else head.files(cells))
    inputs: dict[str, Input] = {TOLD: told, HELD: held}
    chosen = f"SELECT {_listed()} FROM {quote(TOLD)} WHERE {quote(TABLE)} = {_text(one.table)}"
    of_table = runtime.engine.rows(f"{chosen} AND {quote(KEY)} IS NULL", {TOLD: told}, CHANGED)
    function = one.function.knowing(of_table) if of_table.num_rows else one.function
    outputs = {
        name: (relation, runtime.lake.unpublished(relation.name))
        for name, relation in ((CELLS, cells), (ROWS, table), (VERSIONS, versions))
        if relation is not None
    }
    work = Keyed(Conformed(function, table, versions), PARTITION, cells, CHANGED, outputs)
    everything = one.everything or bool(of_table.num_rows)
    done = runtime.engine.keyed(
        work, _stored_sql(one, chosen, everything=everything), f"{chosen} AND {quote(KEY)} IS NOT NULL", inputs
    )
    return {
        outputs[name][0].name: runtime.lake.adopt(outputs[name][0], files.paths, files.rows)
        for name, files in done.items()
    }


@dataclass(frozen=True)
class Conformed:
    """A source's function, with what it gives as the relations store it."""

    function: CellFunction
    table: Relation
    versions: Relation | None

    def __call__(self, stored: pa.Table, changed: pa.Table) -> dict[str, pa.Table]:
        """Give signed rows by output."""
        outcome: dict[str, Any] = dict(self.function(stored, changed))
        made = {CELLS: outcome[CELLS], ROWS: in_lookup_order(self.table, signed_rows(self.table, outcome[ROWS]))}
        if self.versions is not None and VERSIONS in outcome:
            made[VERSIONS] = version_rows(self.versions, outcome[VERSIONS])
        return made


def _stored_sql(one: Reconciliation, changed: str, *, everything: bool) -> str:
    """Give the stored cells of partitions that changed, or in which something falls due."""
    whole = f"SELECT * FROM {quote(HELD)}"
    if everything:
        return whole
    due = [f"({quote(EXPIRES)} > {after} AND {quote(EXPIRES)} <= {upto})" for after, upto in due_windows(one)]
    due += [f"{quote(SEEN)} IS NOT NULL"] if one.recheck else []
    partitions = (
        f"SELECT {quote(PARTITION)} FROM ({changed}) AS changed UNION "
        f"SELECT {quote(PARTITION)} FROM {quote(HELD)} WHERE {' OR '.join(due)}"
    )
    return f"{whole} LEFT SEMI JOIN ({partitions}) AS touched USING ({quote(PARTITION)})"


def _listed() -> str:
    return ", ".join(quote(column.name) for column in CHANGED)


def _text(value: str) -> str:
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _size(path: str) -> int:
    system, inside = lake_files.filesystem(path)
    return int(system.get_file_info(inside).size)
