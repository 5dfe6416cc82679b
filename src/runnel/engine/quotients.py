"""Division of decimals as Spark does it, written so that DuckDB can do it too: with whole numbers, to the last digit.

DuckDB divides decimals as doubles. What does not fit its whole numbers, a division by zero, and what Spark might round twice is an
error there, and then Spark is asked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from runnel.model import types

if TYPE_CHECKING:
    from runnel.model.types import Decimal

WIDEST, KEPT_SCALE = 38, 6
DOUBLE = types.Type("double")
MACROS = (
    """CREATE MACRO _digits(x, unit) AS CAST(x - x % CAST(1 AS DECIMAL(1,0)) AS HUGEINT) * CAST(unit AS HUGEINT)
+ CAST((x % CAST(1 AS DECIMAL(1,0))) * CAST(unit AS DECIMAL(38,0)) AS HUGEINT)""",
    """CREATE MACRO _half_up(n, d, up, most) AS CASE WHEN n IS NULL OR d IS NULL THEN NULL
WHEN d = 0 OR abs(d) >= CAST(most AS HUGEINT) THEN error('not for the driver')
ELSE sign(n) * sign(d) * ((2 * abs(n * CAST(up AS HUGEINT)) + abs(d)) // (2 * abs(d))) END""",
    """CREATE MACRO _whole(n, d, up, down) AS CASE WHEN n IS NULL OR d IS NULL THEN NULL WHEN d = 0 THEN error('not for the driver')
ELSE (n * CAST(up AS HUGEINT)) // (d * CAST(down AS HUGEINT)) END""",
    """CREATE MACRO _rest(a, b) AS CASE WHEN b = 0 THEN error('not for the driver') ELSE a % b END""",
    """CREATE MACRO _ratio(a, b) AS CASE WHEN b = 0 THEN error('not for the driver') ELSE a / b END""",
)
"""What the rewritten texts call; `n` and `d` are decimals as whole numbers, by their digits."""


def quotient_type(a: Decimal, b: Decimal) -> Decimal:
    """Give the type of a / b.

    >>> str(quotient_type(types.decimal(38, 4), types.decimal(38, 4)))
    'decimal(38,6)'
    """
    whole, scale = a.precision - a.scale + b.scale, max(KEPT_SCALE, a.scale + b.precision + 1)
    if whole + scale <= WIDEST:
        return types.decimal(whole + scale, scale)
    return types.decimal(WIDEST, max(WIDEST - whole, min(scale, KEPT_SCALE)))


def rest_type(a: Decimal, b: Decimal) -> Decimal:
    """Give the type of a % b."""
    scale = max(a.scale, b.scale)
    return types.decimal(min(a.precision - a.scale, b.precision - b.scale) + scale, scale)


def quotient(dividend: exp.Expr, a: Decimal, divisor: exp.Expr, b: Decimal) -> exp.Expr:
    """Write a / b, rounded half up to the digits that Spark keeps.

    Spark rounds to 38 digits behind the point first. That makes no difference for divisors of so few digits that no quotient
    can come so near to a half.
    """
    result = quotient_type(a, b)
    scale = result.scale
    up, most = 10 ** (scale - a.scale + b.scale), 10 ** (WIDEST - scale)
    whole = _call("_half_up", _digits(dividend, a), _digits(divisor, b), _number(up), _number(most))
    return exp.cast(_with_point(exp.cast(whole, f"decimal({WIDEST},0)"), scale), str(result))


def whole_quotient(dividend: exp.Expr, a: Decimal, divisor: exp.Expr, b: Decimal) -> exp.Expr:
    """Write a div b: a BIGINT, cut towards zero."""
    ends = _digits(dividend, a), _digits(divisor, b), _number(10**b.scale), _number(10**a.scale)
    return exp.cast(_call("_whole", *ends), "bigint")


def rest(dividend: exp.Expr, divisor: exp.Expr) -> exp.Expr:
    """Write a % b."""
    return _call("_rest", dividend.copy(), divisor.copy())


def ratio(dividend: exp.Expr, divisor: exp.Expr) -> exp.Expr:
    """Write a / b of doubles."""
    return _call("_ratio", dividend.copy(), divisor.copy())


def _digits(node: exp.Expr, type_: Decimal) -> exp.Expr:
    """Write a decimal's digits as a whole number."""
    value = exp.cast(exp.paren(node.copy()), f"decimal({WIDEST},{type_.scale})")
    return _call("_digits", value, _number(10**type_.scale))


def _with_point(whole: exp.Expr, scale: int) -> exp.Expr:
    if not scale:
        return whole
    unit = "0." + "1".rjust(scale, "0")
    return exp.paren(exp.Mul(this=whole, expression=_unit(unit, scale + 1, scale)))


def _unit(text: str, precision: int, scale: int) -> exp.Expr:
    return exp.cast(exp.Literal.string(text), f"decimal({min(precision, WIDEST)},{scale})")


def _number(value: int) -> exp.Expr:
    return exp.cast(exp.Literal.string(str(value)), f"decimal({WIDEST},0)") if value < 10**WIDEST else _LARGEST.copy()


_LARGEST = exp.cast(exp.Literal.string("9" * WIDEST), f"decimal({WIDEST},0)")


def _call(name: str, *arguments: exp.Expr) -> exp.Expr:
    return exp.Anonymous(this=name, expressions=list(arguments))
