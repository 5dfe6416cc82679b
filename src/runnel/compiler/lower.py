"""Turns a parsed query into a plan: finds every name, spreads stars, flattens joins, and puts aggregates aside as stages.

A stage is an aggregate that something stands above: it becomes a relation of its own, kept as sums, and the rest of the view
is linear over its rows. What the linear rule cannot follow raises `NotLinear`; wrong names raise `Terminal` with the place.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sqlglot import exp

from runnel.compiler import plan
from runnel.compiler.grouping import Grouped, group_select, has_aggregate
from runnel.compiler.plan import Aggregate, Input, Node, Projection, Scan, Spj, UnionAll
from runnel.compiler.resolve import Scope, Source, cte_of, find_relation, resolved, table_name
from runnel.compiler.spark import DIALECT
from runnel.compiler.support import NotLinear
from runnel.errors import Terminal

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from runnel.compiler.source import SourceText
    from runnel.model.relation import Column, Relation

Lowered = tuple[Node | Grouped, tuple[str, ...]]


@dataclass
class Lowering:
    """What is known while one query is lowered. `stage` stores an aggregate and gives its relation, `typed` a plan's columns."""

    text: SourceText
    relations: Mapping[str, Relation]
    stage: Callable[[Grouped], Relation]
    typed: Callable[[Node], tuple[Column, ...]]
    aliases: int = 0
    busy: list[exp.CTE] = field(default_factory=list)

    def alias(self) -> str:
        """Give a name no other input of the view has."""
        self.aliases += 1
        return f"t{self.aliases}"


def lower(context: Lowering, query: exp.Expr) -> Lowered:
    """Lower a query to a plan, or to an aggregate where nothing stands above it; give the columns' names as written."""
    match query:
        case exp.Select():
            return _select(context, query)
        case exp.Union():
            return _union(context, query)
        case exp.Subquery():
            return lower(context, query.this)
        case _:
            raise NotLinear("except or intersect", query)


def node_of(context: Lowering, query: exp.Expr) -> tuple[Node, tuple[str, ...]]:
    """Lower a query that stands inside another: an aggregate becomes a stage."""
    lowered, names = lower(context, query)
    if isinstance(lowered, Grouped):
        relation = context.stage(lowered)
        return Scan(relation, tuple(c.name for c in relation.rows)), names
    return lowered, names


def _union(context: Lowering, query: exp.Union) -> Lowered:
    left, names = node_of(context, query.left)
    right, others = node_of(context, query.right)
    if len(names) != len(others):
        raise Terminal(
            "RUNNEL-VIEW-UNION",
            f"the branches of a UNION have {len(names)} and {len(others)} columns",
            place=context.text.place_of(query.right),
            hint="give every branch the same columns in the same order",
        )
    node = _same_types(context, left, right)
    if query.args.get("distinct"):
        return _distinct(context, node, names), names
    return node, names


def _same_types(context: Lowering, left: Node, right: Node) -> UnionAll:
    """Cast both branches to the union's types, because each branch's change is stored alone."""
    right = _as(context, right, left.names, [None] * len(left.names))
    union = UnionAll((left, right))
    wanted = context.typed(union)
    branches = []
    for branch in union.branches:
        given = context.typed(branch)
        casts = [str(w.type) if w.type != g.type else None for w, g in zip(wanted, given, strict=True)]
        branches.append(_as(context, branch, left.names, casts) if any(casts) else branch)
    flat = [b for branch in branches for b in (branch.branches if isinstance(branch, UnionAll) else (branch,))]
    return UnionAll(tuple(flat))


def _as(context: Lowering, node: Node, names: tuple[str, ...], casts: list[str | None]) -> Node:
    if isinstance(node, UnionAll):
        return UnionAll(tuple(_as(context, branch, names, casts) for branch in node.branches))
    if node.names == names and not any(casts):
        return node
    alias = context.alias()
    columns = [plan.column(alias, name) for name in node.names]
    exprs = [exp.cast(c, to, dialect=DIALECT) if to else c for c, to in zip(columns, casts, strict=True)]
    return Spj((Input(alias, node),), (), tuple(Projection(n, e) for n, e in zip(names, exprs, strict=True)))


def _select(context: Lowering, select: exp.Select) -> Lowered:
    scope = Scope(context.text)
    inputs, where = _from(context, select, scope)
    if select.args.get("where") is not None:
        where += plan.conjuncts(resolved(select.args["where"].this, scope))
    outputs = _outputs(select, scope)
    names = tuple(name for name, _ in outputs)
    lowered: Node | Grouped
    if select.args.get("group") is not None or has_aggregate(expr for _, expr in outputs) or select.args.get("having"):
        grouped = group_select(select, scope, Spj(tuple(inputs), tuple(where), ()), outputs)
        lowered = _above(context, grouped)
    else:
        projections = [Projection(n, e) for n, (_, e) in zip(plan.unique(names), outputs, strict=True)]
        lowered = Spj(tuple(inputs), tuple(where), tuple(projections))
    if select.args.get("distinct") is not None:
        if isinstance(lowered, Grouped):
            relation = context.stage(lowered)
            lowered = Scan(relation, tuple(c.name for c in relation.rows))
        return _distinct(context, lowered, names), names
    return lowered, names


def _above(context: Lowering, grouped: Grouped) -> Node | Grouped:
    """Keep an aggregate as it is, or put what stands above it (expressions, HAVING) over a stage."""
    if grouped.direct:
        return grouped
    relation = context.stage(grouped)
    alias = context.alias()
    values = {("", c.name): plan.column(alias, c.name) for c in relation.rows}
    projections = [Projection(n, plan.substitute(e, values)) for n, e in grouped.above]
    having = [plan.substitute(condition, values) for condition in grouped.having]
    return Spj((Input(alias, Scan(relation, tuple(c.name for c in relation.rows))),), tuple(having), tuple(projections))


def _distinct(context: Lowering, node: Node, names: tuple[str, ...]) -> Grouped:
    if any(not t for t in names):
        raise NotLinear("distinct", exp.Distinct())
    return Grouped(Aggregate(node, node.names, ()), tuple((name, name) for name in node.names))


def _from(context: Lowering, select: exp.Select, scope: Scope) -> tuple[list[Input], list[exp.Expr]]:
    if select.args.get("from_") is None:
        raise NotLinear("constant rows", select)
    if select.args.get("laterals"):
        raise NotLinear("lateral or generator", select.args["laterals"][0])
    inputs: list[Input] = []
    where: list[exp.Expr] = []
    _item(context, select.args["from_"].this, scope, inputs, where)
    for join in select.args.get("joins") or []:
        _join(context, join, scope, inputs, where)
    return inputs, where


def _join(context: Lowering, join: exp.Join, scope: Scope, inputs: list[Input], where: list[exp.Expr]) -> None:
    if join.side or join.kind not in ("", "INNER", "CROSS"):
        raise NotLinear("outer join", join)
    left = Scope(context.text, list(scope.sources), dict(scope.merged))
    _item(context, join.this, scope, inputs, where)
    right = scope.sources[len(left.sources) :]
    common = [identifier.name for identifier in join.args.get("using") or []]
    if join.method == "NATURAL":
        theirs = {name.lower() for source in right for name, _ in source.columns}
        common = [name for name, _ in left.columns() if name.lower() in theirs]
    for name in common:
        column = exp.column(name)
        mine = left.column(column)
        other = Scope(context.text, right).column(column)
        where.append(exp.EQ(this=mine.copy(), expression=other))
        scope.merged[next((n for n, _ in left.columns() if n.lower() == name.lower()), name)] = mine
    if join.args.get("on") is not None:
        where += plan.conjuncts(resolved(join.args["on"], scope))


def _item(context: Lowering, item: exp.Expr, scope: Scope, inputs: list[Input], where: list[exp.Expr]) -> None:
    """Add one item of a FROM to the scope and the inputs."""
    if isinstance(item, exp.Subquery) and isinstance(item.this, exp.Table) and not item.alias:
        _item(context, item.this, scope, inputs, where)
        return
    alias = context.alias()
    match item:
        case exp.Table() if isinstance(item.this, exp.Identifier):
            node, shown, called = _table(context, item)
        case exp.Subquery() if isinstance(item.this, exp.Query):
            node, shown = node_of(context, item.this)
            called = (item.alias.lower(),)
        case _:
            raise NotLinear("lateral or generator", item)
    if item.args.get("pivots") or (item.args.get("joins") and not isinstance(item, exp.Table)):
        raise NotLinear("pivot", item)
    renamed = item.args["alias"].columns if item.args.get("alias") is not None else []
    shown = tuple(i.name for i in renamed) if renamed else shown
    columns = tuple((name, plan.column(alias, inner)) for name, inner in zip(shown, node.names, strict=True))
    scope.sources.append(Source(called, columns))
    inputs.append(Input(alias, node))
    for join in item.args.get("joins") or []:
        _join(context, join, scope, inputs, where)


def _table(context: Lowering, table: exp.Table) -> tuple[Node, tuple[str, ...], tuple[str, ...]]:
    cte = cte_of(table)
    if cte is None:
        relation = find_relation(table, context.relations, context.text)
        names = tuple(c.name for c in relation.rows)
        return Scan(relation, names), names, _called(table, relation)
    if any(cte is busy for busy in context.busy):
        raise NotLinear("recursive query", table)
    context.busy.append(cte)
    node, names = node_of(context, cte.this)
    context.busy.pop()
    if cte.args["alias"].columns:
        names = tuple(i.name for i in cte.args["alias"].columns)
    return node, names, (table.alias_or_name.lower(),)


def _called(table: exp.Table, relation: Relation) -> tuple[str, ...]:
    if table.alias:
        return (table.alias.lower(),)
    return tuple({table_name(table).lower(), table.name.lower(), relation.name.lower()})


def _outputs(select: exp.Select, scope: Scope) -> list[tuple[str, exp.Expr]]:
    outputs: list[tuple[str, exp.Expr]] = []
    for item in select.expressions:
        if item.is_star:
            outputs += _star(item, scope)
            continue
        expr = resolved(item.unalias(), scope)
        outputs.append((item.alias_or_name if isinstance(item, (exp.Alias, exp.Column, exp.Dot)) else "", expr))
        if isinstance(item, exp.Alias):
            scope.aliases.setdefault(item.alias.lower(), expr)
    return outputs


def _star(item: exp.Expr, scope: Scope) -> list[tuple[str, exp.Expr]]:
    star = item.this if isinstance(item, exp.Column) else item
    if not isinstance(star, exp.Star) or star.args.get("replace") or star.args.get("rename"):
        raise NotLinear("lateral or generator", item)
    shown = scope.columns()
    if isinstance(item, exp.Column):
        called = ".".join(part.name for part in item.parts[:-1]).lower()
        sources = [source for source in scope.sources if called in source.names]
        if not sources:
            raise NotLinear("lateral or generator", item, f"{called}.*")
        shown = [column for source in sources for column in source.columns]
    left_out = {e.name.lower() for e in star.args.get("except_") or []}
    return [(name, expr.copy()) for name, expr in shown if name.lower() not in left_out]
