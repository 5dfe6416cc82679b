"""A correlated subquery over no rows gives what its aggregates give over nothing: a number, an empty array, or NULL."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from runnel.compiler import compile_view
from runnel.compiler.no_rows import EMPTY, NULL, ZERO
from runnel.model.relation import Column
from runnel.model.types import BIGINT
from tests.compiler.conftest import by_name, table
from tests.compiler.harness import Maintained

if TYPE_CHECKING:
    from runnel.engine.duckdb import DuckDbEngine
    from runnel.engine.spark import SparkEngine

TWO = ("corr", "covar", "regr", "max_by", "min_by")
SHARE = ("percentile", "approx_percentile")
VALUES: dict[str, tuple[list[object], list[object]]] = {
    "array_agg(v)": ([[5, 7], [], []], [[], [], [9]]),
    "size(collect_set(v))": ([2, 0, 0], [0, 0, 1]),
    "coalesce(sum(v), 0)": ([12, 0, 0], [0, 0, 9]),
    "count(*) + coalesce(max(v), -1)": ([9, 0, -1], [-1, 0, 10]),
    "count_if(v > 6)": ([1, 0, 0], [0, 0, 1]),
    "count(DISTINCT v) * 2": ([4, 0, 0], [0, 0, 2]),
    "size(collect_list(v)) + count(v)": ([4, 0, 0], [0, 0, 2]),
    "max(v) IS NULL": ([False, True, True], [True, True, False]),
    "collect_list(v) FILTER (WHERE v > 6)": ([[7], [], []], [[], [], [9]]),
}
"""Values for the keys 1, 2 and 3, before and after a change; of the second key there is a row with NULL, of others none."""


def follow(engine: DuckDbEngine, sql: str) -> tuple[list[object], list[object]]:
    state = Maintained(engine, [table("z", "k INT"), table("y", "k INT, v INT")])
    state.apply({"z": [((1,), 1), ((2,), 1), ((3,), 1)], "y": [((1, 5), 1), ((1, 7), 1), ((2, None), 1)]})
    assert state.define("v", sql).incremental, sql

    def values() -> list[object]:
        return [r["a"] for r in sorted(state.rows("v").to_pylist(), key=lambda r: int(r["k"]))]

    before = values()
    state.apply({"y": [((1, 5), -1), ((1, 7), -1), ((3, 9), 1)]})
    return before, values()


@pytest.mark.parametrize("value", list(VALUES))
def test_a_correlated_value_over_no_rows_is_what_its_aggregates_give_over_nothing(
    engine: DuckDbEngine, value: str
) -> None:
    wanted = VALUES[value]
    assert follow(engine, f"SELECT z.k, (SELECT {value} FROM y WHERE y.k = z.k) AS a FROM z") == wanted
    assert follow(engine, f"SELECT z.k, l.a FROM z, LATERAL (SELECT {value} AS a FROM y WHERE y.k = z.k) l") == wanted


def test_a_correlated_value_with_a_group_by_of_its_own_is_null_over_no_rows(engine: DuckDbEngine) -> None:
    for value in ("count(*)", "coalesce(sum(v), 0)", "count(v) + 1"):
        _, after = follow(engine, f"SELECT z.k, (SELECT {value} FROM y WHERE y.k = z.k GROUP BY y.k) AS a FROM z")
        assert [a is None for a in after] == [True, False, False]


def test_an_aggregate_of_which_the_value_over_no_rows_is_not_known_is_recomputed() -> None:
    relations = by_name([table("z", "k INT"), table("y", "k INT, v INT")])
    sql = "SELECT z.k, (SELECT histogram_numeric(v, 5) FROM y WHERE y.k = z.k) AS a FROM z"
    shape = (Column("k", BIGINT), Column("a", BIGINT))  # DuckDB has no such function
    program = compile_view("v", sql, relations, lambda _sql, _tables: shape)
    assert [o.name for o in program.operators] == ["histogram_numeric in a correlated subquery"]


@pytest.mark.spark
def test_spark_gives_over_no_rows_what_the_table_of_aggregates_says(spark_engine: SparkEngine) -> None:
    def written(name: str) -> str:
        if name in ("percentile_cont", "percentile_disc"):
            return f"{name}(0.5) WITHIN GROUP (ORDER BY v)"
        more = ", v" if name.startswith(TWO) else ", 0.5" if name.startswith(SHARE) else ""
        more = ", 0.5" if name == "percentile_approx" else more
        boolean = name in ("bool_and", "bool_or", "every", "some", "any", "count_if")
        return f"{name}({'v > 1' if boolean else 'v'}{more})"

    session = spark_engine.session
    known = {name for name in (*ZERO, *EMPTY, *NULL) if session.catalog.functionExists(name)}
    shown = ", ".join(f"{written(name)} AS `{name}`" for name in sorted(known))
    row = session.sql(f"SELECT {shown} FROM VALUES (1) AS t(v) WHERE v > 1").collect()[0].asDict()
    assert {n for n, v in row.items() if v == 0} == ZERO & known
    assert {n for n, v in row.items() if v == []} == EMPTY & known
    assert {n for n, v in row.items() if v is None} == NULL & known
    assert len(known) > 40
