"""Which rows have a partner: the one idea behind outer, semi and anti joins, EXISTS, IN and correlated scalar subqueries.

A row of the left side is asked about by its *parameters*, the values its condition speaks of. Three relations answer:
*matched* holds each parameter tuple that has a partner, *missing* each one of the left side that has none, and *pairs* the
partners themselves beside their tuple. Every such join is then an inner join with one of them or with a union of them, and
inner joins follow changes by the linear rule. Matched and missing are kept as counts, so a partner more or less of many
changes nothing above.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlglot import exp

from runnel.compiler import foreign_keys, plan, savings
from runnel.compiler.grouping import Grouped
from runnel.compiler.plan import Aggregate, Input, Projection, Scan, Spj, UnionAll

if TYPE_CHECKING:
    from collections.abc import Mapping

    from runnel.compiler.lower import Lowering
    from runnel.compiler.plan import Node


@dataclass(frozen=True)
class Question:
    """Left rows (`inputs` where `where`) ask by `parameters` for rows of `right` that meet all conditions.

    `equal[i]` is the right column that must equal parameter i; conditions in `other` speak of right columns as columns of
    `RIGHT` and of parameters as columns of `PARAMETER`. Where `other` is empty, `equal` covers every parameter.
    """

    inputs: tuple[Input, ...]
    where: tuple[exp.Expr, ...]
    parameters: tuple[exp.Expr, ...]
    right: Node
    equal: tuple[str | None, ...]
    other: tuple[exp.Expr, ...] = ()


RIGHT = "?right"
PARAMETER = "?parameter"


def parameter(number: int) -> str:
    """Name a parameter's column."""
    return f"_p{number + 1}"


@dataclass
class Partners:
    """The three answers to a question, made when asked for."""

    context: Lowering
    question: Question
    _matched: Node | None = None
    _missing: Node | None = None
    _tuples: Node | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the parameters' columns in every answer."""
        return tuple(parameter(i) for i in range(len(self.question.parameters)))

    def matched(self) -> Node:
        """Give each parameter tuple that has a partner, once."""
        if self._matched is None:
            pairs = self.pairs()
            chosen = plan.renamed(pairs, self.context.alias(), {n: n for n in self.names})
            self._matched = chosen if self._is_unique() else distinct(self.context, chosen)
            if self._is_unique():
                self.context.save(savings.MATCHED, plan.relations(self.question.right))
        return self._matched

    def _is_unique(self) -> bool:
        return not self.question.other and unique(
            self.question.right, frozenset(c for c in self.question.equal if c is not None)
        )

    def pairs(self) -> Node:
        """Give the right rows beside the parameter tuple they are partners of."""
        question = self.question
        alias = self.context.alias()
        right = question.right
        if not question.other:
            equal = [c for c in question.equal if c is not None]
            where = [_there(plan.column(alias, c)) for c in equal]
            named = {parameter(i): plan.column(alias, c) for i, c in enumerate(equal)}
            named |= {name: plan.column(alias, name) for name in right.names}
            return Spj((Input(alias, right),), tuple(where), _projected(named))
        tuples, asking = self._asked(), self.context.alias()
        values = {(RIGHT, name): plan.column(alias, name) for name in right.names}
        values |= {(PARAMETER, name): plan.column(asking, name) for name in self.names}
        conditions = [plan.substitute(c, values) for c in question.other]
        conditions += [
            exp.EQ(this=plan.column(asking, parameter(i)), expression=plan.column(alias, c))
            for i, c in enumerate(question.equal)
            if c is not None
        ]
        named = {name: plan.column(asking, name) for name in self.names}
        named |= {name: plan.column(alias, name) for name in right.names}
        return Spj((Input(asking, tuples), Input(alias, right)), tuple(conditions), _projected(named))

    def _asked(self) -> Node:
        """Give each parameter tuple of the left side, once."""
        if self._tuples is None:
            self._tuples = distinct(self.context, self._left(1))
        return self._tuples

    def _left(self, sign: int, extra: tuple[Input, ...] = (), where: tuple[exp.Expr, ...] = ()) -> Spj:
        question = self.question
        named = dict(zip(self.names, question.parameters, strict=True))
        return Spj((*question.inputs, *extra), (*question.where, *where), _projected(named), sign)

    def missing(self) -> Node:
        """Give each parameter tuple of the left side that has no partner, once."""
        if self._missing is None and self._by_foreign_key():
            self.context.save(savings.MISSING, plan.relations(self.question.right))
            self._missing = self._without_value()
        if self._missing is None:
            alias = self.context.alias()
            matched = self.matched()
            if self.question.other:
                tuples, own = self._asked(), self.context.alias()
                every: Node = plan.renamed(tuples, own)
                tied = self.join(alias, tuple(plan.column(own, n) for n in self.names))
                taken = Spj(
                    (Input(own, tuples), Input(alias, matched)),
                    tied,
                    tuple(Projection(n, plan.column(own, n)) for n in self.names),
                    -1,
                )
            else:
                every = self._left(1)
                taken = self._left(-1, (Input(alias, matched),), self.join(alias))
            self._missing = distinct(self.context, UnionAll((every, taken)))
        return self._missing

    def _by_foreign_key(self) -> bool:
        """Say whether the parameters are a foreign key to the right side, so that only NULLs have no partner there."""
        question = self.question
        equal = tuple(c for c in question.equal if c is not None)
        origins = foreign_keys.origins_of(question.right, equal)
        asked = [p.unnest() for p in question.parameters]
        columns = [e for e in asked if isinstance(e, exp.Column)]
        below = [i.node for i in question.inputs if columns and i.alias == columns[0].table]
        if question.other or not below or len(columns) < len(asked) or len({c.table for c in columns}) > 1:
            return False
        if not origins or len(origins) > 1 or not foreign_keys.is_whole(question.right, origins[0][0]):
            return False
        relation, named = origins[0]
        at = dict(zip(named, columns, strict=True))
        if not relation.key or sorted(at) != sorted(relation.key) or len(at) < len(named):
            return False
        return foreign_keys.refers(below[0], tuple(at[part].name for part in relation.key), relation)

    def _without_value(self) -> Node:
        """Give the parameter tuples in which something is NULL: of one parameter that is a single row."""
        if len(self.names) > 1:
            nothing = [exp.Is(this=exp.paren(p.copy()), expression=exp.null()) for p in self.question.parameters]
            return distinct(self.context, self._left(1, (), (exp.or_(*nothing),)))
        null = nulls(self.context, plan.renamed(self.pairs(), self.context.alias(), {n: n for n in self.names}))
        return Spj((), (), _projected(null))

    def join(self, alias: str, parameters: tuple[exp.Expr, ...] | None = None) -> tuple[exp.Expr, ...]:
        """Give the conditions that tie an answer called `alias` to the left side."""
        given = parameters if parameters is not None else self.question.parameters
        return tuple(
            exp.NullSafeEQ(this=exp.paren(p.copy()), expression=plan.column(alias, n))
            for p, n in zip(given, self.names, strict=True)
        )

    def marked(self, name: str) -> Node:
        """Give every parameter tuple with whether it has a partner."""
        branches = []
        for node, value in ((self.matched(), exp.true()), (self.missing(), exp.false())):
            alias = self.context.alias()
            named: dict[str, exp.Expr] = {n: plan.column(alias, n) for n in self.names}
            branches.append(Spj((Input(alias, node),), (), _projected(named | {name: value})))
        return UnionAll(tuple(branches))

    def padded(self) -> Node:
        """Give every partner beside its parameter tuple, and NULLs beside the tuples that have none."""
        alias = self.context.alias()
        named: dict[str, exp.Expr] = {n: plan.column(alias, n) for n in self.names}
        missing = Spj((Input(alias, self.missing()),), (), _projected(named | self.nulls()))
        pairs = self.pairs()
        return self.context.same_types(pairs, missing)

    def nulls(self) -> dict[str, exp.Expr]:
        """Give NULLs of the right side's types, by column."""
        return nulls(self.context, self.question.right)


def nulls(context: Lowering, node: Node) -> dict[str, exp.Expr]:
    """Give NULLs of a node's types, by column."""
    from runnel.compiler.spark import DIALECT

    return {
        name: exp.cast(exp.null(), str(c.type), dialect=DIALECT)
        for name, c in zip(node.names, context.typed(node), strict=True)
    }


def distinct(context: Lowering, node: Node) -> Node:
    """Keep each row of a node once, with its count."""
    grouped = Grouped(Aggregate(node, node.names, ()), tuple((name, name) for name in node.names))
    relation = context.aggregate(grouped)
    return Scan(relation, tuple(c.name for c in relation.rows))


def unique(node: Node, columns: frozenset[str]) -> bool:
    """Say whether at most one row of a node has any given values of these columns."""
    match node:
        case Scan(relation, _):
            wanted = {c.lower() for c in columns}
            if relation.final is not None:
                shown = {
                    sql[1:-1].lower(): c.name.lower()
                    for sql, c in zip(relation.final.spark, relation.final.columns, strict=True)
                }
                return all(shown.get(k.lower()) in wanted for k in relation.key)
            return bool(relation.key) and all(k.lower() in wanted for k in relation.key)
        case Spj((Input(alias, inner),), _, projections) if not node.generators and node.sign > 0:
            plain = {p.name: p.expr for p in projections if p.name in columns}
            below = [e.name for e in plain.values() if isinstance(e, exp.Column) and e.table == alias]
            return unique(inner, frozenset(below))
    return False


def needed(
    inputs: tuple[Input, ...], where: tuple[exp.Expr, ...], parameters: tuple[exp.Expr, ...]
) -> tuple[tuple[Input, ...], tuple[exp.Expr, ...]]:
    """Leave out inputs the parameters do not need: a question may be asked for more tuples than there are rows."""
    used = frozenset().union(*(plan.aliases(p) for p in parameters))
    where = tuple(c for c in where if not plan.has_placeholder(c))
    if not used:
        return (), ()
    chosen = tuple(i for i in inputs if i.alias in used)
    if len(chosen) > 1:
        return inputs, where
    return chosen, tuple(c for c in where if plan.aliases(c) and plan.aliases(c) <= used)


def _there(column: exp.Expr) -> exp.Expr:
    return exp.Not(this=exp.Is(this=column, expression=exp.null()))


def _projected(named: Mapping[str, exp.Expr]) -> tuple[Projection, ...]:
    return tuple(Projection(name, expr) for name, expr in named.items())
