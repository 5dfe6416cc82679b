"""Only the first rows are kept for `rank <= k`, and only where nothing else reads the rows that are dropped."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.compiler.conftest import table
from tests.compiler.harness import Maintained

if TYPE_CHECKING:
    from runnel.engine.duckdb import DuckDbEngine
    from tests.compiler.harness import Batch

RN = "row_number() OVER (PARTITION BY k ORDER BY v)"
FIRST_ROWS = [
    f"SELECT k, v FROM (SELECT k, v, {RN} AS rn FROM t) WHERE rn <= 2",
    f"SELECT k, v FROM (SELECT k, v, {RN} AS rn FROM t) d WHERE d.rn = 2 AND v > 3",
    f"SELECT x FROM (SELECT {RN} AS a, v AS b FROM t) AS d(rn, x) WHERE rn < 3",
    f"WITH c (x, rn) AS (SELECT v, {RN} FROM t) SELECT x FROM c WHERE rn BETWEEN 1 AND 2",
    f"WITH c AS (SELECT v, {RN} AS rn FROM t) SELECT x FROM c AS d(x, y) WHERE y = 1",
    f"SELECT k, v FROM t QUALIFY {RN} = 1",
    f"SELECT k, g, v, c FROM (SELECT k, g, v, {RN} AS rn, count(*) OVER (PARTITION BY g) AS c FROM t) WHERE rn <= 1",
    f"SELECT k, g, v FROM t QUALIFY {RN} = 1 AND count(*) OVER (PARTITION BY g) > 2",
    f"SELECT k, v FROM (SELECT k, v, {RN} AS a, row_number() OVER (PARTITION BY g ORDER BY v DESC) AS b FROM t) "
    "WHERE a <= 2 AND b <= 2",
    f"SELECT count(*) AS n, sum(v) AS s FROM (SELECT v, {RN} AS rn FROM t) WHERE rn <= 1",
    f"SELECT DISTINCT g FROM (SELECT g, {RN} AS rn FROM t) WHERE rn <= 1",
    f"SELECT v, rn FROM (SELECT v, {RN} AS rn FROM t) WHERE rn <= 2 ORDER BY v DESC LIMIT 2",
    "SELECT v, tot FROM (SELECT v, rank() OVER (ORDER BY count(*) DESC, v) AS r, count(*) OVER (PARTITION BY v % 2) AS tot "
    "FROM t GROUP BY v) WHERE r <= 2",
]
ALL_ROWS = [
    f"SELECT k, v FROM (SELECT k, v, {RN} AS rn, sum(v) OVER (PARTITION BY k) AS s FROM t) WHERE rn <= 1 AND s > 5",
    f"SELECT k, v, rn FROM (SELECT k, v, {RN} AS rn FROM t ORDER BY v DESC LIMIT 4) WHERE rn <= 1",
    f"SELECT v FROM (SELECT DISTINCT v, {RN} AS rn FROM t) WHERE rn <= 1",
    f"SELECT count(*) AS n FROM (SELECT g, {RN} AS rn FROM t) AS d(rn, x) WHERE rn <= 1",
    f"WITH c (rn, x) AS (SELECT g, {RN} AS rn FROM t) SELECT rn, x FROM c WHERE rn <= 1",
    f"SELECT v FROM (SELECT named_struct('rn', 1) AS s, v, {RN} AS rn FROM t) WHERE s.rn <= 1",
    f"SELECT d.v, o.v AS w FROM (SELECT v, k, {RN} AS rn FROM t) d JOIN t o ON o.k = d.k WHERE rn <= 1",
    f"SELECT v FROM (SELECT v, {RN} AS rn FROM t UNION ALL SELECT v, g FROM t) WHERE rn <= 1",
    f"SELECT v FROM ((SELECT v, {RN} AS rn FROM t) UNION ALL (SELECT v, g FROM t) ORDER BY v DESC LIMIT 3) WHERE rn <= 1",
    f"SELECT v FROM (SELECT v, {RN} AS rn FROM t) WHERE rn <= 1 OR v > 8",
    f"SELECT v, n FROM (SELECT v, rn + count(*) OVER (PARTITION BY k) AS n, rn FROM (SELECT v, k, {RN} AS rn FROM t)) "
    "WHERE rn <= 1",
    f"WITH c AS (SELECT v, k, {RN} AS rn FROM t) SELECT v, (SELECT count(*) FROM c) AS n FROM c WHERE rn <= 1",
]


@pytest.mark.parametrize("sql", [*FIRST_ROWS, *ALL_ROWS])
def test_small_ranks_are_right_whatever_else_reads_the_rows(engine: DuckDbEngine, sql: str) -> None:
    state = Maintained(engine, [table("t", "k INT, g INT, v INT")])
    state.apply({"t": [((i % 2, i % 3, i), 1) for i in range(150)]})
    program = state.define("v", sql)
    assert program.incremental
    kept = any(o.name == "first rows" for stage in program.stages for o in stage.operators)
    limited = "LIMIT" in sql or "count(*) FROM c" in sql
    assert limited or kept == (sql in FIRST_ROWS)
    state.check("start")
    change: Batch = {"t": [*(((i % 2, i % 3, i), -1) for i in range(3)), ((0, 0, -1), 1), ((1, 1, 200), 1)]}
    state.apply(change)
    state.check("after a change")
