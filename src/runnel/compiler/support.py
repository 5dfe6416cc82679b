"""The support table: what each feature of SQL is maintained by, and why not better. It drives refusals, `explain` and the docs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlglot import exp

from runnel.compiler.functions import (
    AGGREGATES,
    EXTREMA,
    GENERATORS,
    LINEAR_AGGREGATES,
    NON_DETERMINISTIC,
    function_name,
)
from runnel.compiler.unsteady import unsteady, unsteady_words
from runnel.errors import Terminal
from runnel.model import types
from runnel.model.program import Operator, Strategy

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from runnel.compiler.source import SourceText
    from runnel.model.relation import Column, Relation


@dataclass(frozen=True)
class Support:
    """One row of the table."""

    feature: str
    strategy: Strategy
    reason: str = ""
    code: str = ""
    hint: str = ""


_KEYS = "kept with the key values that have a partner and those that have none"
_FORM = "this form of it is not followed"

SUPPORT: tuple[Support, ...] = (
    Support("scan", Strategy.LINEAR),
    Support("filter", Strategy.LINEAR),
    Support("project", Strategy.LINEAR),
    Support("inner join", Strategy.LINEAR),
    Support("union all", Strategy.LINEAR),
    Support("distinct", Strategy.LINEAR, "kept as a count per row", "RUNNEL-FULL-DISTINCT"),
    Support("union", Strategy.LINEAR, "kept as a count per row"),
    Support("aggregate", Strategy.LINEAR, "kept as additive sums per group"),
    Support("having", Strategy.LINEAR, "filters the rows of an aggregate kept beside the view", "RUNNEL-FULL-HAVING"),
    Support("order by", Strategy.LINEAR, "ignored: a view is a bag of rows, order them when reading"),
    Support("constant rows", Strategy.LINEAR, "", "RUNNEL-FULL-VALUES"),
    Support("event view", Strategy.LINEAR, "one row per changed key and epoch; only grows"),
    Support("lateral or generator", Strategy.LINEAR, "rows made from each changed row", "RUNNEL-FULL-LATERAL"),
    Support(
        "grouping sets",
        Strategy.LINEAR,
        "kept as one grouping per set",
        "RUNNEL-FULL-GROUPING-SETS",
        "write one view per grouping and a UNION ALL",
    ),
    Support(
        "outer join", Strategy.KEYS, _KEYS, "RUNNEL-FULL-OUTER-JOIN", "use an inner join where every row has a match"
    ),
    Support("semi or anti join", Strategy.KEYS, _KEYS, "RUNNEL-FULL-SEMI-JOIN", "use an inner join on a key"),
    Support("subquery in an expression", Strategy.KEYS, _KEYS, "RUNNEL-FULL-SUBQUERY", "write it as a join"),
    Support(
        "aggregate over DISTINCT",
        Strategy.KEYS,
        "kept as a count per group and value",
        "RUNNEL-FULL-DISTINCT-AGGREGATE",
    ),
    Support(
        "minimum or maximum",
        Strategy.KEYS,
        "the first values of each group are kept, with some to spare",
        "RUNNEL-FULL-AGGREGATE",
    ),
    Support("aggregate function", Strategy.KEYS, "touched groups are computed again", "RUNNEL-FULL-AGGREGATE"),
    Support("window function", Strategy.KEYS, "touched partitions are computed again", "RUNNEL-FULL-WINDOW"),
    Support(
        "limit",
        Strategy.KEYS,
        "the first rows are kept, with some to spare",
        "RUNNEL-FULL-LIMIT",
        "limit when reading the view",
    ),
    Support("except or intersect", Strategy.KEYS, "kept as counts per row", "RUNNEL-FULL-EXCEPT"),
    Support(
        "pivot",
        Strategy.LINEAR,
        "kept as one filtered aggregate per value",
        "RUNNEL-FULL-PIVOT",
        "write SUM(CASE WHEN ... END)",
    ),
    Support("recursive query", Strategy.FULL, "not yet followed", "RUNNEL-FULL-RECURSIVE"),
    Support(
        "window over all rows",
        Strategy.FULL,
        "a window without PARTITION BY depends on every row",
        "RUNNEL-FULL-WINDOW-ALL",
        "add PARTITION BY, or order and limit instead",
    ),
    Support(
        "aggregate of this type",
        Strategy.FULL,
        "its sums cannot be kept exactly for this argument type",
        "RUNNEL-FULL-AGGREGATE-TYPE",
        "CAST the argument to a narrower DECIMAL",
    ),
    Support("unknown form", Strategy.FULL, _FORM, "RUNNEL-FULL-FORM", "write it in another way"),
    Support(
        "size",
        Strategy.FULL,
        "following every one of so many tables would take too long to compile; up to 60 are",
        "RUNNEL-FULL-SIZE",
        "make views of its parts",
    ),
    Support(
        "type changed by rewriting",
        Strategy.FULL,
        "the program would give another type than the query",
        "RUNNEL-FULL-TYPES",
        "CAST the column",
    ),
    Support("forced", Strategy.FULL, "mode = full", "RUNNEL-FULL-FORCED"),
    Support(
        "non-deterministic function",
        Strategy.REFUSED,
        "its value changes although no row does",
        "RUNNEL-VIEW-REFUSED",
        "use a column of a table instead",
    ),
    Support(
        "table sample",
        Strategy.REFUSED,
        "its rows change although no table does",
        "RUNNEL-VIEW-REFUSED",
        "filter by a hash of a column instead",
    ),
)
BY_FEATURE = {row.feature: row for row in SUPPORT}

ABOUT: dict[str, str] = {
    "scan": "a table or another view, with or without a key, to any depth",
    "filter": "`WHERE` with any deterministic condition",
    "project": "expressions, structs, arrays, maps, JSON functions",
    "inner join": "`JOIN`, `CROSS JOIN`, `USING`, `NATURAL`, commas; any condition",
    "union all": "`UNION ALL`",
    "distinct": "`SELECT DISTINCT`",
    "union": "`UNION`",
    "aggregate": "`sum`, `count`, `count_if`, `avg`, `stddev`, `variance` and their kin, `FILTER`, `GROUP BY` or none",
    "having": "`HAVING`, and expressions over aggregates such as `CASE WHEN count(*) > 1 THEN sum(x) END`",
    "order by": "`ORDER BY` without `LIMIT`",
    "constant rows": "`VALUES`, `SELECT` without `FROM`",
    "event view": "`CHANGES(t)`, see [event views](events.md)",
    "lateral or generator": "`LATERAL (SELECT ...)`, `LATERAL VIEW`, `explode`, `posexplode`, `inline`, `stack`, of arrays and maps",
    "grouping sets": "`GROUPING SETS`, `ROLLUP`, `CUBE`, `grouping()`, `grouping_id()`",
    "outer join": "`LEFT`, `RIGHT`, `FULL JOIN`; any condition",
    "semi or anti join": "`LEFT SEMI JOIN`, `LEFT ANTI JOIN`; any condition",
    "subquery in an expression": "`EXISTS`, `IN`, `NOT IN` (with its rules for NULL), scalar subqueries; correlated or not",
    "aggregate over DISTINCT": "`count(DISTINCT a, b)`, `sum(DISTINCT x)`, `avg(DISTINCT x)`",
    "minimum or maximum": "`min`, `max`, `min_by`, `max_by`, `bool_and`, `bool_or`, `every`, `some`",
    "aggregate function": (
        "`percentile`, `median`, `mode`, `collect_list`, `collect_set`, `any_value`, `first`, `bit_and`, `corr`, "
        "`approx_count_distinct` and every other aggregate of Spark"
    ),
    "window function": (
        "`OVER (PARTITION BY ...)`: ranks, offsets, running and framed aggregates; `QUALIFY`; "
        "without `PARTITION BY` over the rows of an aggregate, or where only small ranks are asked for (`rank <= 10`)"
    ),
    "limit": "`ORDER BY ... LIMIT n OFFSET m`, of the view or inside it",
    "except or intersect": "`EXCEPT`, `MINUS`, `INTERSECT`, each with `ALL`",
    "pivot": "`PIVOT (... FOR c IN (...))`",
    "recursive query": "`WITH RECURSIVE`",
    "window over all rows": "`OVER (ORDER BY ...)` and `OVER ()` over the rows of a table or a join",
    "aggregate of this type": "a sum that no exact sum can stand for; such sums are computed group by group before it comes to this",
    "unknown form": "anything the compiler does not read, such as `UNION BY NAME`, while Spark does",
    "size": "more than 60 tables in one view, a CTE's once for each use of the CTE, those of outer joins twice",
    "type changed by rewriting": "a guard: the program's types are compared with the query's own",
    "forced": "`TBLPROPERTIES ('mode' = 'full')`",
    "non-deterministic function": (
        "`rand`, `uuid`, `current_timestamp`, `current_date`, `now`, `current_user` and their kin; `DATE 'today'` and other texts that "
        "Spark takes for a moment; `aes_encrypt` without a vector of its own"
    ),
    "table sample": "`TABLESAMPLE`",
}
"""What each row of the table covers, for the page of reference."""


@dataclass(frozen=True)
class Finding:
    """A feature met in a query, what it was called there, and where."""

    support: Support
    node: exp.Expr
    what: str

    @property
    def operator(self) -> Operator:
        """The line `explain` prints."""
        full = self.support.strategy is Strategy.FULL
        return Operator(self.what, self.support.strategy, self.support.reason, self.support.code if full else "")


class NotLinear(Exception):
    """Raised while lowering when a form of a feature cannot be followed."""

    def __init__(self, feature: str, node: exp.Expr, what: str = "") -> None:
        """Name the feature by its row of the table."""
        super().__init__(feature)
        row = BY_FEATURE[feature]
        if row.strategy is not Strategy.FULL:
            row = Support(row.feature, Strategy.FULL, _FORM, row.code or BY_FEATURE["unknown form"].code, row.hint)
        self.finding = Finding(row, node, what or feature)


def check_keys(keys: Iterable[Column]) -> None:
    """Raise where groups would be found by a key that holds a map: Spark groups by maps, but compares none."""
    for key in keys:
        if types.holds_map(key.type):
            raise NotLinear("unknown form", exp.Null(), f"a grouping by a {key.type.name} that is, or holds, a map")


def findings(tree: exp.Expr) -> list[Finding]:
    """List the features of a query, in the order of the text as far as it is known."""
    found = [finding for node in tree.walk() for finding in _features(node)]
    seen: dict[tuple[str, str], Finding] = {}
    for finding in found:
        seen.setdefault((finding.support.feature, finding.what), finding)
    return list(seen.values())


def unsteady_findings(tree: exp.Expr, relations: Mapping[str, Relation]) -> list[Finding]:
    """List what changes although no row does and that no function's name shows."""
    return [Finding(BY_FEATURE["non-deterministic function"], node, what) for node, what in unsteady(tree, relations)]


def refuse_unread(text: SourceText) -> None:
    """Raise for what changes although no row does in a text that only Spark reads."""
    words = list(unsteady_words(text.sql))
    refuse([Finding(BY_FEATURE["non-deterministic function"], exp.Select(), word) for word in words], text)


def refuse(found: list[Finding], text: SourceText) -> None:
    """Raise for what can be neither followed nor recomputed."""
    for finding in found:
        if finding.support.strategy is Strategy.REFUSED:
            raise Terminal(
                finding.support.code,
                f"{finding.what} cannot stand in a view: {finding.support.reason}",
                place=text.place_of(finding.node),
                hint=finding.support.hint,
            )


def not_incremental(finding: Finding, text: SourceText) -> Terminal:
    """Make the error for a view that must be incremental and cannot be."""
    return Terminal(
        "RUNNEL-VIEW-NOT-INCREMENTAL",
        f"{finding.what} is not incremental: {finding.support.reason} [{finding.support.code}]",
        place=text.place_of(finding.node),
        hint=finding.support.hint or "leave out mode = incremental, and the view is recomputed",
    )


def _features(node: exp.Expr) -> Iterator[Finding]:
    feature = _plain_feature(node)
    if feature is not None:
        yield Finding(BY_FEATURE[feature], node, _describe(feature, node))
    # `any(b)` is an aggregate, `x LIKE ANY (...)` a comparison.
    aggregate_any = isinstance(node, exp.Any) and not isinstance(node.parent, (exp.Predicate, exp.Binary))
    if isinstance(node, exp.Func) or aggregate_any:
        yield from _function(node)


def _describe(feature: str, node: exp.Expr) -> str:
    match node:
        case exp.Join() if feature != "inner join":
            return f"{' '.join(p for p in (node.side, node.kind) if p)} JOIN".replace("OUTER JOIN", "JOIN")
        case exp.Table() | exp.Exists() | exp.SetOperation() if feature not in ("scan", "table sample"):
            return feature
        case exp.Table():
            return f"{feature} {node.name}"
    return feature


def _plain_feature(node: exp.Expr) -> str | None:
    """Name the feature a node of the tree stands for; None for what is part of an expression or of another feature."""
    match node:
        case exp.Join():
            return _join_feature(node)
        case exp.Window() | exp.Qualify():
            return "window function"
        case exp.Limit() | exp.Fetch() | exp.Offset():
            return "limit"
        case exp.Except() | exp.Intersect():
            return "except or intersect"
        case exp.Union():
            return "union" if node.args.get("distinct") else "union all"
        case exp.Lateral() | exp.Unnest():
            return "lateral or generator"
        case exp.Pivot():
            return "pivot"
        case exp.TableSample():
            return "table sample"
        case exp.Values():
            return "constant rows"
        case exp.With() if node.args.get("recursive"):
            return "recursive query"
        case exp.GroupingSets() | exp.Cube() | exp.Rollup():
            return "grouping sets"
        case exp.Group():
            return "grouping sets" if any(node.args.get(k) for k in ("cube", "rollup", "grouping_sets")) else None
        case exp.Where() if isinstance(node.parent, exp.Select):
            return "filter"
        case exp.Having():
            return "having"
        case exp.Order() if isinstance(node.parent, exp.Query):
            return "order by"
        case exp.Select():
            return None if node.args.get("from_") is not None else "constant rows"
        case exp.Distinct() if isinstance(node.parent, exp.Select):
            return "distinct"
        case exp.Table():
            return _table_feature(node)
    return _subquery_feature(node)


def _subquery_feature(node: exp.Expr) -> str | None:
    is_query = isinstance(node, exp.Exists) or (isinstance(node, exp.In) and node.args.get("query") is not None)
    scalar = (
        isinstance(node, exp.Subquery)
        and not isinstance(node.parent, (exp.From, exp.Join, exp.SetOperation, exp.Subquery, exp.CTE, exp.In))
        and node.parent is not None
    )
    return "subquery in an expression" if is_query or scalar else None


def _join_feature(node: exp.Join) -> str:
    if node.kind in ("SEMI", "ANTI"):
        return "semi or anti join"
    if node.side or node.kind == "OUTER":
        return "outer join"
    return "inner join"


def _table_feature(node: exp.Table) -> str | None:
    if isinstance(node.this, exp.Identifier):
        return None
    return "event view" if node.this.name.upper() == "CHANGES" else "lateral or generator"


def _function(node: exp.Expr) -> Iterator[Finding]:
    name = function_name(node)
    if name in NON_DETERMINISTIC:
        yield Finding(BY_FEATURE["non-deterministic function"], node, f"{name}()")
    elif name in LINEAR_AGGREGATES:
        if isinstance(node.parent, exp.Window):
            return
        distinct = isinstance(node.this, exp.Distinct)
        feature = "aggregate over DISTINCT" if distinct else "aggregate"
        yield Finding(BY_FEATURE[feature], node, f"{name.upper()}{' DISTINCT' if distinct else ''}")
    elif isinstance(node.parent, (exp.Window, exp.IgnoreNulls)):
        return
    elif name in EXTREMA or name in ("max_by", "min_by"):
        yield Finding(BY_FEATURE["minimum or maximum"], node, name.upper())
    elif name in ("grouping", "grouping_id"):
        return
    elif isinstance(node, exp.AggFunc) or name in AGGREGATES:
        yield Finding(BY_FEATURE["aggregate function"], node, name.upper())
    elif isinstance(node, exp.Explode) or name in GENERATORS:
        yield Finding(BY_FEATURE["lateral or generator"], node, name.upper())
