"""Sums are right again as soon as what did not fit into them is gone."""

from __future__ import annotations

import math
from fractions import Fraction
from random import Random
from statistics import pvariance

import pytest

import runnel
from runnel.engine.duckdb import DuckDbEngine
from runnel.errors import RunnelError
from tests.compiler.conftest import table
from tests.compiler.harness import Maintained

MOST = 2**63 - 1


def test_a_sum_that_overflowed_is_readable_as_soon_as_it_fits_again(engine: DuckDbEngine) -> None:
    state = Maintained(engine, [table("t", "id INT, a BIGINT")])
    state.apply({"t": [((1, 5), 1)]})
    state.define("v", "SELECT sum(a) AS s FROM t")
    state.apply({"t": [((2, MOST), 1), ((3, MOST), 1)]})
    with pytest.raises(RunnelError, match=r"(?i)cast|overflow"):
        state.rows("v")
    state.apply({"t": [((4, -MOST), 1), ((5, -MOST - 1), 1)]})
    assert state.rows("v").to_pylist() == [{"s": 4}]
    state.apply({"t": [((2, MOST), -1), ((1, 5), -1)]})
    assert state.rows("v").to_pylist() == [{"s": -MOST - 1}]
    state.check("the least bigint")


def test_the_ends_of_a_bigint_are_sums_like_any_other(engine: DuckDbEngine) -> None:
    state = Maintained(engine, [table("t", "id INT, a BIGINT")])
    state.apply({"t": [((1, MOST), 1), ((2, -MOST - 1), 1), ((3, None), 1)]})
    state.define("v", "SELECT id, sum(a) AS s FROM t GROUP BY id")
    state.check("the greatest and the least")


def test_a_sum_of_doubles_is_right_again_when_what_was_too_large_for_it_is_gone(engine: DuckDbEngine) -> None:
    state = Maintained(engine, [table("t", "id INT, x DOUBLE")])
    state.apply({"t": [((1, 0.1), 1), ((2, -0.0), 1), ((3, 1e12), 1)]})
    state.define("v", "SELECT sum(x) AS s, avg(x) AS m, stddev(x) AS d FROM t")
    for odd in ((3e48, 2e30), (1e308, 1.5e308), (5e-324, 1e-20), (float("nan"), float("inf")), (-1e300, 1e28)):
        state.apply({"t": [((10 + i, x), 1) for i, x in enumerate(odd)]})
        state.apply({"t": [((10 + i, x), -1) for i, x in enumerate(odd)]})
        state.check(f"{odd} came and went")


SIZES = (0.1, -2.5, 1e12, 1.7e15, 1.7e15 + 1, 2.0**44 - 1, 2.0**44, 1e27, 2e30, -3e48, 1e100, 5e-324, 1e-300, 9e-16)
"""Doubles of everyday sizes, at the ends of what one decimal sum holds, and beyond."""


@pytest.mark.parametrize("seed", range(2))
def test_sums_of_doubles_of_all_sizes_equal_the_exact_ones_whatever_comes_and_goes(
    engine: DuckDbEngine, seed: int
) -> None:
    random = Random(seed)
    state = Maintained(engine, [table("t", "id INT, k INT, x DOUBLE, f FLOAT")])
    state.define("v", "SELECT k, sum(x) AS s, avg(x) AS m, var_pop(x) AS v FROM t GROUP BY k")
    state.define("w", "SELECT sum(x) AS s, count(*) AS n, sum(f) AS f, stddev(f) AS d FROM t")
    state.define("above", "SELECT k, s + 1 AS s FROM (SELECT k, sum(x) AS s FROM t GROUP BY k)")
    live: list[tuple[int, int, float, float]] = []
    for step in range(5):
        new = [(100 * step + i, random.randrange(3), x, 2.0) for i, x in enumerate(random.sample(SIZES, 5))]
        gone = random.sample(live, len(live) * 2 // 3)
        live = [row for row in live if row not in gone] + new
        state.apply({"t": [*((row, 1) for row in new), *((row, -1) for row in gone)]})
        expected = {k: [row[2] for row in live if row[1] == k] for k in {row[1] for row in live}}
        found = {row["k"]: row for row in state.rows("v").to_pylist()}
        assert found.keys() == expected.keys()
        for k, numbers in expected.items():
            assert found[k]["s"] == pytest.approx(math.fsum(numbers), rel=1e-9), (seed, step, numbers)
            assert found[k]["m"] == pytest.approx(math.fsum(numbers) / len(numbers), rel=1e-9)
            assert found[k]["v"] == pytest.approx(float(pvariance(map(Fraction, numbers))), rel=1e-9, abs=1e-12)
        total = state.rows("w").to_pylist()[0]
        assert total == {
            "s": pytest.approx(math.fsum(row[2] for row in live)),
            "n": len(live),
            "f": 2.0 * len(live),
            "d": 0,
        }
        above = {row["k"]: row["s"] for row in state.rows("above").to_pylist()}
        assert above == {k: pytest.approx(math.fsum(numbers) + 1) for k, numbers in expected.items()}


def test_a_large_double_that_came_and_went_leaves_nothing_and_a_full_refresh_agrees() -> None:
    with runnel.memory(engine=DuckDbEngine()) as project:
        project.create_table("t", "id BIGINT, x DOUBLE", key=["id"])
        project.create_view("v", "SELECT sum(x) AS s, avg(x) AS m, stddev_pop(x) AS d FROM t")
        with project.transaction() as tx:
            tx.insert("t", [{"id": 1, "x": 2e30}])
        for odd in ([3e48], [1e308, 1.5e308], [math.nan, math.inf], [-math.inf], [5e-324, 1e-20]):
            rows = [{"id": 10 + i, "x": x} for i, x in enumerate(odd)]
            with project.transaction() as tx:
                tx.insert("t", rows)
            with project.transaction() as tx:
                tx.delete("t", [row["id"] for row in rows])
            assert project.view("v").to_pylist() == [{"s": 2e30, "m": 2e30, "d": 0.0}], odd
        project.compact()
        assert project.view("v").to_pylist() == [{"s": 2e30, "m": 2e30, "d": 0.0}]
        project.refresh("v", full=True)
        assert project.view("v").to_pylist() == [{"s": 2e30, "m": 2e30, "d": 0.0}]
        assert project.verify("v").ok


@pytest.mark.parametrize("seed", range(2))
def test_the_spread_of_bigints_is_exact_and_has_room_for_the_largest(engine: DuckDbEngine, seed: int) -> None:
    random = Random(seed)
    kinds = (
        lambda: random.randint(-MOST - 1, MOST),
        lambda: random.choice((MOST, -MOST - 1, 2**62, 0)),
        lambda: 10**18 + random.randint(0, 3),
        lambda: 1_700_000_000_000_000 + random.randint(-(10**10), 10**10),
        lambda: random.randint(-5, 5),
    )
    state = Maintained(engine, [table("t", "g INT, a BIGINT")])
    state.define("v", "SELECT g, var_pop(a) AS p, stddev(a) AS d FROM t GROUP BY g")
    there: dict[int, list[int]] = {group: [] for group in range(len(kinds))}
    for _ in range(3):
        changes: list[tuple[tuple[object, ...], int]] = []
        for group, rows in there.items():
            if len(rows) > 3:
                changes.append(((group, rows.pop(random.randrange(len(rows)))), -1))
            new = [kinds[group]() for _ in range(random.randint(2, 9))]
            rows += new
            changes += [((group, value), 1) for value in new]
        state.apply({"t": changes})
        for row in state.rows("v").to_pylist():
            exact = pvariance([Fraction(value) for value in there[row["g"]]])
            assert row["p"] == pytest.approx(float(exact), rel=1e-14, abs=0), row
            few = len(there[row["g"]])
            assert row["d"] == pytest.approx(math.sqrt(exact * few / (few - 1)), rel=1e-14, abs=0), row
