"""What Spark and DuckDB mean alike: decides whether a query may run in the driver instead of as a Spark job.

A list of what is allowed, with the types it is allowed for; everything else is Spark's. On this list both give the same
values, or one of them an error; and after an error Spark runs the query, so its word counts. Arithmetic is exact (integers
and decimals that keep their scale; divisions of decimals are written anew, see `quotients`); strings are compared byte by byte;
there is no floating-point arithmetic but the ratio of two integers, no function of text or time but the few below.
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from runnel.compiler.spark import DIALECT
from runnel.engine import quotients
from runnel.engine.quotients import DOUBLE, KEPT_SCALE, WIDEST
from runnel.errors import RunnelError
from runnel.model import types
from runnel.model.negative import MOST_DIGITS_NEGATED, negative
from runnel.model.types import Decimal, Type

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from runnel.model.relation import Column

    Written = list[tuple[exp.Expr, Callable[[], exp.Expr]]]

Shape = tuple[tuple[str, Type], ...]

NULL = Type("null")
BOOLEAN, STRING, DATE = Type("boolean"), Type("string"), Type("date")
INT, BIGINT = Type("int"), types.BIGINT
DIGITS = {"tinyint": 3, "smallint": 5, "int": 10, "bigint": 20}
PLAIN = {"boolean", "string", "date", "timestamp", "timestamp_ntz", "null", *DIGITS}
CARRIED = {"float", "double", "binary"}
"""Types whose values may be handed on, but neither compared nor computed with."""
_COMPARISONS = (exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.NullSafeEQ, exp.NullSafeNEQ)
_JOINS = {"", "INNER", "CROSS", "SEMI", "ANTI", "OUTER"}
_ISO_DATE = re.compile(r"\d{4}-\d\d-\d\d")
_RANKS = {"row_number", "rank", "dense_rank"}


MOST_TERMS = 2_000
"""Operators of a text that DuckDB is given."""


class _Uncommon(Exception):
    """Something the two engines may see differently."""


@dataclass(frozen=True)
class _AtMost(Decimal):
    """A decimal that is at most so wide in Spark: DuckDB has more room here, and that is assumed."""


def shape(columns: Iterable[Column]) -> Shape:
    """Give the names and types of an input's columns."""
    return tuple((column.name, column.type) for column in columns)


@functools.lru_cache(maxsize=4096)
def common(sql: str, inputs: tuple[tuple[str, Shape], ...]) -> str | None:
    """Give a query over inputs of these columns so that DuckDB gives the rows that Spark does; None where that is not certain."""
    if sum(map(sql.count, (" AND ", " OR ", " || "))) > MOST_TERMS:
        return None  # DuckDB goes through chains of operators step by step on its stack
    query = _Query(dict(inputs))
    try:
        tree = sqlglot.parse_one(sql, dialect=DIALECT)
        query.shown(tree)
    except (_Uncommon, SqlglotError, RunnelError, RecursionError):
        return None
    # The innermost first: what stands inside a rewritten node is rewritten too.
    for node, write in query.written:
        node.replace(write())
    return str(tree.sql(dialect=DIALECT, comments=False)) if query.written else sql


@functools.lru_cache(maxsize=512)
def shadowed(sql: str) -> bool:
    """Say whether a user's text names an output like a column that it also speaks of: engines differ in which of them is meant.

    Inside an aggregate of the output list it can only be the column.

    >>> shadowed("SELECT a + 1 AS a FROM t GROUP BY a"), shadowed("SELECT sum(a) AS a FROM t GROUP BY b")
    (True, False)
    """
    try:
        tree = sqlglot.parse_one(sql, dialect=DIALECT)
    except (SqlglotError, RecursionError):
        return True
    for select in tree.find_all(exp.Select):
        made = {
            one.alias.lower()
            for one in select.expressions
            if isinstance(one, exp.Alias)
            and not (isinstance(one.this, exp.Column) and one.this.name.lower() == one.alias.lower())
        }
        if any(
            column.name.lower() in made and not column.table and not _argument_of_output(column, select)
            for column in select.find_all(exp.Column)
        ):
            return True
    return False


def _argument_of_output(column: exp.Column, select: exp.Select) -> bool:
    node: exp.Expr = column
    inside = False
    while node.parent is not None and node.parent is not select:
        node = node.parent
        inside = inside or isinstance(node, exp.AggFunc)
    return inside and node.arg_key == "expressions"


class _Query:
    """Types the columns of queries, as Spark would; `written` are nodes that DuckDB needs written in another way."""

    def __init__(self, inputs: dict[str, Shape]) -> None:
        self._named = {name.lower(): columns for name, columns in inputs.items()}
        self.written: Written = []

    def shown(self, query: exp.Expr) -> Shape:
        """Give the columns of a query, or raise."""
        for cte in query.args["with_"].expressions if query.args.get("with_") else ():
            if cte.args.get("alias") is None or cte.args["alias"].columns:
                raise _Uncommon
            self._named[cte.alias.lower()] = self.shown(cte.this)
        match query:
            case exp.Subquery() if not query.args.get("joins"):
                return self.shown(query.this)
            case exp.Union() if not any(query.args.get(part) for part in ("limit", "offset", "order", "by_name")):
                left, right = self.shown(query.left), self.shown(query.right)
                if len(left) != len(right):
                    raise _Uncommon
                for _, type_ in (*left, *right) if query.args.get("distinct") else ():
                    _comparable(type_)
                return tuple((name, _unified(one, other)) for (name, one), (_, other) in zip(left, right, strict=True))
            case exp.Select():
                return self._select(query)
        raise _Uncommon

    def _select(self, select: exp.Select) -> Shape:
        allowed = {"expressions", "from_", "joins", "laterals", "where", "group", "having", "distinct", "hint", "with_"}
        if any(value for part, value in select.args.items() if part not in allowed):
            raise _Uncommon
        row = _Row(self._sources(select), self.written)
        for part in ("where", "having"):
            if select.args.get(part):
                _must(row.type(select.args[part].this), BOOLEAN)
        for join in select.args.get("joins") or ():
            if join.args.get("on"):
                _must(row.type(join.args["on"]), BOOLEAN)
        group = select.args.get("group")
        if group is not None:
            if any(value for part, value in group.args.items() if part != "expressions"):
                raise _Uncommon
            for one in group.expressions:
                if isinstance(one, exp.Literal):
                    raise _Uncommon
                _comparable(row.type(one))
        columns = tuple(found for one in select.expressions for found in row.shown(one))
        if select.args.get("distinct"):
            if select.args["distinct"].args.get("on"):
                raise _Uncommon
            for _, type_ in columns:
                _comparable(type_)
        return columns

    def _sources(self, select: exp.Select) -> list[tuple[str, Shape]]:
        begin = select.args.get("from_")
        found = [self._source(begin.this)] if begin else []
        for join in select.args.get("joins") or ():
            if join.kind.upper() not in _JOINS or any(join.args.get(part) for part in ("using", "method", "global_")):
                raise _Uncommon
            one = self._source(join.this)
            if join.kind.upper() in ("SEMI", "ANTI"):
                found.append((f"{one[0]}\0", ()))  # its columns are seen by the condition only
            found.append(one)
        for lateral in select.args.get("laterals") or ():
            found.append(_exploded(lateral, found, self.written))
        return found

    def _source(self, source: exp.Expr) -> tuple[str, Shape]:
        alias = source.args.get("alias")
        if alias is not None and alias.columns:
            raise _Uncommon
        if isinstance(source, exp.Table):
            if source.name.lower() not in self._named or (set(source.args) - {"this", "alias"} and _more(source)):
                raise _Uncommon
            return source.alias_or_name.lower(), self._named[source.name.lower()]
        if isinstance(source, exp.Subquery) and not source.args.get("joins"):
            return source.alias_or_name.lower(), self.shown(source.this)
        raise _Uncommon


def _more(source: exp.Expr) -> bool:
    return any(value for part, value in source.args.items() if part not in ("this", "alias"))


def _exploded(lateral: exp.Expr, before: list[tuple[str, Shape]], written: Written) -> tuple[str, Shape]:
    """Give the column of numbers that a program's own LATERAL VIEW makes."""
    call = lateral.this
    alias = lateral.args.get("alias")
    if not isinstance(call, exp.Explode) or alias is None or len(alias.columns) != 1 or lateral.args.get("outer"):
        raise _Uncommon
    inner = call.this
    numbers = inner.expressions
    if not (isinstance(inner, exp.Array) or (isinstance(inner, exp.Anonymous) and inner.name.lower() == "sequence")):
        raise _Uncommon
    row = _Row(before, written)
    if {row.type(one).name for one in numbers} != {"bigint"}:
        raise _Uncommon
    # From a number to a smaller one, Spark counts down and DuckDB not at all; a program's own never does that.
    if isinstance(inner, exp.Anonymous) and (len(numbers) != 2 or alias.name != "_copies"):
        raise _Uncommon
    return alias.name.lower(), ((alias.columns[0].name, BIGINT),)


class _Row:
    """Types the expressions over the sources of one SELECT."""

    def __init__(self, sources: Sequence[tuple[str, Shape]], written: Written) -> None:
        self._sources = sources
        self._written = written

    def write(self, node: exp.Expr, how: Callable[[], exp.Expr]) -> None:
        """Have a node written in another way once all of the query is known to be common."""
        if not any(node is known for known, _ in self._written):
            self._written.append((node, how))

    def shown(self, item: exp.Expr) -> Shape:
        if isinstance(item, exp.Star):
            if _more(item):
                raise _Uncommon
            return tuple(column for _, columns in self._sources for column in columns)
        return ((item.alias_or_name, self.type(item.unalias(), carried=True)),)

    def type(self, node: exp.Expr, *, carried: bool = False) -> Type:
        """Give an expression's type; raise where the engines may differ."""
        if isinstance(node, exp.Column):
            found = self._column(node)
            if found.name not in PLAIN and found.name != "decimal" and not (carried and found.name in CARRIED):
                raise _Uncommon
            return found
        for kind, rule in _RULES.items():
            if isinstance(node, kind):
                return rule(self, node)
        raise _Uncommon

    def _column(self, node: exp.Column) -> Type:
        if isinstance(node.this, exp.Star) or node.args.get("db"):
            raise _Uncommon
        name, table = node.name.lower(), node.table.lower()
        found = [
            type_
            for source, columns in self._sources
            if not table or source == table
            for column, type_ in columns
            if column.lower() == name
        ]
        if len(found) != 1:
            raise _Uncommon
        return found[0]

    def unified(self, nodes: Iterable[exp.Expr]) -> Type:
        found = NULL
        for node in nodes:
            found = _unified(found, self.type(node))
        return found


def _must(type_: Type, wanted: Type) -> Type:
    if type_ not in (wanted, NULL):
        raise _Uncommon
    return type_


def _comparable(type_: Type) -> Type:
    if type_.name not in PLAIN and type_.name != "decimal":
        raise _Uncommon
    return type_


def _decimal(type_: Type) -> Decimal:
    """Give the decimal that holds every value of a number's type."""
    if isinstance(type_, Decimal):
        return type_
    if type_.name in DIGITS:
        return types.decimal(DIGITS[type_.name], 0)
    raise _Uncommon


def _made_of(precision: int, scale: int, *parts: Type) -> Decimal:
    """Give a decimal that was made of others; what is made of a width that is not certain is not certain either."""
    if any(isinstance(part, _AtMost) for part in parts):
        return _AtMost("decimal", precision, scale)
    return types.decimal(precision, scale)


def _fitting(precision: int, scale: int, *parts: Type) -> Decimal:
    if precision > WIDEST:
        raise _Uncommon
    return _made_of(precision, scale, *parts)


def _computed(precision: int, scale: int, *parts: Type) -> Decimal:
    """Give the type of a sum or product: of one too wide, Spark keeps the scale up to six digits, and rounds beyond that."""
    if precision > WIDEST and scale > KEPT_SCALE:
        raise _Uncommon
    return _made_of(min(precision, WIDEST), scale, *parts)


def _unified(one: Type, other: Type) -> Type:
    """Give the type of a column that holds values of both."""
    if one == other or other == NULL:
        return one
    if one == NULL:
        return other
    if one.name in DIGITS and other.name in DIGITS:
        return one if DIGITS[one.name] >= DIGITS[other.name] else other
    a, b = _decimal(one), _decimal(other)
    scale = max(a.scale, b.scale)
    return _fitting(max(a.precision - a.scale, b.precision - b.scale) + scale, scale, a, b)


def _compared(row: _Row, node: exp.Expr) -> Type:
    _comparable(_unified(row.type(node.this), row.type(node.expression)))
    return BOOLEAN


def _connected(row: _Row, node: exp.Expr) -> Type:
    _must(row.type(node.this), BOOLEAN)
    _must(row.type(node.expression), BOOLEAN)
    return BOOLEAN


def _is(row: _Row, node: exp.Expr) -> Type:
    if isinstance(node.expression, exp.Null):
        row.type(node.this, carried=True)
        return BOOLEAN
    raise _Uncommon


def _between(row: _Row, node: exp.Expr) -> Type:
    if node.args.get("symmetric"):
        raise _Uncommon
    _comparable(row.unified([node.this, node.args["low"], node.args["high"]]))
    return BOOLEAN


def _in(row: _Row, node: exp.Expr) -> Type:
    if any(value for part, value in node.args.items() if part not in ("this", "expressions")):
        raise _Uncommon
    _comparable(row.unified([node.this, *node.expressions]))
    return BOOLEAN


def _literal(_: _Row, node: exp.Expr) -> Type:
    text = str(node.this)
    if node.args.get("is_string"):
        return STRING
    if re.fullmatch(r"\d+", text):
        return INT if int(text) < 2**31 else BIGINT if int(text) < 2**63 else _fitting(len(text), 0)
    if re.fullmatch(r"\d+\.\d+", text):
        whole, _dot, part = text.partition(".")
        return _fitting(len(whole.lstrip("0")) + len(part), len(part))
    raise _Uncommon


def _case(row: _Row, node: exp.Expr) -> Type:
    if node.this is not None:
        raise _Uncommon
    for one in node.args["ifs"]:
        _must(row.type(one.this), BOOLEAN)
    results = [one.args["true"] for one in node.args["ifs"]]
    return row.unified([*results, *([node.args["default"]] if node.args.get("default") else [])])


def _added(row: _Row, node: exp.Expr) -> Type:
    if isinstance(node.expression, exp.Interval):
        return _moved(row, node)
    one, other = row.type(node.this), row.type(node.expression)
    if one.name in DIGITS and other.name in DIGITS:
        return _unified(one, other)
    a, b = _operand(node.this, one), _operand(node.expression, other)
    scale = max(a.scale, b.scale)
    return _computed(max(a.precision - a.scale, b.precision - b.scale) + scale + 1, scale, a, b)


def _moved(row: _Row, node: exp.Expr) -> Type:
    """Type a day of the text moved by days, months or years of the text."""
    interval = node.expression
    unit = str(interval.args.get("unit") or "").upper()
    length = interval.this
    if unit not in ("DAY", "MONTH", "YEAR") or not isinstance(length, exp.Literal) or not str(length.this).isdigit():
        raise _Uncommon
    if not isinstance(node.this.unnest(), (exp.Cast, exp.TryCast)):
        raise _Uncommon
    return _must(row.type(node.this), DATE)


def _multiplied(row: _Row, node: exp.Expr) -> Type:
    one, other = row.type(node.this), row.type(node.expression)
    if one.name in DIGITS and other.name in DIGITS:
        return _unified(one, other)
    a, b = _operand(node.this, one), _operand(node.expression, other)
    return _computed(a.precision + b.precision + 1, a.scale + b.scale, a, b)


def _divided(row: _Row, node: exp.Expr) -> Type:
    """Type a division and have it written in whole numbers; of integers, Spark gives a double."""
    if _integer_as_double(row, node.this) and _integer_as_double(row, node.expression):
        row.write(node, lambda: quotients.ratio(node.this, node.expression))
        return DOUBLE
    a, b = _sides(row, node)
    row.write(node, lambda: quotients.quotient(node.this, a, node.expression, b))
    return quotients.quotient_type(a, b)


def _divided_whole(row: _Row, node: exp.Expr) -> Type:
    a, b = _sides(row, node)
    row.write(node, lambda: quotients.whole_quotient(node.this, a, node.expression, b))
    return BIGINT


def _left_over(row: _Row, node: exp.Expr) -> Type:
    a, b = _sides(row, node)
    _unified(a, b)  # where no decimal holds both, DuckDB computes with doubles
    row.write(node, lambda: quotients.rest(node.this, node.expression))
    return quotients.rest_type(a, b)


def _integer_as_double(row: _Row, node: exp.Expr) -> bool:
    node = node.unnest()
    if not isinstance(node, (exp.Cast, exp.TryCast)) or node.args["to"].sql(dialect=DIALECT).lower() != "double":
        return False
    return not node.args.get("safe") and row.type(node.this).name in DIGITS


def _sides(row: _Row, node: exp.Expr) -> tuple[Decimal, Decimal]:
    """Give the decimals that Spark takes the sides of a division for: how many digits the quotient has depends on them."""
    one, other = row.type(node.this), row.type(node.expression)
    if not isinstance(one, Decimal) and not isinstance(other, Decimal):
        raise _Uncommon
    return _exact(node.this, one), _exact(node.expression, other)


def _exact(node: exp.Expr, type_: Type) -> Decimal:
    literal = node.unnest()
    if isinstance(literal, exp.Literal) and type_.name in DIGITS:
        return types.decimal(len(str(int(str(literal.this)))), 0)
    if isinstance(type_, _AtMost):
        raise _Uncommon
    return _decimal(type_)


def _operand(node: exp.Expr, type_: Type) -> Decimal:
    """Give the decimal that an operand beside a decimal counts as.

    Spark takes a whole number in the text to be as wide as its digits, DuckDB for a full integer: the wider one is assumed,
    so that no value of another scale can meet it where there is no room left for its digits.
    """
    literal = node.unnest()
    if isinstance(literal, exp.Literal) and type_.name in DIGITS:
        return _AtMost("decimal", max(DIGITS["int"], len(str(literal.this))), 0)
    return _decimal(type_)


def _negated(row: _Row, node: exp.Expr) -> Type:
    found = row.type(node.this)
    if _decimal(found).precision > MOST_DIGITS_NEGATED:
        raise _Uncommon
    return found


def _cast(row: _Row, node: exp.Expr) -> Type:
    if node.args.get("safe") or node.args.get("format"):
        raise _Uncommon
    wanted = types.parse(node.args["to"].sql(dialect=DIALECT))
    inner = node.this
    number = _negative_by_text(node)
    if number is not None and row.type(number) == wanted:
        row.write(node, lambda: exp.cast(exp.Neg(this=exp.paren(number.copy())), str(wanted)))
        return wanted
    if wanted == DATE and isinstance(inner, exp.Literal) and inner.is_string and _ISO_DATE.fullmatch(str(inner.this)):
        return DATE
    found = row.type(inner)
    if found in (wanted, NULL) or (found.name in DIGITS and wanted.name in DIGITS):
        return _comparable(wanted)
    if isinstance(wanted, Decimal):
        _decimal(found)  # both round half up to fewer digits
        return wanted
    if isinstance(found, Decimal) and found.scale == 0 and wanted.name in DIGITS:
        return wanted  # whole as it is; what does not fit is an error in both
    raise _Uncommon


def _negative_by_text(node: exp.Expr) -> exp.Expr | None:
    """Give the number whose negative a program writes by its text (`model.negative`): here, a minus sign is exact."""
    written = node.sql(dialect=DIALECT)
    number = next((one.this for one in node.this.find_all(exp.Cast, exp.TryCast)), None) if node.this else None
    if number is None:
        return None
    wanted = negative(number.sql(dialect=DIALECT), types.parse(node.args["to"].sql(dialect=DIALECT)))
    return number if written == sqlglot.parse_one(wanted, dialect=DIALECT).sql(dialect=DIALECT) else None


def _summed(row: _Row, node: exp.Expr) -> Type:
    found = row.type(_distinct(node.this))
    if found.name in DIGITS:
        return BIGINT
    return _AtMost("decimal", WIDEST, _decimal(found).scale)  # as DuckDB has it, which is wider than Spark's


def _counted(row: _Row, node: exp.Expr) -> Type:
    if node.expressions:
        raise _Uncommon
    if isinstance(node.this, exp.Distinct):
        _comparable(row.type(_distinct(node.this)))
    elif not isinstance(node.this, exp.Star):
        row.type(node.this, carried=True)
    return BIGINT


def _extreme(row: _Row, node: exp.Expr) -> Type:
    if node.expressions:
        raise _Uncommon
    return _comparable(row.type(_distinct(node.this)))


def _distinct(node: exp.Expr) -> exp.Expr:
    if not isinstance(node, exp.Distinct):
        return node
    if len(node.expressions) != 1 or node.args.get("on"):
        raise _Uncommon
    (only,) = node.expressions
    assert isinstance(only, exp.Expr), node
    return only


def _filtered(row: _Row, node: exp.Expr) -> Type:
    _must(row.type(node.expression.this), BOOLEAN)
    return row.type(node.this)


def _windowed(row: _Row, node: exp.Expr) -> Type:
    if any(v for part, v in node.args.items() if part not in ("this", "partition_by", "order", "spec", "over")):
        raise _Uncommon
    for one in node.args.get("partition_by") or ():
        _comparable(row.type(one))
    for one in node.args["order"].expressions if node.args.get("order") else ():
        _comparable(row.type(one.this))
    spec = node.args.get("spec")
    if spec is not None and {str(spec.args.get(end)) for end in ("start", "end")} - {"UNBOUNDED", "CURRENT ROW"}:
        raise _Uncommon
    call = node.this
    if isinstance(call, exp.RowNumber) or (
        isinstance(call, exp.Anonymous) and call.name.lower() in _RANKS and not call.expressions
    ):
        return INT
    if isinstance(call, (exp.Sum, exp.Count, exp.Min, exp.Max)):
        return row.type(call)
    raise _Uncommon


def _substring(row: _Row, node: exp.Expr) -> Type:
    ends = [node.args.get("start"), node.args.get("length")]
    if not all(isinstance(end, exp.Literal) and not end.is_string for end in ends) or str(ends[0]) == "0":
        raise _Uncommon
    return _must(row.type(node.this), STRING)


def _like(row: _Row, node: exp.Expr) -> Type:
    pattern = node.expression
    if not isinstance(pattern, exp.Literal) or not pattern.is_string or "\\" in str(pattern.this):
        raise _Uncommon
    _must(row.type(node.this), STRING)
    return BOOLEAN


def _year(row: _Row, node: exp.Expr) -> Type:
    if str(node.this).upper() != "YEAR":
        raise _Uncommon
    _must(row.type(node.expression), DATE)
    return INT


def _called(row: _Row, node: exp.Expr) -> Type:
    name = str(node.this).lower()
    if name == "coalesce":
        return row.unified(node.expressions)
    if name == "raise_error" and len(node.expressions) == 1 and isinstance(node.expressions[0], exp.Literal):
        return NULL  # where it is reached here, Spark is asked
    if name == "year" and len(node.expressions) == 1:
        _must(row.type(node.expressions[0]), DATE)
        return INT
    raise _Uncommon


_RULES: dict[type[exp.Expr] | tuple[type[exp.Expr], ...], Callable[[_Row, exp.Expr], Type]] = {
    exp.Paren: lambda row, node: row.type(node.this),
    _COMPARISONS: _compared,
    (exp.And, exp.Or): _connected,
    exp.Not: lambda row, node: _must(row.type(node.this), BOOLEAN) and BOOLEAN,
    exp.Is: _is,
    exp.Between: _between,
    exp.In: _in,
    exp.Literal: _literal,
    exp.Boolean: lambda _row, _node: BOOLEAN,
    exp.Null: lambda _row, _node: NULL,
    exp.Case: _case,
    (exp.Add, exp.Sub): _added,
    exp.Mul: _multiplied,
    exp.Div: _divided,
    exp.IntDiv: _divided_whole,
    exp.Mod: _left_over,
    exp.Neg: _negated,
    (exp.Cast, exp.TryCast): _cast,
    exp.Sum: _summed,
    exp.Count: _counted,
    (exp.Min, exp.Max): _extreme,
    exp.Filter: _filtered,
    exp.Window: _windowed,
    exp.Coalesce: lambda row, node: row.unified([node.this, *node.expressions]),
    exp.Substring: _substring,
    exp.Like: _like,
    exp.Extract: _year,
    exp.Anonymous: _called,
}
