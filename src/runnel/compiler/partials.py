"""How each aggregate is kept as sums that can be added up in any order, and how the sums become the aggregate's value.

Sums are exact: integers as bigint or decimal(38,0), decimals as decimal(38,s). A double is put exactly into one of three decimal
sums by its size (1e-15..1e-5 with 26 digits after the point, 1e-5..1e11 with 16, 1e11..1e27 as a whole number). One beyond that is scaled
by a power of two to a whole number, and the power is a *band*: a stored column that sums are told apart by. NaN and the infinities are
only counted. No sum is a double, so deleting a row takes out just what inserting it put in, whatever came in between.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from runnel.compiler import moments
from runnel.compiler.emit import quoted
from runnel.compiler.sums import TIMES, Across, Band, Partial, Value
from runnel.model import types
from runnel.model.negative import negative
from runnel.model.relation import WEIGHT
from runnel.model.types import BIGINT, Decimal, Type

if TYPE_CHECKING:
    from runnel.compiler.plan import Measure

DOUBLE = Type("double")
WIDEST_SUM, KEPT_SCALE = 27, 6
"""A decimal of so many digits, or of so few behind the point, can be multiplied by a weight of ten digits without losing any."""


def supported(measure: Measure) -> bool:
    """Say whether the sums of this aggregate over this type can be kept exactly."""
    if measure.function == "count":
        return True
    match measure.type:
        case Decimal(_, precision, scale):
            if measure.function == "sum":
                return scale <= 26
            if measure.function == "avg":
                return scale <= 6 or (scale <= 16 and precision - scale <= 18)
            return precision <= moments.WIDEST_SQUARE
        case Type(name):
            return name in (*types.INTEGERS, *types.FLOATS)
        case None:
            return False


def value(measure: Measure) -> Value:
    """Choose the sums of an aggregate and its formula over them."""
    if measure.argument is None or measure.type is None:
        return Value(BIGINT, f"CAST({quoted(WEIGHT)} AS BIGINT)", f'CAST("{WEIGHT}" AS BIGINT)', ())
    n = _count(measure.argument)
    match measure.function:
        case "count":
            return Value(BIGINT, "CAST({n} AS BIGINT)", "CAST({n} AS BIGINT)", (n,))
        case "sum":
            return _sum(measure.argument, measure.type, n)
        case "avg":
            return _avg(measure.argument, measure.type, n)
        case _:
            return moments.value(measure.function, measure.argument, measure.type, n)


def _count(argument: str) -> Partial:
    return Partial("n", argument, BIGINT, f"CASE WHEN {quoted(argument)} IS NOT NULL THEN {quoted(WEIGHT)} END")


def _sum(argument: str, type_: Type, n: Partial) -> Value:
    a = quoted(argument)
    if isinstance(type_, Decimal):
        result: Type = types.decimal(min(38, type_.precision + 10), type_.scale)
        partial = _decimal_sum(argument, type_)
    elif type_.name == "bigint":
        formula = _if_any(_AS_BIGINT)
        return Value(BIGINT, formula, formula, (n, _wide(argument)))
    elif type_.name in types.INTEGERS:
        result = BIGINT
        partial = Partial("sum", argument, BIGINT, f"CAST({a} AS BIGINT) * {quoted(WEIGHT)}")
    else:
        return _of_floats(_if_any(_FLOAT_SUM), argument, n)
    formula = f"CASE WHEN {{n}} > 0 THEN CAST({{sum}} AS {result}) END"
    return Value(result, formula, formula, (n, partial))


def _decimal_sum(argument: str, type_: Decimal) -> Partial:
    a, scale = quoted(argument), type_.scale
    exact = types.decimal(38, scale)
    if type_.precision <= WIDEST_SUM or scale <= KEPT_SCALE:
        return Partial("sum", argument, exact, f"{a} * {TIMES}")
    # Spark would cut digits behind the point off the product: multiply the upper digits and the rest apart.
    upper = max(type_.precision - scale - 18, 0)
    unit = f"CAST({10**upper} AS DECIMAL({upper + 1},0))"
    high = f"CAST(CAST({a} div {unit} AS DECIMAL(19,0)) * {TIMES} * {unit} AS DECIMAL(37,{scale}))"
    rest = f"CAST({a} % {unit} * {TIMES} AS DECIMAL(37,{scale}))"
    less = f"CAST({negative(a, type_)} AS {exact})"
    once = f"WHEN {quoted(WEIGHT)} = 1 THEN CAST({a} AS {exact}) WHEN {quoted(WEIGHT)} = -1 THEN {less}"
    return Partial("sum", argument, exact, f"CASE {once} ELSE {high} + {rest} END")


def _wide(argument: str) -> Partial:
    """Sum whole numbers in a decimal: parts of a sum may be too large for a bigint where the sum itself is not."""
    return Partial("wide", argument, types.decimal(38, 0), f"CAST({quoted(argument)} AS DECIMAL(19,0)) * {TIMES}")


_MOST = 2**63 - 1
_AS_BIGINT = (
    f"CASE WHEN {{wide}} > {_MOST} THEN CAST({{wide}} - {_MOST} AS BIGINT) + {_MOST} "
    f"WHEN {{wide}} < -{_MOST} THEN CAST({{wide}} + {_MOST} AS BIGINT) - {_MOST} ELSE CAST({{wide}} AS BIGINT) END"
)
"""What does not fit overflows as it would in the query's own sum: in an addition, not in a cast."""


def _avg(argument: str, type_: Type, n: Partial) -> Value:
    a = quoted(argument)
    if isinstance(type_, Decimal):
        partial = _decimal_sum(argument, type_)
        result = types.decimal(min(38, type_.precision + 4), min(38, type_.scale + 4))
        spark, duckdb = _decimal_quotient_spark(type_, result), _decimal_quotient_duckdb(type_, result)
        return Value(result, _if_any(spark), _if_any(duckdb), (n, partial))
    if type_.name in types.INTEGERS:
        narrow = Partial("sum", argument, BIGINT, f"CAST({a} AS BIGINT) * {quoted(WEIGHT)}")
        partial = _wide(argument) if type_.name == "bigint" else narrow
        formula = _if_any(f"CAST({{{partial.kind}}} AS DOUBLE) / CAST({{n}} AS DOUBLE)")
        return Value(DOUBLE, formula, formula, (n, partial))
    return _of_floats(_if_any(f"{_FLOAT_SUM} / CAST({{n}} AS DOUBLE)"), argument, n)


def _if_any(formula: str) -> str:
    return f"CASE WHEN {{n}} > 0 THEN {formula} END"


def _decimal_quotient_spark(type_: Decimal, result: Decimal) -> str:
    """Whole part and remainder apart: Spark's own decimal division would round to six digits, and then round again."""
    scale = result.scale
    whole = "CAST({sum} div CAST({n} AS DECIMAL(10,0)) AS DECIMAL(19,0))"
    if type_.precision - type_.scale > 18:
        divisible = "({sum} - {sum} % CAST({n} AS DECIMAL(10,0)))"
        whole = f"CAST({divisible} / CAST({{n}} AS DECIMAL(10,0)) AS DECIMAL({37 - scale},0))"
    rest = "CAST({sum} % CAST({n} AS DECIMAL(10,0)) AS DECIMAL(26,16)) / CAST({n} AS DECIMAL(10,0))"
    return f"CAST({whole} + CAST({rest} AS DECIMAL({scale + 1},{scale})) AS {result})"


def _decimal_quotient_duckdb(type_: Decimal, result: Decimal) -> str:
    """DuckDB divides decimals as doubles, so divide whole numbers, rounding half up, and put the point back."""
    unscaled = f"CAST(replace(CAST(CAST({{sum}} AS DECIMAL(38,{type_.scale})) AS VARCHAR), '.', '') AS HUGEINT)"
    shift = 10 ** (result.scale - type_.scale)
    quotient = f"(abs({unscaled}) * {2 * shift} + {{n}}) // (2 * CAST({{n}} AS HUGEINT))"
    width = f"CAST(greatest({result.scale + 1}, length(CAST({quotient} AS VARCHAR))) AS INTEGER)"
    digits = f"lpad(CAST({quotient} AS VARCHAR), {width}, '0')"
    sign = "CASE WHEN {sum} < 0 THEN '-' ELSE '' END"
    text = f"{sign} || left({digits}, -{result.scale}) || '.' || right({digits}, {result.scale})"
    return f"CAST({text} AS {result})"


_FLOAT_SUM = (
    "CASE WHEN {nan} > 0 OR ({pos} > 0 AND {neg} > 0) THEN CAST('NaN' AS DOUBLE) "
    "WHEN {pos} > 0 THEN CAST('Infinity' AS DOUBLE) WHEN {neg} > 0 THEN CAST('-Infinity' AS DOUBLE) "
    "ELSE CAST({mid} AS DOUBLE) + CAST({high} AS DOUBLE) + CAST({low} AS DOUBLE) + {rest} END"
)
_SCALED_BACK = "CAST({rest} AS DOUBLE) * power(2e0, {band}) * power(2e0, {band})"
_REST = f"coalesce(sum(CASE WHEN {{band}} <> 0 THEN {_SCALED_BACK} END), CAST(0 AS DOUBLE))"


def _of_floats(formula: str, argument: str, n: Partial) -> Value:
    """Keep the sums of a double; `formula` is over them."""
    across = Across("rest", argument, _REST, _REST)
    return Value(DOUBLE, formula, formula, (n, *_float_parts(argument)), (_band(argument),), (across,))


def _band(argument: str) -> Band:
    """Scale what is beyond the decimal sums to 2^52..2^88, where a double is a whole number: x = y * 2^band * 2^band.

    Twice the half, because 2^-1132 itself is not a double. StrictMath has the logarithm: the same number always gets the same band.
    """
    x = f"CAST({quoted(argument)} AS DOUBLE)"
    beyond = f"(abs({x}) < 1e-15 AND {x} <> 0) OR (abs({x}) >= 1e27 AND abs({x}) < CAST('Infinity' AS DOUBLE))"
    half = f"CAST(floor(log2(abs({x})) / 36e0) AS INT) * 18 - 26"
    return Band("band", argument, f"CASE WHEN {beyond} THEN {half} ELSE 0 END")


def _float_parts(argument: str) -> tuple[Partial, ...]:
    x = f"CAST({quoted(argument)} AS DOUBLE)"
    w = quoted(WEIGHT)
    mid = f"abs({x}) >= 1e-5 AND abs({x}) < 1e11"
    high = f"abs({x}) >= 1e11 AND abs({x}) < 1e27"
    low = f"abs({x}) >= 1e-15 AND abs({x}) < 1e-5"
    scaled = f"{x} * power(2e0, -{{band}}) * power(2e0, -{{band}})"

    def exact(kind: str, condition: str, number: str, scale: int) -> Partial:
        sql = f"CASE WHEN {condition} THEN CAST({number} AS DECIMAL(27,{scale})) * {TIMES} END"
        return Partial(kind, argument, types.decimal(38, scale), sql)

    return (
        exact("mid", mid, x, 16),
        exact("high", high, x, 0),
        exact("low", low, x, 26),
        exact("rest", "{band} <> 0", scaled, 0),
        Partial("nan", argument, BIGINT, f"CASE WHEN isnan({x}) THEN {w} END"),
        Partial("pos", argument, BIGINT, f"CASE WHEN {x} = CAST('Infinity' AS DOUBLE) THEN {w} END"),
        Partial("neg", argument, BIGINT, f"CASE WHEN {x} = CAST('-Infinity' AS DOUBLE) THEN {w} END"),
    )
