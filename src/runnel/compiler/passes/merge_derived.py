"""Merges a derived select-project-join into the one that reads it, so that a delta meets all tables in one join.

`SELECT d.x FROM (SELECT a + 1 AS x FROM t WHERE a > 0) d` becomes `SELECT a + 1 AS x FROM t WHERE a > 0`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from runnel.compiler.plan import Input, Node, Projection, Spj, UnionAll, substitute

if TYPE_CHECKING:
    from sqlglot import exp


def merge_derived(node: Node) -> Node:
    """Merge wherever a select-project-join reads another; unions and scans stay."""
    match node:
        case Spj():
            return _merge(node)
        case UnionAll(branches):
            return UnionAll(tuple(merge_derived(branch) for branch in branches))
        case _:
            return node


def _merge(node: Spj) -> Spj:
    inputs: list[Input] = []
    where: list[exp.Expr] = []
    values: dict[tuple[str, str], exp.Expr] = {}
    sign = node.sign
    for item in node.inputs:
        inner = merge_derived(item.node)
        if isinstance(inner, Spj) and not inner.generators:
            sign *= inner.sign
            inputs += inner.inputs
            where += inner.where
            values.update({(item.alias, p.name): p.expr for p in inner.projections})
        else:
            inputs.append(Input(item.alias, inner))
    return Spj(
        tuple(inputs),
        (*where, *(substitute(condition, values) for condition in node.where)),
        tuple(Projection(p.name, substitute(p.expr, values)) for p in node.projections),
        sign,
        tuple(replace(g, call=substitute(g.call, values)) for g in node.generators),
    )
