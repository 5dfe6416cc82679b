"""Cells in the lake: what a store's log says of single values becomes rows, by the store's own function, key by key.

The cells of a table that still matter are in a hidden relation beside it, `shop.orders#cells`. An epoch looks up those that its changes
are about, and those that fall due while it lasts, and has the source's function make signed cells and signed rows of both. Cells,
rows, versions and positions are published together, so there is nothing to be brought in line after a crash, and whoever
goes on with the state, on whatever machine, has all that is needed.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from runnel.connectors.cells import EXPIRES, KEY, PARTITION, PLACE, ROW_BITS, SEEN, STORED, is_coarse
from runnel.lake import timeline
from runnel.lake.compaction import fold
from runnel.lake.entries import Commit
from runnel.model.relation import Kind, Relation
from runnel.pipeline.step import in_turn

if TYPE_CHECKING:
    from runnel.connectors.base import Offset
    from runnel.connectors.cells import CellSource, Reconciliation
    from runnel.lake.lake import Lake
    from runnel.lake.snapshot import Snapshot
    from runnel.lake.timeline import Window
    from runnel.pipeline.runtime import Runtime

SUFFIX = "#cells"
_ALL_TIMES = ((-(1 << 62), 1 << 62),)
log = logging.getLogger("runnel")


def is_cells(name: str) -> bool:
    """Say whether a relation is one that keeps cells."""
    return name.endswith(SUFFIX)


def cells_name(source: str, table: str) -> str:
    """Name the relation that keeps the cells of a source's table."""
    return f"{source}.{table}{SUFFIX}"


def keep_cells(runtime: Runtime, source: str, name: str) -> None:
    """Make the relation for the cells of a table.

    Where the source has a position already, an earlier version kept the cells elsewhere, or the table is a new one of the source:
    in the same commit the position is given up, so that the source is read from its start and what is stored is replaced by that.
    """
    wanted = Relation(name + SUFFIX, Kind.STAGE, STORED)

    def attempt() -> int:
        head = runtime.lake.snapshot()
        if head.relations.get(wanted.name) == wanted:
            return head.epoch
        drop = [wanted.name] if wanted.name in head.relations else []
        commit = Commit(base=head.epoch, drop=drop, create=[wanted], kind="define")
        if head.positions.get(source):
            log.warning("%s: the state has no cells of %s, so the source is read again from its start", source, name)
            commit.positions[source] = {}
        return runtime.lake.publish(commit)

    if runtime.lake.snapshot().relations.get(wanted.name) != wanted:
        in_turn(runtime, attempt)


def due_offset(lake: Lake, head: Snapshot, name: str, cells: CellSource, start: Offset) -> Offset:
    """Give the position now of a source whose log has nothing new, if something stored falls due by then; else `start`."""
    end = cells.later(start)
    for one in cells.reconciliations(start, end):
        relation = head.relations.get(cells_name(name, one.table))
        if relation is not None and _is_due(lake, head, relation, one):
            return end
    return start


def due_windows(one: Reconciliation) -> tuple[Window, ...]:
    """Give when what is to be looked at falls due: by expiring, or by having expired so long ago that it matters no more."""
    return ((one.was, one.now), (one.was - one.grace - 1, one.now - one.grace - 1))


def _is_due(lake: Lake, head: Snapshot, relation: Relation, one: Reconciliation) -> bool:
    files = head.files(relation)
    if one.recheck and len(timeline.due(relation, files, SEEN, PLACE, _ALL_TIMES)):
        return True
    places = timeline.due(relation, files, EXPIRES, PLACE, due_windows(one))
    if not len(places):
        return False
    times = lake.lookup(relation, files, pa.table({PLACE: places}))[EXPIRES].drop_null().to_numpy()
    return any(bool(((times > after) & (times <= upto)).any()) for after, upto in due_windows(one))


def wanted_places(head: Snapshot, relation: Relation, one: Reconciliation, changed: pa.Table) -> np.ndarray | None:
    """Give where the cells are that changes are about, and those that fall due; None where that is everywhere."""
    if one.everything or changed[KEY].null_count:
        return None
    files = head.files(relation)
    found = [changed[PLACE].to_numpy(), timeline.due(relation, files, EXPIRES, PLACE, due_windows(one))]
    if one.recheck:
        found.append(timeline.due(relation, files, SEEN, PLACE, _ALL_TIMES))
    return np.unique(np.concatenate(found))


def stored_cells(lake: Lake, head: Snapshot, relation: Relation, places: np.ndarray | None) -> pa.Table:
    """Look up the cells of rows, and those of their partitions as such: of whole partitions where a place is that of one."""
    files = head.files(relation)
    if places is None:
        return fold(relation, lake.read(relation, files))
    partitions = np.unique(places[is_coarse(places)] >> ROW_BITS)
    rows = places[~np.isin(places >> ROW_BITS, partitions)]
    by_row = np.concatenate([rows, np.unique(rows >> ROW_BITS) << ROW_BITS])
    return pa.concat_tables(
        [
            lake.lookup(relation, files, pa.table({PLACE: by_row})),
            lake.lookup(relation, files, pa.table({PARTITION: partitions.astype(np.int32)})),
        ]
    )
