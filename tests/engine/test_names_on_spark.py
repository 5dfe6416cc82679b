"""Names mean what Spark makes of them: each view's rows and columns are those of its text in a session of Spark's own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import runnel
from runnel.errors import Terminal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

    from runnel.engine.spark import SparkEngine
    from runnel.project.project import Project

TABLES: dict[str, tuple[str, list[tuple[object, ...]]]] = {
    "t": ("k INT, g INT, v INT", [(i % 2, i % 3, i) for i in range(30)]),
    "s": ("id INT, x INT, y INT", [(1, 1, 10), (2, 1, 20), (3, 2, 5), (4, None, 7)]),
    "z": ("k INT, n STRING", [(1, "one"), (3, "three")]),
    "y": ("k INT, id INT, v INT", [(1, 1, 10), (1, 2, 20), (2, 3, 5), (2, 4, None)]),
    "w": ("id INT, m INT", [(1, 7), (2, 8), (2, 9)]),
}

VIEWS = {
    "star_in_calls": "SELECT id, hash(*) AS h, concat_ws('|', *) AS c, to_json(struct(y.*)) AS j FROM y",
    "star_in_where": "SELECT id FROM y WHERE array_contains(array(*), 1)",
    "fields_over_a_window": "SELECT to_json(struct(id, v)) AS j, row_number() OVER (PARTITION BY k ORDER BY id) AS r FROM y",
    "fields_over_groups": "SELECT k, to_json(struct(k, count(*) AS n, max(v))) AS j FROM y GROUP BY k",
    "fields_collected": "SELECT k, to_json(sort_array(collect_list(struct(v, id)))) AS j FROM y GROUP BY k",
    "fields_over_a_left_join": "SELECT y.k, to_json(struct(y.v, z.n)) AS j, to_json((n, id)) AS t FROM y LEFT JOIN z ON y.k = z.k",
    "fields_over_a_derived_query": "SELECT to_json(struct(a)) AS j FROM (SELECT v + 1 AS a FROM y)",
    "fields_of_zipped_arrays": "SELECT to_json(arrays_zip(a, b)) AS j FROM (SELECT array(id) AS a, array(v) AS b FROM y)",
    "order_by_an_output": "SELECT id, -y AS y FROM s ORDER BY y + 0 LIMIT 2",
    "order_by_a_case_of_an_output": "SELECT id, CASE WHEN v > 5 THEN 0 ELSE 1 END AS v FROM y "
    "ORDER BY CASE WHEN v = 0 THEN 1 ELSE 0 END, id LIMIT 2",
    "two_usings": "SELECT * FROM (SELECT k, id FROM y) a JOIN z USING (k) JOIN w USING (id) UNION ALL SELECT 100, 200, 'c', 300",
    "star_of_one_side": "SELECT y.*, w.m FROM w JOIN y USING (id) JOIN z USING (k)",
    "natural_joins": "SELECT * FROM w NATURAL JOIN y NATURAL LEFT JOIN z",
    "using_after_a_comma": "SELECT w.m, k, n FROM w, y JOIN z USING (k)",
    "full_using": "SELECT *, y.k AS yk FROM y FULL JOIN z USING (k)",
    "renamed_rank": "SELECT count(*) AS n FROM (SELECT g, row_number() OVER (PARTITION BY k ORDER BY v) AS rn FROM t) "
    "AS d(rn, x) WHERE rn <= 1",
    "hive_sets": "SELECT k, g, count(*) AS n FROM t GROUP BY k, g GROUPING SETS ((k), (g), ())",
    "intervals": "SELECT id, TIMESTAMP_NTZ'2024-03-31 12:00:00' - INTERVAL 1 DAY 12 HOURS AS a, "
    "DATE'2024-03-31' - INTERVAL 1 YEAR 2 MONTHS AS b FROM w",
    "window_of_time": "SELECT window.start AS st, count(*) AS n FROM "
    "(SELECT TIMESTAMP_NTZ'2024-01-01 00:00:00' AS ts FROM w) GROUP BY window(ts, '10 minutes', '5 minutes')",
    "a_table": "TABLE z",
    "values": "VALUES (1, 'a'), (2, 'b')",
    "identifier": "SELECT k, v FROM IDENTIFIER('z') JOIN IDENTIFIER('y') USING (k)",
    "variant": "SELECT id, parse_json('{\"a\": 1}'):a::INT AS x FROM w WHERE id IS DISTINCT FROM 1",
}
RECOMPUTED = {"fields_of_zipped_arrays", "variant", "window_of_time"}
"""Windows that overlap give several rows for one, which only Spark does."""


@pytest.fixture(scope="module")
def project(spark_engine: SparkEngine) -> Iterator[Project]:
    made = runnel.memory(engine=spark_engine)
    for name, (columns, rows) in TABLES.items():
        made.create_table(name, columns)
        names = [field.name for field in made.table(name).schema]
        with made.transaction() as tx:
            tx.insert(name, [dict(zip(names, row, strict=True)) for row in rows])
    yield made
    made.close()


@pytest.fixture(scope="module")
def oracle(spark_engine: SparkEngine) -> SparkSession:
    session = spark_engine.session.newSession()
    session.conf.set("spark.sql.session.timeZone", "UTC")
    for name, (columns, rows) in TABLES.items():
        session.createDataFrame(rows, columns).createOrReplaceTempView(name)
    return session


@pytest.mark.spark
@pytest.mark.parametrize("name", VIEWS)
def test_a_view_has_the_rows_and_columns_that_spark_gives_for_its_text(
    project: Project, oracle: SparkSession, name: str
) -> None:
    wanted = oracle.sql(VIEWS[name])
    view = project.create_view(name, VIEWS[name])
    assert list(view.schema.names) == wanted.columns
    assert sorted(str(tuple(r.values())) for r in view.to_pylist()) == sorted(str(tuple(r)) for r in wanted.collect())
    assert project.explain(name).incremental == (name not in RECOMPUTED)


@pytest.mark.spark
def test_two_columns_of_one_name_are_refused(project: Project) -> None:
    sql = "SELECT * FROM (SELECT k, id FROM y) a JOIN z USING (k) JOIN (SELECT id AS k, m FROM w) c ON c.m = a.id + 6"
    with pytest.raises(Terminal, match="two columns are named 'k'"):
        project.create_view("twice", sql)
