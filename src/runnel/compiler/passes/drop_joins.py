"""Leaves out a table that is joined by a foreign key and of which nothing but the key is read: every row has its partner.

With `orders.cid` referring to `customers`, `SELECT o.id FROM orders o JOIN customers c ON o.cid = c.cid` becomes
`SELECT o.id FROM orders o WHERE o.cid IS NOT NULL`. A semi join, `IN` and `EXISTS` on a key are such joins, too.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from sqlglot import exp

from runnel.compiler import foreign_keys, plan
from runnel.compiler.plan import Input, Node, Projection, Scan, Spj, UnionAll

if TYPE_CHECKING:
    from runnel.compiler.foreign_keys import Link


def drop_joins(node: Node) -> Node:
    """Leave out tables until each that is left is read, in a join and below it."""
    match node:
        case Spj():
            return _dropped(replace(node, inputs=tuple(Input(i.alias, drop_joins(i.node)) for i in node.inputs)))
        case UnionAll(branches):
            return UnionAll(tuple(drop_joins(branch) for branch in branches))
        case _:
            return node


def _dropped(node: Spj) -> Spj:
    for link in foreign_keys.links(node):
        if _only_key_is_read(node, link):
            return _dropped(_without(node, link))
    return node


def _only_key_is_read(node: Spj, link: Link) -> bool:
    """Say whether a table is joined whole, by a key of the same type, and stands for nothing but that key."""
    parent, child = node.inputs[link.parent], node.inputs[link.child]
    if not isinstance(parent.node, Scan) or not _same_types(child.node, link):
        return False
    exprs = [*node.where, *(p.expr for p in node.projections), *(g.call for g in node.generators)]
    read = {c.name for e in exprs for c in e.find_all(exp.Column) if c.table == parent.alias}
    return read <= set(link.targets)


def _same_types(node: Node, link: Link) -> bool:
    wanted = [link.relation.column(name).type for name in link.targets]
    origins = foreign_keys.origins_of(node, link.columns) or []
    return all([relation.column(n).type for n in names] == wanted for relation, names in origins)


def _without(node: Spj, link: Link) -> Spj:
    """Read the foreign key in the place of the key; where it is NULL there was no partner."""
    parent, child = node.inputs[link.parent].alias, node.inputs[link.child].alias
    own = [plan.column(child, name) for name in link.columns]
    values: dict[tuple[str, str], exp.Expr] = {
        (parent, target): column for target, column in zip(link.targets, own, strict=True)
    }
    where = [plan.substitute(c, values) for c in node.where if not _ties(c, parent, child, link)]
    there = [exp.Not(this=exp.Is(this=column.copy(), expression=exp.null())) for column in own]
    return replace(
        node,
        inputs=tuple(item for item in node.inputs if item.alias != parent),
        where=tuple(dict.fromkeys((*where, *there))),
        projections=tuple(Projection(p.name, plan.substitute(p.expr, values)) for p in node.projections),
        generators=tuple(replace(g, call=plan.substitute(g.call, values)) for g in node.generators),
    )


def _ties(condition: exp.Expr, parent: str, child: str, link: Link) -> bool:
    """Say whether a condition is one of those that the foreign key is joined by."""
    sides = foreign_keys.equal_columns(condition)
    if sides is None:
        return False
    named = {(side.table, side.name) for side in sides}
    return any(named == {(parent, t), (child, c)} for t, c in zip(link.targets, link.columns, strict=True))
