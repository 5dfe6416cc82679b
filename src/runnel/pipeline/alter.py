"""Changes the columns of a table. Views that do not read them go on untouched; those that do are made anew, or stand against it.

The table is rewritten beside the old one and swapped in one commit. Epochs of before keep the old columns.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from runnel.errors import Terminal
from runnel.pipeline.plan import make_plan
from runnel.pipeline.swap import swap_planned
from runnel.pipeline.transaction import find_table

if TYPE_CHECKING:
    from collections.abc import Callable

    from runnel.lake.snapshot import Snapshot
    from runnel.model.relation import Relation
    from runnel.pipeline.plan import Plan
    from runnel.pipeline.reshape import Reshaped
    from runnel.pipeline.runtime import Runtime


def alter_table(runtime: Runtime, name: str, reshape: Callable[[Relation], Reshaped]) -> list[str]:
    """Give a table another shape; say what was done to it and to the views over it."""

    def at(head: Snapshot) -> Plan:
        shape = reshape(find_table(head, name))
        if shape.relation == shape.before:
            return make_plan(runtime, head, [])
        _refuse_lost_columns(runtime, head, shape)
        return make_plan(runtime, head, [], {shape.before.name: shape})

    plan = swap_planned(runtime, at)
    said = [f"table {table}: {shape.words}" for table, shape in plan.tables.items()]
    return said + [
        f"view {view} made anew, because it reads what changed" for view in plan.programs if view in plan.made
    ]


def _refuse_lost_columns(runtime: Runtime, head: Snapshot, shape: Reshaped) -> None:
    """See that no view reads a column that goes or gets another name."""
    if shape.narrowed == shape.before:
        return
    plan = make_plan(runtime, head, [], {shape.before.name: shape}, narrowed=True)
    hurt = [name for name in plan.programs if name in plan.made]
    if hurt:
        gone = [c.name for c in shape.before.columns if c.name not in {n.name for n in shape.narrowed.columns}]
        raise Terminal(
            "RUNNEL-ALTER-IN-USE",
            f"{shape.before.name}: view {hurt[0]} reads {', '.join(gone)}",
            hint="change or drop the view first",
        )
