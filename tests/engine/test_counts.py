"""An epoch's record counts what Spark ran, by kind and place, and nothing that others ran at the same time."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest

import runnel
from runnel import config
from runnel.engine.driver import CHANGES, Driver
from runnel.engine.spark import SparkEngine
from runnel.project.engine import driver_rows
from runnel.project.status import status

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from runnel.project import Project


def ran(engine: SparkEngine) -> tuple[int, int]:
    """Give how many jobs and tasks the session has started, as Spark's schedulers number them."""
    java = engine.session.sparkContext._jsc.sc()
    return java.dagScheduler().numTotalJobs(), java.taskScheduler().nextTaskId()


@pytest.fixture
def project(spark_engine: SparkEngine, tmp_path: Path) -> Iterator[Project]:
    """Give a project in the shared session whose every step runs on Spark."""
    engine = SparkEngine(spark_engine.session, driver=Driver(changes=0))
    made = runnel.create(tmp_path / "p", engine=engine)
    made.create_table("sales", "id BIGINT, cat INT, amount INT", key=["id"])
    made.create_table("cats", "cat INT, name STRING", key=["cat"])
    made.sql("INSERT INTO cats VALUES (1, 'a'), (2, 'b')")
    made.create_view("totals", "SELECT name, sum(amount) AS s FROM sales JOIN cats USING (cat) GROUP BY name")
    made.create_view("tops", "SELECT cat, max(amount) AS m FROM sales GROUP BY cat")
    yield made
    made.runtime.lake.close()


def take(project: Project, number: int) -> tuple[dict[str, Any], int, int]:
    """Insert a row; give the epoch's record, and how many jobs and tasks Spark started meanwhile."""
    engine = project.runtime.engine
    assert isinstance(engine, SparkEngine)
    before = ran(engine)
    with project.transaction() as tx:
        tx.insert("sales", {"id": number, "cat": 1, "amount": number})
    after = ran(engine)
    (record,) = (epoch for epoch in project.epochs() if epoch["epoch"] == tx.epoch)
    return record, after[0] - before[0], after[1] - before[1]


@pytest.mark.spark
def test_the_jobs_and_tasks_of_a_record_are_those_that_spark_ran(project: Project) -> None:
    record, jobs, tasks = take(project, 1)
    assert (record["jobs"], record["tasks"]) == (jobs, tasks)
    step = record["work"]["step"]
    assert step["driver"] == 0
    assert 0 < step["spark"] <= jobs <= tasks
    assert (step["jobs"], step["tasks"]) == (jobs, tasks)
    told = str(project.explain("totals"))
    assert f"epoch {record['epoch']}: {step['spark']} steps on Spark; {jobs} jobs, {tasks} tasks" in told
    assert "driver_rows is 0" in told
    said = status(project.runtime, "p", {})
    assert said.work["work"]["step"]["spark"] >= step["spark"]
    assert "steps on Spark" in str(said)


@pytest.mark.spark
def test_what_others_run_at_the_same_time_is_not_counted(project: Project) -> None:
    quiet, *_ = take(project, 1)
    session, done = project.runtime.engine.session, threading.Event()  # type: ignore[attr-defined]

    def others() -> None:
        while not done.is_set():
            session.range(10).selectExpr("sum(id)").collect()

    thread = threading.Thread(target=others)
    thread.start()
    try:
        record, jobs, _ = take(project, 2)
    finally:
        done.set()
        thread.join()
    assert record["work"]["step"]["spark"] == quiet["work"]["step"]["spark"]
    assert record["jobs"] == quiet["jobs"] < jobs


def rows_in_driver(folder: Path, text: str) -> int:
    (folder / "runnel.toml").write_text(f"[project]\nname = 'p'\n{text}")
    return driver_rows(config.load(folder), None)


def test_on_a_cluster_the_driver_takes_a_small_part_of_what_it_takes_on_one_machine(tmp_path: Path) -> None:
    assert rows_in_driver(tmp_path, "") == rows_in_driver(tmp_path, "[spark]\nmaster = 'local[4]'\n") == CHANGES
    for cluster in ("master = 'spark://host:7077'", "master = 'yarn'", "remote = 'sc://host'"):
        assert rows_in_driver(tmp_path, f"[spark]\n{cluster}\n") <= CHANGES // 20
        assert rows_in_driver(tmp_path, f"[spark]\n{cluster}\n[run]\ndriver_rows = 7\n") == 7
