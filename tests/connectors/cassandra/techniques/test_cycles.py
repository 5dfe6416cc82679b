"""C.c: a cycle without changes tells nothing; one that is killed half-way is simply run again, and each delta is told once."""

from __future__ import annotations

import copy
import os
import signal
import subprocess
import sys
from functools import partial
from typing import TYPE_CHECKING

import pytest

from runnel import failpoints
from runnel.connectors.cassandra.capture import Capture
from runnel.engine.driver import Driver
from runnel.engine.duckdb import DuckDbEngine
from runnel.engine.spark import SparkEngine
from runnel.failpoints import KILL_AT
from runnel.pipeline.captures import LakeCycles
from runnel.pipeline.source_state import StateOfSource
from runnel.project.project import open_project
from tests.connectors.cassandra.by_tasks import ByTasks
from tests.connectors.cassandra.conftest import short
from tests.connectors.cassandra.ways import LOGS, WAYS, written

if TYPE_CHECKING:
    from pathlib import Path

    from runnel.engine.base import Engine
    from tests.connectors.cassandra.conftest import Shop

pytestmark = pytest.mark.cassandra
POINTS = [point for point in failpoints.POINTS if point.startswith("capture:")]
KILLED = ("audit by value, wrapper", "scan", "snapshot", "tracking, wrapper", "log-partial", "log")


def killed(shop: Shop, technique: str, point: str) -> None:
    """Run a capture in a process that dies at a point."""
    command = [sys.executable, "-c", "from runnel.cli import main; main()", "--project", str(shop.folder)]
    command += ["capture", "shop", "--technique", technique, "--format", "json"]
    done = subprocess.run(command, env=os.environ | {KILL_AT: point}, capture_output=True, text=True, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr


def elsewhere(shop: Shop, folder: Path) -> Shop:
    """Give the same project in another folder, which shares the catalog and the data and nothing else."""
    other = copy.copy(shop)
    other.folder = folder
    own = shop.folder / ".runnel"
    state = f'[state]\ncatalog = "sqlite:{own / "catalog.sqlite"}"\ndata = "{own / "data"}"\n'
    (folder / "runnel.toml").write_text((shop.folder / "runnel.toml").read_text() + state)
    return other


@pytest.mark.parametrize("way", KILLED)
def test_c_c_a_killed_cycle_is_run_again_wherever_and_tells_each_delta_once(
    shop: Shop, way: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """The machine that is killed shares the catalog and the data with the one that goes on, and nothing else."""
    with written(shop, way) as (technique, writer):
        other = elsewhere(shop, tmp_path_factory.mktemp("other"))
        writer.set(a=1)
        shop.capture(technique)
        assert shop.told(technique) == []
        operation = "ups" if technique in ("scan", "log-partial") else "ins"
        for number, point in enumerate(POINTS):
            name = "bcde"[number]
            writer.set(**{name: number})
            if technique in LOGS:
                shop.wait_for_log()
            killed(shop, technique, point)
            assert other.told(technique) == [f"{operation} {name}:{number}"], point
        assert shop.told(technique) == []
        assert {path.name.partition("-")[0] for path in (shop.folder / ".runnel").iterdir()} == {
            "catalog.sqlite",
            "data",
        }
        assert not (other.folder / ".runnel").exists()


def test_a_first_cycle_tells_what_is_there_unless_it_is_to_begin_with_the_latest(shop: Shop) -> None:
    shop.cql("CREATE TABLE KS.t (k int PRIMARY KEY, v int)", "INSERT INTO KS.t (k, v) VALUES (1, 1)")
    assert shop.told("snapshot") == ["ins v:1"]
    shop.configure(start="latest")
    assert shop.told("scan") == []
    shop.cql("INSERT INTO KS.t (k, v) VALUES (2, 2)")
    assert shop.told("scan") == ["ups v:2"]


def test_what_happened_since_a_position_is_told_without_being_remembered(shop: Shop) -> None:
    shop.cql(
        "CREATE TABLE KS.t (k int PRIMARY KEY, v int)", "INSERT INTO KS.t (k, v) VALUES (1, 1) USING TIMESTAMP 1000"
    )
    shop.cql("INSERT INTO KS.t (k, v) VALUES (2, 2) USING TIMESTAMP 2000")
    assert shop.told("scan", "--since", "1000") == ["ups v:2"]
    assert shop.told("scan", "--since", "1970-01-01 00:00:00") == shop.told("scan")
    said = shop.run("capture", "shop", "--technique", "snapshot", "--since", "1000", exit_code=2)
    assert "RUNNEL-CAPTURE-SINCE" in said


def test_a_late_write_is_caught_by_the_overlap_and_told_once(shop: Shop) -> None:
    shop.configure(overlap="10 minutes")
    shop.cql("CREATE TABLE KS.t (k int PRIMARY KEY, v int)", "INSERT INTO KS.t (k, v) VALUES (1, 1)")
    assert shop.told("scan") == ["ups v:1"]
    written_at = shop.cql("SELECT writetime(v) AS at FROM KS.t WHERE k = 1")[0].at
    shop.cql(f"INSERT INTO KS.t (k, v) VALUES (2, 2) USING TIMESTAMP {written_at - 1_000_000}")
    assert shop.told("scan") == ["ups v:2"]
    assert shop.told("scan") == []


def test_two_captures_do_not_run_at_once(shop: Shop) -> None:
    shop.cql("CREATE TABLE KS.t (k int PRIMARY KEY, v int)")
    project = open_project(shop.folder, engine=DuckDbEngine(), sync=False)
    with project, LakeCycles(project.runtime, "shop", "scan").alone():
        assert "RUNNEL-CAPTURE-BUSY" in shop.run("capture", "shop", "--technique", "scan", exit_code=1)


def test_snapshots_read_by_tasks_and_here_are_compared_with_each_other(shop: Shop) -> None:
    shop.configure(tables=["t"])
    shop.cql("CREATE TABLE KS.t (k int, c int, s int static, v map<int, text>, w int, PRIMARY KEY (k, c))")
    shop.cql(*(f"INSERT INTO KS.t (k, c, w) VALUES ({n}, {n % 3}, {n})" for n in range(20)))
    assert sorted(told_by(shop, ByTasks())) == sorted(f"ins w:{n}" for n in range(20))
    shop.cql("UPDATE KS.t SET v = {1: 'a/b'}, s = 5 WHERE k = 1 AND c = 1", "DELETE FROM KS.t WHERE k = 2")
    assert told_by(shop, DuckDbEngine()) == ["ins s:5", 'ins v:{"1": "a/b"}', "del w (was 2)"]
    shop.cql("DELETE v FROM KS.t WHERE k = 1 AND c = 1", "INSERT INTO KS.t (k, c) VALUES (50, 50)")
    assert sorted(told_by(shop, ByTasks())) == ['del v (was {"1": "a/b"})', "ins :"]
    assert told_by(shop, ByTasks()) == told_by(shop, DuckDbEngine()) == []


@pytest.mark.spark
def test_spark_reads_a_snapshot_and_compares_it_with_the_last_one(shop: Shop, spark_engine: SparkEngine) -> None:
    by_spark = partial(SparkEngine, spark_engine.session, driver=Driver(changes=0))
    shop.configure(tables=["t"])
    shop.cql("CREATE TABLE KS.t (k int PRIMARY KEY, v list<text>, w int)")
    shop.cql(*(f"INSERT INTO KS.t (k, w) VALUES ({n}, {n})" for n in range(20)))
    engine = by_spark()
    assert sorted(told_by(shop, engine)) == sorted(f"ins w:{n}" for n in range(20))
    assert {kind for kind, work in engine.counted.kinds.items() if work.spark} == {"read", "step"}
    shop.cql("UPDATE KS.t SET v = ['a', 'b'], w = 7 WHERE k = 1", "DELETE FROM KS.t WHERE k = 2")
    assert sorted(told_by(shop, by_spark())) == ["del w (was 2)", 'ins v:["a", "b"]', "upd w:7 (was 1)"]
    assert told_by(shop, by_spark()) == told_by(shop, DuckDbEngine()) == []


def told_by(shop: Shop, engine: Engine) -> list[str]:
    with open_project(shop.folder, engine=engine, sync=False) as project:
        source = project.config.sources[0]
        deltas = Capture(source, project.folder, StateOfSource(project.runtime, source.name), "snapshot").deltas()
        return [short(delta) for delta in deltas]


def test_every_way_is_known_to_some_technique() -> None:
    assert {technique for technique, _, _ in WAYS.values()} == {
        "audit",
        "scan",
        "snapshot",
        "log",
        "log-partial",
        "trigger",
    }
