"""A whole project on Spark: transactions, views, DataFrames, the data source, large results, a session that is given."""

from __future__ import annotations

import time
from decimal import Decimal
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest

import runnel
from runnel.engine.counts import counting
from runnel.engine.driver import Driver
from runnel.engine.spark import SparkEngine
from runnel.errors import RunnelError
from runnel.model import types
from runnel.model.relation import Column

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from runnel.project import Project

pytestmark = pytest.mark.spark


@pytest.fixture
def project(spark_engine: SparkEngine, tmp_path: Path) -> Iterator[Project]:
    """Give a project in the shared session; only the lake is closed after the test."""
    made = runnel.create(tmp_path / "p", engine=spark_engine)
    made.create_table("orders", "id BIGINT, region STRING, amount DECIMAL(12,2), tags ARRAY<STRING>", key=["id"])
    yield made
    made.runtime.lake.close()


def test_views_follow_and_verify(project: Project) -> None:
    project.create_view(
        "totals", "SELECT region, sum(amount) AS t, avg(amount) AS a, count(*) AS n FROM orders GROUP BY region"
    )
    project.create_view("rich", "SELECT region FROM totals WHERE t > 5")
    project.create_view("tops", "SELECT region, max(amount) AS m FROM orders GROUP BY region")
    with project.transaction() as tx:
        tx.insert("orders", [{"id": i, "region": f"r{i % 3}", "amount": i, "tags": ["x"]} for i in range(9)])
    project.sql("UPDATE orders SET region = 'moved', amount = amount / 3 WHERE id < 2; DELETE FROM orders WHERE id = 8")
    strategies = {name: did["strategy"] for name, did in project.epochs()[-1]["views"].items()}
    assert strategies == {"totals": "incremental", "rich": "incremental", "tops": "incremental"}
    assert [str(report) for report in project.verify_all() if not report.ok] == []
    assert project.view("totals").df().where("region = 'moved'").collect()[0]["t"] == Decimal("0.33")
    assert project.view("totals").to_arrow().schema == project.view("totals").schema
    assert project.changes("rich", since=0).num_rows == 3


def test_rows_of_a_small_view_are_read_without_a_job_and_equal_what_spark_reads(project: Project) -> None:
    project.create_view("totals", "SELECT region, sum(amount) AS t, avg(amount) AS a FROM orders GROUP BY region")
    with project.transaction() as tx:
        tx.insert("orders", [{"id": i, "region": f"r{i % 3}", "amount": i, "tags": ["x"]} for i in range(9)])
    project.sql("UPDATE orders SET region = 'moved', amount = amount / 3 WHERE id < 2; DELETE FROM orders WHERE id = 8")
    for handle in (project.view("totals"), project.table("orders")):
        with counting() as counted:  # apart from what upkeep does beside it
            shown = handle.to_arrow()
        nested = handle.name == "orders"  # equal rows with arrays are added up by Spark alone
        assert bool(counted.on_spark) == nested, "a job was started for a few rows"
        assert sorted(map(str, shown.to_pylist())) == sorted(str(row.asDict()) for row in handle.df().collect())
        assert shown.schema == handle.schema


def test_large_changes_are_written_by_spark(project: Project) -> None:
    project.runtime.large = 1_000
    project.create_view("picked", "SELECT id, amount FROM orders WHERE amount > 10")
    project.create_view("totals", "SELECT region, sum(amount) AS t FROM orders GROUP BY region")
    ids = np.arange(5_000)
    rows = pa.table(
        {
            "id": ids,
            "region": [f"r{i % 7}" for i in ids],
            "amount": pa.array([Decimal(int(i) % 50) for i in ids], pa.decimal128(12, 2)),
        }
    )
    with project.transaction() as tx:
        tx.insert("orders", rows)
    project.create_view("later", "SELECT id, region, tags FROM orders WHERE amount < 5")
    project.sql("DELETE FROM orders WHERE amount < 3")
    project.compact()
    assert [str(report) for report in project.verify_all() if not report.ok] == []
    assert project.query("SELECT count(*) AS n FROM later").to_pylist() == [{"n": 200}]


def test_any_session_reads_a_view_by_its_format(project: Project, spark_engine: SparkEngine) -> None:
    project.create_view("totals", "SELECT region, sum(amount) AS t FROM orders GROUP BY region")
    before = project.status().epoch
    project.sql("INSERT INTO orders VALUES (1, 'r', 2.50, array('a'))")
    spark = spark_engine.session
    spark.dataSource.register(runnel.DataSource)
    reader = spark.read.format("runnel").option("project", str(project.folder))
    assert [tuple(row) for row in reader.load("totals").collect()] == [("r", Decimal("2.50"))]
    assert reader.option("at", str(before)).load("totals").count() == 0


def test_a_given_session_keeps_its_own_settings(spark_engine: SparkEngine) -> None:
    users = spark_engine.session
    users.conf.set("spark.sql.session.timeZone", "UTC")
    engine = SparkEngine(users)
    with runnel.memory(engine=engine) as project:
        project.create_table("t", "x INT")
        project.create_view("v", "SELECT x + 1 AS y FROM t")
        with project.transaction() as tx:
            tx.insert("t", users.createDataFrame([(1,), (2,)], "x int"))
        assert sorted(row["y"] for row in project.view("v").to_pylist()) == [2, 3]
    assert users.sql("SELECT 1 AS one").collect()[0]["one"] == 1


def test_an_engine_gets_ready_beside_other_work_and_may_be_closed_meanwhile(spark_engine: SparkEngine) -> None:
    for wait in (True, False):
        engine = SparkEngine(spark_engine.session)
        engine.warm()
        while wait and not engine.ready:
            time.sleep(0.01)
        engine.close()
        assert not engine.ready
    assert spark_engine.session.sql("SELECT 1 AS one").collect()[0]["one"] == 1


@pytest.mark.parametrize("changes", [0, 1000])
def test_wide_decimals_are_taken_away_to_the_last_digit(spark_engine: SparkEngine, changes: int) -> None:
    engine = SparkEngine(spark_engine.session, driver=Driver(changes=changes))
    wide, least = "-12345678901234567890.123456789012345678", "0.000000000000000001"
    with runnel.memory(engine=engine) as project:
        project.create_table("t", "id INT, d DECIMAL(38,18)", key=["id"])
        project.create_view("total", "SELECT sum(d) AS s, count(*) AS n FROM t")
        project.create_view("negative", "SELECT id, -d AS n FROM t")
        project.sql(f"INSERT INTO t VALUES (1, {wide}), (2, {least})")
        project.sql(f"UPDATE t SET d = {least} WHERE id = 1")
        assert project.view("total").to_pylist() == [{"s": 2 * Decimal(least), "n": 2}]
        project.sql(f"UPDATE t SET d = {wide} WHERE id = 2")
        assert project.view("total").to_pylist() == [{"s": Decimal("-12345678901234567890.123456789012345677"), "n": 2}]
        project.refresh("total", full=True)  # stores the difference between nothing and nothing
        assert project.view("total").to_pylist() == [{"s": Decimal("-12345678901234567890.123456789012345677"), "n": 2}]
        assert [report.ok for report in project.verify_all()] == [True, True]


def test_a_row_that_breaks_a_view_stops_only_that_view(project: Project) -> None:
    project.create_view("ratio", "SELECT id, 1 / amount AS r FROM orders")
    project.create_view("count", "SELECT count(*) AS n FROM orders")
    project.sql("INSERT INTO orders VALUES (1, 'r', 0, NULL)")
    views = {view.name: view for view in project.status().views}
    assert "DIVIDE_BY_ZERO" in (views["ratio"].error or "")
    assert project.view("count").to_pylist() == [{"n": 1}]


def test_a_wrong_query_is_one_sentence(project: Project) -> None:
    with pytest.raises(RunnelError, match="amount"):
        project.create_view("bad", "SELECT amont FROM orders")
    with pytest.raises(RunnelError):
        project.query("SELECT nothing_like_it(id) FROM orders").to_arrow()


def test_a_project_that_closes_leaves_the_session_to_others(spark_engine: SparkEngine) -> None:
    table = {"t": (Column("a", types.BIGINT),)}
    spark_engine.analyse("SELECT a FROM `t`", table)
    with runnel.memory() as other:
        other.create_table("t", "a BIGINT")
        other.create_view("v", "SELECT count(*) AS n FROM t")
    assert spark_engine.analyse("SELECT a FROM `t`", table) == table["t"]
