"""Moves a condition on a single input of a join into that input, also through a union, so that less is joined.

`SELECT ... FROM t JOIN u ON t.id = u.id AND t.a > 0` becomes `SELECT ... FROM (SELECT * FROM t WHERE a > 0) t JOIN u ON t.id = u.id`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from runnel.compiler.plan import Input, Node, Projection, Scan, Spj, UnionAll, aliases, column, substitute

if TYPE_CHECKING:
    from sqlglot import exp


def push_filters(node: Node) -> Node:
    """Push the conditions of joins; a select over one scan keeps its own."""
    match node:
        case Spj():
            return _push(node)
        case UnionAll(branches):
            return UnionAll(tuple(push_filters(branch) for branch in branches))
        case _:
            return node


def _push(node: Spj) -> Spj:
    alone = len(node.inputs) == 1 and isinstance(node.inputs[0].node, Scan)
    if alone:
        return node
    own: list[exp.Expr] = []
    pushed: dict[str, list[exp.Expr]] = {}
    known = {i.alias for i in node.inputs}
    for condition in node.where:
        used = aliases(condition)
        if len(used) == 1 and used <= known:
            pushed.setdefault(next(iter(used)), []).append(condition)
        else:
            own.append(condition)
    inputs = [Input(i.alias, push_filters(_filtered(i, pushed.get(i.alias, [])))) for i in node.inputs]
    return replace(node, inputs=tuple(inputs), where=tuple(own))


def _filtered(item: Input, conditions: list[exp.Expr]) -> Node:
    if not conditions:
        return item.node
    match item.node:
        case Scan(_, columns):
            kept = tuple(Projection(name, column(item.alias, name)) for name in columns)
            return Spj((item,), tuple(conditions), kept)
        case UnionAll(branches):
            return UnionAll(tuple(_filtered(Input(item.alias, branch), conditions) for branch in branches))
        case Spj(_, where, projections):
            values = {(item.alias, p.name): p.expr for p in projections}
            return replace(item.node, where=(*where, *(substitute(c, values) for c in conditions)))
