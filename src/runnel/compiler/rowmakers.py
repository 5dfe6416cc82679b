"""Rows that come from no table or from another row: VALUES, LATERAL VIEW, explode in a SELECT list, and PIVOT."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from runnel.compiler import plan
from runnel.compiler.functions import GENERATORS, function_name
from runnel.compiler.plan import Generator, Projection, Spj
from runnel.compiler.resolve import Source
from runnel.compiler.support import NotLinear

if TYPE_CHECKING:
    from runnel.compiler.joins import From
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
    if not lateral.args.get("view") or alias is None or not _is_generator(lateral.this):
        raise NotLinear("lateral or generator", lateral)
    columns = [c.name for c in alias.columns]
    _add(context, frame, lateral.this, columns, alias.name, outer=bool(lateral.args.get("outer")))


def generated(context: Lowering, item: exp.Expr, frame: From) -> list[tuple[str, exp.Expr]] | None:
    """Lower a generator that stands in a SELECT list; None for anything else."""
    call = item.this if isinstance(item, (exp.Alias, exp.Aliases)) else item
    if not _is_generator(call):
        return None
    if isinstance(item, exp.Aliases):
        columns = [c.name for c in item.expressions]
    elif isinstance(item, exp.Alias):
        columns = [item.alias]
    else:
        raise NotLinear("lateral or generator", item, f"{function_name(call)} without a name")
    return _add(context, frame, call, columns, "", outer=False)


def _is_generator(call: exp.Expr) -> bool:
    return isinstance(call, (exp.Explode, exp.Posexplode, exp.Inline)) or function_name(call) in GENERATORS


def _add(
    context: Lowering, frame: From, call: exp.Expr, columns: list[str], called: str, *, outer: bool
) -> list[tuple[str, exp.Expr]]:
    if not columns:
        raise NotLinear("lateral or generator", call, f"{function_name(call)} without column names")
    alias = context.alias()
    resolved = context.resolve(call, frame.scope, frame)
    frame.generators.append(Generator(alias, resolved, tuple(columns), outer))
    shown = [(name, plan.column(alias, name)) for name in columns]
    if called:
        frame.scope.sources = [*frame.scope.sources, Source((called.lower(),), tuple(shown))]
    return [(name, column) for name, column in shown]


def pivoted(context: Lowering, item: exp.Expr, node: Node, shown: tuple[str, ...]) -> tuple[Node, tuple[str, ...]]:
    """Lower a PIVOT as a grouping with one filtered aggregate per value; not yet."""
    raise NotLinear("pivot", item)
