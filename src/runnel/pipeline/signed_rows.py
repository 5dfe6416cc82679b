"""Signed rows of sources, as their tables store them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from runnel.lake.compaction import fold
from runnel.model import types
from runnel.model.relation import WEIGHT
from runnel.pipeline.draft import plain_keys
from runnel.pipeline.rows_in import to_table

if TYPE_CHECKING:
    from runnel.model.relation import Relation


def signed_rows(relation: Relation, rows: pa.Table) -> pa.Table:
    """Give signed rows with the columns and types of their table; a column that the source has no more is NULL."""
    typed = to_table(relation, rows, weighted=True)
    arrays = [
        typed[c.name] if c.name in typed.column_names else pa.nulls(typed.num_rows, types.to_arrow(c.type))
        for c in relation.columns
    ]
    names = [*(c.name for c in relation.columns), WEIGHT]
    return plain_keys(relation, pa.table([*arrays, typed[WEIGHT]], names=names))


def in_lookup_order(relation: Relation, rows: pa.Table) -> pa.Table:
    """Give signed rows netted, and in the order by which they are looked up."""
    return fold(relation, rows)


def negated(rows: pa.Table) -> pa.Table:
    """Give signed rows that take others away."""
    at = rows.schema.get_field_index(WEIGHT)
    return rows.set_column(at, WEIGHT, pc.negate(rows[WEIGHT].cast(pa.int64())))


def version_rows(relation: Relation, told: pa.Table) -> pa.Table:
    """Give versions of rows as the relation that keeps them has them."""
    return signed_rows(relation, told.append_column(WEIGHT, pa.repeat(pa.scalar(1, pa.int64()), told.num_rows)))
