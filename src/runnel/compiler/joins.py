"""Outer, semi and anti joins, written as inner joins with the partners of each row."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sqlglot import exp

from runnel.compiler import partners, plan
from runnel.compiler.partners import PARAMETER, RIGHT, Partners, Question
from runnel.compiler.plan import Generator, Input, Projection, Spj
from runnel.compiler.support import NotLinear
from runnel.model import types

if TYPE_CHECKING:
    from runnel.compiler.lower import Lowering
    from runnel.compiler.plan import Node
    from runnel.compiler.resolve import Scope
    from runnel.model.types import Type


@dataclass
class From:
    """A FROM in the making: inputs, the conditions that join them, the rows made from rows, and the names seen so far."""

    scope: Scope
    inputs: list[Input] = field(default_factory=list)
    where: list[exp.Expr] = field(default_factory=list)
    generators: list[Generator] = field(default_factory=list)

    @property
    def aliases(self) -> frozenset[str]:
        """The names of everything that columns may come from."""
        return frozenset(i.alias for i in self.inputs) | frozenset(g.alias for g in self.generators)

    def columns(self) -> dict[tuple[str, str], str]:
        """Give every column in scope under a name of its own."""
        found: dict[tuple[str, str], str] = {}
        shown = [e for s in self.scope.sources for _, e in s.columns] + [one.expr for one in self.scope.shown]
        for expr in shown:
            for column in expr.find_all(exp.Column):
                found.setdefault((column.table, column.name), f"_c{len(found) + 1}")
        return found

    def node(self) -> tuple[Spj, dict[tuple[str, str], str]]:
        """Give all rows with every column in scope, and where each column went."""
        names = self.columns()
        projections = tuple(Projection(new, plan.column(*old)) for old, new in names.items())
        return Spj(tuple(self.inputs), tuple(self.where), projections, 1, tuple(self.generators)), names

    def derive(self, context: Lowering, node: Node, names: dict[tuple[str, str], str]) -> None:
        """Let one input with these columns stand for everything so far."""
        alias = context.alias()
        self.inputs, self.where, self.generators = [Input(alias, node)], [], []
        self.scope.remap({old: plan.column(alias, new) for old, new in names.items()})

    def settle(self, context: Lowering) -> None:
        """Put rows made from rows behind a derived table, so that more can be joined."""
        if self.generators:
            self.derive(context, *self.node())


@dataclass(frozen=True)
class Match:
    """A join condition sorted out: what must be equal, what the right side alone must meet, and the rest."""

    equal: list[tuple[exp.Expr, exp.Expr]]
    right: list[exp.Expr]
    other: list[exp.Expr]


def sort_out(conditions: list[exp.Expr], right: frozenset[str]) -> Match:
    """Sort conditions by which side they speak of; conditions of the left side alone are folded into an equality."""
    equal: list[tuple[exp.Expr, exp.Expr]] = []
    own: list[exp.Expr] = []
    left: list[exp.Expr] = []
    other: list[exp.Expr] = []
    for condition in conditions:
        used = plan.aliases(condition)
        sides = _sides(condition, right)
        if used and used <= right:
            own.append(condition)
        elif not used & right:
            left.append(condition)
        elif sides is not None:
            equal.append(sides)
        else:
            other.append(condition)
    if left and not other:
        one = exp.Literal.number(1)
        first, rest = (equal[0], equal[1:]) if equal else ((one, one), [])
        case = exp.Case(ifs=[exp.If(this=exp.and_(*(exp.paren(c.copy()) for c in left)), true=first[0].copy())])
        equal = [(case, first[1]), *rest]
        left = []
    if not equal and not left and not other:
        equal = [(exp.Literal.number(1), exp.Literal.number(1))]
    return Match(equal, own, [*left, *other])


def _sides(condition: exp.Expr, right: frozenset[str]) -> tuple[exp.Expr, exp.Expr] | None:
    if not isinstance(condition, exp.EQ):
        return None
    one, two = condition.this, condition.expression
    for mine, theirs in ((one, two), (two, one)):
        used = plan.aliases(theirs)
        if used and used <= right and not plan.aliases(mine) & right and plan.aliases(mine):
            return mine, theirs
    return None


def ask(context: Lowering, left: From, right: Spj, match: Match) -> Partners:
    """Ask for the partners of the left side's rows among the right side's, whose columns keep their names."""
    inner = {i.alias for i in right.inputs} | {g.alias for g in right.generators}
    named = list(right.projections)
    equal: list[str | None] = []
    parameters: list[exp.Expr] = []
    other = list(match.other)
    types_left = _types(context, left, [e for e, _ in match.equal])
    types_right = _types_of(context, right, [e for _, e in match.equal])
    for (mine, theirs), one, two in zip(match.equal, types_left, types_right, strict=True):
        if not _comparable(one, two):
            other.append(exp.EQ(this=exp.paren(mine.copy()), expression=exp.paren(theirs.copy())))
            continue
        name = f"_e{len(equal) + 1}"
        named.append(Projection(name, theirs))
        equal.append(name)
        parameters.append(mine)
    values: dict[tuple[str, str], exp.Expr] = {}
    for condition in other:
        for column in condition.find_all(exp.Column):
            at = (column.table, column.name)
            if at in values:
                continue
            if column.table in inner:
                name = f"_e{len(named) + 1}_"
                named.append(Projection(name, column.copy()))
                values[at] = plan.column(RIGHT, name)
            else:
                values[at] = plan.column(PARAMETER, partners.parameter(len(parameters)))
                parameters.append(column.copy())
                equal.append(None)
    if not parameters:
        named.append(Projection("_e1", exp.Literal.number(1)))
        equal, parameters = ["_e1"], [exp.Literal.number(1)]
    node = Spj(right.inputs, (*right.where, *match.right), tuple(named), right.sign, right.generators)
    inputs, where = partners.needed(tuple(left.inputs), tuple(left.where), tuple(parameters))
    question = Question(
        inputs, where, tuple(parameters), node, tuple(equal), tuple(plan.substitute(c, values) for c in other)
    )
    return Partners(context, question)


def _types(context: Lowering, left: From, exprs: list[exp.Expr]) -> list[Type]:
    return _types_of(context, Spj(tuple(left.inputs), tuple(left.where), (), 1, tuple(left.generators)), exprs)


def _types_of(context: Lowering, node: Spj, exprs: list[exp.Expr]) -> list[Type]:
    if not exprs:
        return []
    projections = tuple(Projection(f"_t{i}", e) for i, e in enumerate(exprs))
    typed = context.typed(Spj(node.inputs, (), projections, 1, node.generators))
    return [c.type for c in typed]


def _comparable(one: Type, two: Type) -> bool:
    """Say whether two types compare as they are, or as the wider of two numbers."""
    numbers = (*types.INTEGERS, "decimal")
    if isinstance(one, types.Decimal) != isinstance(two, types.Decimal):
        return False
    return one == two or (one.name in numbers and two.name in numbers and one.name != "decimal")


def join(context: Lowering, left: From, right: From, side: str, conditions: list[exp.Expr]) -> None:
    """Join `right` to what stands in `left`: side is LEFT, RIGHT, FULL, SEMI or ANTI."""
    left.settle(context)
    if side == "RIGHT":
        _pad(context, right, left, conditions)
        left.inputs, left.where, left.generators = right.inputs, right.where, right.generators
    elif side == "LEFT":
        _pad(context, left, right, conditions)
    elif side == "FULL":
        _full(context, left, right, conditions)
    else:
        node, _ = right.node()
        found = ask(context, left, node, sort_out(conditions, right.aliases))
        alias = context.alias()
        left.inputs.append(Input(alias, found.matched() if side == "SEMI" else found.missing()))
        left.where += found.join(alias)


def _pad(context: Lowering, kept: From, padded: From, conditions: list[exp.Expr]) -> Partners:
    """Keep every row of one side, beside its partners of the other or beside NULLs."""
    kept.settle(context)
    node, names = padded.node()
    found = ask(context, kept, node, sort_out(conditions, padded.aliases))
    alias = context.alias()
    kept.inputs.append(Input(alias, found.padded()))
    kept.where += found.join(alias)
    padded.scope.remap({old: plan.column(alias, new) for old, new in names.items()})
    return found


def _full(context: Lowering, left: From, right: From, conditions: list[exp.Expr]) -> None:
    right.settle(context)
    mine, theirs = left.columns(), right.columns()
    alone = Spj(tuple(right.inputs), tuple(right.where), ())
    node, names = left.node()
    lonely = ask(context, right, node, sort_out(conditions, left.aliases))
    alias = context.alias()
    nulls = partners.nulls(context, node)
    projections = [Projection(names[old], nulls[names[old]]) for old in mine]
    projections += [Projection(f"_r{new}", plan.column(*old)) for old, new in theirs.items()]
    unmatched = Spj(
        (*alone.inputs, Input(alias, lonely.missing())), (*alone.where, *lonely.join(alias)), tuple(projections)
    )
    _pad(context, left, right, conditions)
    # Scope of the right side now names the padded rows.
    at = {expr: f"_r{new}" for (old, new), expr in zip(theirs.items(), _now(right, theirs), strict=True)}
    all_left = [Projection(names[old], plan.column(*old)) for old in mine]
    all_right = [Projection(name, expr) for expr, name in at.items()]
    matched = Spj(tuple(left.inputs), tuple(left.where), (*all_left, *all_right))
    both = context.same_types(matched, unmatched)
    alias = context.alias()
    left.inputs, left.where = [Input(alias, both)], []
    left.scope.remap({old: plan.column(alias, names[old]) for old in mine})
    right.scope.remap({(e.table, e.name): plan.column(alias, n) for e, n in at.items() if isinstance(e, exp.Column)})


def _now(right: From, theirs: dict[tuple[str, str], str]) -> list[exp.Expr]:
    """Give what stands for each of the right side's columns after it was padded, in the same order."""
    found: dict[tuple[str, str], exp.Expr] = {}
    shown = [e for s in right.scope.sources for _, e in s.columns] + [one.expr for one in right.scope.shown]
    for expr in shown:
        for column in expr.find_all(exp.Column):
            found.setdefault((column.table, column.name), column.copy())
    if len(found) != len(theirs):
        raise NotLinear("outer join", exp.Join())
    return list(found.values())
