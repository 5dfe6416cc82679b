"""Chooses which of two rows comes first where a window's order leaves that open, and never changes which rows are peers.

A view must not change while nothing changes, so the choice is made in the query's own tree. Completing the order is one way to
make it, but it also makes every row its own peer: right only where the function or its frame does not look at peers. Over a RANGE
frame (the default one) the first or last value is chosen by the completed order instead, and the window keeps its own.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from sqlglot import exp

from runnel.compiler.functions import function_name
from runnel.compiler.grouping import named_struct
from runnel.compiler.partners import unique
from runnel.compiler.plan import Projection, Spj
from runnel.compiler.support import NotLinear
from runnel.model import types

if TYPE_CHECKING:
    from runnel.compiler.joins import From
    from runnel.compiler.lower import Lowering

PLACES = frozenset({"row_number", "ntile", "lag", "lead"})
"""Functions of a row's place: their frame is fixed, so no row's peers matter."""
RANKS = frozenset({"rank", "dense_rank", "percent_rank", "cume_dist"})
"""Functions of a row's peers: nothing about them is open, whatever frame is written."""
FIRSTS = frozenset({"first", "first_value", "any_value"})
LASTS = frozenset({"last", "last_value"})
_WHOLE = {"kind": "ROWS", "start": "UNBOUNDED", "start_side": "PRECEDING", "end": "UNBOUNDED", "end_side": "FOLLOWING"}


def prepare(context: Lowering, select: exp.Select, frame: From) -> None:
    """Write named windows out, and choose between rows that are level in a window's order."""
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
        if _open(window):
            missing = _missing(context, select, frame, window)
            if missing:
                _choose(window, missing)
                context.definite = True


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


def _open(window: exp.Window) -> bool:
    """Say whether a window's value depends on which of two level rows comes first."""
    name = function_name(_call(window))
    if name in RANKS:
        return False
    return name in (*PLACES, *FIRSTS, *LASTS, "nth_value") or (_by_rows(window) and not _is_whole(window))


def _choose(window: exp.Window, missing: list[exp.Expr]) -> None:
    """Choose between level rows by the missing columns, in a way that leaves the frame's rows as they are."""
    name = function_name(_call(window))
    if name in PLACES or _by_rows(window):
        _complete(window, missing)
    elif _is_whole(window):
        _complete(window, missing)
        window.set("spec", exp.WindowSpec(**_WHOLE))
    elif name == "nth_value":
        _choose_nth(window, missing)
    elif not _ignores_nulls(window) and _reaches_end(window, last=name in LASTS):
        _complete(window, missing)
    else:
        _choose_end(window, missing, last=name in LASTS)


def _choose_end(window: exp.Window, missing: list[exp.Expr], *, last: bool) -> None:
    """Take the value of the row that is first or last in the completed order among the rows of the frame."""
    argument = _argument(window)
    items = _items(window)
    descending = {bool(o.args.get("desc")) for o in items}
    if len(descending) != 1:
        raise NotLinear("window function", window, "a first or last value in an order with ties of mixed directions")
    down = descending.pop()
    parts: list[exp.Expr] = []
    for ordered in items:
        null = exp.Is(this=exp.paren(ordered.this.copy()), expression=exp.null())
        least = bool(ordered.args.get("nulls_first")) != down
        parts += [exp.Not(this=null) if least else null, ordered.this.copy()]
    for column in missing:
        null = exp.Is(this=exp.paren(column.copy()), expression=exp.null())
        parts += [exp.Not(this=null), column.copy()]
    by: exp.Expr = named_struct(parts)
    if _ignores_nulls(window):
        there = exp.Not(this=exp.Is(this=exp.paren(argument.copy()), expression=exp.null()))
        by = exp.Case(ifs=[exp.If(this=there, true=by)])
    kind = exp.ArgMax if last != down else exp.ArgMin
    window.set("this", kind(this=argument.copy(), expression=by))


def _choose_nth(window: exp.Window, missing: list[exp.Expr]) -> None:
    """Take the nth row of the partition where the frame begins with the partition and has as many rows."""
    call = _call(window)
    given = call.expressions if isinstance(call, exp.Anonymous) else [call.this, call.args.get("offset")]
    count = given[1] if len(given) == 2 else None
    if _edge(window, last=False) != "UNBOUNDED" or not isinstance(count, exp.Literal) or not count.is_int:
        raise NotLinear(
            "window function", window, "nth_value in an order with ties over a frame that begins in between"
        )
    counted = given[0].copy() if _ignores_nulls(window) else exp.Star()
    enough = window.copy()
    enough.set("this", exp.Count(this=counted))
    chosen = window.copy()
    _complete(chosen, missing)
    chosen.set("spec", exp.WindowSpec(**_WHOLE))
    condition = exp.GTE(this=enough, expression=count.copy())
    window.replace(exp.Case(ifs=[exp.If(this=condition, true=chosen)]))


def _complete(window: exp.Window, missing: list[exp.Expr]) -> None:
    """Complete the order; a descending one by descending columns, so that `_choose_end` finds the same rows."""
    items = _items(window)
    down = bool(items) and all(o.args.get("desc") for o in items)
    more = [exp.Ordered(this=e.copy(), desc=down, nulls_first=not down) for e in missing]
    window.set("order", exp.Order(expressions=[*(o.copy() for o in items), *more]))


def _call(window: exp.Window) -> exp.Expr:
    call: exp.Expr = window.this
    return call.this if isinstance(call, (exp.IgnoreNulls, exp.RespectNulls)) else call


def _argument(window: exp.Window) -> exp.Expr:
    call = _call(window)
    given = call.expressions[0] if isinstance(call, exp.Anonymous) and call.expressions else call.args.get("this")
    if not isinstance(given, exp.Expr) or isinstance(call, exp.Filter):
        raise NotLinear("window function", window)
    return given


def _ignores_nulls(window: exp.Window) -> bool:
    call = _call(window)
    said = call.expressions[1:] if isinstance(call, exp.Anonymous) and function_name(call) != "nth_value" else []
    return isinstance(window.this, exp.IgnoreNulls) or any(
        not (isinstance(e, exp.Boolean) and not e.this) for e in said
    )


def _by_rows(window: exp.Window) -> bool:
    spec = window.args.get("spec")
    return spec is not None and str(spec.args.get("kind", "")).upper() == "ROWS"


def _is_whole(window: exp.Window) -> bool:
    if window.args.get("spec") is None:
        return not _items(window)
    return _edge(window, last=False) == "UNBOUNDED" and _edge(window, last=True) == "UNBOUNDED"


def _edge(window: exp.Window, *, last: bool) -> str:
    """Give where a window's frame begins or ends: `UNBOUNDED`, `CURRENT ROW`, or nothing where it is so many rows away."""
    spec = window.args.get("spec")
    if spec is None:
        return "UNBOUNDED" if not last or not _items(window) else "CURRENT ROW"
    edge = spec.args.get("end" if last else "start") or "CURRENT ROW"
    if not isinstance(edge, str):
        return ""
    return edge.upper()


def _reaches_end(window: exp.Window, *, last: bool) -> bool:
    """Say whether a frame goes from the current row, or from before it, to the end of the partition (or to its beginning)."""
    return _edge(window, last=last) == "UNBOUNDED" and bool(_edge(window, last=not last))


def _missing(context: Lowering, select: exp.Select, frame: From, window: exp.Window) -> list[exp.Expr]:
    """Give what a window's order lacks to tell any two rows apart."""
    given = [*window.args.get("partition_by", []), *(o.this for o in _items(window))]
    if select.args.get("group") is not None:
        return [e for e in _group_items(select) if e not in given]
    return _columns(context, frame, given)


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
