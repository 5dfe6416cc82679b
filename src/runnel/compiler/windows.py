"""Window functions: each partition that a change touches is computed again, by plain SQL over its rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlglot import exp

from runnel.compiler import plan
from runnel.compiler.emit import expression, quoted
from runnel.compiler.functions import function_name
from runnel.compiler.grouping import Grouped
from runnel.compiler.plan import Aggregate, Feed, Input, Keyed, Order, Projection, Scan, Spj, Top
from runnel.compiler.resolve import cte_of
from runnel.compiler.support import NotLinear
from runnel.model.relation import Kind

if TYPE_CHECKING:
    from collections.abc import Mapping

    from runnel.compiler.joins import From
    from runnel.compiler.lower import Lowering
    from runnel.compiler.plan import Node

LARGEST = 10_000
"""Up to this rank the first rows are kept instead of all."""


def above(exprs: list[exp.Expr]) -> bool:
    """Say whether any expression has a window."""
    return any(e.find(exp.Window) for e in exprs)


@dataclass(frozen=True)
class Asked:
    """Small values that a SELECT asks for of columns of the one query it reads: `{column: greatest value}` in lower case.

    `renamed` are the names by which it calls the columns, where an alias gives them new ones.
    """

    query: exp.Expr
    bounds: Mapping[str, int]
    renamed: tuple[str, ...] = ()


def asked(select: exp.Select, item: exp.Expr) -> Asked | None:
    """Find conditions such as `rank <= 3` on columns of the one query a SELECT reads, if it reads nothing else."""
    where = select.args.get("where")
    if where is None or select.args.get("joins") or select.args.get("laterals") or _more_than_a_query(item):
        return None
    found = _query_of(item)
    if found is None:
        return None
    bounds = {}
    for condition in plan.conjuncts(where.this):
        bound = _bound(condition)
        if bound is not None and isinstance(bound[0], exp.Column) and _is_of(bound[0], item):
            bounds[bound[0].name.lower()] = bound[1]
    return Asked(found[0], bounds, found[1]) if bounds else None


def _more_than_a_query(item: exp.Expr) -> bool:
    return any(value for part, value in item.args.items() if part not in ("this", "alias", "with_"))


def _is_of(column: exp.Column, item: exp.Expr) -> bool:
    """Say whether a column is the item's own, not a field of one of its columns."""
    owner = [part.name.lower() for part in column.parts[:-1]]
    return not owner or owner == [item.alias_or_name.lower()]


def _query_of(item: exp.Expr) -> tuple[exp.Select, tuple[str, ...]] | None:
    """Give the SELECT whose rows an item of a FROM stands for, with the new names it gives to the columns."""
    renamed: tuple[str, ...] = ()
    while not isinstance(item, exp.Select):
        if _more_than_a_query(item):
            return None
        renamed = renamed or _column_aliases(item)
        cte = cte_of(item) if isinstance(item, exp.Table) and isinstance(item.this, exp.Identifier) else None
        if cte is not None:
            renamed = renamed or _column_aliases(cte)
            item = cte.this
        elif isinstance(item, exp.Subquery):
            item = item.this
        else:
            return None
    return item, renamed


def _column_aliases(item: exp.Expr) -> tuple[str, ...]:
    alias = item.args.get("alias")
    return tuple(i.name for i in alias.columns) if isinstance(alias, exp.TableAlias) else ()


def few_asked(asked: Asked | None, select: exp.Select, outputs: list[tuple[str, exp.Expr]]) -> dict[exp.Expr, int]:
    """Give the outputs of a SELECT of which only small values are read, with the greatest one.

    Rows with greater values may be dropped only if nothing else reads them: that is so where the SELECT's rows go to the asking
    query alone and each for itself. A LIMIT or DISTINCT of the SELECT sees them all. (Other windows of the SELECT see them too;
    `expand` computes those first.)
    """
    if asked is None or asked.query is not select or any(select.args.get(p) for p in ("limit", "offset", "distinct")):
        return {}
    names = asked.renamed or tuple(name for name, _ in outputs)
    if len(names) != len(outputs):
        return {}
    bound = {name.lower(): expr for name, (_, expr) in zip(names, outputs, strict=True)}
    return {bound[name]: count for name, count in asked.bounds.items() if name in bound}


def bounds(conditions: list[exp.Expr]) -> dict[exp.Expr, int]:
    """Find conditions that ask for small values of an expression."""
    found = [_bound(c) for c in conditions]
    return dict(f for f in found if f is not None)


def _bound(condition: exp.Expr) -> tuple[exp.Expr, int] | None:
    if isinstance(condition, exp.Between):
        condition = exp.LTE(this=condition.this, expression=condition.args["high"])
    if not isinstance(condition, (exp.LT, exp.LTE, exp.EQ)):
        return None
    left, right = condition.this.unnest(), condition.expression.unnest()
    if not (isinstance(right, exp.Literal) and right.is_int):
        return None
    count = int(right.this) - isinstance(condition, exp.LT)
    return (left, count) if 0 < count <= LARGEST else None


def expand(
    context: Lowering, frame: From, exprs: list[exp.Expr], few: dict[exp.Expr, int] | None = None
) -> list[exp.Expr]:
    """Compute the windows of these expressions in stages over the frame; give the expressions without them.

    `few` are windows of which only small values are asked for, with the greatest one: the first rows are enough for them.
    """
    if not above(exprs):
        return exprs
    found: list[exp.Window] = list(dict.fromkeys(w for e in exprs for w in _outermost(e)))
    small = _is_small(frame)
    columns: dict[tuple[str, str], str] = {}
    for expr in exprs:
        for column in expr.find_all(exp.Column):
            columns.setdefault((column.table, column.name), f"_c{len(columns) + 1}")
    bare = {old: _named(new) for old, new in columns.items()}
    keys = _keys(found)
    projections = [Projection(new, plan.column(*old)) for old, new in columns.items()]
    projections += [Projection(name, e) for e, name in keys.items()]
    if not projections:
        projections.append(Projection("_one", exp.Literal.number(1)))
    node: Node = Spj(tuple(frame.inputs), tuple(frame.where), tuple(projections), 1, tuple(frame.generators))
    values: dict[exp.Window, str] = {}
    pruned = _pruned(found, few or {})
    parts = dict.fromkeys(_partition(w) for w in found)
    for part in sorted(parts, key=lambda p: pruned is not None and p == _partition(pruned)):
        mine = [w for w in found if _partition(w) == part]
        if pruned is not None and mine == [pruned]:
            count = (few or {})[pruned]
            kept = _first_values if function_name(pruned.this) == "dense_rank" and count > 1 else _first_rows
            node = kept(context, node, [keys[e] for e in part], pruned, bare, count)
        elif not part and not small:
            raise NotLinear("window over all rows", mine[0])
        named = {w: f"_w{len(values) + i}" for i, w in enumerate(mine, 1)}
        values.update(named)
        node = _stage(context, node, [keys[e] for e in part], {n: plan.substitute(w, bare) for w, n in named.items()})
    alias = context.alias()
    frame.inputs, frame.where, frame.generators = [Input(alias, node)], [], []
    at = {old: plan.column(alias, new) for old, new in columns.items()}

    def change(node: exp.Expr) -> exp.Expr:
        if isinstance(node, exp.Window) and node in values:
            return plan.column(alias, values[node])
        if isinstance(node, exp.Column):
            return at[node.table, node.name]
        return node

    return [e.copy().transform(change) for e in exprs]


def _pruned(found: list[exp.Window], few: Mapping[exp.Expr, int]) -> exp.Window | None:
    """Give the window whose small values are all that is asked for, so that the first rows are enough: one at most.

    It is computed last, so that all others still see every row; one with the same partition is computed with it and would not.
    """
    for window in found:
        alone = [w for w in found if _partition(w) == _partition(window)] == [window]
        if window not in few or not alone or not _items(window):
            continue
        name = function_name(window.this)
        if name in ("row_number", "rank") or (name == "dense_rank" and (few[window] == 1 or not _partition(window))):
            return window
    return None


def _first_rows(
    context: Lowering,
    node: Node,
    keys: list[str],
    window: exp.Window,
    bare: Mapping[tuple[str, str], exp.Expr],
    count: int,
) -> Node:
    """Keep only the first rows of each partition, which are all that small ranks need."""
    source, order = _with_order(context, node, window, bare)
    relation = context.top(Top(source, tuple(keys), order, count))
    return Scan(relation, node.names)


def _first_values(
    context: Lowering,
    node: Node,
    keys: list[str],
    window: exp.Window,
    bare: Mapping[tuple[str, str], exp.Expr],
    count: int,
) -> Node:
    """Keep the first values of the order and give the rows that have them: all that small dense ranks need, however many."""
    assert not keys
    source, order = _with_order(context, node, window, bare)
    by = tuple(o.column for o in order)
    inner, rows, firsts = context.alias(), context.alias(), context.alias()
    values = Spj((Input(inner, source),), (), tuple(Projection(n, plan.column(inner, n)) for n in by))
    distinct = context.as_node(Grouped(Aggregate(values, by, ()), tuple((n, n) for n in by)))
    relation = context.top(Top(distinct, (), order, count))
    same = tuple(exp.NullSafeEQ(this=plan.column(rows, n), expression=plan.column(firsts, n)) for n in by)
    shown = tuple(Projection(n, plan.column(rows, n)) for n in node.names)
    return Spj((Input(rows, source), Input(firsts, Scan(relation, by))), same, shown)


def _with_order(
    context: Lowering, node: Node, window: exp.Window, bare: Mapping[tuple[str, str], exp.Expr]
) -> tuple[Spj, tuple[Order, ...]]:
    """Give a plan's rows with what a window orders them by as columns."""
    alias = context.alias()
    at = {("", n): plan.column(alias, n) for n in node.names}
    ordered = [plan.substitute(plan.substitute(o.this, bare), at) for o in _items(window)]
    shown = [Projection(n, plan.column(alias, n)) for n in node.names]
    shown += [Projection(f"_s{i}", e) for i, e in enumerate(ordered)]
    order = tuple(
        Order(f"_s{i}", bool(o.args.get("desc")), bool(o.args.get("nulls_first"))) for i, o in enumerate(_items(window))
    )
    return Spj((Input(alias, node),), (), tuple(shown)), order


def _items(window: exp.Window) -> list[exp.Expr]:
    order = window.args.get("order")
    return list(order.expressions) if order is not None else []


def _outermost(expr: exp.Expr) -> list[exp.Window]:
    if isinstance(expr, exp.Window):
        if any(w is not expr for w in expr.find_all(exp.Window)):
            raise NotLinear("window function", expr)
        return [expr]
    return [w for part in expr.iter_expressions() for w in _outermost(part)]


def _partition(window: exp.Window) -> tuple[exp.Expr, ...]:
    return tuple(dict.fromkeys(e.unnest() for e in window.args.get("partition_by") or []))


def _keys(found: list[exp.Window]) -> dict[exp.Expr, str]:
    exprs = dict.fromkeys(e for w in found for e in _partition(w))
    return {e: f"_k{i}" for i, e in enumerate(exprs, 1)}


def _stage(context: Lowering, node: Node, keys: list[str], windows: dict[str, exp.Expr]) -> Node:
    listed = ", ".join(quoted(n) for n in node.names)
    computed = ", ".join(f"{expression(w)} AS {quoted(n)}" for n, w in windows.items())
    names = (*node.names, *windows)
    feed = Feed("_rows", node, tuple(keys))
    keyed = Keyed((feed,), f"SELECT {listed}, {computed} FROM `_rows`", names, tuple(keys), "window")
    return Scan(context.keyed(keyed), names)


def _is_small(frame: From) -> bool:
    """Say whether the rows come from aggregates alone, which are as many as there are groups."""

    def aggregated(node: Node) -> bool:
        match node:
            case Scan(relation, _):
                return relation.kind is Kind.STAGE
            case Spj(inputs):
                return all(aggregated(i.node) for i in inputs)
            case _:
                return all(aggregated(b) for b in node.branches)

    return not frame.generators and all(aggregated(i.node) for i in frame.inputs)


def _named(name: str) -> exp.Column:
    return exp.column(exp.to_identifier(name, quoted=True))
