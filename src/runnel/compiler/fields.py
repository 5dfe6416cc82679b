"""Expressions that take names from what stands in them: stars are spread and fields named before columns are renamed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from runnel.compiler.functions import function_name
from runnel.compiler.support import NotLinear

if TYPE_CHECKING:
    from collections.abc import Callable

    Spread = Callable[[exp.Expr], list[tuple[str, exp.Expr]]]


def named(expr: exp.Expr, spread: Spread) -> exp.Expr:
    """Spread the stars of calls, and give each field of a struct the name that Spark gives it, explicitly.

    `struct(a, t.b, a + 1)` becomes `named_struct('a', a, 'b', t.b, 'col3', a + 1)`.
    """
    if not any(_captures(node) for node in expr.walk()):
        return expr
    return _changed(expr.copy(), spread)


def _captures(node: exp.Expr) -> bool:
    if isinstance(node, exp.Star):
        return not isinstance(node.parent, exp.Count)
    return _is_struct(node) or function_name(node) == "arrays_zip"


def _is_struct(node: exp.Expr) -> bool:
    if isinstance(node, exp.Tuple):
        compared = isinstance(node.parent, (exp.In, exp.Predicate, exp.Tuple, exp.Values))
        return not compared and bool(node.expressions)
    return isinstance(node, exp.Struct) or (isinstance(node, exp.Anonymous) and function_name(node) == "struct")


def _changed(node: exp.Expr, spread: Spread) -> exp.Expr:
    """Change the innermost first; queries inside have stars and names of their own."""
    if isinstance(node, exp.Query):
        return node
    for name, value in list(node.args.items()):
        if isinstance(value, exp.Expr):
            node.set(name, _changed(value, spread))
        elif isinstance(value, list):
            node.set(name, [one for v in value for one in _listed(v, node, spread)])
    if function_name(node) == "arrays_zip" and any(_given(e) for e in node.expressions):
        raise NotLinear("unknown form", node, "arrays_zip, whose fields are named after columns")
    if isinstance(node, exp.Star) and not isinstance(node.parent, (exp.Count, exp.Column)):
        raise NotLinear("unknown form", node, "a star in an expression")
    return _struct(node) if _is_struct(node) else node


def _listed(value: object, parent: exp.Expr, spread: Spread) -> list[object]:
    if not isinstance(value, exp.Expr):
        return [value]
    if value.is_star and isinstance(parent, (exp.Anonymous, exp.Tuple, exp.Struct, exp.Array)):
        struct = _is_struct(parent)
        return [exp.alias_(_known(e), name, quoted=True) if struct else _known(e) for name, e in spread(value)]
    return [_changed(value, spread)]


def _known(expr: exp.Expr) -> exp.Expr:
    """Mark columns of the plan, so that they are not taken for names of the user."""
    for column in expr.find_all(exp.Column):
        column.meta["plan"] = True
    return expr


def _struct(node: exp.Expr) -> exp.Expr:
    parts: list[exp.Expr] = []
    for number, item in enumerate(node.expressions, 1):
        parts += [exp.Literal.string(_given(item) or f"col{number}"), item.unalias()]
    return exp.Anonymous(this="named_struct", expressions=parts)


def _given(item: exp.Expr) -> str:
    """Give the name that Spark gives a field: an alias, or the last part of what names a column; '' for anything else."""
    bare = item.unnest()
    match bare:
        case exp.Alias():
            return str(bare.alias)
        case exp.Column() if not isinstance(bare.this, exp.Star):
            return str(bare.name)
        case exp.Dot() if isinstance(bare.expression, exp.Identifier):
            return str(bare.expression.name)
        case exp.Identifier():
            return str(bare.name)
    return ""
