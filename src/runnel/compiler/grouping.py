"""Takes a grouped SELECT apart: what is grouped by, which aggregates are needed, and what stands above them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sqlglot import exp

from runnel.compiler import plan
from runnel.compiler.functions import LINEAR_AGGREGATES, function_name
from runnel.compiler.plan import Aggregate, Measure, Projection, Spj
from runnel.compiler.resolve import resolved
from runnel.compiler.support import NotLinear
from runnel.errors import Terminal

if TYPE_CHECKING:
    from collections.abc import Iterable

    from runnel.compiler.resolve import Scope

Output = tuple[str, exp.Expr]


@dataclass(frozen=True)
class Grouped:
    """An aggregate and its output: `(name, key or measure number)` per column.

    Where expressions stand above it, `above` and `having` hold them over columns named by those outputs; else they are empty
    and the aggregate is `direct`.
    """

    aggregate: Aggregate
    outputs: tuple[tuple[str, str | int], ...]
    above: tuple[Output, ...] = ()
    having: tuple[exp.Expr, ...] = ()

    @property
    def direct(self) -> bool:
        """Whether nothing stands above the aggregate."""
        return not self.above


@dataclass
class _Parts:
    """The groups and aggregates found so far, as expressions over the source."""

    groups: list[exp.Expr] = field(default_factory=list)
    measures: list[tuple[str, exp.Expr | None]] = field(default_factory=list)

    def measure(self, function: str, argument: exp.Expr | None) -> int:
        wanted = (function, argument)
        if wanted not in self.measures:
            self.measures.append(wanted)
        return self.measures.index(wanted)


def is_aggregate(node: exp.Expr) -> bool:
    """Say whether a node calls an aggregate that is kept as sums."""
    return isinstance(node, exp.Func) and function_name(node) in LINEAR_AGGREGATES


def has_aggregate(exprs: Iterable[exp.Expr]) -> bool:
    """Say whether any expression calls one."""
    return any(is_aggregate(node) for expr in exprs for node in expr.walk())


def group_select(select: exp.Select, scope: Scope, source: Spj, outputs: list[Output]) -> Grouped:
    """Split a grouped SELECT, of which `source` is the FROM and WHERE, into an aggregate and what stands above it."""
    parts = _Parts(_groups(select, scope, outputs))
    taken = [_taken_apart(expr, parts, scope) for _, expr in outputs]
    having = select.args.get("having")
    conditions: tuple[exp.Expr, ...] = ()
    if having is not None:
        if not parts.groups and not has_aggregate([having, *(e for _, e in outputs)]):
            raise NotLinear("having", having)
        conditions = tuple(plan.conjuncts(_taken_apart(resolved(having.this, scope), parts, scope)))
    names = [name for name, _ in outputs]
    references = [_reference(expr) for expr in taken]
    if not conditions and _distinct(references) and _distinct([n.lower() or None for n in names]):
        return _direct(source, parts, names, [r for r in references if r is not None])
    keys = [_key(i) for i in range(len(parts.groups))]
    every: list[tuple[str, str | int]] = [(key, key) for key in keys]
    every += [(_value(i), i) for i in range(len(parts.measures))]
    above = tuple(zip(plan.unique(tuple(names)), taken, strict=True))
    return Grouped(_aggregate(source, parts, keys), tuple(every), above, conditions)


def _direct(source: Spj, parts: _Parts, names: list[str], references: list[str]) -> Grouped:
    given = dict(zip(references, names, strict=True))
    taken = {name.lower() for name in names}
    keys = []
    for i, expr in enumerate(parts.groups):
        own = expr.name if isinstance(expr, exp.Column) and expr.name.lower() not in taken else _key(i)
        keys.append(given.get(_key(i)) or own)
        taken.add(keys[-1].lower())
    by_reference: dict[str, str | int] = {_key(i): key for i, key in enumerate(keys)}
    by_reference.update({_value(i): i for i in range(len(parts.measures))})
    shown = tuple((name, by_reference[reference]) for name, reference in zip(names, references, strict=True))
    return Grouped(_aggregate(source, parts, keys), shown)


def _distinct(names: list[str | None]) -> bool:
    return None not in names and len(set(names)) == len(names)


def _key(number: int) -> str:
    return f"_key_{number + 1}"


def _value(number: int) -> str:
    return f"_value_{number + 1}"


def _groups(select: exp.Select, scope: Scope, outputs: list[Output]) -> list[exp.Expr]:
    group = select.args.get("group")
    if group is None:
        return []
    if group.args.get("all"):
        found = [expr for _, expr in outputs if not has_aggregate([expr])]
    else:
        found = [_ordinal(item, outputs, scope) or resolved(item, scope) for item in group.expressions]
    result: list[exp.Expr] = []
    for expr in found:
        bare = expr.unnest()
        if has_aggregate([bare]):
            raise Terminal("RUNNEL-VIEW-GROUP", "an aggregate cannot be grouped by", place=scope.text.place_of(group))
        if bare not in result:
            result.append(bare)
    return result


def _ordinal(item: exp.Expr, outputs: list[Output], scope: Scope) -> exp.Expr | None:
    if not (isinstance(item, exp.Literal) and item.is_int):
        return None
    position = int(item.this)
    if not 1 <= position <= len(outputs):
        raise Terminal(
            "RUNNEL-VIEW-GROUP",
            f"GROUP BY {position} names no column of the SELECT",
            place=scope.text.place,
            hint=f"it has {len(outputs)} columns",
        )
    return outputs[position - 1][1].copy()


def _taken_apart(expr: exp.Expr, parts: _Parts, scope: Scope) -> exp.Expr:
    """Put `_key_i` in the place of groups and `_value_i` in the place of aggregates; nothing else may be read."""

    def replace(node: exp.Expr) -> exp.Expr:
        bare = node.unnest() if isinstance(node, exp.Paren) else node
        if bare in parts.groups:
            return _named(_key(parts.groups.index(bare)))
        filtered = isinstance(node, exp.Filter) and is_aggregate(node.this)
        if filtered or is_aggregate(node):
            call = node.this if filtered else node
            function, argument = _argument(call, node.expression.this if filtered else None)
            return _named(_value(parts.measure(function, argument)))
        if isinstance(node, exp.Column):
            raise Terminal(
                "RUNNEL-VIEW-GROUP",
                f"the column {node.name!r} is neither grouped by nor inside an aggregate",
                place=scope.text.place_of(node),
                hint=f"add it to GROUP BY, or write any aggregate of it such as sum({node.name})",
            )
        return node

    return expr.copy().transform(replace)


def _argument(call: exp.Expr, condition: exp.Expr | None) -> tuple[str, exp.Expr | None]:
    """Give an aggregate's one name and its argument, with a FILTER written as a CASE."""
    function = LINEAR_AGGREGATES[function_name(call)]
    arguments = list(call.expressions) if isinstance(call, exp.Anonymous) else [call.this, *call.expressions]
    if has_aggregate(arguments):
        raise NotLinear("aggregate function", call)
    value: exp.Expr | None = arguments[0]
    if function == "count":
        known = isinstance(value, exp.Star) or (len(arguments) == 1 and isinstance(value, exp.Literal))
        nulls = [exp.Not(this=exp.Is(this=exp.paren(a.copy()), expression=exp.Null())) for a in arguments]
        if len(arguments) > 1:
            value = _when(exp.and_(*nulls), exp.Literal.number(1))
        value = None if known else value
    if function == "count_if":
        function, value = "count", _when(arguments[0], exp.Literal.number(1))
    if condition is not None:
        value = _when(condition, value if value is not None else exp.Literal.number(1))
    if isinstance(value, exp.Null):
        value = exp.cast(value, "int")
    return function, value.copy() if value is not None else None


def _when(condition: exp.Expr, value: exp.Expr) -> exp.Expr:
    return exp.Case(ifs=[exp.If(this=condition.copy(), true=value.copy())])


def _reference(expr: exp.Expr) -> str | None:
    bare = expr.unnest()
    return bare.name if isinstance(bare, exp.Column) else None


def _named(name: str) -> exp.Column:
    return exp.column(exp.to_identifier(name, quoted=True))


def _aggregate(source: Spj, parts: _Parts, keys: list[str]) -> Aggregate:
    projections = [Projection(name, expr) for name, expr in zip(keys, parts.groups, strict=True)]
    arguments: list[exp.Expr] = []
    measures: list[Measure] = []
    for function, argument in parts.measures:
        if argument is None:
            measures.append(Measure(function, None, None))
            continue
        if argument not in arguments:
            arguments.append(argument)
        measures.append(Measure(function, f"_argument_{arguments.index(argument) + 1}", None))
    projections += [Projection(f"_argument_{i}", argument) for i, argument in enumerate(arguments, 1)]
    return Aggregate(Spj(source.inputs, source.where, tuple(projections)), tuple(keys), tuple(measures))
