"""ORDER BY with LIMIT and OFFSET: the first rows are kept with some to spare, and the wanted ones are picked from them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from sqlglot import exp

from runnel.compiler.emit import quoted
from runnel.compiler.grouping import has_aggregate, ordinal
from runnel.compiler.plan import Feed, Keyed, Order, Scan, Top
from runnel.compiler.support import NotLinear

if TYPE_CHECKING:
    from runnel.compiler.joins import From
    from runnel.compiler.lower import Kept, Lowered, Lowering, Output
    from runnel.compiler.plan import Node

Item = tuple[exp.Expr, exp.Ordered]


def _bounds(query: exp.Expr) -> tuple[int | None, int]:
    limit, offset = query.args.get("limit"), query.args.get("offset")
    if limit is None and offset is None:
        return None, 0
    values = []
    for part in (limit, offset):
        number = part.args.get("expression") or part.args.get("count") if part is not None else None
        if part is not None and not (isinstance(number, exp.Literal) and number.is_int):
            raise NotLinear("limit", query, "a LIMIT that is no plain number")
        values.append(int(number.this) if number is not None else None)
    if values[0] is None:
        raise NotLinear("limit", query, "OFFSET without LIMIT")
    return values[0], values[1] or 0


def order_of(context: Lowering, select: exp.Select, frame: From, outputs: list[Output]) -> list[Item]:
    """Give what a limited SELECT is ordered by, as expressions over its plan; nothing where there is no LIMIT."""
    if _bounds(select)[0] is None:
        return []
    order = select.args.get("order")
    items: list[Item] = []
    for ordered in order.expressions if order is not None else []:
        bare = ordered.this.unnest()
        named = {name.lower(): expr for name, expr in reversed(outputs)}
        if isinstance(bare, exp.Column) and not bare.table and bare.name.lower() in named:
            expr = named[bare.name.lower()].copy()
        else:
            expr = ordinal(bare, outputs, frame.scope) or _by_output(context, bare, frame, named)
        items.append((expr, ordered))
    return items


def _by_output(context: Lowering, bare: exp.Expr, frame: From, named: dict[str, exp.Expr]) -> exp.Expr:
    """Resolve an expression of an ORDER BY: a column that the SELECT gives comes before one of its FROM."""
    spoken = [c for c in bare.find_all(exp.Column) if c.parts[0].name.lower() in named]
    if not spoken:
        return context.resolve(bare, frame.scope, frame)
    if has_aggregate([bare]) or bare.find(exp.Window, exp.Query):
        changed = [c for c in spoken if named[c.parts[0].name.lower()] != context.resolve(c, frame.scope, frame)]
        if changed:
            raise NotLinear("limit", bare, "ORDER BY an aggregate of a name that the SELECT gives another meaning")
        return context.resolve(bare, frame.scope, frame)
    return context.resolve(bare, replace(frame.scope, first=named), frame)


def hidden(order: list[Item], outputs: list[Output]) -> list[Output]:
    """Give what a SELECT is ordered by and does not show, as columns behind those it shows."""
    shown = [expr for _, expr in outputs]
    missing = list(dict.fromkeys(expr for expr, _ in order if expr not in shown))
    return [(f"_order_{i}", expr) for i, expr in enumerate(missing, 1)]


def limited(
    context: Lowering,
    select: exp.Select,
    lowered: Kept,
    names: tuple[str, ...],
    outputs: list[Output],
    order: list[Item],
) -> Kept:
    """Keep the first rows of a SELECT; columns behind those named are what it is ordered by."""
    count, offset = _bounds(select)
    if count is None:
        return lowered
    node = context.as_node(lowered)
    every = [*outputs, *hidden(order, outputs)]
    known = {expr: position for position, (_, expr) in reversed(list(enumerate(every)))}
    if select.args.get("distinct") is not None and len(every) > len(outputs):
        raise NotLinear("limit", select, "ORDER BY a column that is not selected, with DISTINCT")
    by = [_item(node.names[known[expr]], ordered) for expr, ordered in order]
    return _first(context, select, node.names, len(names), node, by, count, offset)


def limited_set(context: Lowering, query: exp.Expr, lowered: Kept, names: tuple[str, ...]) -> Lowered:
    """Keep the first rows of a UNION or its like, ordered by the columns it gives."""
    count, offset = _bounds(query)
    if count is None:
        return lowered, names
    node = context.as_node(lowered)
    by = []
    order = query.args.get("order")
    for ordered in order.expressions if order is not None else []:
        bare = ordered.this.unnest()
        if isinstance(bare, exp.Literal) and bare.is_int and 1 <= int(bare.this) <= len(names):
            by.append(_item(node.names[int(bare.this) - 1], ordered))
            continue
        found = [n for n, shown in zip(node.names, names, strict=True) if shown.lower() == bare.name.lower()]
        if not isinstance(bare, exp.Column) or not found:
            raise NotLinear("limit", query, "ORDER BY an expression over a UNION")
        by.append(_item(found[0], ordered))
    return _first(context, query, node.names, len(names), node, by, count, offset), names


def _item(column: str, ordered: exp.Ordered) -> Order:
    descending = bool(ordered.args.get("desc"))
    nulls_first = ordered.args.get("nulls_first")
    return Order(column, descending, not descending if nulls_first is None else bool(nulls_first))


def _first(
    context: Lowering,
    query: exp.Expr,
    columns: tuple[str, ...],
    width: int,
    node: Node,
    by: list[Order],
    count: int,
    offset: int,
) -> Keyed:
    typed = {c: t.type for c, t in zip(columns, context.typed(node), strict=True)}
    open_ = [
        i for i, c in enumerate(columns[:width]) if c not in {o.column for o in by} and "map<" not in str(typed[c])
    ]
    if open_:
        _complete(context, query, open_)
    full = (*by, *(Order(columns[i]) for i in open_))
    relation = context.top(Top(node, (), full, count + offset))
    order = ", ".join(
        f"{quoted(o.column)} {'DESC' if o.descending else 'ASC'} NULLS {'FIRST' if o.nulls_first else 'LAST'}"
        for o in full
    )
    shown = ", ".join(quoted(c) for c in columns[:width])
    skip = f" OFFSET {offset}" if offset else ""
    sql = f"SELECT {shown} FROM (SELECT * FROM `_rows` ORDER BY {order} LIMIT {count}{skip})"
    return Keyed((Feed("_rows", Scan(relation, columns), ()),), sql, columns[:width], (), "limit")


def _complete(context: Lowering, query: exp.Expr, positions: list[int]) -> None:
    """Say in the query's own tree which of two rows comes first where its order leaves that open."""
    order = query.args.get("order")
    items = list(order.expressions) if order is not None else []
    items += [exp.Ordered(this=exp.Literal.number(p + 1), nulls_first=True) for p in positions]
    query.set("order", exp.Order(expressions=items))
    context.definite = True
