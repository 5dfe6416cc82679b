"""Makes choices that SQL leaves open: which value any_value gives, in which order collect_list collects, which of two modes.

A view must not change while nothing changes, so it is kept for the query with these choices made, and compared with it:
`Program.definite` is that text. The choice is always one that the user's text allows.
"""

from __future__ import annotations

from sqlglot import exp

from runnel.compiler.functions import function_name
from runnel.compiler.grouping import named_struct

SORTED = frozenset({"sort_array", "array_sort", "size", "array_size", "cardinality", "array_max", "array_min"})
"""Functions whose result does not depend on the order of an array."""


def completed(tree: exp.Query) -> exp.Query | None:
    """Give the query with its open choices made; None where there are none."""
    changed = False

    def change(node: exp.Expr) -> exp.Expr:
        nonlocal changed
        found = _choice(node)
        changed = changed or found is not None
        return found if found is not None else node

    copied = tree.copy()
    for node in reversed(list(copied.walk())):
        found = change(node)
        if found is not node:
            node.replace(found)
    return copied if changed else None


def _choice(node: exp.Expr) -> exp.Expr | None:
    if _windowed(node) or isinstance(node.parent, exp.Pivot):
        return None
    match node:
        case exp.AnyValue() | exp.First() | exp.Last():
            return None if isinstance(node.parent, exp.IgnoreNulls) else _smallest(node)
        case exp.IgnoreNulls(this=exp.First() | exp.Last() | exp.AnyValue()):
            return _smallest(node.this)
        case exp.ArrayAgg() | exp.ArrayUniqueAgg() if not isinstance(node.parent, exp.Filter):
            return _sorted(node)
        case exp.Filter(this=exp.ArrayAgg() | exp.ArrayUniqueAgg()):
            return _sorted(node)
        case exp.ArgMax() | exp.ArgMin() if isinstance(node.expression, exp.Expr):
            return _tie_broken(node)
        case exp.Anonymous() if function_name(node) == "mode" and len(node.expressions) == 1:
            return exp.Anonymous(this="mode", expressions=[node.expressions[0].copy(), exp.true()])
    return None


def _windowed(node: exp.Expr) -> bool:
    parent = node.parent
    while isinstance(parent, (exp.IgnoreNulls, exp.RespectNulls, exp.Filter)):
        node, parent = parent, parent.parent
    return isinstance(parent, exp.Window) and parent.this is node


def _smallest(call: exp.Expr) -> exp.Expr:
    return exp.Min(this=call.this.copy())


def _sorted(node: exp.Expr) -> exp.Expr | None:
    parent = node.parent
    if isinstance(parent, exp.Func) and function_name(parent) in SORTED:
        return None
    return exp.Anonymous(this="sort_array", expressions=[node.copy()])


def _tie_broken(node: exp.Expr) -> exp.Expr | None:
    """Of rows that are equal in what it goes by, take the one with the greatest (or smallest) value."""
    by, value = node.expression, node.this
    if isinstance(by, exp.Case):
        return None
    row = named_struct([by, value])
    there = exp.Not(this=exp.Is(this=exp.paren(by.copy()), expression=exp.null()))
    return type(node)(this=value.copy(), expression=exp.Case(ifs=[exp.If(this=there, true=row)]))
