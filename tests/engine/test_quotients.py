"""Divisions in the driver: to the last digit what exact arithmetic gives, or an error after which Spark is asked."""

from __future__ import annotations

from decimal import ROUND_DOWN, ROUND_HALF_UP, Context, Decimal, localcontext
from fractions import Fraction

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runnel.engine.base import Rows
from runnel.engine.common import common, shape
from runnel.engine.driver import Driver
from runnel.engine.duckdb import DuckDbEngine
from runnel.engine.spark import ROUNDING, SparkEngine
from runnel.errors import Terminal
from runnel.model import types
from runnel.model.relation import Column

ENGINE = DuckDbEngine(threads=1)
EXACT = Context(prec=200)


@st.composite
def decimals(draw: st.DrawFn) -> tuple[types.Decimal, Decimal]:
    precision = draw(st.integers(1, 38))
    scale = draw(st.integers(0, min(precision, 16)))
    digits = draw(st.integers(0, precision))
    unscaled = draw(st.integers(-(10**digits) + 1, 10**digits - 1))
    return types.decimal(precision, scale), Decimal(unscaled).scaleb(-scale, EXACT)


def _answer(text: str, a: tuple[types.Decimal, Decimal], b: tuple[types.Decimal, Decimal]) -> Decimal | int | None:
    """Ask the driver's engine; None where it leaves the answer to Spark."""
    columns = (Column("a", a[0]), Column("b", b[0]))
    table = pa.table([pa.array([one[1]], types.to_arrow(one[0])) for one in (a, b)], names=["a", "b"])
    sql = common(f"SELECT {text} AS x FROM `t`", (("t", shape(columns)),))
    if sql is None:
        return None
    try:
        found: Decimal | int = ENGINE.rows(sql, {"t": Rows(table, columns)})["x"][0].as_py()
    except Terminal:
        return None
    return found


def _rounded(value: Fraction, scale: int, rounding: str) -> Decimal:
    with localcontext(EXACT):
        ends = Decimal(value.numerator), Decimal(value.denominator)
        # Far more digits than are kept, and a last one that tells whether there are more: what is rounded is exact.
        long = (ends[0] / ends[1]).quantize(Decimal(1).scaleb(-120), rounding=ROUND_DOWN)
        exact = Fraction(long) == value
        if not exact:
            long += Decimal(1 if value > 0 else -1).scaleb(-121)
        return long.quantize(Decimal(1).scaleb(-scale), rounding=rounding)


def _quotient(a: Decimal, b: Decimal, scale: int) -> Decimal:
    return _rounded(Fraction(a) / Fraction(b), scale, ROUND_HALF_UP)


@settings(max_examples=400, deadline=None)
@given(decimals(), decimals())
def test_a_quotient_is_rounded_half_up_to_the_digits_of_its_type(
    a: tuple[types.Decimal, Decimal], b: tuple[types.Decimal, Decimal]
) -> None:
    found = _answer("a / b", a, b)
    if found is not None:
        assert isinstance(found, Decimal)
        assert found == _quotient(a[1], b[1], -int(found.as_tuple().exponent))


@settings(max_examples=200, deadline=None)
@given(decimals(), decimals())
def test_a_whole_quotient_is_cut_and_the_rest_has_the_sign_of_the_dividend(
    a: tuple[types.Decimal, Decimal], b: tuple[types.Decimal, Decimal]
) -> None:
    whole, rest = _answer("a div b", a, b), _answer("a % b", a, b)
    if whole is not None:
        assert whole == int(_rounded(Fraction(a[1]) / Fraction(b[1]), 0, ROUND_DOWN))
    if rest is not None:
        exact = Fraction(a[1]) / Fraction(b[1])
        cut = abs(exact.numerator) // exact.denominator * (1 if exact > 0 else -1)
        assert Fraction(rest) == Fraction(a[1]) - cut * Fraction(b[1])


@settings(max_examples=300, deadline=None)
@given(decimals(), st.integers(0, 37))
def test_a_cast_to_fewer_digits_rounds_half_up(a: tuple[types.Decimal, Decimal], scale: int) -> None:
    found = _answer(f"CAST(a AS DECIMAL(38,{scale}))", a, (types.decimal(1, 0), Decimal(1)))
    if found is not None:
        assert found == _rounded(Fraction(a[1]), scale, ROUND_HALF_UP)


@pytest.mark.parametrize("text", ["a / b", "a div b", "a % b", "CAST(a AS DOUBLE) / CAST(b AS DOUBLE)"])
@pytest.mark.parametrize("kind", ["decimal(9,2)", "int"])
def test_a_division_by_zero_is_left_to_spark(text: str, kind: str) -> None:
    columns = (Column("a", types.parse(kind)), Column("b", types.parse(kind)))
    table = pa.table(
        [pa.array([v], types.to_arrow(columns[0].type)) for v in (Decimal(7), Decimal(0))], names=["a", "b"]
    )
    sql = common(f"SELECT {text} AS x FROM `t`", (("t", shape(columns)),))
    allowed = ("DOUBLE" in text) is (kind == "int")
    assert (sql is not None) is allowed
    if sql is not None:
        with pytest.raises(Terminal):
            ENGINE.rows(sql, {"t": Rows(table, columns)})


@pytest.mark.parametrize(
    ("setting", "in_driver"), [({}, True), ({ROUNDING: "true"}, True), ({ROUNDING: "false"}, False)]
)
def test_who_divides_in_another_way_has_spark_do_everything(setting: dict[str, str], in_driver: bool) -> None:
    assert bool(SparkEngine(conf=setting, driver=Driver()).driver.changes) is in_driver
