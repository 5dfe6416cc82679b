"""Shows one row of a partition's state at a moment, without looking at the others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from runnel.connectors.cassandra.cells.reconcile import PartitionState, is_only_seen, rows

if TYPE_CHECKING:
    from runnel.connectors.cassandra.cells import Clustering
    from runnel.connectors.cassandra.schema.tables import TableSchema

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
    found = rows(alone, table, at, static_alone=clustering is None)
    return found[0] if found else None


def unproven(state: PartitionState, table: TableSchema, at: int) -> list[Clustering]:
    """Give the rows without values that a snapshot saw and nothing else tells of: they may go at any time."""
    seen = [clustering for clustering, row in state.rows.items() if clustering is not None and is_only_seen(row)]
    return [place for place in seen if _is_empty(row_at(state, table, place, at), table)]


def _is_empty(row: Row | None, table: TableSchema) -> bool:
    return row is not None and all(row[column.name] is None for column in table.regular)
