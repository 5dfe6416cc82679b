"""Spark's own reading of IN with a subquery inside an expression, which knows true and false and no NULL.

`x IN (SELECT ...)` is true where there is an equal value, else false. `NOT x IN (SELECT ...)` is true only where it is certain that
there is none, else false. Spark carries a NOT through AND and OR down to the IN first, and so it is done here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

if TYPE_CHECKING:
    from collections.abc import Callable


def carried(expr: exp.Expr, is_in: Callable[[exp.Expr], bool]) -> exp.Expr:
    """Carry every NOT above an IN down to it; the expression is changed in place and given back."""
    for node in list(expr.find_all(exp.Not)):
        if isinstance(node.this.unnest(), (exp.And, exp.Or, exp.Not)) and _reaches(node.this, is_in):
            changed = _carry(node, negate=False)
            if node is expr:
                return carried(changed, is_in)
            node.replace(changed)
            return carried(expr, is_in)
    return expr


def _reaches(node: exp.Expr, is_in: Callable[[exp.Expr], bool]) -> bool:
    bare = node.unnest()
    if isinstance(bare, (exp.And, exp.Or)):
        return _reaches(bare.left, is_in) or _reaches(bare.right, is_in)
    return _reaches(bare.this, is_in) if isinstance(bare, exp.Not) else is_in(bare)


def _carry(node: exp.Expr, *, negate: bool) -> exp.Expr:
    bare = node.unnest()
    if isinstance(bare, exp.Not):
        return _carry(bare.this, negate=not negate)
    if isinstance(bare, (exp.And, exp.Or)):
        sides = [exp.paren(_carry(side, negate=negate)) for side in (bare.left, bare.right)]
        both = isinstance(bare, exp.And) != negate
        return exp.paren((exp.And if both else exp.Or)(this=sides[0], expression=sides[1]))
    return exp.Not(this=exp.paren(bare.copy())) if negate else bare.copy()
