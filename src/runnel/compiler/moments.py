"""Variance and standard deviation from sums of whole numbers: exact before the last division, so that nothing drifts.

An integer is itself a whole number, a decimal is one by its unscaled digits; a BIGINT is taken apart, because its squares
leave no room for a sum. A double x with |x| < 2^44 is taken apart, without
rounding, as (h + l / 2^50) / 2^8 with whole h and l; what is lost is below 2^-58. Then the sums of h, h*h, l, h*l and l*l are
exact. Larger doubles are scaled by a power of two first, their *band*, and sums are told apart by it. Squares of distances from the
mean are then added up over the bands of a group, each from its own mean, as is done for parts of a sample. NaN and the infinities
are counted.
"""

from __future__ import annotations

from runnel.compiler.emit import quoted
from runnel.compiler.sums import TIMES, Across, Band, Partial, Value
from runnel.model import types
from runnel.model.relation import WEIGHT
from runnel.model.types import BIGINT, Decimal, Type

WIDEST_SQUARE = 13
"""Digits of a decimal whose square times a weight of ten digits fits in 38."""
_DOUBLE = Type("double")
_EXACT = types.decimal(38, 0)
_LARGE = f"{2.0**44!r}"


def value(function: str, argument: str, type_: Type, n: Partial) -> Value:
    """Choose the sums of `var_pop`, `var_samp`, `stddev_pop` or `stddev_samp` and the formula over them."""
    if type_.name in types.FLOATS:
        return _of_doubles(function, argument, n)
    if type_ == BIGINT:
        return _of_long(function, argument, n)
    scale = type_.scale if isinstance(type_, Decimal) else 0
    whole = f"CAST({quoted(argument)} AS DECIMAL(19,{scale}))"
    if scale:
        whole = f"CAST({whole} * CAST({10**scale} AS DECIMAL({scale + 1},0)) AS DECIMAL(19,0))"
    parts = (n, _sum("s1", argument, whole), _sum("s2", argument, f"{whole} * {whole}"))

    def formula(whole_type: str) -> str:
        top = f"{_spread('s2', 's1', 's1', whole_type)} / CAST('1e{2 * scale}' AS DOUBLE)"
        return _finished(function, top)

    return Value(_DOUBLE, formula("DECIMAL(38,0)"), formula("HUGEINT"), parts)


_UNIT = "CAST('10000000000' AS DECIMAL(11,0))"
"""A BIGINT is taken apart as h * 10^10 + l: the sum of a few squares of 38 digits has no room, those of h, l and h*l have."""


def _of_long(function: str, argument: str, n: Partial) -> Value:
    whole = f"CAST({quoted(argument)} AS DECIMAL(19,0))"
    h, l = f"CAST({whole} div {_UNIT} AS DECIMAL(19,0))", f"CAST({whole} % {_UNIT} AS DECIMAL(19,0))"  # noqa: E741
    factors = {"s1": whole, "hh": f"{h} * {h}", "hl": f"{h} * {l}", "ll": f"{l} * {l}"}
    parts = (n, *(_sum(kind, argument, what) for kind, what in factors.items()))
    spread, in_duckdb = _spread_in_parts("DECIMAL(38,0)", "div"), _spread_in_parts("HUGEINT", "//")
    return Value(_DOUBLE, _finished(function, spread), _finished(function, in_duckdb), parts)


def _spread_in_parts(whole_type: str, over: str) -> str:
    """Write n * sum(x*x) - sum(x)^2 from sums over parts of x: around a whole number near the mean, so that little is cancelled."""
    unit = f"CAST(10000000000 AS {whole_type})" if over == "//" else _UNIT
    n, total, hh, hl, ll = (f"CAST({{{kind}}} AS {whole_type})" for kind in ("n", "s1", "hh", "hl", "ll"))
    near = f"CAST({{s1}} {over} {{n}} AS {whole_type})"
    h = f"CAST({near} {over} {unit} AS {whole_type})"
    l = f"({near} - {h} * {unit})"  # noqa: E741
    rest = f"({total} - {n} * {near})"
    high = f"(({hh} - {n} * {h} * {h}) * {unit} + 2 * ({hl} - {n} * {h} * {l}))"
    low = f"({ll} - {n} * {l} * {l} - 2 * {near} * {rest})"
    exact = f"CAST({n} * ({high} * {unit} + {low}) - {rest} * {rest} AS DOUBLE)"
    parts = f"CAST({high} AS DOUBLE) * CAST('1e10' AS DOUBLE) + CAST({low} AS DOUBLE)"
    rough = f"CAST({n} AS DOUBLE) * ({parts}) - CAST({rest} AS DOUBLE) * CAST({rest} AS DOUBLE)"
    fits = f"abs(CAST({high} AS DOUBLE)) * CAST({{n}} AS DOUBLE) < 1e27 AND CAST({{n}} AS DOUBLE) < 3e8"
    return f"CASE WHEN {fits} THEN {exact} ELSE {rough} END"


def _sum(kind: str, argument: str, whole: str) -> Partial:
    return Partial(kind, argument, _EXACT, f"{whole} * {TIMES}")


def _spread(products: str, left: str, right: str, whole_type: str) -> str:
    """Write n * sum(a*b) - sum(a) * sum(b), in whole numbers as long as they have room.

    The sums are first shifted by whole numbers near the means, which changes nothing but makes the two products small.
    """
    n, ab, a, b = (f"CAST({{{kind}}} AS {whole_type})" for kind in ("n", products, left, right))
    over = "//" if whole_type == "HUGEINT" else "div"
    near_a, near_b = (f"CAST({{{kind}}} {over} {{n}} AS {whole_type})" for kind in (left, right))
    shifted = f"({ab} - {near_a} * {b} - {near_b} * {a} + {n} * {near_a} * {near_b})"
    rest_a, rest_b = f"({a} - {n} * {near_a})", f"({b} - {n} * {near_b})"
    rough = f"CAST({n} AS DOUBLE) * CAST({shifted} AS DOUBLE) - CAST({rest_a} AS DOUBLE) * CAST({rest_b} AS DOUBLE)"
    fits = f"abs(CAST({shifted} AS DOUBLE)) * CAST({{n}} AS DOUBLE) < 4e37 AND CAST({{n}} AS DOUBLE) < 4e18"
    return f"CASE WHEN {fits} THEN CAST({n} * {shifted} - {rest_a} * {rest_b} AS DOUBLE) ELSE {rough} END"


def _finished(function: str, top: str) -> str:
    """Divide by n and by n or n - 1; never take the root of a negative number; too few rows give NULL."""
    fewest = 2 if function.endswith("samp") else 1
    divisor = "{n}" if fewest == 1 else "({n} - 1)"
    variance = f"greatest({top}, CAST(0 AS DOUBLE)) / CAST({{n}} AS DOUBLE) / CAST({divisor} AS DOUBLE)"
    result = f"sqrt({variance})" if function.startswith("std") else variance
    return f"CASE WHEN {{n}} >= {fewest} THEN {result} END"


def _of_doubles(function: str, argument: str, n: Partial) -> Value:
    x, w = f"CAST({quoted(argument)} AS DOUBLE)", quoted(WEIGHT)
    finite = f"abs({x}) < CAST('Infinity' AS DOUBLE)"
    half = f"CAST(floor(log2(abs({x})) / 44e0) AS INT) * 22"
    band = Band("wide", argument, f"CASE WHEN abs({x}) >= {_LARGE} AND {finite} THEN {half} ELSE 0 END")
    y = f"({x} * power(2e0, 8 - {{wide}}) * power(2e0, -{{wide}}))"
    h = f"CAST(floor({y}) AS DECIMAL(19,0))"
    l = f"CAST(floor(({y} - CAST(floor({y}) AS DOUBLE)) * {2.0**50!r}) AS DECIMAL(19,0))"  # noqa: E741

    def whole(kind: str, factors: str) -> Partial:
        return Partial(kind, argument, _EXACT, f"CASE WHEN {finite} THEN {factors} * {TIMES} END")

    partials = (
        n,
        whole("h1", h),
        whole("h2", f"{h} * {h}"),
        whole("l1", l),
        whole("hl", f"{h} * {l}"),
        whole("l2", f"{l} * {l}"),
        Partial("special", argument, BIGINT, f"CASE WHEN NOT ({finite}) THEN {w} END"),
    )
    mean = f"{_FIRST} / CAST({{n}} AS DOUBLE)"
    centre = f"sum(CASE WHEN {{n}} > 0 THEN {_FIRST} END) OVER ({{by}}) / sum(CAST({{n}} AS DOUBLE)) OVER ({{by}})"
    centre = f"CASE WHEN sum({{n}}) OVER ({{by}}) > 0 THEN {centre} END"
    away = f"CAST({{n}} AS DOUBLE) * ({mean} - {{centre}}) * ({mean} - {{centre}})"

    def squares(whole_type: str) -> str:
        own = f"{_exact_spread(whole_type)} / CAST({{n}} AS DOUBLE)"
        return f"sum(CASE WHEN {{n}} > 0 THEN {own} + {away} END)"

    across = (
        Across("centre", argument, centre, centre, window=True),
        Across("squares", argument, squares("DECIMAL(38,0)"), squares("HUGEINT")),
    )
    fewest = 2 if function.endswith("samp") else 1
    variance = f"greatest({{squares}}, CAST(0 AS DOUBLE)) / CAST({{n}} - {fewest - 1} AS DOUBLE)"
    result = f"sqrt({variance})" if function.startswith("std") else variance
    formula = f"CASE WHEN {{n}} < {fewest} THEN NULL WHEN {{special}} > 0 THEN CAST('NaN' AS DOUBLE) ELSE {result} END"
    return Value(_DOUBLE, formula, formula, partials, (band,), across)


_FIRST = (
    f"(CAST({{h1}} AS DOUBLE) * {2**-8!r} + CAST({{l1}} AS DOUBLE) * {2**-58!r})"
    " * power(2e0, {wide}) * power(2e0, {wide})"
)
"""The sum of the numbers of a band."""


def _exact_spread(whole_type: str) -> str:
    """Write n * sum(x*x) - sum(x) * sum(x) of a band."""
    hh, hl, ll = (_spread(*kinds, whole_type) for kinds in (("h2", "h1", "h1"), ("hl", "h1", "l1"), ("l2", "l1", "l1")))
    exact = f"(({hh}) * {2**-16!r} + ({hl}) * {2**-65!r} + ({ll}) * {2**-116!r})"
    return exact + " * power(2e0, {wide})" * 4
