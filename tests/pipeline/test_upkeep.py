"""Upkeep beside the epochs: it gets done, it lets epochs go first, and it ends with the project."""

from __future__ import annotations

import itertools
import random
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

import runnel
from runnel.engine.duckdb import DuckDbEngine
from runnel.lake import compaction, slices
from runnel.lake import files as lake_files
from runnel.lake.compaction import FAN_IN
from runnel.pipeline import upkeep
from runnel.pipeline.upkeep import Keeper

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from runnel.project import Project


@pytest.fixture
def project() -> Iterator[Project]:
    with runnel.memory(engine=DuckDbEngine(threads=1)) as project:
        project.runtime.keeper = Keeper(project.runtime)
        project.create_table("t", "id BIGINT, v INT", key=["id"])
        yield project


def until(done: Callable[[], bool], seconds: float = 30.0) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if done():
            return True
        threading.Event().wait(0.02)
    return False


def fill(project: Project, epochs: int) -> None:
    for n in range(epochs):
        with project.transaction() as tx:
            tx.insert("t", [{"id": n, "v": n}])


def files(project: Project) -> int:
    return len(project.runtime.lake.snapshot().files("t"))


def test_files_are_folded_without_anybody_waiting_for_it(project: Project) -> None:
    fill(project, FAN_IN)
    assert until(lambda: files(project) == 1)
    assert project.table("t").to_arrow().num_rows == FAN_IN


def test_epochs_go_first(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upkeep, "PATIENCE", 60.0)
    with project.runtime.working():
        fill(project, FAN_IN)
        assert not until(lambda: files(project) == 1, seconds=0.3)
    assert until(lambda: files(project) == 1)


def test_a_steady_load_does_not_put_it_off_forever(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upkeep, "PATIENCE", 0.05)
    with project.runtime.working():
        fill(project, FAN_IN)
        assert until(lambda: files(project) == 1)


def test_a_closed_keeper_does_no_more(project: Project) -> None:
    assert project.runtime.keeper is not None
    project.runtime.keeper.close()
    fill(project, FAN_IN + 2)
    assert files(project) == FAN_IN + 2


def test_one_failure_does_not_end_it(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    failing, original = [OSError("once")], upkeep.compact

    def compact(*args: Any, **options: Any) -> Any:
        if failing:
            raise failing.pop()
        return original(*args, **options)

    monkeypatch.setattr(upkeep, "compact", compact)
    fill(project, 1)
    assert until(lambda: not failing)
    fill_from = FAN_IN + 1
    for n in range(1, fill_from):
        with project.transaction() as tx:
            tx.insert("t", [{"id": n, "v": n}])
    assert until(lambda: files(project) < fill_from)


TABLES = {
    "keyed": ("id BIGINT, v INT, s STRING", ["id"]),
    "bag": ("a INT, b STRING", []),
    "named": ("s STRING, v INT", ["s"]),
}
VIEWS = {
    "sums": "SELECT v, count(*) AS n, sum(id) AS s FROM keyed GROUP BY v",
    "kept": "SELECT a, b FROM bag WHERE b <> 'x'",
}


@pytest.fixture
def sliced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have everything folded in slices of a few row groups."""
    monkeypatch.setattr(upkeep, "DRIVER_ROWS", 0)
    monkeypatch.setattr(slices, "ROWS", 40)
    monkeypatch.setattr(lake_files, "ROW_GROUP", 16)
    monkeypatch.setattr(compaction, "FEW", 20)


@pytest.mark.usefixtures("sliced")
@pytest.mark.parametrize("seed", range(6))
def test_what_is_folded_in_slices_stays_what_it_was(seed: int) -> None:
    rng = random.Random(seed)
    with runnel.memory(engine=DuckDbEngine(threads=1)) as project:
        for name, (columns, key) in TABLES.items():
            project.create_table(name, columns, key=key)
        for name, sql in VIEWS.items():
            project.create_view(name, sql, mode="incremental")
        have: dict[str, list[dict[str, object]]] = {name: [] for name in TABLES}
        for number in range(6):
            with project.transaction() as tx:
                for name, make in _rows_of(rng, number).items():
                    gone = rng.sample(have[name], min(len(have[name]), rng.randrange(25)))
                    have[name] = [row for row in have[name] if all(row is not other for other in gone)] + make
                    rows = [{**row, "_weight": -1} for row in gone] + [{**row, "_weight": 1} for row in make]
                    tx.apply(name, rows)
            lake = project.runtime.lake
            upkeep.compact(project.runtime, lake.snapshot(), all_files=rng.random() < 0.5)
            for name, rows in have.items():
                found = project.table(name).to_arrow().to_pylist()
                assert sorted(map(repr, found)) == sorted(map(repr, rows)), (seed, number, name)
            assert all(report.ok for report in project.verify_all())
        upkeep.compact(project.runtime, lake.snapshot(), all_files=True)
        ends: list[tuple[Any, Any]] = sorted(
            (f.stats["id"].minimum, f.stats["id"].maximum) for f in lake.snapshot().files("keyed")
        )
        assert len(ends) > 1
        assert all(before[1] < after[0] for before, after in itertools.pairwise(ends))


def _rows_of(rng: random.Random, number: int) -> dict[str, list[dict[str, object]]]:
    ids = [number * 1000 + n - 2500 for n in rng.sample(range(1000), rng.randrange(1, 90))]
    bag = [(rng.choice([None, *range(-3, 40)]), rng.choice(["x", "y", None])) for _ in range(rng.randrange(60))]
    return {
        "keyed": [{"id": one, "v": rng.randrange(5), "s": rng.choice(["a", None])} for one in ids],
        "bag": [{"a": a, "b": b} for a, b in bag],
        "named": [{"s": f"{number}-{n}", "v": n} for n in range(rng.randrange(30))],
    }


@pytest.mark.usefixtures("sliced")
def test_sums_of_all_rows_together_are_never_cut(project: Project) -> None:
    project.create_view("total", "SELECT sum(v) AS s, count(*) AS n FROM t", mode="incremental")
    for n in range(6):
        with project.transaction() as tx:
            tx.insert("t", [{"id": n, "v": 10 * n}])
            if n % 2:
                tx.delete("t", [{"id": n - 1}])
    lake = project.runtime.lake
    head = lake.snapshot()
    assert slices.cut(head.relations["total"], head.files("total")) is None
    upkeep.compact(project.runtime, head, all_files=True)
    assert project.verify("total").ok


@pytest.mark.usefixtures("sliced")
def test_slices_give_way_to_the_end_and_leave_nothing_behind(project: Project) -> None:
    for n in range(4):
        with project.transaction() as tx:
            tx.insert("t", [{"id": n + 4 * m, "v": m} for m in range(100)])
    before = set(_paths(project))
    asked: list[bool] = []

    def rest() -> bool:
        asked.append(True)
        return len(asked) < 4

    done = upkeep.compact(project.runtime, project.runtime.lake.snapshot(), ["t"], all_files=True, rest=rest)
    assert len(asked) == 4
    assert done.files_folded == 0
    assert set(_paths(project)) == before


def _paths(project: Project) -> list[Path]:
    return [path for path in project.folder.rglob("*.parquet") if "t" in path.parent.name]
