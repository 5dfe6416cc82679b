"""Rewrites Spark's SQL as DuckDB's: sqlglot does the most, the rest is listed here."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from runnel.compiler.negation import carried
from runnel.compiler.spark import TRANSLATABLE
from runnel.engine.generators import GENERATING, rewrite_generators
from runnel.errors import Terminal

if TYPE_CHECKING:
    from collections.abc import Callable


@functools.lru_cache(maxsize=2048)
def to_duckdb(sql: str) -> str:
    """Give a Spark query in DuckDB's dialect."""
    try:
        parsed = sqlglot.parse_one(sql, dialect=TRANSLATABLE)
    except SqlglotError as error:
        raise Terminal("RUNNEL-ENGINE-SQL", f"the query cannot be read: {str(error).splitlines()[0]}") from error
    # Going through a large text takes as long as reading it, so what is seldom there is looked for once.
    found = {type(node) for node in parsed.walk()}
    tree = carried(parsed, _is_in) if exp.In in found else parsed
    # Children first: what stands inside a rewritten node must be rewritten too.
    for node in reversed(list(tree.walk())):
        rewritten = _rewritten(node)
        if rewritten is not node:
            node.replace(rewritten)
    if found & {exp.ArrayAgg, exp.ArrayUniqueAgg}:
        _lists_of_nothing(tree)
    if any(issubclass(kind, GENERATING) for kind in found):
        rewrite_generators(tree)
    return tree.sql(dialect="duckdb", comments=False, copy=False)


def _rewritten(node: exp.Expr) -> exp.Expr:
    match node:
        case exp.TryCast() if not node.args.get("safe"):
            # Spark's CAST raises on what it cannot convert; sqlglot takes it for the older, lenient one.
            return exp.Cast(this=node.this, to=node.to)
        case exp.Select():
            _reselect(node)
        case exp.Group():
            _regroup(node)
        case exp.In() if _is_in(node) and not isinstance(_outside(node), exp.Not):
            return exp.Coalesce(this=node.copy(), expressions=[exp.false()])
        case exp.Not() if _is_in(node.this.unnest()):
            return exp.Coalesce(this=node.copy(), expressions=[exp.false()])
        case exp.Div():
            node.args["safe"] = False
        case exp.IntDiv():
            return _whole_quotient(node.this, node.expression)
        case exp.TsOrDsAdd():
            # A date plus days is a date, not a timestamp.
            return exp.Cast(this=node.copy(), to=exp.DataType.build("date"))
        case exp.Anonymous():
            rename = _FUNCTIONS.get(str(node.this).lower())
            return rename(node.expressions) if rename else node
        case exp.Func():
            return _function(node)
        case exp.Any() if not isinstance(node.parent, (exp.Predicate, exp.Binary)):
            return exp.LogicalOr(this=node.this)
    return node


def _lists_of_nothing(tree: exp.Expr) -> None:
    """Make lists of no rows empty, as Spark has them: DuckDB's are NULL."""
    for node in list(tree.find_all(exp.ArrayAgg, exp.ArrayUniqueAgg)):
        whole: exp.Expr = node
        while isinstance(whole.parent, (exp.Filter, exp.Window, exp.WithinGroup)) and whole.parent.this is whole:
            whole = whole.parent
        whole.replace(exp.Coalesce(this=whole.copy(), expressions=[exp.Array(expressions=[])]))


def _is_in(node: exp.Expr) -> bool:
    return isinstance(node, exp.In) and node.args.get("query") is not None


def _outside(node: exp.Expr) -> exp.Expr | None:
    parent = node.parent
    while isinstance(parent, exp.Paren):
        parent = parent.parent
    return parent


def _function(node: exp.Expr) -> exp.Expr:
    match node:
        case exp.Count() if isinstance(node.find_ancestor(exp.Pivot, exp.Select), exp.Pivot):
            return _pivoted_count(node.this)
        case exp.Count() if node.expressions:
            return _count([node.this, *node.expressions])
        case exp.CountIf():
            # DuckDB's own gives NULL over no rows.
            return exp.Count(this=exp.Case(ifs=[exp.If(this=node.this, true=exp.Literal.number(1))]))
        case exp.ApproxQuantile():
            return _call("quantile_disc", node.this, node.args["quantile"])
        case exp.Quantile():
            return _call("quantile_cont", _double(node.this), node.args["quantile"])
        case exp.Median():
            return _call("quantile_cont", _double(node.this), exp.Literal.number("0.5"))
        case exp.ArgMax() | exp.ArgMin():
            # Those without `_null` pass over rows whose result would be NULL; Spark does not.
            name = "arg_max_null" if isinstance(node, exp.ArgMax) else "arg_min_null"
            return _call(name, node.this, node.expression)
        case exp.AnyValue() if isinstance(node.parent, (exp.Window, exp.Filter)):
            return exp.First(this=node.this)
        case exp.AnyValue():
            # Its own makes 0.0 of a -0.0 inside a list or a struct.
            return _call("list_extract", _call("list", node.this), exp.Literal.number(1))
        case exp.FirstValue() | exp.LastValue() if not isinstance(
            node.find_ancestor(exp.Window, exp.Select), exp.Window
        ):
            return (exp.First if isinstance(node, exp.FirstValue) else exp.Last)(this=node.this)
        case exp.GroupingId() | exp.Grouping() if not node.expressions:
            return _grouping_id(node)
        case exp.GroupingId():
            return _call("grouping", *node.expressions)
        case exp.ArraySize() if isinstance(node.this, (exp.Map, exp.VarMap, exp.ToMap)):
            return exp.cast(_call("cardinality", node.this), "bigint")
        case exp.Exists() if isinstance(node.args.get("expression"), exp.Lambda):
            kept = exp.ArrayFilter(this=node.this.copy(), expression=node.args["expression"].copy())
            return exp.paren(exp.GT(this=_call("len", kept), expression=exp.Literal.number(0)))
        case exp.DateTrunc() | exp.TimestampTrunc():
            node.set("unit", exp.Literal.string(_UNITS.get(_unit(node), _unit(node))))
            return exp.cast(node.copy(), "date") if isinstance(node, exp.DateTrunc) else node
        case exp.DateDiff() if _unit(node) in ("", "DAY"):
            # Written here because sqlglot's own way spoils a node that it writes twice, as in a count of two columns.
            return exp.paren(exp.Sub(this=node.this.copy(), expression=node.expression.copy()))
        case exp.ConcatWs():
            return _joined(node)
        case exp.MapContainsKey():
            return _call("list_contains", _call("map_keys", node.this), node.args["key"])
        case exp.StrToUnix() if "strict" in node.args["format"].name:
            return exp.cast(_call("epoch", exp.cast(node.this.copy(), "timestamptz", dialect="duckdb")), "bigint")
    return node


_UNITS = {"MM": "MONTH", "MON": "MONTH", "YY": "YEAR", "YYYY": "YEAR", "DD": "DAY"}


def _unit(node: exp.Expr) -> str:
    unit = node.args.get("unit")
    return str(unit.name).upper() if isinstance(unit, exp.Expr) else ""


def _call(name: str, *arguments: exp.Expr) -> exp.Expr:
    return exp.Anonymous(this=name, expressions=[argument.copy() for argument in arguments])


def _double(argument: exp.Expr) -> exp.Expr:
    """Interpolated percentiles are doubles in Spark, whatever goes in."""
    if isinstance(argument, exp.Distinct):
        return exp.Distinct(expressions=[_double(argument.expressions[0])])
    return exp.cast(argument.copy(), "double")


def _joined(node: exp.ConcatWs) -> exp.Expr:
    """Spark joins the elements of arrays too; DuckDB writes an array as one text."""
    separator, *parts = node.expressions
    texts = [_text(part, separator) for part in parts]
    joined = node.copy()
    joined.set("expressions", [separator.copy(), *(text.copy() for text in texts)])
    return joined


def _text(part: exp.Expr, separator: exp.Expr) -> exp.Expr:
    """Give one text of what is joined. What kind of value it has is not known here, but its JSON says."""
    if part.find(exp.ArrayAgg, exp.ArrayUniqueAgg, exp.Array):
        return exp.ArrayToString(this=part.copy(), expression=separator.copy())
    if isinstance(part, exp.Literal):
        return part
    json = _call("to_json", part)
    elements = _call("json_extract_string", json, exp.Literal.string("$[*]"))
    joined = exp.ArrayToString(this=elements, expression=separator.copy())
    is_array = exp.EQ(this=_call("json_type", json), expression=exp.Literal.string("ARRAY"))
    return exp.Case(ifs=[exp.If(this=is_array, true=joined)], default=exp.cast(part.copy(), "string"))


def _reselect(select: exp.Select) -> None:
    """Drop hints; groupings of no rows have no rows in Spark, not even that of everything."""
    if select.args.get("hint") is not None:
        select.set("hint", None)
    group = select.args.get("group")
    if group is not None and group.find(exp.GroupingSets, exp.Cube, exp.Rollup):
        some = exp.GT(this=exp.Count(this=exp.Star()), expression=exp.Literal.number(0))
        having = select.args.get("having")
        select.set("having", exp.Having(this=exp.and_(some, having.this.copy()) if having else some))


def _regroup(group: exp.Group) -> None:
    """`GROUP BY a, b WITH ROLLUP` and `GROUP BY a, b GROUPING SETS (...)` name their columns before the sets."""
    for kind, make in (("rollup", exp.Rollup), ("cube", exp.Cube)):
        found = group.args.get(kind)
        if found and not found[0].expressions:
            group.set(kind, [])
            group.set("expressions", [make(expressions=[e.copy() for e in group.expressions])])
    if group.args.get("grouping_sets") and group.expressions:
        group.set("expressions", [])


def _grouping_id(node: exp.Expr) -> exp.Expr:
    """`grouping_id()` speaks of all the columns that are grouped by, in their order."""
    select = node.find_ancestor(exp.Select)
    group = select.args.get("group") if select is not None else None
    if group is None:
        return exp.Literal.number(0)
    found: dict[str, exp.Expr] = {}
    for column in _grouped(group):
        # However it is spelled, a column is one.
        found.setdefault(column.sql(dialect=TRANSLATABLE).replace("`", "").lower(), column)
    return _call("grouping", *found.values())


def _grouped(group: exp.Group) -> list[exp.Expr]:
    if group.args.get("grouping_sets") and group.expressions:
        return list(group.expressions)
    parts = list(group.expressions)
    for kind in ("grouping_sets", "cube", "rollup"):
        parts += group.args.get(kind) or []
    return [column for part in parts for column in _columns(part)]


def _columns(part: exp.Expr) -> list[exp.Expr]:
    match part:
        case exp.Paren():
            return _columns(part.this)
        case exp.Tuple() | exp.GroupingSets() | exp.Cube() | exp.Rollup():
            return [column for inner in part.expressions for column in _columns(inner)]
    return [part]


def _count(arguments: list[exp.Expr]) -> exp.Expr:
    """DuckDB counts one argument only: count the rows in which none is NULL."""
    there = [exp.Not(this=exp.Is(this=exp.paren(a.copy()), expression=exp.Null())) for a in arguments]
    return exp.Count(this=exp.Case(ifs=[exp.If(this=exp.and_(*there), true=exp.Literal.number(1))]))


def _pivoted_count(argument: exp.Expr) -> exp.Expr:
    """Count in a PIVOT: where there are no rows to count Spark gives NULL."""
    if isinstance(argument, (exp.Star, exp.Distinct)):
        return (
            exp.Sum(this=exp.Literal.number(1)) if isinstance(argument, exp.Star) else exp.Count(this=argument.copy())
        )
    there = exp.Is(this=exp.paren(argument.copy()), expression=exp.Null())
    one = exp.If(this=there, true=exp.Literal.number(0))
    return exp.Sum(this=exp.Case(ifs=[one], default=exp.Literal.number(1)))


def _whole_quotient(dividend: exp.Expr, divisor: exp.Expr) -> exp.Expr:
    """DuckDB has no integer division of decimals: take the remainder off first, then the division is exact."""
    rest = exp.Mod(this=exp.paren(dividend.copy()), expression=exp.paren(divisor.copy()))
    whole = exp.paren(exp.Sub(this=exp.paren(dividend.copy()), expression=exp.paren(rest)))
    return exp.Cast(this=exp.Div(this=whole, expression=exp.paren(divisor.copy())), to=exp.DataType.build("bigint"))


def _hashed(arguments: list[exp.Expr]) -> exp.Expr:
    """Not Spark's hash, but one: 63 bits, so that it fits a BIGINT."""
    half = exp.BitwiseRightShift(this=_call("hash", _call("row", *arguments)), expression=exp.Literal.number(1))
    return exp.cast(exp.paren(half), "bigint")


def _positive_rest(arguments: list[exp.Expr]) -> exp.Expr:
    dividend, divisor = (exp.paren(argument.copy()) for argument in arguments)
    rest = exp.paren(exp.Mod(this=dividend, expression=divisor))
    return exp.Mod(this=exp.paren(exp.Add(this=rest, expression=divisor.copy())), expression=divisor.copy())


_FUNCTIONS: dict[str, Callable[[list[exp.Expr]], exp.Expr]] = {
    "std": lambda a: exp.Stddev(this=a[0]),
    "every": lambda a: exp.LogicalAnd(this=a[0]),
    "some": lambda a: exp.LogicalOr(this=a[0]),
    "any": lambda a: exp.LogicalOr(this=a[0]),
    "mean": lambda a: exp.Avg(this=a[0]),
    "isnull": lambda a: exp.paren(exp.Is(this=exp.paren(a[0].copy()), expression=exp.Null())),
    "isnotnull": lambda a: exp.Not(this=exp.paren(exp.Is(this=exp.paren(a[0].copy()), expression=exp.Null()))),
    "raise_error": lambda a: _call("error", a[0]),
    "cardinality": lambda a: _call("len", a[0]),
    "get": lambda a: _call(
        "list_extract", a[0], exp.Add(this=exp.paren(a[1].copy()), expression=exp.Literal.number(1))
    ),
    "array_union": lambda a: _call("list_distinct", _call("list_concat", *a)),
    "arrays_overlap": lambda a: _call("list_has_any", *a),
    "array_repeat": lambda a: _call("list_resize", exp.Array(expressions=[a[0].copy()]), a[1], a[0]),
    "hash": _hashed,
    "xxhash64": _hashed,
    "pmod": _positive_rest,
    "positive": lambda a: a[0].copy(),
    "bround": lambda a: _call("round_even", a[0], a[1] if len(a) > 1 else exp.Literal.number(0)),
    "grouping": lambda a: _call("grouping", *a),
}
