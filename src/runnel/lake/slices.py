"""Slices of a relation: what several files hold, cut by ranges of its first key, so that each piece fits into memory.

Rows that add up to one have the same key, so each slice can be folded by itself.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from runnel.lake import files, footers
from runnel.model import types

if TYPE_CHECKING:
    from collections.abc import Sequence

    from runnel.lake.entries import DataFile
    from runnel.lake.footers import Ranges
    from runnel.model.relation import Relation

ROWS = 1_500_000


@dataclass(frozen=True)
class Slice:
    """The rows in which a column is at least `begin` and less than `end`; NULL is below all."""

    column: str
    begin: int | None
    end: int | None

    def read(self, relation: Relation, run: Sequence[DataFile]) -> pa.Table:
        """Read these rows, and of the files only the row groups that may have some."""
        found = []
        for file in run:
            footer = footers.footer(relation.name, file)
            ranges = footers.ranges(relation, footer, self.column)
            assert ranges is not None, file.path
            groups = [int(group) for group in np.flatnonzero(self._may_be_in(ranges))]
            found.append(self._of(files.read_groups(relation, file, footer.metadata, groups)))
        return pa.concat_tables(found)

    def _may_be_in(self, ranges: Ranges) -> np.ndarray:
        inside = np.ones(len(ranges.low), dtype=bool)
        if self.begin is not None:
            inside &= ranges.high >= self.begin
        if self.end is not None:
            inside &= ranges.low < self.end
        return inside | ranges.nulls if self.begin is None else inside

    def _of(self, table: pa.Table) -> pa.Table:
        column = table[self.column]
        null = pc.is_null(column)
        mask = pc.invert(null) if self.begin is None else pc.greater_equal(column, self.begin)
        if self.end is not None:
            mask = pc.and_(mask, pc.less(column, self.end))
        return table.filter(
            pc.fill_null(mask, fill_value=False) if self.begin is not None else pc.or_kleene(mask, null)
        )


def cut(relation: Relation, run: Sequence[DataFile]) -> list[Slice] | None:
    """Cut what files hold into slices of about `ROWS` rows; None where their footers do not tell how."""
    kinds = {c.name: c.type for c in relation.columns}
    compared = relation.key if relation.final else tuple(kinds)
    if not compared:  # sums of all rows together: any cut would part them
        return None
    first = (*relation.key, *compared)[0]
    if kinds[first].name not in types.INTEGERS or any(types.nested(kinds[name]) for name in compared):
        return None
    lows, rows = [], []
    for file in run:
        footer = footers.footer(relation.name, file)
        ranges = footers.ranges(relation, footer, first)
        if ranges is None or ranges.open.any() or ranges.low.dtype == object:
            return None
        lows.append(ranges.low)
        rows.append(footer.rows)
    low = np.concatenate(lows)
    order = np.argsort(low, kind="stable")
    number = np.cumsum(np.concatenate(rows)[order]) // ROWS
    begins = np.unique(low[order][1:][number[1:] > number[:-1]])
    bounds = [None, *(int(begin) for begin in begins), None]
    return [Slice(first, begin, end) for begin, end in itertools.pairwise(bounds)]
