"""Takes a grouped SELECT apart: what is grouped by, which aggregates are needed, and what stands above them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sqlglot import exp

from runnel.compiler import plan
from runnel.compiler.functions import AGGREGATES, EXTREMA, LINEAR_AGGREGATES, function_name
from runnel.compiler.support import NotLinear
from runnel.errors import Terminal

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from runnel.compiler.plan import Aggregate
    from runnel.compiler.resolve import Scope

Output = tuple[str, exp.Expr]


@dataclass(frozen=True)
class Grouped:
    """An aggregate kept as sums, and its output: `(name, key or measure number)` per column."""

    aggregate: Aggregate
    outputs: tuple[tuple[str, str | int], ...]


@dataclass(frozen=True)
class Call:
    """One aggregate: `expr` as it was written, and where it is one of the simple ones its function and arguments.

    `kind` is `sum` (kept as sums), `distinct` (sums over distinct values), `first` (found at one end of an order) or `any`.
    """

    kind: str
    expr: exp.Expr
    function: str = ""
    argument: exp.Expr | None = None
    by: exp.Expr | None = None


@dataclass(frozen=True)
class Grouping:
    """A grouped SELECT: expressions over the source for keys and calls, and over `_key_i`, `_value_i` for what stands above."""

    groups: tuple[exp.Expr, ...]
    calls: tuple[Call, ...]
    outputs: tuple[Output, ...]
    having: tuple[exp.Expr, ...] = ()

    @property
    def direct(self) -> dict[str, str] | None:
        """The output name of each key and value, where the outputs are nothing but those; else None."""
        references = [_reference(expr) for _, expr in self.outputs]
        names = [name.lower() for name, _ in self.outputs]
        known = [r for r in references if r is not None]
        if self.having or "" in names or len(set(names)) < len(names) or len(set(known)) < len(names):
            return None
        return {reference: name for reference, (name, _) in zip(known, self.outputs, strict=True)}


@dataclass
class _Parts:
    """The groups and aggregates found so far, as expressions over the source."""

    groups: list[exp.Expr]
    calls: list[Call] = field(default_factory=list)

    def value(self, call: Call) -> str:
        if call not in self.calls:
            self.calls.append(call)
        return value(self.calls.index(call))


def aggregates(expr: exp.Expr) -> Iterator[exp.Expr]:
    """Find the aggregate calls of an expression, with their FILTER; what a window computes is none, its arguments may be."""
    if isinstance(expr, exp.Window):
        inner = expr.this.this if isinstance(expr.this, (exp.IgnoreNulls, exp.RespectNulls)) else expr.this
        parts = inner.iter_expressions() if is_call(inner) else [inner]
        for part in [*parts, *expr.args.get("partition_by", []), *_ordered(expr)]:
            yield from aggregates(part)
        return
    wrapped = isinstance(expr, (exp.Filter, exp.WithinGroup, exp.IgnoreNulls, exp.RespectNulls))
    if is_call(expr) or (wrapped and any(is_call(n) for n in _innermost(expr))):
        yield expr
        return
    for part in expr.iter_expressions():
        yield from aggregates(part)


def _ordered(window: exp.Window) -> list[exp.Expr]:
    order = window.args.get("order")
    return list(order.expressions) if order is not None else []


def _innermost(expr: exp.Expr) -> Iterator[exp.Expr]:
    while isinstance(expr, (exp.Filter, exp.WithinGroup, exp.IgnoreNulls, exp.RespectNulls)):
        expr = expr.this
        yield expr


def is_call(node: exp.Expr) -> bool:
    """Say whether a node itself calls an aggregate."""
    if isinstance(node, exp.Any):
        return not isinstance(node.parent, (exp.Predicate, exp.Binary))
    return isinstance(node, exp.Func) and (isinstance(node, exp.AggFunc) or function_name(node) in AGGREGATES)


def has_aggregate(exprs: Iterable[exp.Expr]) -> bool:
    """Say whether any expression calls an aggregate."""
    return any(True for expr in exprs for _ in aggregates(expr))


def key(number: int) -> str:
    """Name a group's column."""
    return f"_key_{number + 1}"


def value(number: int) -> str:
    """Name an aggregate's column."""
    return f"_value_{number + 1}"


def take_apart(
    scope: Scope,
    groups: list[exp.Expr],
    outputs: list[Output],
    having: exp.Expr | None,
    absent: dict[exp.Expr, exp.Expr] | None = None,
) -> Grouping:
    """Split outputs and HAVING into aggregates and what stands above them; `absent` replaces groups that are not grouped by."""
    parts = _Parts(groups)
    taken = [(name, _taken(expr, parts, scope, absent or {})) for name, expr in outputs]
    conditions: tuple[exp.Expr, ...] = ()
    if having is not None:
        if not groups and not has_aggregate([having, *(e for _, e in outputs)]):
            raise NotLinear("having", having)
        conditions = tuple(plan.conjuncts(_taken(having, parts, scope, absent or {})))
    return Grouping(tuple(groups), tuple(parts.calls), tuple(taken), conditions)


def group_list(group: exp.Group | None, outputs: list[Output], scope: Scope, resolve: object) -> list[exp.Expr]:
    """Give the expressions grouped by, each once; ordinals stand for outputs."""
    if group is None:
        return []
    assert callable(resolve)
    if group.args.get("all"):
        found = [expr for _, expr in outputs if not has_aggregate([expr])]
    else:
        found = [ordinal(item, outputs, scope) or resolve(item) for item in group.expressions]
    result: list[exp.Expr] = []
    for expr in found:
        bare = expr.unnest()
        if has_aggregate([bare]):
            raise Terminal("RUNNEL-VIEW-GROUP", "an aggregate cannot be grouped by", place=scope.text.place_of(group))
        if bare not in result:
            result.append(bare)
    return result


def ordinal(item: exp.Expr, outputs: list[Output], scope: Scope) -> exp.Expr | None:
    """Give the output a number in GROUP BY or ORDER BY stands for; None for anything else."""
    if not (isinstance(item, exp.Literal) and item.is_int):
        return None
    position = int(item.this)
    if not 1 <= position <= len(outputs):
        raise Terminal(
            "RUNNEL-VIEW-GROUP",
            f"position {position} names no column of the SELECT",
            place=scope.text.place,
            hint=f"it has {len(outputs)} columns",
        )
    return outputs[position - 1][1].copy()


def _taken(expr: exp.Expr, parts: _Parts, scope: Scope, absent: dict[exp.Expr, exp.Expr]) -> exp.Expr:
    """Put `_key_i` in the place of groups and `_value_i` in the place of aggregates; nothing else may be read."""
    calls = {id(node) for node in aggregates(expr)}
    positions = [i for i, node in enumerate(expr.walk(bfs=False)) if id(node) in calls]
    copied = expr.copy()
    found = {id(node) for i, node in enumerate(copied.walk(bfs=False)) if i in set(positions)}

    def replace(node: exp.Expr) -> exp.Expr:
        bare = node.unnest() if isinstance(node, exp.Paren) else node
        if bare in absent:
            return absent[bare].copy()
        if bare in parts.groups:
            return _named(key(parts.groups.index(bare)))
        if id(node) in found:
            return _named(parts.value(_call(node)))
        if isinstance(node, exp.Column):
            raise Terminal(
                "RUNNEL-VIEW-GROUP",
                f"the column {node.name!r} is neither grouped by nor inside an aggregate",
                place=scope.text.place_of(node),
                hint=f"add it to GROUP BY, or write any aggregate of it such as sum({node.name})",
            )
        return node

    return copied.transform(replace, copy=False)


def _call(node: exp.Expr) -> Call:
    """Recognise an aggregate; a FILTER becomes a CASE where the aggregate passes over NULLs."""
    call, condition = node, None
    if isinstance(node, exp.Filter):
        call, condition = node.this, node.expression.this
    if not is_call(call):
        return Call("any", node.copy())
    name = function_name(call)
    arguments = list(call.expressions) if isinstance(call, exp.Anonymous) else _arguments(call)
    if any(has_aggregate([a]) for a in arguments):
        raise NotLinear("aggregate function", call)
    if arguments and isinstance(arguments[0], exp.Distinct):
        return _distinct(node, name, arguments, condition)
    if name in LINEAR_AGGREGATES:
        function, argument = _linear(LINEAR_AGGREGATES[name], arguments, condition)
        return Call("sum", node.copy(), function, argument)
    if name in EXTREMA and len(arguments) == 1:
        return Call("first", node.copy(), EXTREMA[name], _filtered(arguments[0], condition))
    if name in ("max_by", "min_by") and len(arguments) == 2:
        return Call("first", node.copy(), name, arguments[0].copy(), _filtered(arguments[1], condition))
    return Call("any", node.copy())


def _arguments(call: exp.Expr) -> list[exp.Expr]:
    found = [call.args.get("this"), call.args.get("expression"), *call.expressions]
    return [a for a in found if isinstance(a, exp.Expr)]


def _distinct(node: exp.Expr, name: str, arguments: list[exp.Expr], condition: exp.Expr | None) -> Call:
    values = arguments[0].expressions
    if name in EXTREMA and len(values) == 1:
        return Call("first", node.copy(), EXTREMA[name], _filtered(values[0], condition))
    if name not in LINEAR_AGGREGATES or name == "count_if":
        return Call("any", node.copy())
    if len(values) == 1:
        return Call("distinct", node.copy(), LINEAR_AGGREGATES[name], _filtered(values[0], condition))
    # A row counts where none of its values is NULL.
    there = exp.and_(*(exp.Not(this=exp.Is(this=exp.paren(a.copy()), expression=exp.null())) for a in values))
    row = named_struct(values)
    return Call("distinct", node.copy(), "count", _filtered(_when(there, row), condition))


def named_struct(values: list[exp.Expr]) -> exp.Expr:
    """Make a row of values whose field names do not depend on what its columns are called."""
    fields = [part for i, v in enumerate(values, 1) for part in (exp.Literal.string(f"_{i}"), v.copy())]
    return exp.Anonymous(this="named_struct", expressions=fields)


def _filtered(argument: exp.Expr, condition: exp.Expr | None) -> exp.Expr:
    return argument.copy() if condition is None else _when(condition, argument)


def _linear(function: str, arguments: list[exp.Expr], condition: exp.Expr | None) -> tuple[str, exp.Expr | None]:
    argument: exp.Expr | None = arguments[0]
    if function == "count":
        known = isinstance(argument, exp.Star) or (len(arguments) == 1 and isinstance(argument, exp.Literal))
        nulls = [exp.Not(this=exp.Is(this=exp.paren(a.copy()), expression=exp.null())) for a in arguments]
        if len(arguments) > 1:
            argument = _when(exp.and_(*nulls), exp.Literal.number(1))
        argument = None if known else argument
    if function == "count_if":
        function, argument = "count", _when(arguments[0], exp.Literal.number(1))
    if condition is not None:
        argument = _when(condition, argument if argument is not None else exp.Literal.number(1))
    if isinstance(argument, exp.Null):
        argument = exp.cast(argument, "int")
    return function, argument.copy() if argument is not None else None


def _when(condition: exp.Expr, then: exp.Expr) -> exp.Expr:
    return exp.Case(ifs=[exp.If(this=condition.copy(), true=then.copy())])


def _reference(expr: exp.Expr) -> str | None:
    bare = expr.unnest()
    return bare.name if isinstance(bare, exp.Column) and not bare.table else None


def _named(name: str) -> exp.Column:
    return exp.column(exp.to_identifier(name, quoted=True))
