"""Turns a parsed query into a plan: finds every name, spreads stars, flattens joins, and puts aside as stages what must be kept.

What stands above an aggregate, a window or a LIMIT is linear over the rows of a stage. What cannot be followed raises
`NotLinear`; wrong names raise `Terminal` with the place.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sqlglot import exp

from runnel.compiler import fields, joins, limits, partners, plan, rowmakers, subqueries, window_ties, windows
from runnel.compiler.aggregates import kept
from runnel.compiler.changes import WORD, changes_relation, is_changes, source_of
from runnel.compiler.grouping import Grouped, group_list, has_aggregate, take_apart
from runnel.compiler.groupsets import grouping_sets, kept_sets, replace_grouping
from runnel.compiler.joins import From
from runnel.compiler.outputs import output_name
from runnel.compiler.plan import Input, Keyed, Node, Projection, Scan, Spj, UnionAll
from runnel.compiler.resolve import Scope, Shown, Source, cte_of, find_relation, resolved, table_name
from runnel.compiler.spark import DIALECT
from runnel.compiler.support import NotLinear
from runnel.errors import Terminal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from runnel.compiler.plan import Top
    from runnel.compiler.savings import Found, Saving
    from runnel.compiler.source import SourceText
    from runnel.compiler.subqueries import Subquery
    from runnel.model.relation import Column, Relation

Kept = Node | Grouped | Keyed
Lowered = tuple[Kept, tuple[str, ...]]
Output = tuple[str, exp.Expr]


@dataclass
class Lowering:
    """What is known while one query is lowered. The callables store stages and give their relations, or a plan's columns."""

    text: SourceText
    relations: Mapping[str, Relation]
    aggregate: Callable[[Grouped], Relation]
    keyed: Callable[[Keyed], Relation]
    top: Callable[[Top], Relation]
    typed: Callable[[Node], tuple[Column, ...]]
    aliases: int = 0
    busy: list[exp.CTE] = field(default_factory=list)
    subqueries: list[Subquery] = field(default_factory=list)
    queries: list[exp.Expr] = field(default_factory=list)
    asked: windows.Asked | None = None
    """Columns of the query lowered next of which only small values are asked for."""
    definite: bool = False
    """Whether an order that the query leaves open was completed in its tree."""
    saved: list[Found] = field(default_factory=list)
    """What declared keys spare."""

    def remember(self, tree: exp.Expr) -> None:
        """Give every query of the tree a number by which its copies know it."""
        for query in tree.find_all(exp.Query):
            query.meta["query"] = len(self.queries)
            self.queries.append(query)

    def original(self, query: exp.Expr) -> exp.Expr:
        """Give the query a copy was made of: only the original knows what stands around it."""
        number = query.meta.get("query")
        return self.queries[number] if isinstance(number, int) else query

    def alias(self) -> str:
        """Give a name no other input of the view has."""
        self.aliases += 1
        return plan.alias(self.aliases)

    def save(self, saving: Saving, tables: Iterable[str]) -> None:
        """Note what a declared key of these tables spares."""
        self.saved += [(saving, table) for table in sorted(tables)]

    def resolve(self, expr: exp.Expr, scope: Scope, frame: From) -> exp.Expr:
        """Put plan columns in the place of names, and placeholders in the place of subqueries."""
        named = fields.named(expr, lambda star: spread(star, scope))
        return resolved(named, scope, lambda node: subqueries.find(self, scope, frame, node))

    def as_node(self, lowered: Kept) -> Node:
        """Give a plan: what must be kept becomes a stage."""
        if isinstance(lowered, Grouped):
            relation = self.aggregate(lowered)
        elif isinstance(lowered, Keyed):
            relation = self.keyed(lowered)
        else:
            return lowered
        return Scan(relation, tuple(c.name for c in relation.rows))

    def same_types(self, left: Node, right: Node) -> UnionAll:
        """Unite two plans; both branches are cast to the union's types, because each branch's change is stored alone."""
        right = _as(self, right, left.names, [None] * len(left.names))
        union = UnionAll((left, right))
        wanted = self.typed(union)
        branches = []
        for branch in union.branches:
            given = self.typed(branch)
            casts = [str(w.type) if w.type != g.type else None for w, g in zip(wanted, given, strict=True)]
            branches.append(_as(self, branch, left.names, casts) if any(casts) else branch)
        flat = [b for branch in branches for b in (branch.branches if isinstance(branch, UnionAll) else (branch,))]
        return UnionAll(tuple(flat))


def lower(context: Lowering, query: exp.Expr) -> Lowered:
    """Lower a query to a plan, or to what must be kept where nothing stands above it; give the columns' names as written."""
    match query:
        case exp.Select():
            return _select(context, query)
        case exp.SetOperation():
            return limits.limited_set(context, query, *_set_operation(context, query))
        case exp.Subquery():
            if any(query.args.get(part) for part in ("limit", "offset")):
                return limits.limited_set(context, query, *lower(context, query.this))
            return lower(context, query.this)
        case exp.Values():
            return rowmakers.values(context, query)
        case _:
            raise NotLinear("unknown form", query)


def node_of(context: Lowering, query: exp.Expr) -> tuple[Node, tuple[str, ...]]:
    """Lower a query that stands inside another."""
    lowered, names = lower(context, query)
    return context.as_node(lowered), names


def _set_operation(context: Lowering, query: exp.SetOperation) -> Lowered:
    left, names = node_of(context, query.left)
    right, others = node_of(context, query.right)
    if len(names) != len(others):
        raise Terminal(
            "RUNNEL-VIEW-UNION",
            f"the branches of a {query.key.upper()} have {len(names)} and {len(others)} columns",
            place=context.text.place_of(query.right),
            hint="give every branch the same columns in the same order",
        )
    if query.args.get("by_name"):
        raise NotLinear("unknown form", query, "BY NAME")
    both = context.same_types(left, right)
    if isinstance(query, exp.Union):
        return (_distinct(both) if query.args.get("distinct") else both), names
    count = len(left.branches) if isinstance(left, UnionAll) else 1
    one, two = _one(both.branches[:count]), _one(both.branches[count:])
    return _difference(context, query, one, two), names


def _one(branches: tuple[Node, ...]) -> Node:
    return branches[0] if len(branches) == 1 else UnionAll(branches)


def _difference(context: Lowering, query: exp.SetOperation, left: Node, right: Node) -> Kept:
    """INTERSECT and EXCEPT: by the distinct rows of both sides, or row by row where duplicates count."""
    word = "EXCEPT" if isinstance(query, exp.Except) else "INTERSECT"
    if not query.args.get("distinct"):
        listed = ", ".join(f"`{name}`" for name in left.names)
        feeds = (plan.Feed("_left", left, left.names), plan.Feed("_right", right, left.names))
        sql = f"SELECT {listed} FROM `_left` {word} ALL SELECT {listed} FROM `_right`"
        return Keyed(feeds, sql, left.names, left.names, "except or intersect all")
    mine, theirs = partners.distinct(context, left), partners.distinct(context, right)
    one, two = context.alias(), context.alias()
    same = tuple(exp.NullSafeEQ(this=plan.column(one, name), expression=plan.column(two, name)) for name in left.names)
    shown = tuple(Projection(name, plan.column(one, name)) for name in left.names)
    both = Spj((Input(one, mine), Input(two, theirs)), same, shown, -1 if word == "EXCEPT" else 1)
    return both if word == "INTERSECT" else UnionAll((plan.renamed(mine, context.alias()), both))


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
    frame = From(Scope(context.text))
    asked, context.asked = context.asked, None
    fill_from(context, select, frame)
    if select.args.get("where") is not None:
        frame.where += plan.conjuncts(context.resolve(select.args["where"].this, frame.scope, frame))
    window_ties.prepare(context, select, frame)
    outputs = outputs_of(context, select, frame)
    names = tuple(name for name, _ in outputs)
    order = limits.order_of(context, select, frame, outputs)
    hidden = limits.hidden(order, outputs)
    distinct = select.args.get("distinct")
    few = windows.few_asked(asked, select, outputs)
    lowered = _body(context, select, frame, outputs if distinct else [*outputs, *hidden], few)
    if distinct is not None:
        if distinct.args.get("on") is not None:
            raise NotLinear("unknown form", distinct, "DISTINCT ON")
        lowered = _distinct(context.as_node(lowered))
    return limits.limited(context, select, lowered, names, outputs, order), names


def _body(context: Lowering, select: exp.Select, frame: From, outputs: list[Output], few: dict[exp.Expr, int]) -> Kept:
    """Lower what a SELECT computes from its FROM and WHERE; of `few` expressions only small values are asked for."""
    group, having = select.args.get("group"), select.args.get("having")
    if group is not None or having is not None or has_aggregate(expr for _, expr in outputs):
        return _grouped(context, select, frame, outputs, few)
    names = plan.unique(tuple(plan.inner(name) for name, _ in outputs))
    conditions = _qualify(context, select, frame)
    exprs = subqueries.expand(context, frame, [*(expr for _, expr in outputs), *conditions])
    few = {**few, **windows.bounds(exprs[len(outputs) :])}
    exprs = windows.expand(context, frame, exprs, few)
    frame.where += exprs[len(outputs) :]
    shown = tuple(Projection(n, e) for n, e in zip(names, exprs, strict=False))
    return Spj(tuple(frame.inputs), tuple(frame.where), shown, 1, tuple(frame.generators))


def _qualify(context: Lowering, select: exp.Select, frame: From) -> list[exp.Expr]:
    qualify = select.args.get("qualify")
    return list(plan.conjuncts(context.resolve(qualify.this, frame.scope, frame))) if qualify is not None else []


def _grouped(
    context: Lowering, select: exp.Select, frame: From, outputs: list[Output], few: dict[exp.Expr, int]
) -> Kept:
    having = select.args.get("having")
    if select.args.get("qualify") is not None:
        raise NotLinear("unknown form", select, "QUALIFY over aggregates")
    group = select.args.get("group")
    sets, groups = grouping_sets(context, group, frame, outputs) or (
        None,
        group_list(group, outputs, frame.scope, lambda e: context.resolve(e, frame.scope, frame)),
    )
    condition = context.resolve(having.this, frame.scope, frame) if having is not None else None
    if sets is not None and len(sets) == 1 and not sets[0]:
        sets, groups = None, []  # the one set without groups is a plain aggregate
    if sets is not None:
        outputs = [(name, replace_grouping(expr, groups)) for name, expr in outputs]
        condition = replace_grouping(condition, groups) if condition is not None else None
    every = [expr for _, expr in outputs] + ([condition] if condition is not None else [])
    every = subqueries.expand_inside(context, frame, every, groups)
    expanded, every = every[len(every) - len(groups) :], every[: len(every) - len(groups)]
    if sets is not None:
        sets = [[expanded[groups.index(e)] for e in chosen] for chosen in sets]
    groups = expanded
    condition = every[-1] if condition is not None else None
    shown = [(plan.inner(name), expr) for (name, _), expr in zip(outputs, every, strict=False)]
    grouping = take_apart(frame.scope, groups, shown, condition)
    source = Spj(tuple(frame.inputs), tuple(frame.where), (), 1, tuple(frame.generators))
    above = [*(e for _, e in grouping.outputs), *grouping.having]
    if sets is None and not windows.above(above) and not subqueries.any_in(above):
        return kept(context, source, grouping)
    node, above = kept_sets(context, source, grouping, sets)
    outer = From(Scope(context.text))
    alias = context.alias()
    outer.inputs.append(Input(alias, node))
    values = {("", name): plan.column(alias, name) for name in node.names}
    few = {
        plan.substitute(taken, values): few[expr]
        for (_, expr), (_, taken) in zip(outputs, grouping.outputs, strict=True)
        if expr in few
    }
    exprs = [plan.substitute(e, values) for e in above]
    count = len(grouping.outputs)
    outer.where += exprs[count:]
    exprs = subqueries.expand(context, outer, exprs[:count])
    exprs = windows.expand(context, outer, exprs, few)
    names = plan.unique(tuple(plan.inner(name) for name, _ in outputs))
    return Spj(
        tuple(outer.inputs), tuple(outer.where), tuple(Projection(n, e) for n, e in zip(names, exprs, strict=True))
    )


def _distinct(node: Node) -> Grouped:
    return Grouped(plan.Aggregate(node, node.names, ()), tuple((name, name) for name in node.names))


def fill_from(context: Lowering, select: exp.Select, frame: From) -> None:
    """Take a SELECT's FROM, joins and lateral views into a frame; without a FROM it is one row of nothing."""
    if select.args.get("from_") is not None:
        item = select.args["from_"].this
        context.asked = windows.asked(select, item)
        _item(context, item, frame)
        context.asked = None
    for join in select.args.get("joins") or []:
        _join(context, join, frame)
    for lateral in select.args.get("laterals") or []:
        rowmakers.lateral_view(context, lateral, frame)
    inner = [e for k in ("expressions", "where", "having") for e in _listed(select.args.get(k))]
    if frame.generators and any(subqueries.is_subquery(n) for e in inner for n in e.walk()):
        frame.settle(context)


def _listed(value: object) -> list[exp.Expr]:
    if isinstance(value, list):
        return value
    return [value] if isinstance(value, exp.Expr) else []


def _join(context: Lowering, join: exp.Join, frame: From) -> None:
    side, kind = join.side.upper(), join.kind.upper()
    if isinstance(join.this, exp.Lateral):
        if side or join.args.get("on") is not None or kind not in ("", "INNER", "CROSS"):
            raise NotLinear("lateral or generator", join, "LATERAL")
        subqueries.lateral(context, join.this, frame)
        return
    outer = "SEMI" if kind == "SEMI" else "ANTI" if kind == "ANTI" else side
    if outer:
        subqueries.expand(context, frame, [])
    frame.settle(context)
    right = From(Scope(context.text, outer=frame.scope.outer))
    _item(context, join.this, right)
    common = _common(join, frame.scope, right.scope)
    conditions: list[exp.Expr] = []
    for name in common:
        column = exp.column(name)
        conditions.append(exp.EQ(this=frame.scope.column(column).copy(), expression=right.scope.column(column).copy()))
    if join.args.get("on") is not None:
        both = frame.scope.beside(right.scope)
        conditions += plan.conjuncts(context.resolve(join.args["on"], both, frame))
    if outer and subqueries.any_in(conditions):
        raise NotLinear("subquery in an expression", join, "subquery in an outer join's condition")
    if not outer:
        right.settle(context)
        frame.inputs += right.inputs
        frame.where += [*right.where, *conditions]
    else:
        joins.join(context, frame, right, outer, conditions)
    _merge(frame, right, common, outer)


def _common(join: exp.Join, left: Scope, right: Scope) -> list[str]:
    if join.method == "NATURAL":
        theirs = {name for name, _ in right.columns()}  # Spark compares these as they are written
        return [name for name, _ in left.columns() if name in theirs]
    return [identifier.name for identifier in join.args.get("using") or []]


def _merge(frame: From, right: From, common: list[str], side: str) -> None:
    """Bring the right side's names into scope; columns joined by name are seen once, before all others."""
    left, other = frame.scope, right.scope
    named = {name.lower() for name in common}
    mine = {one.name.lower(): one for one in left.shown if one.name.lower() in named}
    theirs = {one.name.lower(): one for one in other.shown if one.name.lower() in named}
    merged, hidden = [], []
    for name in (name.lower() for name in common):
        one, two = mine[name], theirs[name]
        both = exp.Coalesce(this=one.expr.copy(), expressions=[two.expr.copy()])
        merged.append(Shown(one.name, both, ()) if side == "FULL" else two if side == "RIGHT" else one)
        hidden += [one, two] if side == "FULL" else [one if side == "RIGHT" else two]
    rest = [one for one in left.shown if one.name.lower() not in named]
    if side in ("SEMI", "ANTI"):
        left.shown = [*merged, *rest]
        return
    left.sources = [*left.sources, *other.sources]
    left.shown = [*merged, *rest, *(one for one in other.shown if one.name.lower() not in named)]
    left.hidden = [*hidden, *left.hidden, *other.hidden]


def _item(context: Lowering, item: exp.Expr, frame: From) -> None:
    """Add one item of a FROM to the frame."""
    if isinstance(item, exp.Subquery) and isinstance(item.this, exp.Table) and not item.alias:
        _item(context, item.this, frame)
        return
    if isinstance(item, exp.Table) and isinstance(item.this, exp.Explode):
        raise NotLinear("lateral or generator", item)
    alias = context.alias()
    match item:
        case exp.Table() if isinstance(item.this, exp.Identifier):
            node, shown, called = _table(context, item)
        case exp.Table() if is_changes(item):
            node, shown, called = _changes(context, item)
        case exp.Subquery() if isinstance(item.this, exp.Query):
            node, shown = node_of(context, item.this)
            called = (item.alias.lower(),)
        case exp.Values():
            node, shown = node_of(context, item)
            called = (item.alias.lower(),)
        case _:
            raise NotLinear("lateral or generator", item)
    if item.args.get("pivots"):
        node, shown = rowmakers.pivoted(context, item, node, shown)
        pivot = item.args["pivots"][0]
        called = (pivot.alias.lower(),) if pivot.alias else called
    shown = _renamed_by(item.args.get("alias"), shown)
    columns = tuple((name, plan.column(alias, inner)) for name, inner in zip(shown, node.names, strict=True))
    frame.scope.add(Source(called, columns))
    frame.inputs.append(Input(alias, node))
    for join in item.args.get("joins") or []:
        _join(context, join, frame)
    for lateral in item.args.get("laterals") or []:
        rowmakers.lateral_view(context, lateral, frame)


def _renamed_by(alias: exp.Expr | None, names: tuple[str, ...]) -> tuple[str, ...]:
    """Give the columns the names that an alias lists, if it lists any."""
    if not isinstance(alias, exp.TableAlias) or not alias.columns:
        return names
    if len(alias.columns) != len(names):
        raise NotLinear("unknown form", alias, "column aliases")
    return tuple(i.name for i in alias.columns)


def _scanned(context: Lowering, relation: Relation) -> Node:
    """Read a relation; columns whose names look like ours are named apart."""
    names = tuple(c.name for c in relation.rows)
    scan = Scan(relation, names)
    marked = {plan.inner(name): name for name in names}
    return scan if tuple(marked) == names else plan.renamed(scan, context.alias(), marked)


def _table(context: Lowering, table: exp.Table) -> tuple[Node, tuple[str, ...], tuple[str, ...]]:
    cte = cte_of(table)
    if cte is None:
        relation = find_relation(table, context.relations, context.text)
        names = tuple(c.name for c in relation.rows)
        return _scanned(context, relation), names, _called(table, relation)
    if any(cte is busy for busy in context.busy):
        raise NotLinear("recursive query", table)
    context.busy.append(cte)
    try:
        node, names = node_of(context, cte.this)
    finally:
        context.busy.pop()
    if cte.args["alias"].columns:
        names = _renamed_by(cte.args["alias"], names)
    return node, names, (table.alias_or_name.lower(),)


def _changes(context: Lowering, table: exp.Table) -> tuple[Node, tuple[str, ...], tuple[str, ...]]:
    """Read the changes of a relation, with the row before and the row after as structs."""
    relation = changes_relation(find_relation(source_of(table, context.text), context.relations, context.text))
    names = tuple(c.name for c in relation.rows)
    return Scan(relation, names), names, (table.alias.lower() or WORD.lower(),)


def _called(table: exp.Table, relation: Relation) -> tuple[str, ...]:
    if table.alias:
        return (table.alias.lower(),)
    return tuple(dict.fromkeys((table.name.lower(), table_name(table).lower(), relation.name.lower())))


def outputs_of(context: Lowering, select: exp.Select, frame: From) -> list[Output]:
    """Give the columns a SELECT lists, stars spread, as expressions over the plan."""
    outputs: list[Output] = []
    for item in select.expressions:
        made = rowmakers.generated(context, item, frame)
        if made is not None:
            outputs += made
            continue
        if item.is_star:
            outputs += spread(item, frame.scope)
            continue
        expr = context.resolve(item.unalias(), frame.scope, frame)
        outputs.append((output_name(item), expr))
        if isinstance(item, exp.Alias):
            frame.scope.aliases.setdefault(item.alias.lower(), expr)
    return outputs


def spread(item: exp.Expr, scope: Scope) -> list[Output]:
    """Give the columns that a star stands for."""
    star = item.this if isinstance(item, exp.Column) else item
    if not isinstance(star, exp.Star) or star.args.get("replace") or star.args.get("rename"):
        raise NotLinear("unknown form", item, "a star with REPLACE")
    shown = scope.columns()
    if isinstance(item, exp.Column):
        called = ".".join(part.name for part in item.parts[:-1]).lower()
        shown = scope.columns_of(called)
        if not shown:
            raise NotLinear("unknown form", item, f"{called}.*")
    left_out = {e.name.lower() for e in star.args.get("except_") or []}
    return [(name, expr.copy()) for name, expr in shown if name.lower() not in left_out]
