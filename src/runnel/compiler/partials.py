"""How each aggregate is kept as sums that can be added up in any order, and how the sums become the aggregate's value.

Sums are exact: integers as bigint or decimal(38,0), decimals as decimal(38,s). A double is put exactly into one of three decimal
sums by its size (1e-5..1e11 with 16 digits after the point, 1e11..1e27 as a whole number), what is outside goes to a double
sum, and NaN and the infinities are only counted: so deleting a row takes out just what inserting it put in. What is in the double
sum is counted, too: when the last such value is gone, so is all that rounding left of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from runnel.compiler import moments
from runnel.compiler.emit import quoted
from runnel.compiler.sums import TIMES, Partial, Value
from runnel.model import types
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
        formula = f"CASE WHEN {{n}} > 0 THEN {_FLOAT_SUM} END"
        return Value(DOUBLE, formula, formula, (n, *_float_parts(argument)))
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
    once = f"WHEN {quoted(WEIGHT)} = 1 THEN CAST({a} AS {exact}) WHEN {quoted(WEIGHT)} = -1 THEN CAST(-{a} AS {exact})"
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
    formula = _if_any(f"{_FLOAT_SUM} / CAST({{n}} AS DOUBLE)")
    return Value(DOUBLE, formula, formula, (n, *_float_parts(argument)))


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
    "ELSE CAST({mid} AS DOUBLE) + CAST({high} AS DOUBLE) + CAST({low} AS DOUBLE) "
    "+ CASE WHEN {out} > 0 THEN {rest} ELSE CAST(0 AS DOUBLE) END END"
)


def _float_parts(argument: str) -> tuple[Partial, ...]:
    x = f"CAST({quoted(argument)} AS DOUBLE)"
    w = quoted(WEIGHT)
    infinity = "CAST('Infinity' AS DOUBLE)"
    mid = f"abs({x}) >= 1e-5 AND abs({x}) < 1e11"
    high = f"abs({x}) >= 1e11 AND abs({x}) < 1e27"
    low = f"abs({x}) >= 1e-15 AND abs({x}) < 1e-5"
    rest = f"(abs({x}) < 1e-15 AND {x} <> 0) OR (abs({x}) >= 1e27 AND abs({x}) < {infinity})"
    return (
        Partial(
            "mid", argument, types.decimal(38, 16), f"CASE WHEN {mid} THEN CAST({x} AS DECIMAL(27,16)) * {TIMES} END"
        ),
        Partial(
            "high", argument, types.decimal(38, 0), f"CASE WHEN {high} THEN CAST({x} AS DECIMAL(27,0)) * {TIMES} END"
        ),
        Partial(
            "low", argument, types.decimal(38, 26), f"CASE WHEN {low} THEN CAST({x} AS DECIMAL(27,26)) * {TIMES} END"
        ),
        Partial("rest", argument, DOUBLE, f"CASE WHEN {rest} THEN {x} * CAST({w} AS DOUBLE) END"),
        Partial("out", argument, BIGINT, f"CASE WHEN {rest} THEN {w} END"),
        Partial("nan", argument, BIGINT, f"CASE WHEN isnan({x}) THEN {w} END"),
        Partial("pos", argument, BIGINT, f"CASE WHEN {x} = {infinity} THEN {w} END"),
        Partial("neg", argument, BIGINT, f"CASE WHEN {x} = CAST('-Infinity' AS DOUBLE) THEN {w} END"),
    )
