"""Sums are right again as soon as what did not fit into them is gone."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from runnel.errors import RunnelError
from tests.compiler.conftest import table
from tests.compiler.harness import Maintained

if TYPE_CHECKING:
    from runnel.engine.duckdb import DuckDbEngine

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
