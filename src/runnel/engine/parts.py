"""Sorts a table's change by key: keys that are there before and after, and keys that are there only before."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow.compute as pc

from runnel.model import arrow
from runnel.model.relation import WEIGHT

if TYPE_CHECKING:
    import pyarrow as pa

    from runnel.model.program import Role
    from runnel.model.relation import Relation


def part_of(relation: Relation, change: pa.Table, role: Role) -> pa.Table:
    """Give the rows of a change whose keys are `updated` or `removed`, as `part_sql` does.

    Keys are unique, so the weights of a key add up to 0, to -1, or to +1 where it is new.
    """
    keys = list(relation.key)
    summed, (total,) = arrow.grouped(change, keys, (WEIGHT, "sum"))
    wanted = summed.filter(pc.equal(total, 0) if role == "updated" else pc.less(total, 0))
    if wanted.num_rows == 0:
        return change.schema.empty_table()
    if wanted.num_rows == summed.num_rows:
        return change
    # Only keys are joined: Arrow joins no rows with nested values.
    return change.take(arrow.places_among(change, wanted, keys))
