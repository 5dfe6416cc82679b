"""Spark's SQL means on DuckDB what it means on Spark."""

from __future__ import annotations

import datetime
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from runnel.engine.base import Rows
from runnel.engine.duckdb import DuckDbEngine
from runnel.errors import Terminal
from runnel.model import types
from runnel.model.relation import Column

if TYPE_CHECKING:
    from collections.abc import Iterator

TABLE = pa.table(
    {
        "a": pa.array([1, 2, None, 2], pa.int64()),
        "k": pa.array([1, 1, 2, 2], pa.int32()),
        "s": pa.array(["x", "y", None, "x"]),
        "r": pa.array([[1, None, 2], [], None, [3]], pa.list_(pa.int32())),
        "m": pa.array([[("a", 1), ("b", None)], [], None, [("b", 3)]], pa.map_(pa.string(), pa.int32())),
        "b": pa.array([True, False, None, True]),
    }
)
COLUMNS = tuple(Column(field.name, types.from_arrow(field.type)) for field in TABLE.schema)


@pytest.fixture(scope="module")
def engine() -> Iterator[DuckDbEngine]:
    engine = DuckDbEngine(threads=2)
    yield engine
    engine.close()


QUERIES: list[tuple[str, list[tuple[object, ...]]]] = [
    # NULLs come first, and last when descending.
    ("SELECT a, row_number() OVER (ORDER BY a, s) AS n FROM t", [(None, 1), (1, 2), (2, 3), (2, 4)]),
    ("SELECT a FROM t ORDER BY a LIMIT 1", [(None,)]),
    ("SELECT a FROM t ORDER BY a DESC LIMIT 3", [(2,), (2,), (1,)]),
    ("SELECT sort_array(r) AS p, sort_array(r, false) AS q FROM t WHERE a = 1", [([None, 1, 2], [2, 1, None])]),
    ("SELECT k, sort_array(collect_list(a)) AS p FROM t GROUP BY k", [(1, [1, 2]), (2, [2])]),
    ("SELECT k, percentile(a, 0.5) AS p, median(a) AS q FROM t GROUP BY k", [(1, 1.5, 1.5), (2, 2.0, 2.0)]),
    ("SELECT k, percentile_approx(a, 0.5) AS p FROM t GROUP BY k", [(1, 1), (2, 2)]),
    ("SELECT mode() WITHIN GROUP (ORDER BY k) AS p, mode() WITHIN GROUP (ORDER BY k DESC) AS q FROM t", [(1, 2)]),
    ("SELECT max_by(s, k) AS p, min_by(s, a) AS q FROM t WHERE a IS NULL OR a = 1", [(None, "x")]),
    (
        "SELECT k, every(b) AS p, some(b) AS q, any(b) AS r FROM t GROUP BY k",
        [(1, False, True, True), (2, True, True, True)],
    ),
    ("SELECT any_value(a) AS p FROM t WHERE a IS NULL", [(None,)]),
    ("SELECT k, grouping_id() AS g, count(*) AS n FROM t GROUP BY ROLLUP (k)", [(1, 0, 2), (2, 0, 2), (None, 1, 4)]),
    ("SELECT k, count(*) AS n FROM t GROUP BY k WITH CUBE", [(1, 2), (2, 2), (None, 4)]),
    (
        "SELECT k, s, count(*) AS n FROM t WHERE k = 1 GROUP BY k, s GROUPING SETS ((k), (s))",
        [(1, None, 2), (None, "x", 1), (None, "y", 1)],
    ),
    ("SELECT a, x FROM t LATERAL VIEW explode(r) e AS x", [(1, 1), (1, None), (1, 2), (2, 3)]),
    (
        "SELECT k, x FROM t LATERAL VIEW OUTER explode(r) e AS x",
        [(1, 1), (1, None), (1, 2), (1, None), (2, None), (2, 3)],
    ),
    (
        "SELECT k, p, x FROM t LATERAL VIEW OUTER posexplode(r) e AS p, x WHERE k = 2",
        [(2, None, None), (2, 0, 3)],
    ),
    ("SELECT k, x, y FROM t LATERAL VIEW explode(m) e AS x, y", [(1, "a", 1), (1, "b", None), (2, "b", 3)]),
    ("SELECT x, y FROM t LATERAL VIEW inline(array(struct(a AS p, k AS q))) e AS x, y WHERE a = 1", [(1, 1)]),
    ("SELECT x FROM t LATERAL VIEW stack(2, a, k + 5) e AS x WHERE a = 1", [(1,), (6,)]),
    ("SELECT explode_outer(r) AS x FROM t WHERE k = 2", [(None,), (3,)]),
    ("SELECT t.k, e.x FROM t, LATERAL explode(t.r) AS e(x) WHERE k = 2", [(2, 3)]),
    ("SELECT x FROM explode(array(1, 2)) AS e(x)", [(1,), (2,)]),
    ("SELECT concat_ws('-', sort_array(collect_list(s))) AS p FROM t", [("x-x-y",)]),
    (
        "SELECT concat_ws('-', p, q, 'z') AS t FROM (SELECT collect_list(s) AS p, 'b' AS q FROM t WHERE s = 'x' UNION ALL SELECT NULL, NULL)",
        [("x-x-b-z",), ("z",)],
    ),
    (
        "SELECT concat_ws('-', p) AS t FROM (SELECT collect_list(s) AS p FROM t WHERE s = 'x' UNION ALL SELECT NULL)",
        [("x-x",), ("",)],
    ),
    ("SELECT exists(r, x -> x > 1) AS p FROM t WHERE a = 1", [(True,)]),
    ("SELECT get(r, 0) AS p, get(r, 9) AS q FROM t WHERE a = 1", [(1, None)]),
    ("SELECT pmod(-3, 2) AS p, isnull(NULL) AS q, isnotnull(1) AS r", [(1, True, True)]),
    ("SELECT trunc(DATE'2024-02-03', 'MM') AS p", [(datetime.date(2024, 2, 1),)]),
    ("SELECT k FROM t EXCEPT ALL SELECT k FROM t WHERE a = 1", [(1,), (2,), (2,)]),
    ("SELECT count(DISTINCT datediff(DATE'2024-03-01', DATE'2024-02-28'), k) AS p FROM t", [(2,)]),
    ("SELECT datediff(TIMESTAMP'2024-01-01 23:00:00', '2023-12-31') AS p", [(1,)]),
    # Lists of no rows are empty.
    ("SELECT collect_list(a) AS p, size(collect_set(a)) AS q FROM t WHERE k > 9", [([], 0)]),
    ("SELECT k, (SELECT size(collect_list(u.a)) FROM t u WHERE u.k = t.a) AS p FROM t WHERE a = 1", [(1, 2)]),
    ("SELECT k, (SELECT size(collect_list(u.a)) FROM t u WHERE u.k = t.k + 5) AS p FROM t WHERE a = 1", [(1, 0)]),
    ("SELECT k, array_agg(a) FILTER (WHERE a > 9) AS p FROM t GROUP BY k", [(1, []), (2, [])]),
    ("SELECT collect_list(a) OVER (PARTITION BY k) AS p FROM t WHERE a IS NULL", [([],)]),
    # A column that is spelled in two ways is one.
    (
        "SELECT grouping_id() AS g, count(*) AS n FROM t GROUP BY GROUPING SETS ((T.k), (t.`K`), ())",
        [(0, 2), (0, 2), (0, 2), (0, 2), (1, 4)],
    ),
    ("SELECT xxhash64(a, s) = xxhash64(a, s) AS p FROM t WHERE a = 1", [(True,)]),
]


@pytest.mark.parametrize(("sql", "rows"), QUERIES)
def test_spark_sql_gives_the_same_rows(engine: DuckDbEngine, sql: str, rows: list[tuple[object, ...]]) -> None:
    found = engine.rows(sql, {"t": Rows(TABLE, COLUMNS)})
    assert sorted((tuple(row.values()) for row in found.to_pylist()), key=repr) == sorted(rows, key=repr)


def test_raise_error_raises(engine: DuckDbEngine) -> None:
    with pytest.raises(Terminal, match="two rows"):
        engine.rows("SELECT raise_error('two rows') AS a FROM t", {"t": Rows(TABLE, COLUMNS)})
