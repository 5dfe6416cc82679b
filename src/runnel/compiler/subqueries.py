"""Subqueries in expressions: EXISTS, IN, NOT IN and scalar ones, correlated or not, written as joins.

While an expression is resolved, a subquery in it is lowered and leaves a placeholder: a call named `#sub` whose arguments are
the outer values it asks by. When the inputs of the query around it are known, `expand` joins its answer to them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from sqlglot import exp

from runnel.compiler import joins, lower, partners, plan
from runnel.compiler.aggregates import kept
from runnel.compiler.grouping import Call, Grouping, aggregates, group_list, has_aggregate, key, take_apart, value
from runnel.compiler.joins import From
from runnel.compiler.negation import carried
from runnel.compiler.no_rows import over_no_rows
from runnel.compiler.outputs import output_name
from runnel.compiler.plan import Input, Projection, Spj
from runnel.compiler.resolve import Scope, Source
from runnel.compiler.support import NotLinear
from runnel.errors import Terminal

if TYPE_CHECKING:
    from runnel.compiler.lower import Lowering
    from runnel.compiler.partners import Partners


@dataclass(frozen=True)
class Subquery:
    """A lowered subquery: its rows, how the arguments of its placeholder are compared with them, and its value.

    The first `compared` arguments must equal the columns `_o1`, `_o2` ...; `outer[i]` is the expression argument i stood for.
    """

    kind: str
    right: Spj
    compared: int
    conditions: tuple[exp.Expr, ...] = ()
    outer: tuple[exp.Expr, ...] = ()
    value: exp.Expr | None = None
    single: bool = False


def is_subquery(node: exp.Expr) -> bool:
    """Say whether a node of an expression is a subquery, with what compares it."""
    if isinstance(node, exp.Exists):
        return True
    if isinstance(node, exp.In):
        return node.args.get("query") is not None
    return isinstance(node, exp.Subquery) and isinstance(node.this, exp.Query)


def find(context: Lowering, scope: Scope, frame: From, node: exp.Expr) -> exp.Expr | None:
    """Lower a subquery and give its placeholder; None for any other node."""
    if isinstance(node, (exp.Any, exp.All)) and isinstance(node.this, (exp.Subquery, exp.Select)):
        raise NotLinear("subquery in an expression", node)
    if not is_subquery(node):
        return None
    compared: list[exp.Expr] = []
    if isinstance(node, exp.In):
        left = node.this
        parts = left.expressions if isinstance(left, exp.Tuple) else [left]
        compared = [context.resolve(part, scope, frame) for part in parts]
        query, kind = _query(node.args["query"]), "in"
    elif isinstance(node, exp.Exists):
        query, kind = _query(node.this), "exists"
    else:
        query, kind = node.this, "scalar"
    found = _lowered(context, scope, frame, context.original(query), kind, len(compared))
    context.subqueries.append(found)
    number = exp.Literal.number(len(context.subqueries) - 1)
    return exp.Anonymous(this=plan.PLACEHOLDER, expressions=[number, *compared, *(o.copy() for o in found.outer)])


def _query(node: exp.Expr) -> exp.Expr:
    return node.this if isinstance(node, exp.Subquery) else node


def _lowered(context: Lowering, scope: Scope, frame: From, query: exp.Expr, kind: str, compared: int) -> Subquery:
    mark = len(context.subqueries)
    try:
        return _alone(context, query, kind, compared)
    except Terminal as error:
        if error.code not in ("RUNNEL-VIEW-COLUMN", "RUNNEL-VIEW-GROUP"):
            raise
        del context.subqueries[mark:]
    if not isinstance(query, exp.Select) or any(
        query.args.get(a) for a in ("limit", "offset", "qualify", "distinct" if kind == "scalar" else "limit")
    ):
        raise NotLinear("subquery in an expression", query)
    return _correlated(context, scope, frame, query, kind, compared)


def _alone(context: Lowering, query: exp.Expr, kind: str, compared: int) -> Subquery:
    """Lower a subquery that speaks of nothing outside."""
    node, _ = lower.node_of(context, query)
    alias = context.alias()
    named = tuple(Projection(f"_o{i}", plan.column(alias, n)) for i, n in enumerate(node.names, 1))
    right = Spj((Input(alias, node),), (), named)
    if kind == "in" and compared != len(named):
        raise Terminal("RUNNEL-VIEW-SUBQUERY", f"IN compares {compared} values with {len(named)} columns")
    if kind != "scalar":
        return Subquery(kind, right, compared)
    if len(named) != 1:
        raise Terminal("RUNNEL-VIEW-SUBQUERY", f"a subquery used as a value has {len(named)} columns, not one")
    if partners.unique(node, frozenset()):
        return Subquery(kind, right, 0, value=plan.column(partners.RIGHT, "_o1"), single=True)
    return _at_most_one(context, right)


def _at_most_one(context: Lowering, right: Spj) -> Subquery:
    """Make one row of any number: no row gives NULL, more than one row an error as the query itself would."""
    alias = context.alias()
    source = Spj((Input(alias, right),), (), ())
    column = plan.column(alias, "_o1")
    calls = (Call("first", exp.Max(this=column), "max", column), Call("sum", exp.Count(this=exp.Star()), "count"))
    outputs = ((value(0), _column(value(0))), (value(1), _column(value(1))))
    node = context.as_node(kept(context, source, Grouping((), calls, outputs)))
    other = context.alias()
    named = tuple(Projection(f"_o{i}", plan.column(other, n)) for i, n in enumerate(node.names, 1))
    first, count = plan.column(partners.RIGHT, "_o1"), plan.column(partners.RIGHT, "_o2")
    fail = exp.Anonymous(
        this="raise_error", expressions=[exp.Literal.string("a subquery used as a value gave more than one row")]
    )
    checked = exp.Case(
        ifs=[exp.If(this=exp.GT(this=count, expression=exp.Literal.number(1)), true=fail)], default=first
    )
    return Subquery("scalar", Spj((Input(other, node),), (), named), 0, value=checked, single=True)


def _column(name: str) -> exp.Column:
    return exp.column(exp.to_identifier(name, quoted=True))


def _correlated(context: Lowering, scope: Scope, frame: From, query: exp.Select, kind: str, compared: int) -> Subquery:
    inner = From(Scope(scope.text, outer=scope))
    lower.fill_from(context, query, inner)
    where = query.args.get("where")
    if where is not None:
        inner.where += plan.conjuncts(context.resolve(where.this, inner.scope, inner))
    outputs = lower.outputs_of(context, query, inner)
    having = query.args.get("having")
    grouped = query.args.get("group") is not None or has_aggregate(e for _, e in outputs) or having is not None
    local = [c for c in inner.where if plan.aliases(c) <= inner.aliases]
    tied = [c for c in inner.where if not plan.aliases(c) <= inner.aliases]
    if any(not plan.aliases(e) <= inner.aliases for _, e in outputs) and not (kind == "exists"):
        raise NotLinear("subquery in an expression", query)
    inner.where = local
    if grouped:
        return _grouped(context, frame, query, kind, compared, inner, tied, outputs)
    if kind == "scalar":
        return _unique_value(context, query, inner, tied, outputs)
    expand(context, inner, [])
    named = tuple(Projection(f"_o{i}", e) for i, (_, e) in enumerate(outputs, 1)) if kind == "in" else ()
    right = Spj(tuple(inner.inputs), tuple(inner.where), named, 1, tuple(inner.generators))
    return _tied(kind, right, compared, tied, inner.aliases)


def _tied(kind: str, right: Spj, compared: int, tied: list[exp.Expr], inside: frozenset[str]) -> Subquery:
    """Put arguments of the placeholder in the place of the outer columns of conditions."""
    values: dict[tuple[str, str], exp.Expr] = {}
    outer: list[exp.Expr] = []
    for condition in tied:
        for column in condition.find_all(exp.Column):
            if column.table not in inside and (column.table, column.name) not in values:
                values[column.table, column.name] = plan.column(partners.PARAMETER, str(len(outer)))
                outer.append(column.copy())
    conditions = tuple(plan.substitute(c, values) for c in tied)
    return Subquery(kind, right, compared, conditions, tuple(outer))


def _unique_value(
    context: Lowering, query: exp.Select, inner: From, tied: list[exp.Expr], outputs: list[tuple[str, exp.Expr]]
) -> Subquery:
    """Allow a value that is no aggregate where a key makes sure that there is one row at most."""
    match = joins.sort_out(tied, inner.aliases)
    expand(context, inner, [])
    named = [Projection("_o1", outputs[0][1])] + [Projection(f"_q{i}", e) for i, (_, e) in enumerate(match.equal)]
    right = Spj(tuple(inner.inputs), tuple(inner.where), tuple(named))
    if len(outputs) != 1 or match.other or not partners.unique(right, frozenset(p.name for p in named[1:])):
        raise NotLinear("subquery in an expression", query)
    found = _tied("scalar", right, 0, tied, inner.aliases)
    return replace(found, value=plan.column(partners.RIGHT, "_o1"))


def _grouped(
    context: Lowering,
    frame: From,
    query: exp.Select,
    kind: str,
    compared: int,
    inner: From,
    tied: list[exp.Expr],
    outputs: list[tuple[str, exp.Expr]],
) -> Subquery:
    """Lower a correlated aggregate: what it is tied by becomes part of its groups."""
    having = query.args.get("having")
    if kind == "exists" and having is None:
        if query.args.get("group") is None:
            raise NotLinear("subquery in an expression", query)  # such an aggregate always has a row
        right = Spj(tuple(inner.inputs), tuple(inner.where), (), 1, tuple(inner.generators))
        return _tied(kind, right, compared, tied, inner.aliases)
    own = group_list(query.args.get("group"), outputs, inner.scope, lambda e: context.resolve(e, inner.scope, inner))
    if not own and (having is not None or kind != "scalar"):
        raise NotLinear("subquery in an expression", query)
    match = joins.sort_out(tied, inner.aliases)
    if match.right or match.other:
        extra, outer = _domain(context, frame, inner, tied)
    else:
        extra, outer = [theirs for _, theirs in match.equal], [mine for mine, _ in match.equal]
    if own and kind == "scalar" and not all(e in extra for e in own):
        raise NotLinear("subquery in an expression", query)
    if any(isinstance(e, exp.Literal) for e in extra):
        raise NotLinear("subquery in an expression", query)
    groups = list(dict.fromkeys([*extra, *own]))
    condition = context.resolve(having.this, inner.scope, inner) if having is not None else None
    grouping = take_apart(inner.scope, groups, outputs, condition)
    domain = bool(match.right or match.other)
    return _tied_groups(
        context, inner, kind, compared, grouping, extra, outer, domain=domain, grouped=bool(own or condition)
    )


def _domain(context: Lowering, frame: From, inner: From, tied: list[exp.Expr]) -> tuple[list[exp.Expr], list[exp.Expr]]:
    """Bring every combination of outer values into the subquery, so that any condition may tie it."""
    outer: dict[tuple[str, str], exp.Expr] = {}
    for condition in tied:
        for column in condition.find_all(exp.Column):
            if column.table not in inner.aliases:
                outer.setdefault((column.table, column.name), column.copy())
    asked = tuple(outer.values())
    if frame.generators or not all(plan.aliases(a) <= frame.aliases for a in asked):
        raise NotLinear("subquery in an expression", tied[0])
    inputs, where = partners.needed(tuple(frame.inputs), tuple(frame.where), asked)
    names = [partners.parameter(i) for i in range(len(asked))]
    named = tuple(Projection(n, e) for n, e in zip(names, asked, strict=True))
    tuples = partners.distinct(context, Spj(inputs, where, named))
    alias = context.alias()
    inner.inputs.append(Input(alias, tuples))
    values = {old: plan.column(alias, name) for old, name in zip(outer, names, strict=True)}
    inner.where += [plan.substitute(c, values) for c in tied]
    return list(values.values()), list(asked)


def _tied_groups(
    context: Lowering,
    inner: From,
    kind: str,
    compared: int,
    grouping: Grouping,
    extra: list[exp.Expr],
    outer: list[exp.Expr],
    *,
    domain: bool,
    grouped: bool,
) -> Subquery:
    expand(context, inner, [])
    there: int | None = None
    if kind == "scalar" and grouped:
        # With a GROUP BY of its own it has no row over no rows: a count says whether it has one.
        counted = Call("sum", exp.Count(this=exp.Star()), "count")
        grouping = replace(grouping, calls=tuple(dict.fromkeys((*grouping.calls, counted))))
        there = grouping.calls.index(counted)
    source = Spj(tuple(inner.inputs), tuple(inner.where), (), 1, tuple(inner.generators))
    keys: list[tuple[str, exp.Expr]] = [(f"_k{i}", _column(key(i))) for i in range(len(extra))]
    if kind == "scalar":
        # Over no rows a count is 0 and most others are NULL, so what stands above is computed after the join.
        shown = (*keys, *((value(i), _column(value(i))) for i in range(len(grouping.calls))))
    else:
        shown = (*keys, *((f"_o{i}", e) for i, (_, e) in enumerate(grouping.outputs, 1)))
    node = context.as_node(kept(context, source, replace(grouping, outputs=shown)))
    alias = context.alias()
    right = Spj((Input(alias, node),), (), tuple(Projection(n, plan.column(alias, n)) for n in node.names))
    tie = exp.NullSafeEQ if domain else exp.EQ
    conditions = tuple(
        tie(this=plan.column(partners.PARAMETER, str(i)), expression=plan.column(alias, f"_k{i}"))
        for i in range(len(extra))
    )
    result: exp.Expr | None = None
    if kind == "scalar":
        values: dict[tuple[str, str], exp.Expr] = {}
        for i, call in enumerate(grouping.calls):
            column: exp.Expr = plan.column(partners.RIGHT, value(i))
            nothing = over_no_rows(call) if there is None else None
            if nothing is not None:
                column = exp.Coalesce(this=column, expressions=[nothing])
            values["", value(i)] = column
        values |= {("", key(i)): plan.column(partners.RIGHT, f"_k{i}") for i in range(len(extra))}
        result = plan.substitute(grouping.outputs[0][1], values)
        if there is not None:
            matched = exp.Not(this=exp.Is(this=plan.column(partners.RIGHT, value(there)), expression=exp.null()))
            result = exp.Case(ifs=[exp.If(this=matched, true=result)])
    return Subquery(kind, right, compared, conditions, tuple(outer), result)


def lateral(context: Lowering, item: exp.Lateral, frame: From) -> None:
    """Join a query that may speak of the tables before it: by value where it is one aggregate row, else as part of the join."""
    query = item.this.this if isinstance(item.this, exp.Subquery) else None
    if not isinstance(query, exp.Select) or not item.alias:
        raise NotLinear("lateral or generator", item, "LATERAL")
    query = context.original(query)
    assert isinstance(query, exp.Select)
    special = ("group", "having", "distinct", "limit", "offset", "qualify", "laterals")
    if any(query.args.get(part) for part in special):
        raise NotLinear("lateral or generator", item, "LATERAL")
    frame.settle(context)
    if has_aggregate(e.unalias() for e in query.expressions):
        columns = [
            (output_name(e), context.resolve(_one_column(query, e), frame.scope, frame)) for e in query.expressions
        ]
    else:
        inner = From(Scope(context.text, outer=frame.scope))
        lower.fill_from(context, query, inner)
        if query.args.get("where") is not None:
            inner.where += plan.conjuncts(context.resolve(query.args["where"].this, inner.scope, inner))
        columns = lower.outputs_of(context, query, inner)
        if inner.generators or any(e.find(exp.Window) for _, e in columns):
            raise NotLinear("lateral or generator", item, "LATERAL")
        frame.inputs += inner.inputs
        frame.where += inner.where
    renamed = [i.name for i in item.args["alias"].columns] or [name for name, _ in columns]
    shown = tuple((name, expr) for name, (_, expr) in zip(renamed, columns, strict=True))
    frame.scope.add(Source((item.alias.lower(),), shown))


def _one_column(query: exp.Select, column: exp.Expr) -> exp.Subquery:
    """Give a query for one of its columns alone, standing where the query stands."""
    alone = query.copy()
    alone.meta.pop("query", None)
    alone.set("expressions", [column.copy()])
    found = exp.Subquery(this=alone)
    found.parent = query.parent
    return found


def any_in(exprs: list[exp.Expr]) -> bool:
    """Say whether any expression has a placeholder."""
    return any(plan.has_placeholder(e) for e in exprs)


def expand_inside(context: Lowering, frame: From, exprs: list[exp.Expr], groups: list[exp.Expr]) -> list[exp.Expr]:
    """Expand conditions, groups and the arguments of aggregates; give the expressions and then the groups."""
    calls = [call for e in exprs for call in aggregates(e) if any_in([call])]
    expanded = [e.unnest() for e in expand(context, frame, [*calls, *groups])]
    values = dict(zip([*calls, *groups], expanded, strict=True)) if expanded != [*calls, *groups] else {}

    def change(node: exp.Expr) -> exp.Expr:
        return values[node].copy() if node in values else node

    return [e.copy().transform(change) if values else e for e in exprs] + expanded[len(calls) :]


def expand(context: Lowering, frame: From, exprs: list[exp.Expr]) -> list[exp.Expr]:
    """Join the answers of all subqueries in the conditions and in these expressions; give the expressions without them."""
    if not any_in([*frame.where, *exprs]):
        return exprs
    plain = [c for c in frame.where if not plan.has_placeholder(c)]
    asking = [c for c in frame.where if plan.has_placeholder(c)]
    expander = _Expander(context, frame, From(frame.scope, list(frame.inputs), plain, list(frame.generators)))
    frame.where = list(plain)
    for condition in asking:
        expander.condition(condition)
    return [expander.within(e) for e in exprs]


def _is_placeholder(node: exp.Expr) -> bool:
    return isinstance(node, exp.Anonymous) and node.this == plan.PLACEHOLDER


@dataclass
class _Expander:
    """Joins answers to `frame`; `asking` is the frame as it was, whose rows ask."""

    context: Lowering
    frame: From
    asking: From

    def condition(self, condition: exp.Expr) -> None:
        """Add a condition: EXISTS and IN, plain or negated, filter by a join; anything else looks at a value."""
        bare = condition.unnest()
        negated = isinstance(bare, exp.Not)
        call = bare.this.unnest() if negated else bare
        if _is_placeholder(call) and self._of(call).kind != "scalar":
            found = self._of(call)
            if not negated or found.kind == "exists":
                partner = self._ask(call)
                self._join(partner.missing if negated else partner.matched, partner)
            else:
                for partner in self._not_in(call):
                    self._join(partner.missing, partner)
            return
        self.frame.where.append(self.within(condition))

    def within(self, expr: exp.Expr) -> exp.Expr:
        """Put values in the place of the subqueries of an expression."""
        return carried(expr.copy(), self._is_in).transform(self._replaced)

    def _is_in(self, node: exp.Expr) -> bool:
        return _is_placeholder(node) and self._of(node).kind == "in"

    def _replaced(self, node: exp.Expr) -> exp.Expr:
        if isinstance(node, exp.Not) and self._is_in(node.this.unnest()):
            unsure = [self._mark(partner) for partner in self._not_in(node.this.unnest())]
            return exp.Not(this=exp.paren(exp.or_(*unsure)))
        return self._value(node) if _is_placeholder(node) else node

    def _of(self, call: exp.Expr) -> Subquery:
        return self.context.subqueries[int(call.expressions[0].this)]

    def _join(self, answer: object, partner: Partners) -> str:
        assert callable(answer)
        alias = self.context.alias()
        self.frame.inputs.append(Input(alias, answer()))
        self.frame.where += partner.join(alias)
        return alias

    def _value(self, call: exp.Expr) -> exp.Expr:
        found = self._of(call)
        if found.kind == "scalar":
            return exp.paren(self._scalar(call, found))
        return self._mark(self._ask(call))

    def _mark(self, partner: Partners) -> exp.Expr:
        return plan.column(self._join(lambda: partner.marked("_mark"), partner), "_mark")

    def _scalar(self, call: exp.Expr, found: Subquery) -> exp.Expr:
        assert found.value is not None
        if found.single:
            alias = self.context.alias()
            self.frame.inputs.append(Input(alias, found.right))
        else:
            partner = self._ask(call)
            alias = self._join(partner.padded, partner)
        names = {("?right", n): plan.column(alias, n) for n in found.right.names}
        return plan.substitute(found.value, names)

    def _ask(self, call: exp.Expr, extra: tuple[exp.Expr, ...] = (), *, compare: bool = True) -> Partners:
        """Ask for partners of the arguments; `extra` conditions speak of the subquery's own columns."""
        found = self._of(call)
        call = self._settled(call)
        arguments, asking = call.expressions[1:], self.asking
        if not all(plan.aliases(a) <= asking.aliases for a in arguments):
            plain = [c for c in self.frame.where if not plan.has_placeholder(c)]
            asking = From(self.frame.scope, list(self.frame.inputs), plain, list(self.frame.generators))
        compared = arguments[: found.compared]
        values = {("?parameter", str(i)): a for i, a in enumerate(arguments[found.compared :])}
        conditions = [plan.substitute(c, values) for c in found.conditions]
        shown = {p.name: p.expr for p in found.right.projections}
        if compare:
            conditions += [
                exp.EQ(this=exp.paren(a.copy()), expression=shown[f"_o{i}"]) for i, a in enumerate(compared, 1)
            ]
        inside = frozenset(i.alias for i in found.right.inputs) | frozenset(g.alias for g in found.right.generators)
        return joins.ask(self.context, asking, found.right, joins.sort_out([*conditions, *extra], inside))

    def _settled(self, call: exp.Expr) -> exp.Expr:
        """Join the answers of subqueries that stand in a subquery's arguments first."""
        if not any_in(call.expressions):
            return call
        return exp.Anonymous(this=call.this, expressions=[self.within(a) for a in call.expressions])

    def _not_in(self, call: exp.Expr) -> tuple[Partners, Partners, Partners]:
        """Ask what makes NOT IN not true: a partner, a NULL among the values, or a NULL on the left and any value at all."""
        found = self._of(call)
        if found.compared != 1:
            raise NotLinear("subquery in an expression", call)
        call = self._settled(call)
        column = {p.name: p.expr for p in found.right.projections}["_o1"]
        left = call.expressions[1]
        null = exp.Is(this=exp.paren(column.copy()), expression=exp.null())
        lonely = exp.Is(this=exp.paren(left.copy()), expression=exp.null())
        return (
            self._ask(call),
            self._ask(call, (null,), compare=False),
            self._ask(call, (lonely,), compare=False),
        )
