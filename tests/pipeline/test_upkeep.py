"""Upkeep beside the epochs: it gets done, it lets epochs go first, and it ends with the project."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

import runnel
from runnel.engine.duckdb import DuckDbEngine
from runnel.lake.compaction import FAN_IN
from runnel.pipeline import upkeep
from runnel.pipeline.upkeep import Keeper

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

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
