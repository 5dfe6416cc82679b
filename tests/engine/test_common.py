"""What may run in the driver: a list that both engines see alike, which Spark confirms."""

from __future__ import annotations

import datetime
import re
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from runnel.engine.base import Rows
from runnel.engine.common import common, shape
from runnel.engine.driver import Driver, Small
from runnel.model import types
from runnel.model.relation import Column

if TYPE_CHECKING:
    from runnel.engine.base import Input
    from runnel.engine.spark import SparkEngine

COLUMNS = tuple(
    Column(name, types.parse(type_))
    for name, type_ in (
        ("k", "bigint"),
        ("i", "int"),
        ("t", "tinyint"),
        ("p", "decimal(12,2)"),
        ("q", "decimal(5,4)"),
        ("w", "decimal(38,10)"),
        ("s", "string"),
        ("b", "boolean"),
        ("d", "date"),
        ("m", "timestamp"),
        ("f", "double"),
        ("a", "array<int>"),
    )
)
DAY = datetime.date
ROWS = [
    (1, 1, 1, "1.50", "0.1234", "1.0000000001", "a", True, DAY(1999, 12, 31), 0, 1.5, [1]),
    (2, -7, None, "-2.25", "-0.5000", "-3", "A", False, DAY(2000, 1, 1), 1, -0.0, None),
    (2, 2, 127, "99999999.99", "9.9999", "12345678901234567890.5", "é", None, DAY(1969, 7, 20), 2, 0.0, []),
    (None, None, -128, None, None, None, None, None, None, None, None, None),
    (3, 2147483647, 0, "0.01", "0.0001", "0", "", True, DAY(2024, 2, 29), 3, float("inf"), [None]),
    (3, 2147483647, 0, "0.01", "0.0001", "0", "zebra%_", True, DAY(2024, 2, 29), 3, 1.0, [2]),
]
SAME = [
    "SELECT k, count(*) AS n, sum(p) AS s, min(d) AS lo, max(s) AS hi FROM t GROUP BY k",
    "SELECT k, sum(i) AS s, sum(t) AS u, count(i) AS n, count(DISTINCT s) AS c FROM t GROUP BY k",
    "SELECT p + q AS a, p - q AS b, p * q AS c, -p AS e, p + 1 AS g, p * 3 AS h, k * 2 AS j FROM t",
    "SELECT sum(p * (1 - q)) AS s, sum(p * (1 - p) * (1 + p)) AS u FROM t",
    "SELECT p * p * p AS a, p * 1000 - 12 AS b, p * p * p * 2 AS c, 100 - p AS d FROM t WHERE p < 100",
    "SELECT s, s < 'b' AS a, s <=> 'a' AS b, s IN ('a', 'zebra%_', NULL) AS c, s NOT IN ('a') AS e FROM t",
    "SELECT CAST(replace(concat('-', CAST(w AS STRING)), '--', '') AS DECIMAL(38,10)) AS a FROM t",
    "SELECT s FROM t WHERE s LIKE '%e%' OR s NOT LIKE 'z%'",
    "SELECT substring(s, 2, 3) AS a, substring(s, 1, 0) AS b FROM t",
    "SELECT year(d) AS y, extract(year FROM d) AS z, d >= DATE '2000-01-01' AS a, d BETWEEN DATE '1990-01-01' AND DATE '2010-01-01' AS b FROM t",
    "SELECT k FROM t WHERE d < DATE '1999-01-31' + INTERVAL '1' MONTH OR d >= DATE '2024-03-31' - INTERVAL '1' MONTH",
    "SELECT k FROM t WHERE d < DATE '2000-01-03' - INTERVAL '2' DAY OR d = DATE '2020-02-29' + INTERVAL '4' YEAR",
    "SELECT CASE WHEN k > 9 THEN raise_error('more than nine') ELSE k END AS a FROM t",
    "SELECT m > m AS a, max(m) AS x FROM t GROUP BY m > m",
    "SELECT CASE WHEN b THEN 1 WHEN NOT b THEN 2 END AS a, CASE WHEN p > 0 THEN p ELSE q END AS c FROM t",
    "SELECT coalesce(i, 0) AS a, coalesce(p, q, 0) AS c, i IS NULL AS e, b AND p > 1 AS g, b OR p > 1 AS h FROM t",
    "SELECT CAST(CAST(i AS DECIMAL(38,0)) AS BIGINT) AS a, CAST(CAST(p AS DECIMAL(20,0)) AS BIGINT) AS b FROM t",
    "SELECT CAST(i AS BIGINT) AS a, CAST(k AS DECIMAL(20,3)) AS c, CAST(p AS DECIMAL(20,5)) AS e, CAST(NULL AS STRING) AS g FROM t",
    "SELECT k, row_number() OVER (PARTITION BY k ORDER BY s, i, t) AS r, rank() OVER (ORDER BY i DESC) AS q FROM t",
    "SELECT i, rank() OVER (ORDER BY i) AS q, dense_rank() OVER (ORDER BY p DESC NULLS FIRST) AS z FROM t",
    "SELECT s, sum(p) OVER (PARTITION BY k ORDER BY s, i, t ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS r FROM t",
    "SELECT s, max(i > 0) OVER (PARTITION BY k ORDER BY i RANGE BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING) AS r FROM t",
    "SELECT DISTINCT k, i FROM t",
    "SELECT k, i FROM t UNION SELECT i, k FROM t",
    "SELECT one.s, two.p FROM t AS one LEFT JOIN t AS two ON one.k <=> two.i AND one.p = two.p",
    "SELECT one.s FROM t AS one LEFT SEMI JOIN t AS two ON one.k = two.k AND two.b",
    "SELECT one.s FROM t AS one LEFT ANTI JOIN t AS two ON one.k = two.k AND NOT two.b",
    "SELECT k, s FROM t LATERAL VIEW explode(sequence(CAST(1 AS BIGINT), CAST(3 AS BIGINT))) _copies AS n",
    "SELECT k, n FROM t LATERAL VIEW explode(array(CAST(-1 AS BIGINT), CAST(1 AS BIGINT))) c AS n",
    "WITH r AS (SELECT k, sum(p) FILTER (WHERE b) AS x FROM t GROUP BY k) SELECT * FROM r WHERE x > 1.25",
    "SELECT k, f, s FROM t WHERE p >= 0.01",
    "SELECT k FROM t GROUP BY k HAVING sum(p) > 1 OR count(*) = 1",
    "SELECT CAST(p AS DECIMAL(12,1)) AS a, CAST(q AS DECIMAL(2,0)) AS b, CAST(w AS DECIMAL(30,9)) AS c FROM t",
    "SELECT p / q AS a, q / p AS b, p / 7 AS c, 100.00 * p / 3.0 AS e, k / q AS g, (p * q) / (q * q) / p AS h FROM t",
    "SELECT w / p AS a, p / CAST(3 AS DECIMAL(10,0)) AS b, CAST(w AS DECIMAL(38,4)) / CAST(p AS DECIMAL(38,4)) AS c FROM t",
    "SELECT p div q AS a, p div 3 AS b, p % q AS c, w % p AS e, 100 % p AS g, -p div 7 AS h, -q % 0.7 AS j, w % 0.7 AS l FROM t",
    "SELECT k, CASE WHEN count(i) > 0 THEN CAST(sum(t) AS DOUBLE) / CAST(count(i) AS DOUBLE) END AS a FROM t GROUP BY k",
    "SELECT k, max(p / q) AS a FROM t WHERE p / q > 1.5 GROUP BY k",
]
NOT_SAME = [
    "SELECT sum(p) / 3 AS a FROM t",
    "SELECT (p + 1) / q AS a FROM t",
    "SELECT i / 2 AS a FROM t",
    "SELECT i div 2 AS a FROM t",
    "SELECT CAST(p AS DOUBLE) / 2 AS a FROM t",
    "SELECT k FROM t WHERE CAST(i AS DOUBLE) / CAST(7 AS DOUBLE) > 1",
    "SELECT i % 2 AS a FROM t",
    "SELECT -w AS a FROM t",
    "SELECT avg(p) AS a FROM t",
    "SELECT sum(f) AS a FROM t",
    "SELECT f + 1 AS a FROM t",
    "SELECT f, count(*) AS n FROM t GROUP BY f",
    "SELECT k FROM t WHERE f > 1",
    "SELECT w * p AS a FROM t",
    "SELECT q * q * q * p * p * p AS a FROM t",
    "SELECT w + q AS a FROM t",
    "SELECT upper(s) AS a FROM t",
    "SELECT concat(s, s) AS a FROM t",
    "SELECT k FROM t WHERE s = 1",
    "SELECT k FROM t WHERE d > '2000-01-01'",
    "SELECT k FROM t WHERE s LIKE 'a\\\\_%'",
    "SELECT k FROM t WHERE s LIKE s",
    "SELECT substring(s, 0, 2) AS a FROM t",
    "SELECT substring(s, -2, 2) AS a FROM t",
    "SELECT year(m) AS a FROM t",
    "SELECT CAST(s AS INT) AS a FROM t",
    "SELECT CAST(p AS INT) AS a FROM t",
    "SELECT CAST(p AS STRING) AS a FROM t",
    "SELECT a FROM t",
    "SELECT k FROM t ORDER BY k LIMIT 1",
    "SELECT k FROM t WHERE k IN (SELECT i FROM t)",
    "SELECT k FROM t WHERE EXISTS (SELECT 1 FROM t AS u WHERE u.k = t.k)",
    "SELECT lag(k) OVER (ORDER BY k) AS a FROM t",
    "SELECT sum(k) OVER (ORDER BY k ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) AS a FROM t",
    "SELECT k, count(*) AS n FROM t GROUP BY ROLLUP (k)",
    "SELECT rand() AS a FROM t",
    "SELECT 1e3 AS a FROM t",
    "SELECT n FROM t LATERAL VIEW explode(sequence(k, CAST(1 AS BIGINT))) c AS n",
    "SELECT CASE WHEN b THEN w * 5 ELSE q * 0.0001 END AS a FROM t",
    "SELECT coalesce(sum(p), 0.125) AS a FROM t",
    "SELECT f FROM t UNION SELECT f FROM t",
    "SELECT d + INTERVAL '1' MONTH AS a FROM t",
    "SELECT m + INTERVAL '1' HOUR AS a FROM t",
]


def _inputs() -> dict[str, Input]:
    base = datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC)
    listed: list[list[Any]] = [list(row) for row in ROWS]
    for row in listed:
        for at in (3, 4, 5):
            row[at] = None if row[at] is None else Decimal(str(row[at]))
        row[9] = None if row[9] is None else base + datetime.timedelta(hours=int(str(row[9])))
    arrays = [pa.array([row[at] for row in listed], types.to_arrow(c.type)) for at, c in enumerate(COLUMNS)]
    return {"t": Rows(pa.table(arrays, names=[c.name for c in COLUMNS]), COLUMNS)}


@pytest.mark.parametrize("sql", SAME)
def test_what_both_mean_alike_may_run_in_the_driver(sql: str) -> None:
    assert common(sql, (("t", shape(COLUMNS)),)) is not None


@pytest.mark.parametrize("sql", NOT_SAME)
def test_everything_else_is_sparks(sql: str) -> None:
    assert common(sql, (("t", shape(COLUMNS)),)) is None


@pytest.mark.spark
@pytest.mark.parametrize("sql", SAME)
def test_both_engines_give_the_same_rows(sql: str, spark_engine: SparkEngine) -> None:
    inputs = _inputs()
    sql = re.sub(r"\b(FROM|JOIN) t\b", r"\1 `t`", sql)
    columns = spark_engine.analyse(sql, {"t": COLUMNS})
    spark = spark_engine.rows(sql, inputs, columns)
    driver = Driver(threads=1)
    found = driver.rows(Small(sql, inputs), columns)
    assert found is not None
    assert _bag(found) == _bag(spark)
    driver.close()


def _bag(table: pa.Table) -> list[str]:
    return sorted(str(tuple(row.values())) for row in table.to_pylist())
