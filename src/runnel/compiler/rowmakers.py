"""Rows that come from no table or from another row: VALUES, LATERAL VIEW, explode in a SELECT list, and PIVOT."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from runnel.compiler import plan
from runnel.compiler.aggregates import kept
from runnel.compiler.functions import GENERATORS, function_name
from runnel.compiler.grouping import take_apart
from runnel.compiler.joins import From
from runnel.compiler.plan import Generator, Input, Projection, Spj
from runnel.compiler.resolve import Scope, Source
from runnel.compiler.support import NotLinear
from runnel.model import types

if TYPE_CHECKING:
    from runnel.compiler.lower import Lowering
    from runnel.compiler.plan import Node


def values(context: Lowering, query: exp.Values) -> tuple[Node, tuple[str, ...]]:
    """Lower constant rows."""
    rows = [row.expressions if isinstance(row, exp.Tuple) else [row] for row in query.expressions]
    names = tuple(f"col{i}" for i in range(1, len(rows[0]) + 1))
    if any(len(row) != len(names) for row in rows) or any(n.find(exp.Column) for row in rows for n in row):
        raise NotLinear("constant rows", query)
    branches: list[Node] = [
        Spj((), (), tuple(Projection(n, e.copy()) for n, e in zip(names, row, strict=True))) for row in rows
    ]
    node = branches[0]
    for branch in branches[1:]:
        node = context.same_types(node, branch)
    return node, names


def lateral_view(context: Lowering, lateral: exp.Lateral, frame: From) -> None:
    """Add the rows a LATERAL VIEW makes from each row."""
    alias = lateral.args.get("alias")
    if not lateral.args.get("view") or alias is None or not is_generator(lateral.this):
        raise NotLinear("lateral or generator", lateral)
    columns = [c.name for c in alias.columns]
    _add(context, frame, lateral.this, columns, alias.name, outer=bool(lateral.args.get("outer")))


def generated(context: Lowering, item: exp.Expr, frame: From) -> list[tuple[str, exp.Expr]] | None:
    """Lower a generator that stands in a SELECT list; None for anything else."""
    call = item.this if isinstance(item, (exp.Alias, exp.Aliases)) else item
    if not is_generator(call):
        return None
    if isinstance(item, exp.Aliases):
        columns = [c.name for c in item.expressions]
    elif isinstance(item, exp.Alias):
        columns = [item.alias]
    else:
        columns = _own_names(context, call, frame)
    return _add(context, frame, call, columns, "", outer=False)


def _own_names(context: Lowering, call: exp.Expr, frame: From) -> list[str]:
    """Give the names that Spark gives to the columns of a generator: some depend on the type of what it takes apart."""
    name = function_name(call)
    arguments = call.expressions if isinstance(call, exp.Anonymous) else [call.this, *call.expressions]
    if name == "json_tuple":
        return [f"c{i}" for i in range(len(arguments) - 1)]
    if name == "stack" and isinstance(arguments[0], exp.Literal) and arguments[0].is_int:
        return [f"col{i}" for i in range(-(-(len(arguments) - 1) // int(arguments[0].name)))]
    if len(arguments) != 1:
        raise NotLinear("lateral or generator", call, f"{name} without a name")
    argument = context.resolve(arguments[0].copy(), frame.scope, frame)
    if plan.has_placeholder(argument):
        raise NotLinear("lateral or generator", call, f"{name} of a subquery")
    probe = Spj(tuple(frame.inputs), (), (Projection("_argument", argument),), generators=tuple(frame.generators))
    match context.typed(probe)[0].type:
        case types.Array(element=types.Struct(fields=fields)) if name.startswith("inline"):
            return [field for field, _ in fields]
        case types.Array():
            made = ["col"]
        case types.Map():
            made = ["key", "value"]
        case _:
            raise NotLinear("lateral or generator", call, f"{name} without a name")
    return ["pos", *made] if name.startswith("pos") else made


def is_generator(call: exp.Expr) -> bool:
    """Say whether a call makes rows."""
    return isinstance(call, (exp.Explode, exp.Posexplode, exp.Inline)) or function_name(call) in GENERATORS


def _add(
    context: Lowering, frame: From, call: exp.Expr, columns: list[str], called: str, *, outer: bool
) -> list[tuple[str, exp.Expr]]:
    if not columns:
        raise NotLinear("lateral or generator", call, f"{function_name(call)} without column names")
    alias = context.alias()
    resolved = context.resolve(call, frame.scope, frame)
    if plan.has_placeholder(resolved):
        raise NotLinear("lateral or generator", call, f"{function_name(call)} of a subquery")
    frame.generators.append(Generator(alias, resolved, tuple(columns), outer))
    shown = [(name, plan.column(alias, name)) for name in columns]
    if called:
        frame.scope.add(Source((called.lower(),), tuple(shown)))
    return [(name, column) for name, column in shown]


def pivoted(context: Lowering, item: exp.Expr, node: Node, shown: tuple[str, ...]) -> tuple[Node, tuple[str, ...]]:
    """Lower a PIVOT: a grouping by the columns it does not name, with one filtered aggregate per value."""
    pivot, *more = item.args["pivots"]
    fields = pivot.args.get("fields") or []
    if more or pivot.args.get("unpivot") or len(fields) != 1 or not isinstance(fields[0].this, exp.Column):
        raise NotLinear("pivot", item)
    alias = context.alias()
    frame = From(Scope(context.text), [Input(alias, node)])
    columns = tuple((name, plan.column(alias, inner)) for name, inner in zip(shown, node.names, strict=True))
    frame.scope.add(Source(("",), columns))
    named = {c.name.lower() for part in (*pivot.expressions, fields[0].this) for c in part.find_all(exp.Column)}
    outputs: list[tuple[str, exp.Expr]] = [(n, c) for n, c in columns if n.lower() not in named]
    groups = [c for _, c in outputs]
    for value in fields[0].expressions:
        for call in pivot.expressions:
            name = _pivot_name(value, call, several=len(pivot.expressions) > 1)
            outputs.append((name, context.resolve(_pivot_cell(fields[0].this, value, call), frame.scope, frame)))
    grouping = take_apart(frame.scope, groups, [(plan.inner(name), e) for name, e in outputs], None)
    lowered = context.as_node(kept(context, Spj(tuple(frame.inputs), (), ()), grouping))
    return lowered, tuple(name for name, _ in outputs)


def _pivot_name(value: exp.Expr, call: exp.Expr, *, several: bool) -> str:
    bare = value.this if isinstance(value, exp.PivotAlias) else value
    if not isinstance(bare, exp.Literal) or (several and not call.alias):
        raise NotLinear("pivot", value)
    name = value.alias if isinstance(value, exp.PivotAlias) else str(bare.this)
    return f"{name}_{call.alias}" if several else name


def _pivot_cell(column: exp.Expr, value: exp.Expr, call: exp.Expr) -> exp.Expr:
    """Aggregate the rows of one value; without such rows the cell is NULL, a count too."""
    bare = value.this if isinstance(value, exp.PivotAlias) else value
    same = exp.EQ(this=column.copy(), expression=bare.copy())
    cell = exp.Filter(this=call.unalias().copy(), expression=exp.Where(this=same))
    some = exp.GT(this=exp.CountIf(this=same.copy()), expression=exp.Literal.number(0))
    return exp.Case(ifs=[exp.If(this=some, true=cell)])
