"""GROUPING SETS, ROLLUP and CUBE: a union of one grouping per set, with NULLs for what a set does not group by."""

from __future__ import annotations

from itertools import combinations, product
from typing import TYPE_CHECKING

from sqlglot import exp

from runnel.compiler.aggregates import kept
from runnel.compiler.grouping import Grouping, key, ordinal, value
from runnel.compiler.plan import Projection, Spj
from runnel.compiler.spark import DIALECT
from runnel.compiler.support import NotLinear

if TYPE_CHECKING:
    from collections.abc import Callable

    from runnel.compiler.joins import From
    from runnel.compiler.lower import Lowering, Output
    from runnel.compiler.plan import Node

Sets = list[list[exp.Expr]]
_FORMS = (exp.Cube, exp.Rollup, exp.GroupingSets)


def grouping_sets(
    context: Lowering, group: exp.Group | None, frame: From, outputs: list[Output]
) -> tuple[Sets, list[exp.Expr]] | None:
    """Give the sets a GROUP BY names and all they group by, as expressions over the plan; None where it is a plain one.

    What is grouped by comes in the order of the text, item by item: `grouping_id()` counts its bits in that order.
    """
    if group is None:
        return None
    special = [k for k in ("cube", "rollup", "grouping_sets") if group.args.get(k)]
    if not special and not any(isinstance(e, _FORMS) for e in group.expressions):
        return None

    def resolve(item: exp.Expr) -> exp.Expr:
        bare = item.unnest()
        return (ordinal(bare, outputs, frame.scope) or context.resolve(bare, frame.scope, frame)).unnest()

    items = [*group.expressions, *_args(group, special)]
    plain = [e for e in items if not isinstance(e, _FORMS)]
    if group.args.get("grouping_sets") and plain:  # GROUP BY a, b GROUPING SETS (...): all columns first, then the sets
        if _counts_all(group):
            raise NotLinear("grouping sets", group, "grouping_id() beside GROUP BY ... GROUPING SETS")
        items = [e for e in items if isinstance(e, _FORMS)]
    elif any(isinstance(e, _FORMS) and not e.expressions for e in items):  # GROUP BY a, b WITH ROLLUP
        items = [e for e in items if isinstance(e, _FORMS)]
    parts = [_part(item, plain, resolve) for item in items]
    groups = [e for part in parts for e in dict.fromkeys(e for chosen in part for e in chosen)]
    if len(set(groups)) < len(groups) and _counts_all(group):
        raise NotLinear("grouping sets", group, "grouping_id() beside a column that is grouped by twice")
    return [[e for part in chosen for e in part] for chosen in product(*parts)], list(dict.fromkeys(groups))


def _part(item: exp.Expr, plain: list[exp.Expr], resolve: Callable[[exp.Expr], exp.Expr]) -> Sets:
    if not isinstance(item, _FORMS):
        return [[resolve(item)]]
    if not item.expressions:
        return _of(item, [[resolve(e)] for e in plain])
    return _of(item, [[resolve(e) for e in _members(one)] for one in item.expressions], item)


def _counts_all(group: exp.Group) -> bool:
    """Say whether a query asks for `grouping_id()` of all that is grouped by."""
    return group.parent is not None and any(not g.expressions for g in group.parent.find_all(exp.GroupingId))


def _args(group: exp.Group, special: list[str]) -> list[exp.Expr]:
    return [node for name in special for node in group.args[name] if isinstance(node, exp.Expr)]


def _members(item: exp.Expr) -> list[exp.Expr]:
    return item.expressions if isinstance(item, exp.Tuple) else [item]


def _of(form: exp.Expr, items: list[list[exp.Expr]], nested: exp.Expr | None = None) -> Sets:
    if nested is not None and any(isinstance(i, _FORMS) for i in nested.expressions):
        raise NotLinear("grouping sets", form, "grouping sets inside grouping sets")
    if isinstance(form, exp.GroupingSets):
        return items
    if isinstance(form, exp.Rollup):
        return [[e for item in items[:n] for e in item] for n in range(len(items), -1, -1)]
    return [
        [e for item in chosen for e in item] for n in range(len(items), -1, -1) for chosen in combinations(items, n)
    ]


def replace_grouping(expr: exp.Expr, groups: list[exp.Expr]) -> exp.Expr:
    """Put calls that say which set a row belongs to in a form that passes for a constant until the sets are known."""

    def change(node: exp.Expr) -> exp.Expr:
        if isinstance(node, exp.Grouping):
            return _bits(node, node.expressions, groups, "tinyint")
        if isinstance(node, exp.GroupingId):
            return _bits(node, node.expressions or groups, groups, "bigint")
        return node

    return expr.copy().transform(change)


def _bits(node: exp.Expr, of: list[exp.Expr], groups: list[exp.Expr], type_: str) -> exp.Expr:
    bare = [e.unnest() for e in of]
    if any(e not in groups for e in bare):
        raise NotLinear("grouping sets", node)
    numbers = [exp.Literal.number(groups.index(e)) for e in bare]
    return exp.Anonymous(this="#grouping", expressions=[exp.Literal.string(type_), *numbers])


def kept_sets(context: Lowering, source: Spj, grouping: Grouping, sets: Sets | None) -> tuple[Node, list[exp.Expr]]:
    """Keep the groups and aggregates alone, as `_key_i`, `_value_i`; give what stands above them over those names."""
    above = [*(e for _, e in grouping.outputs), *grouping.having]
    raw: list[Output] = [(key(i), _named(key(i))) for i in range(len(grouping.groups))]
    raw += [(value(i), _named(value(i))) for i in range(len(grouping.calls))]
    if sets is None:
        return context.as_node(kept(context, source, Grouping(grouping.groups, grouping.calls, tuple(raw)))), above
    nulls = _nulls(context, source, grouping.groups)
    node: Node | None = None
    for number, chosen in enumerate(sets):
        branch = _branch(context, source, grouping, chosen, number, nulls)
        node = branch if node is None else context.same_types(node, branch)
    assert node is not None
    return node, [_resolved_bits(e) for e in above]


def _nulls(context: Lowering, source: Spj, groups: tuple[exp.Expr, ...]) -> list[exp.Expr]:
    projections = tuple(Projection(key(i), e) for i, e in enumerate(groups))
    if not projections:
        return []
    typed = context.typed(Spj(source.inputs, (), projections, 1, source.generators))
    return [exp.cast(exp.null(), str(c.type), dialect=DIALECT) for c in typed]


def _branch(
    context: Lowering, source: Spj, grouping: Grouping, chosen: list[exp.Expr], number: int, nulls: list[exp.Expr]
) -> Node:
    mine = list(dict.fromkeys(e.unnest() for e in chosen))
    # Grouped by a constant too, because a set without groups has no row over nothing.
    marker = exp.cast(exp.Literal.number(1_000_003 + number), "bigint")
    outputs: list[Output] = []
    for i, group in enumerate(grouping.groups):
        expr = _named(key(mine.index(group))) if group in mine else nulls[i].copy()
        outputs.append((key(i), expr))
    absent = [exp.Literal.number(0 if g in mine else 1) for g in grouping.groups]
    outputs += [(f"_absent_{i}", exp.cast(bit, "bigint")) for i, bit in enumerate(absent)]
    outputs += [(value(i), _named(value(i))) for i in range(len(grouping.calls))]
    return context.as_node(kept(context, source, Grouping((*mine, marker), grouping.calls, tuple(outputs))))


def _resolved_bits(expr: exp.Expr) -> exp.Expr:
    def change(node: exp.Expr) -> exp.Expr:
        if not (isinstance(node, exp.Anonymous) and node.this == "#grouping"):
            return node
        type_, *numbers = node.expressions
        total: exp.Expr = exp.Literal.number(0)
        for number in numbers:
            doubled = exp.Mul(this=exp.paren(total), expression=exp.Literal.number(2))
            total = exp.Add(this=doubled, expression=_named(f"_absent_{number.this}"))
        return exp.cast(exp.paren(total), type_.this, dialect=DIALECT)

    return expr.copy().transform(change)


def _named(name: str) -> exp.Column:
    return exp.column(exp.to_identifier(name, quoted=True))
