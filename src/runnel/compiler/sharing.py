"""Joins that several views have in common: each gets a name by what it is, so that its change can be computed once."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from runnel.compiler import differentiate, emit, passes, plan
from runnel.compiler.passes.drop_joins import drop_joins
from runnel.compiler.passes.merge_derived import merge_derived
from runnel.compiler.plan import Input, Projection, Scan, Spj
from runnel.model.program import Shared, Term
from runnel.model.relation import Column, Kind, Relation

if TYPE_CHECKING:
    from runnel.compiler.plan import Node

WIDEST = 60


def shared_join(node: Node) -> Shared | None:
    """Describe the join a plan begins with, if it is a join of stored relations and nothing else."""
    merged = drop_joins(merge_derived(node))
    if not isinstance(merged, Spj) or merged.generators or merged.sign < 0 or len(merged.inputs) < 2:
        return None
    scans = [i.node for i in merged.inputs if isinstance(i.node, Scan)]
    width = sum(len(scan.relation.rows) for scan in scans)
    if len(scans) < len(merged.inputs) or width > WIDEST:
        return None
    aliases = {item.alias: plan.alias(number) for number, item in enumerate(merged.inputs, 1)}
    inputs: list[Input] = []
    columns: list[Column] = []
    at: dict[tuple[str, str], str] = {}
    for item, scan in zip(merged.inputs, scans, strict=True):
        names = tuple(c.name for c in scan.relation.rows)
        inputs.append(Input(aliases[item.alias], Scan(scan.relation, names)))
        for column in scan.relation.rows:
            at[item.alias, column.name] = f"_j{len(columns) + 1}"
            columns.append(Column(f"_j{len(columns) + 1}", column.type))
    plain = {old: plan.column(aliases[old[0]], old[1]) for old in at}
    where = tuple(plan.substitute(c, plain) for c in merged.where)
    shown = tuple(Projection(new, plain[old]) for old, new in at.items())
    join = passes.run(Spj(tuple(inputs), where, shown))
    terms = tuple(Term(p.sql, p.deltas, p.reads) for p in differentiate.delta(join))
    name = "#join-" + hashlib.sha256("\0".join(t.sql for t in terms).encode()).hexdigest()[:12]
    relation = Relation(name, Kind.STAGE, tuple(columns))
    over = {old: plan.column("j", new) for old, new in at.items()}
    projections = tuple(Projection(p.name, plan.substitute(p.expr, over)) for p in merged.projections)
    scan = Scan(relation, tuple(c.name for c in columns))
    piece = emit.select(Spj((Input("j", scan),), (), projections), [emit.scan(scan, "delta")])
    return Shared(relation, terms, Term(piece.sql, piece.deltas, piece.reads))
