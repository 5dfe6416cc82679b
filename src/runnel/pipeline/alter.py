"""Changes the columns of a table. Views that do not read them go on untouched; those that do are made anew, or stand against it.

The table is rewritten beside the old one and swapped in one commit. Epochs of before keep the old columns.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from runnel.errors import Terminal
from runnel.model.foreign_keys import check_types
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


def alter_table(
    runtime: Runtime,
    name: str,
    reshape: Callable[[Relation], Reshaped],
    declared: Callable[[Relation, Snapshot], Relation] | None = None,
) -> list[str]:
    """Give a table another shape; say what was done to it and to the views over it.

    `declared` gives it its foreign keys where they are said anew.
    """

    def at(head: Snapshot) -> Plan:
        shape = reshape(find_table(head, name))
        if declared is not None:
            shape = replace(shape, relation=declared(shape.relation, head))
        if shape.relation == shape.before:
            return make_plan(runtime, head, [])
        _check_foreign_keys(head, shape)
        _refuse_lost_columns(runtime, head, shape)
        return make_plan(runtime, head, [], {shape.before.name: shape})

    plan = swap_planned(runtime, at)
    said = [f"table {table}: {shape.words}" for table, shape in plan.tables.items()]
    return said + [
        f"view {view} made anew, because it reads what changed" for view in plan.programs if view in plan.made
    ]


def _check_foreign_keys(head: Snapshot, shape: Reshaped) -> None:
    """See that all foreign keys to and from the table still compare like with like, and that none has to be checked."""
    for new in shape.unchecked:
        raise Terminal(
            "RUNNEL-ALTER-FOREIGN-KEY",
            f"{shape.before.name}: ({', '.join(new.columns)}) cannot begin to reference {new.table}, because its rows were never checked",
            hint="make a new table and copy the rows, or say RELY if it always held",
        )
    relations = {**head.relations, shape.relation.name: shape.relation}
    for relation in relations.values():
        if relation.name == shape.relation.name or any(k.table == shape.relation.name for k in relation.references):
            check_types(relation, relations)


def _refuse_lost_columns(runtime: Runtime, head: Snapshot, shape: Reshaped) -> None:
    """See that no view reads a column that goes or gets another name."""
    if shape.narrowed.columns == shape.before.columns:
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
