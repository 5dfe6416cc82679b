"""A Spark whose Java process has ended is noticed and started again; a session that the user gave is not ours to start."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkException

import runnel
from runnel.engine.driver import Driver
from runnel.engine.lost_java import broken_connection, is_stopped, java_ended
from runnel.engine.spark import SparkEngine
from runnel.errors import RunnelError, Unreachable
from runnel.model import types
from runnel.model.relation import Column

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def process() -> Iterator[subprocess.Popen[bytes]]:
    """Give a process that stands in for Java, and runs until its input ends."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as running:
        yield running
        running.kill()


def session_of(process: object, *, stopped: bool = False) -> Any:
    """Give what PySpark keeps of a session."""
    context = SimpleNamespace(_gateway=SimpleNamespace(proc=process), _jsc=None if stopped else object())
    return SimpleNamespace(_sc=context)


def test_a_session_has_ended_when_its_process_has(process: subprocess.Popen[bytes]) -> None:
    session = session_of(process)
    assert not java_ended(session)
    assert not is_stopped(session)
    process.kill()
    assert java_ended(session, patience=60)
    assert is_stopped(session)


def test_a_session_that_was_stopped_is_seen_without_asking_java(process: subprocess.Popen[bytes]) -> None:
    assert is_stopped(session_of(process, stopped=True))
    assert is_stopped(SimpleNamespace(is_stopped=True))  # of Spark Connect
    assert not java_ended(session_of(process, stopped=True))


def test_a_session_over_a_java_that_somebody_else_started_counts_as_running() -> None:
    assert not java_ended(session_of(None))
    assert not is_stopped(SimpleNamespace())


def test_an_answer_of_java_is_not_taken_for_a_broken_connection() -> None:
    made = {name: type(name, (Exception,), {})() for name in ("Py4JJavaError", "Py4JNetworkError", "Py4JError")}
    assert {name for name, error in made.items() if broken_connection(error)} == {"Py4JNetworkError", "Py4JError"}
    assert broken_connection(ConnectionResetError())
    assert broken_connection(EOFError())
    assert not broken_connection(ValueError())


def test_a_given_session_that_was_stopped_is_an_error_that_says_so(process: subprocess.Popen[bytes]) -> None:
    engine = SparkEngine(session_of(process, stopped=True))
    for _ in range(2):
        with pytest.raises(Unreachable, match=r"RUNNEL-SPARK-STOPPED.*open the project again"):
            engine.analyse("SELECT 1", {})
    assert "RUNNEL-SPARK-STOPPED" in str(engine.lost())


def test_a_spark_that_does_not_start_again_is_tried_again_after_pauses_that_grow(
    process: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, clock, starts = SparkEngine(), [100.0], []
    monkeypatch.setattr("runnel.engine.spark.time.monotonic", lambda: clock[0])
    monkeypatch.setattr(engine, "_session", session_of(process, stopped=True))
    monkeypatch.setattr(engine, "warm", lambda: starts.append(clock[0]))
    for _ in range(100):
        assert "RUNNEL-SPARK-GONE" in str(engine.lost())
        clock[0] += 0.5
    assert starts == [100.0, 101.0, 103.0, 107.0, 115.0, 131.0]


def test_a_view_is_not_blamed_for_a_spark_that_was_stopped() -> None:
    engine = SparkEngine()
    stopped = PySparkException("Job 3 cancelled because SparkContext was shut down")
    for error in (stopped, ConnectionResetError(), EOFError()):
        with pytest.raises(Unreachable, match="RUNNEL-SPARK-GONE"), engine._translated_errors():
            raise error


@pytest.mark.spark
def test_a_killed_java_is_started_again_and_the_next_epoch_is_right(
    spark_engine: SparkEngine, caplog: pytest.LogCaptureFixture
) -> None:
    """What runs meanwhile fails with a code; then views, temporary tables and users' functions are there again."""
    engine = SparkEngine(driver=Driver(changes=0))
    given = SparkEngine(spark_engine.session)
    given.analyse("SELECT 1 AS one", {})
    project = runnel.memory(engine=engine)
    project.register_function("twice", lambda x: 2 * x, "BIGINT", arguments="x BIGINT")
    project.create_table("t", "id BIGINT, v BIGINT", key=["id"])
    project.create_view("s", "SELECT v, count(*) AS n, sum(twice(id)) AS d FROM t GROUP BY v")
    project.sql("INSERT INTO t VALUES (1, 1)")
    raised: list[RunnelError] = []

    def long_query() -> None:
        try:
            engine.rows("SELECT count(*) AS n FROM range(100000000000) WHERE id % 7 = 3", {})
        except RunnelError as error:
            raised.append(error)

    context: Any = engine.session.sparkContext
    tracker = context.statusTracker()
    query = threading.Thread(target=long_query)
    query.start()
    while not tracker.getActiveStageIds():
        assert query.is_alive()
        time.sleep(0.05)
    os.kill(context._gateway.proc.pid, signal.SIGKILL)
    query.join()
    assert [error.code for error in raised] == ["RUNNEL-SPARK-GONE"]
    assert "RUNNEL-SPARK-GONE" in str(engine.lost())  # and the next one is being started

    project.sql("INSERT INTO t VALUES (2, 1)")
    assert "RUNNEL-SPARK-GONE" in caplog.text
    assert project.view("s").to_pylist() == [{"v": 1, "n": 2, "d": 6}]
    assert engine.ready
    assert engine.lost() is None

    columns = (Column("a", types.BIGINT),)
    assert spark_engine.analyse("SELECT a FROM `t`", {"t": columns}) == columns
    with pytest.raises(Unreachable, match="RUNNEL-SPARK-STOPPED"):
        given.analyse("SELECT 2 AS another", {})  # not one whose columns are known already
    given.close()
    project.close()
    assert spark_engine.analyse("SELECT a FROM `t`", {"t": columns}) == columns
