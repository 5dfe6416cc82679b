"""Window functions: each partition that a change touches is computed again, by plain SQL over its rows."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from sqlglot import exp

from runnel.compiler import plan
from runnel.compiler.emit import expression, quoted
from runnel.compiler.functions import function_name
from runnel.compiler.grouping import Grouped
from runnel.compiler.partners import unique
from runnel.compiler.plan import Aggregate, Feed, Input, Keyed, Order, Projection, Scan, Spj, Top
from runnel.compiler.support import NotLinear
from runnel.model import types
from runnel.model.relation import Kind

if TYPE_CHECKING:
    from collections.abc import Mapping

    from runnel.compiler.joins import From
    from runnel.compiler.lower import Lowering
    from runnel.compiler.plan import Node

BY_PLACE = frozenset(
    {"row_number", "ntile", "lag", "lead", "first", "last", "first_value", "last_value", "nth_value", "any_value"}
)
"""Functions whose value depends on the place of a row among its equals."""


LARGEST = 10_000
"""Up to this rank the first rows are kept instead of all."""


def above(exprs: list[exp.Expr]) -> bool:
    """Say whether any expression has a window."""
    return any(e.find(exp.Window) for e in exprs)


def prepare(context: Lowering, select: exp.Select, frame: From) -> None:
    """Write named windows out, and complete orders that leave open which of two rows comes first."""
    parts = [*select.expressions, *([select.args["qualify"]] if select.args.get("qualify") else [])]
    found = [w for part in parts for w in _own_windows(part)]
    named = {w.name.lower(): w for w in select.args.get("windows") or []}
    for window in found:
        if window.args.get("alias") is not None:
            definition = named.get(window.args["alias"].name.lower())
            if definition is None:
                raise NotLinear("window function", window)
            for part in ("partition_by", "order", "spec"):
                value = definition.args.get(part)
                window.set(part, [v.copy() for v in value] if isinstance(value, list) else value and value.copy())
            window.set("alias", None)
            context.definite = True
    for window in found:
        if _by_place(window):
            _complete(context, select, frame, window)


def _own_windows(part: exp.Expr) -> list[exp.Window]:
    """Find windows of this SELECT, not those of subqueries in it."""
    found = []
    for window in part.find_all(exp.Window):
        node = window.parent
        while node is not None and node is not part and not isinstance(node, exp.Query):
            node = node.parent
        if node is part or node is None or not isinstance(node, exp.Query):
            found.append(window)
    return found


def _by_place(window: exp.Window) -> bool:
    call = window.this.this if isinstance(window.this, (exp.IgnoreNulls, exp.RespectNulls)) else window.this
    spec = window.args.get("spec")
    rows = spec is not None and str(spec.args.get("kind", "")).upper() == "ROWS"
    return function_name(call) in BY_PLACE or (rows and spec is not None and not _whole(spec))


def _whole(spec: exp.Expr) -> bool:
    return spec.args.get("start") == "UNBOUNDED" and spec.args.get("end") == "UNBOUNDED"


def _complete(context: Lowering, select: exp.Select, frame: From, window: exp.Window) -> None:
    given = [*window.args.get("partition_by", []), *(o.this for o in _items(window))]
    group = select.args.get("group")
    if group is not None:
        missing = [e for e in _group_items(select) if e not in given]
    else:
        missing = _columns(context, frame, given)
    if not missing:
        return
    items = [*(o.copy() for o in _items(window)), *(exp.Ordered(this=e.copy(), nulls_first=True) for e in missing)]
    window.set("order", exp.Order(expressions=items))
    context.definite = True


def _items(window: exp.Window) -> list[exp.Expr]:
    order = window.args.get("order")
    return list(order.expressions) if order is not None else []


def _group_items(select: exp.Select) -> list[exp.Expr]:
    found = []
    for item in select.args["group"].expressions:
        if isinstance(item, exp.Literal) and item.is_int:
            item = select.expressions[int(item.this) - 1].unalias()
        found.append(item)
    return found


def _columns(context: Lowering, frame: From, given: list[exp.Expr]) -> list[exp.Expr]:
    """Give the columns in scope that an order must have beside the given ones to be complete."""
    resolved = [context.resolve(e, frame.scope, frame) for e in given if not e.find(exp.Query)]
    if len(frame.inputs) == 1 and not frame.generators:
        names = tuple(Projection(f"_u{i}", e) for i, e in enumerate(resolved))
        if unique(Spj(tuple(frame.inputs), (), names), frozenset(p.name for p in names)):
            return []
    node, at = frame.node()
    node = replace(node, where=())
    typed = {n: c.type for n, c in zip(node.names, context.typed(node), strict=True)}
    found: list[exp.Expr] = []
    for source in frame.scope.sources:
        called = next((n for n in source.names if n and "." not in n), "")
        for name, expr in source.columns:
            column = expr.find(exp.Column)
            if column is None or expr in resolved or _unordered(typed[at[column.table, column.name]]):
                continue
            found.append(
                exp.column(
                    exp.to_identifier(name, quoted=True),
                    table=exp.to_identifier(called, quoted=True) if called else None,
                )
            )
    return found


def _unordered(type_: types.Type) -> bool:
    return isinstance(type_, types.Map) or "map<" in str(type_)


def asked(select: exp.Select, item: exp.Expr) -> dict[str, int]:
    """Find conditions such as `rank <= 3` on columns of the one query a SELECT reads, if it reads just one."""
    where = select.args.get("where")
    if where is None or select.args.get("joins") or select.args.get("laterals") or item.args.get("pivots"):
        return {}
    if isinstance(item, exp.Subquery) and item.args.get("joins"):
        return {}
    found: dict[str, int] = {}
    for condition in plan.conjuncts(where.this):
        bound = _bound(condition)
        if bound is not None and isinstance(bound[0], exp.Column):
            found[bound[0].name.lower()] = bound[1]
    return found


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
    for part in dict.fromkeys(_partition(w) for w in found):
        mine = [w for w in found if _partition(w) == part]
        count = (few or {}).get(mine[0]) if len(mine) == 1 and _items(mine[0]) else None
        name = function_name(mine[0].this)
        if count is not None and (name in ("row_number", "rank") or (name == "dense_rank" and count == 1)):
            node = _first_rows(context, node, [keys[e] for e in part], mine[0], bare, count)
        elif count is not None and name == "dense_rank" and not part:
            node = _first_values(context, node, mine[0], bare, count)
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
    context: Lowering, node: Node, window: exp.Window, bare: Mapping[tuple[str, str], exp.Expr], count: int
) -> Node:
    """Keep the first values of the order and give the rows that have them: all that small dense ranks need, however many."""
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
