"""Chooses how a grouped SELECT is kept: as sums, as sums over distinct values, by the ends of an order, or group by group."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from sqlglot import exp

from runnel.compiler import plan
from runnel.compiler.emit import expression, quoted
from runnel.compiler.grouping import Call, Grouped, key, value
from runnel.compiler.partials import supported
from runnel.compiler.partners import distinct
from runnel.compiler.plan import Aggregate, Feed, Input, Keyed, Measure, Order, Projection, Scan, Spj, Top

if TYPE_CHECKING:
    from runnel.compiler.grouping import Grouping
    from runnel.compiler.lower import Lowering
    from runnel.compiler.plan import Node


def kept(context: Lowering, source: Spj, grouping: Grouping) -> Node | Grouped | Keyed:
    """Give the aggregate itself where nothing stands above it, or what stands above it over a stage."""
    grouping = _summable(context, source, grouping)
    if grouping.calls and all(c.kind == "distinct" for c in grouping.calls) and len(_distincts(grouping)) == 1:
        return kept(context, *_over_distinct(context, source, grouping))
    names = grouping.direct
    linear = all(call.kind == "sum" for call in grouping.calls)
    hidden = names is not None and any(key(i) not in names for i in range(len(grouping.groups)))
    if names is not None and linear:
        return _direct_sums(source, grouping, names)
    if names is not None and not hidden:
        return _keyed(context, source, grouping, names)
    stage: Node
    if linear:
        relation = context.aggregate(_sums(source, grouping.groups, grouping.calls))
        stage = Scan(relation, tuple(c.name for c in relation.rows))
    else:
        relation = context.keyed(_keyed(context, source, grouping, {}))
        stage = Scan(relation, tuple(c.name for c in relation.rows))
    alias = context.alias()
    values = {("", name): plan.column(alias, name) for name in stage.names}
    outputs = [plan.substitute(expr, values) for _, expr in grouping.outputs]
    having = tuple(plan.substitute(condition, values) for condition in grouping.having)
    shown = plan.unique(tuple(name for name, _ in grouping.outputs))
    return Spj((Input(alias, stage),), having, tuple(Projection(n, e) for n, e in zip(shown, outputs, strict=True)))


def _summable(context: Lowering, source: Spj, grouping: Grouping) -> Grouping:
    """Compute sums that cannot be kept exactly for their argument's type group by group."""
    calls = [c for c in grouping.calls if c.kind in ("sum", "distinct") and c.argument is not None]
    if not calls:
        return grouping
    shown = tuple(Projection(f"_a{i}", c.argument) for i, c in enumerate(calls) if c.argument is not None)
    typed = context.typed(_over(source, shown))
    wrong = [
        call
        for call, column in zip(calls, typed, strict=True)
        if not supported(Measure(call.function, column.name, column.type))
    ]
    if not wrong:
        return grouping
    return replace(grouping, calls=tuple(replace(c, kind="any") if c in wrong else c for c in grouping.calls))


def _over_distinct(context: Lowering, source: Spj, grouping: Grouping) -> tuple[Spj, Grouping]:
    """Turn aggregates over the distinct values of one argument into plain ones over a stage of those values."""
    keys = [key(i) for i in range(len(grouping.groups))]
    argument = _distincts(grouping)[0][0]
    values = distinct(context, _over(source, _projected(grouping.groups, keys, [argument])))
    alias = context.alias()
    calls = tuple(replace(c, kind="sum", argument=plan.column(alias, "_argument_1")) for c in grouping.calls)
    groups = tuple(plan.column(alias, k) for k in keys)
    return Spj((Input(alias, values),), (), ()), replace(grouping, groups=groups, calls=calls)


def _measures(calls: tuple[Call, ...]) -> tuple[list[exp.Expr], list[Measure]]:
    arguments: list[exp.Expr] = []
    measures: list[Measure] = []
    for call in calls:
        if call.argument is None:
            measures.append(Measure(call.function, None, None))
            continue
        if call.argument not in arguments:
            arguments.append(call.argument)
        measures.append(Measure(call.function, f"_argument_{arguments.index(call.argument) + 1}", None))
    return arguments, measures


def _projected(groups: tuple[exp.Expr, ...], keys: list[str], arguments: list[exp.Expr]) -> tuple[Projection, ...]:
    named = [Projection(name, expr) for name, expr in zip(keys, groups, strict=True)]
    return (*named, *(Projection(f"_argument_{i}", argument) for i, argument in enumerate(arguments, 1)))


def _direct_sums(source: Spj, grouping: Grouping, names: dict[str, str]) -> Grouped:
    taken = {name.lower() for name in names.values()}
    keys: list[str] = []
    for i, expr in enumerate(grouping.groups):
        plain = isinstance(expr, exp.Column) and not expr.name.startswith("_") and expr.name.lower() not in taken
        keys.append(names.get(key(i)) or (expr.name if plain else key(i)))
        taken.add(keys[-1].lower())
    arguments, measures = _measures(grouping.calls)
    node = _over(source, _projected(grouping.groups, keys, arguments))
    references: dict[str, str | int] = {key(i): name for i, name in enumerate(keys)}
    references.update({value(i): i for i in range(len(measures))})
    shown = tuple((name, references[reference]) for reference, name in names.items())
    return Grouped(Aggregate(node, tuple(keys), tuple(measures)), shown)


def _sums(source: Spj, groups: tuple[exp.Expr, ...], calls: tuple[Call, ...], first: int = 0) -> Grouped:
    """Keep sums under the names `_key_i` and `_value_i`."""
    keys = [key(i) for i in range(len(groups))]
    arguments, measures = _measures(calls)
    node = _over(source, _projected(groups, keys, arguments))
    shown: list[tuple[str, str | int]] = [(k, k) for k in keys]
    shown += [(value(i + first), i) for i in range(len(measures))]
    return Grouped(Aggregate(node, tuple(keys), tuple(measures)), tuple(shown))


def _over(source: Spj, projections: tuple[Projection, ...]) -> Spj:
    return Spj(source.inputs, source.where, projections, source.sign, source.generators)


def _keyed(context: Lowering, source: Spj, grouping: Grouping, names: dict[str, str]) -> Keyed:
    if any(call.kind == "any" for call in grouping.calls):
        return _group_by_group(source, grouping, names)
    return _pieces(context, source, grouping, names)


def _group_by_group(source: Spj, grouping: Grouping, names: dict[str, str]) -> Keyed:
    """Compute every aggregate of a touched group again, from all of its rows."""
    columns: dict[exp.Column, str] = {}
    for call in grouping.calls:
        for found in call.expr.find_all(exp.Column):
            columns.setdefault(found, f"_column_{len(columns) + 1}")
    values = {(c.table, c.name): exp.column(exp.to_identifier(n, quoted=True)) for c, n in columns.items()}
    keys = [key(i) for i in range(len(grouping.groups))]
    projections = [Projection(k, g) for k, g in zip(keys, grouping.groups, strict=True)]
    projections += [Projection(name, column) for column, name in columns.items()]
    if not projections:
        projections.append(Projection("_one", exp.Literal.number(1)))
    outputs = {k: quoted(k) for k in keys}
    outputs |= {value(i): expression(plan.substitute(c.expr, values)) for i, c in enumerate(grouping.calls)}
    grouped = f"\nGROUP BY {', '.join(quoted(k) for k in keys)}" if keys else ""
    sql = f"SELECT {_listed(outputs, names)} FROM `_rows`{grouped}"
    feed = Feed("_rows", _over(source, tuple(projections)), tuple(keys))
    return _result((feed,), sql, outputs, keys, names, "aggregate by group")


def _pieces(context: Lowering, source: Spj, grouping: Grouping, names: dict[str, str]) -> Keyed:
    """Keep each kind of aggregate in a relation of its own, and put a touched group's row together from them."""
    keys = [key(i) for i in range(len(grouping.groups))]
    outputs: dict[str, str] = {}
    pieces: list[tuple[Feed, str]] = []
    sums = [(i, c) for i, c in enumerate(grouping.calls) if c.kind == "sum"]
    if sums:
        relation = context.aggregate(_sums(source, grouping.groups, tuple(c for _, c in sums)))
        pieces.append((Feed("_sums", Scan(relation, tuple(c.name for c in relation.rows)), tuple(keys)), ""))
        outputs |= {value(i): f"`_sums`.{quoted(value(n))}" for n, (i, _) in enumerate(sums)}
    for number, (argument, calls_) in enumerate(_distincts(grouping), 1):
        feed = _distinct_piece(context, source, grouping, argument, calls_, f"_distinct_{number}")
        pieces.append((feed, ""))
        outputs |= {value(i): f"{quoted(feed.name)}.{quoted(value(i))}" for i, _ in calls_}
    for number, (argument, by, descending, calls_) in enumerate(_ends(grouping), 1):
        feed = _end_piece(context, source, grouping, argument, by, f"_first_{number}", descending=descending)
        by_key = ", ".join(quoted(k) for k in keys)
        chosen = ", ".join([by_key] * bool(keys) + [f"{_end_call(c)} AS {quoted(value(i))}" for i, c in calls_])
        rows = f"SELECT {chosen} FROM {quoted(feed.name)}" + (f" GROUP BY {by_key}" if keys else "")
        pieces.append((feed, rows))
        outputs |= {value(i): f"{quoted(feed.name)}.{quoted(value(i))}" for i, _ in calls_}
    return _assembled(keys, pieces, outputs, names, grouping)


def _assembled(
    keys: list[str], pieces: list[tuple[Feed, str]], outputs: dict[str, str], names: dict[str, str], grouping: Grouping
) -> Keyed:
    spine = pieces[0][0].name
    lines: list[str] = []
    for feed, rows in pieces:
        name = quoted(feed.name)
        source = f"({rows}) AS {name}" if rows else name
        on = " AND ".join(f"{quoted(spine)}.{quoted(k)} <=> {name}.{quoted(k)}" for k in keys) or "true"
        lines.append(f"LEFT JOIN {source} ON {on}" if lines else f"FROM {source}")
    by_name = {k: f"{quoted(spine)}.{quoted(k)}" for k in keys}
    by_name |= {value(i): outputs[value(i)] for i in range(len(grouping.calls))}
    sql = f"SELECT {_listed(by_name, names)}\n" + "\n".join(lines)
    return _result(tuple(feed for feed, _ in pieces), sql, by_name, keys, names, "aggregate in pieces")


def _listed(outputs: dict[str, str], names: dict[str, str]) -> str:
    wanted = names or {name: name for name in outputs}
    return ", ".join(f"{outputs[reference]} AS {quoted(name)}" for reference, name in wanted.items())


def _result(
    feeds: tuple[Feed, ...], sql: str, outputs: dict[str, str], keys: list[str], names: dict[str, str], feature: str
) -> Keyed:
    wanted = names or {name: name for name in outputs}
    return Keyed(feeds, sql, tuple(wanted.values()), tuple(wanted[k] for k in keys), feature)


def _distincts(grouping: Grouping) -> list[tuple[exp.Expr, list[tuple[int, Call]]]]:
    found: dict[exp.Expr, list[tuple[int, Call]]] = {}
    for i, call in enumerate(grouping.calls):
        if call.kind == "distinct" and call.argument is not None:
            found.setdefault(call.argument, []).append((i, call))
    return list(found.items())


def _distinct_piece(
    context: Lowering,
    source: Spj,
    grouping: Grouping,
    argument: exp.Expr,
    calls: list[tuple[int, Call]],
    name: str,
) -> Feed:
    """Keep the distinct values of each group with their counts, and sums over them."""
    keys = [key(i) for i in range(len(grouping.groups))]
    values = distinct(context, _over(source, _projected(grouping.groups, keys, [argument])))
    alias = context.alias()
    inner = Spj((Input(alias, values),), (), ())
    over = tuple(Call("sum", c.expr, c.function, plan.column(alias, "_argument_1")) for _, c in calls)
    grouped = _sums(inner, tuple(plan.column(alias, k) for k in keys), over)
    shown = [(k, k) for k in keys] + [(value(i), n) for n, (i, _) in enumerate(calls)]
    relation = context.aggregate(Grouped(grouped.aggregate, tuple(shown)))
    return Feed(name, Scan(relation, tuple(c.name for c in relation.rows)), tuple(keys))


def _ends(grouping: Grouping) -> list[tuple[exp.Expr, exp.Expr | None, bool, list[tuple[int, Call]]]]:
    """Give the ends of orders that aggregates stand at: the smallest or the largest of an argument, or of what it goes by."""
    found: dict[tuple[exp.Expr, exp.Expr | None, bool], list[tuple[int, Call]]] = {}
    for i, call in enumerate(grouping.calls):
        if call.kind == "first" and call.argument is not None:
            found.setdefault((call.argument, call.by, call.function.startswith("max")), []).append((i, call))
    return [(*end, calls) for end, calls in found.items()]


def _end_piece(
    context: Lowering,
    source: Spj,
    grouping: Grouping,
    argument: exp.Expr,
    by: exp.Expr | None,
    name: str,
    *,
    descending: bool,
) -> Feed:
    keys = [key(i) for i in range(len(grouping.groups))]
    arguments = [argument] if by is None else [argument, by]
    node = _over(source, _projected(grouping.groups, keys, arguments))
    order = Order(f"_argument_{len(arguments)}", descending=descending, nulls_first=False)
    relation = context.top(Top(node, tuple(keys), (order,), 1))
    return Feed(name, Scan(relation, node.names), tuple(keys))


def _end_call(call: Call) -> str:
    return f"{call.function}(`_argument_1`)" if call.by is None else f"{call.function}(`_argument_1`, `_argument_2`)"
