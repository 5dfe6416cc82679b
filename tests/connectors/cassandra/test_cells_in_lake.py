"""Cells are in the lake: found by what changed, published with the rows, and reconciled the same wherever that is done."""

from __future__ import annotations

import random
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import runnel
from runnel.connectors.cassandra import cells
from runnel.connectors.cassandra.cells import Range
from runnel.connectors.cassandra.cells.packed import ChangedCells
from runnel.connectors.cells import PLACE, Reconciliation
from runnel.engine.driver import Driver
from runnel.engine.duckdb import DuckDbEngine
from runnel.engine.spark import SparkEngine
from runnel.lake import kept
from runnel.lake.entries import Commit
from runnel.pipeline.cells import stored_cells, wanted_places
from tests.connectors.cassandra.by_tasks import ByTasks
from tests.connectors.cassandra.offline import Archive, number
from tests.support.places import places_of

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa

    from runnel.engine.base import Engine
    from runnel.project import Project

NOW = int(time.time())
COLUMNS = "k int, c int, v int, w int, PRIMARY KEY (k, c)"
CELLS = "shop.t#cells"


@pytest.fixture
def log(tmp_path: Path) -> Archive:
    (tmp_path / "log").mkdir()
    return Archive(tmp_path / "log", COLUMNS)


def beside(log: Archive, name: str) -> Path:
    """Make another project that reads the same log."""
    folder = log.folder.parent / name
    folder.mkdir(exist_ok=True)
    text = (log.folder / "runnel.toml").read_text()
    text = text.replace('"logs/*"', f'"{log.folder}/logs/*"').replace('"schema.cql"', f'"{log.folder}/schema.cql"')
    (folder / "runnel.toml").write_text(text)
    return folder


def state(project: Project) -> tuple[list[str], list[str]]:
    """Give the rows and the cells of the table, each as text."""
    lake = project.runtime.lake
    head = lake.snapshot()
    stored = lake.read(head.relations[CELLS], head.files(CELLS))
    netted: dict[str, int] = {}
    for row in stored.to_pylist():
        weight = row.pop("_weight")
        netted[str(row)] = netted.get(str(row), 0) + weight
    assert set(netted.values()) <= {0, 1}
    return sorted(map(str, project.table("shop.t").to_pylist())), sorted(k for k, n in netted.items() if n)


def write_at_random(log: Archive, rng: random.Random, segment: int) -> None:
    """Write a segment of rows, expiring ones, deletes of rows, ranges and keys: some dated back, some of before."""
    log.bodies.clear()
    for _ in range(40):
        k, c, at = rng.randrange(4), rng.randrange(6), rng.randrange(1_000_000)
        what = rng.random()
        if what < 0.6:
            ttl, since = rng.choice(((0, 0), (0, 0), (100, NOW - 1_000), (100_000, NOW)))
            log.row(k, c, at, insert=rng.random() < 0.5, ttl=ttl, now=since, segment=segment, v=rng.randrange(9))
        elif what < 0.75:
            log.row(k, c, at, segment=segment, now=NOW, v=None)
        elif what < 0.85:
            log.row(k, c, at, segment=segment, deleted=(at, NOW))
        elif what < 0.97:
            low = rng.randrange(6)
            log.delete_range(k, Range((number(low),), True, (number(low + 2),), False), at, NOW, segment)
        else:
            log.delete_key(k, at, NOW, segment)


def compared(log: Archive, engines: dict[str, Callable[[], Engine]], seed: int, steps: int) -> None:
    rng = random.Random(seed)
    for segment in range(1, steps + 1):
        write_at_random(log, rng, segment)
        found = {name: taken_by(beside(log, name), engine()) for name, engine in engines.items()}
        assert found["tasks"][0] == found["driver"][0], f"seed {seed}"
        assert {name: places for name, (_, places) in found.items()} == {"driver": {"driver"}, "tasks": {"spark"}}


def taken_by(folder: Path, engine: Engine) -> tuple[tuple[list[str], list[str]], set[str]]:
    """Run until caught up; give the rows and cells, and where cells were reconciled."""
    with runnel.open(folder, engine=engine) as project:
        project.run(once=True)
        return state(project), {place for epoch in project.epochs() for place in places_of(epoch, "keyed")}


def test_cells_are_reconciled_the_same_in_the_driver_and_by_tasks(log: Archive, say: Callable[[str], None]) -> None:
    seed = random.randrange(10**6)
    say(f"seed {seed}")
    compared(log, {"driver": DuckDbEngine, "tasks": ByTasks}, seed, 5)


@pytest.mark.spark
def test_cells_are_reconciled_the_same_by_spark(log: Archive, spark_engine: SparkEngine) -> None:
    by_spark = partial(SparkEngine, spark_engine.session, driver=Driver(changes=0))
    compared(log, {"driver": DuckDbEngine, "tasks": by_spark}, 1, 2)


def test_a_row_of_a_wide_partition_costs_its_own_cells(log: Archive) -> None:
    log.insert_many([(1, c, 10) for c in range(2_000)])
    with runnel.open(log.folder, engine=DuckDbEngine()) as project:
        project.run(once=True)
        lake, head = project.runtime.lake, project.runtime.lake.snapshot()
        relation = head.relations[CELLS]
        one = Reconciliation("t", None, NOW, NOW, 864_000)  # type: ignore[arg-type]
        row = (cells.SET, log.table, number(1), (number(7),), "v", None, number(1), 11, 0, 0)
        found = stored_cells(lake, head, relation, wanted_places(head, relation, one, changed(row)))
        assert 0 < found.num_rows < 10
        key = (cells.PARTITION_DELETE, log.table, number(1), None, None, None, None, 11, 0, NOW)
        found = stored_cells(lake, head, relation, wanted_places(head, relation, one, changed(key)))
        assert found.num_rows >= 2_000
        places = lake.read(relation, head.files(relation))[PLACE].to_pylist()
        assert places == sorted(places)


def changed(change: Any) -> pa.Table:
    found = ChangedCells()
    found.add([change], 0)
    return found.taken()


def test_what_expires_is_found_without_changes_in_the_log(log: Archive) -> None:
    now = int(time.time())
    log.row(1, 1, 10, insert=True, v=1)
    log.row(1, 2, 10, insert=True, ttl=3, now=now, v=2)
    with runnel.open(log.folder, engine=DuckDbEngine()) as project:
        project.run(once=True)
        assert len(project.table("shop.t").to_pylist()) == 2
        deadline = time.monotonic() + 30
        while len(project.table("shop.t").to_pylist()) == 2:
            assert time.monotonic() < deadline
            epoch = project.epochs()[-1]["epoch"]
            project.run(once=True)
            if len(project.table("shop.t").to_pylist()) == 2:
                assert project.epochs()[-1]["epoch"] == epoch, "an epoch for nothing"


def test_cells_past_their_grace_leave(tmp_path: Path) -> None:
    log = Archive(tmp_path, COLUMNS, "gc_grace_seconds = 2 AND ")
    now = int(time.time())
    log.row(1, 1, 10, insert=True, ttl=1, now=now, v=1)
    log.row(1, 2, 10, insert=True, v=2)
    log.row(1, 2, 20, deleted=(20, now))
    with runnel.open(log.folder, engine=DuckDbEngine()) as project:
        deadline = time.monotonic() + 30
        project.run(once=True)
        assert state(project)[1]
        while state(project)[1]:
            assert time.monotonic() < deadline
            project.run(once=True)
        assert project.table("shop.t").to_pylist() == []


def test_nothing_but_the_catalog_and_the_data_is_kept(log: Archive) -> None:
    log.row(1, 1, 10, insert=True, v=1)
    with runnel.open(log.folder, engine=DuckDbEngine()) as project:
        project.run(once=True)
    kept = {path.name.partition("-")[0] for path in (log.folder / ".runnel").iterdir()}
    assert kept <= {"catalog.sqlite", "data"}


def test_a_state_without_cells_is_read_again_from_the_start(log: Archive, caplog: pytest.LogCaptureFixture) -> None:
    log.row(1, 1, 10, insert=True, v=1)
    log.row(1, 2, 10, insert=True, v=2)
    with runnel.open(log.folder, engine=DuckDbEngine()) as project:
        project.run(once=True)
        lake = project.runtime.lake
        lake.publish(Commit(base=lake.head(), drop=[CELLS]))
        log.row(1, 2, 20, v=3)
        project.run(once=True)
        assert sorted(row["v"] for row in project.table("shop.t").to_pylist()) == [1, 3]
        assert "the state has no cells of shop.t" in caplog.text
        log.row(1, 1, 30, v=4)
        project.run(once=True)
        assert sorted(row["v"] for row in project.table("shop.t").to_pylist()) == [3, 4]


def test_damaged_cells_are_read_again_from_the_source(log: Archive) -> None:
    log.row(1, 1, 10, insert=True, v=1)
    with runnel.open(log.folder, engine=DuckDbEngine()) as project:
        project.run(once=True)
        (file,) = project.runtime.lake.snapshot().files(CELLS)
        Path(file.path).write_bytes(b"nothing of the kind")
        kept.drop(file.path)
        assert project.fsck(repair=True).rebuilt
        log.row(1, 1, 20, v=2)
        project.run(once=True)
        assert [row["v"] for row in project.table("shop.t").to_pylist()] == [2]
        assert not [damage for damage in project.fsck().damages if damage.file is None or damage.file.end is None]


def test_a_million_rows_of_eight_columns_take_at_most_150_mb(log: Archive) -> None:
    log.define("k int, c int, " + ", ".join(f"v{n} int" for n in range(6)) + ", PRIMARY KEY (k, c)")
    rng = random.Random(1)
    rows = 5_000
    log.insert_many([(n, n % 7, 1_763_000_000_000_000 + 137 * n) for n in range(rows)], lambda: rng.randrange(2**31))
    with runnel.open(log.folder, engine=DuckDbEngine()) as project:
        project.run(once=True)
        head = project.runtime.lake.snapshot()
        assert sum(file.rows for file in head.files(CELLS)) == 7 * rows
        assert sum(file.bytes for file in head.files(CELLS)) < 150 * rows
