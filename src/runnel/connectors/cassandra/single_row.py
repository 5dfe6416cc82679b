"""Shows one row of a partition's state at a moment, without looking at the others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from runnel.connectors.cassandra.reconcile import PartitionState, rows

if TYPE_CHECKING:
    from runnel.connectors.cassandra.cells import Clustering
    from runnel.connectors.cassandra.schema import TableSchema

Row = dict[str, Any]


def row_at(state: PartitionState, table: TableSchema, clustering: Clustering | None, at: int) -> Row | None:
    """Give a row as it is at a second, its static columns included, or None where it is not there.

    The clustering None asks for the static row alone: a row in which everything else is None.
    """
    row, static = state.rows.get(clustering), state.rows.get(None)
    if row is None:
        return None
    alone = PartitionState(state.key)
    alone.deletion, alone.ranges, alone.rows = state.deletion, state.ranges, {clustering: row}
    if static is not None:
        alone.rows[None] = static
    found = rows(alone, table, at)
    if not found or (clustering and found[0][table.clustering[0].name] is None):
        return None
    return found[0]
