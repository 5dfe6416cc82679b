"""Updates of some columns, read by tasks: put together per key as the driver puts them, one after the other."""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING, Any

import pytest

import runnel
from runnel.engine.driver import Driver
from runnel.engine.duckdb import DuckDbEngine
from runnel.engine.spark import SparkEngine
from runnel.errors import RunnelError
from tests.pipeline.script_store import COLUMNS, KEY
from tests.pipeline.test_large_reads import ByTasks, reads_of

if TYPE_CHECKING:
    from pathlib import Path

    from runnel.engine.base import Engine
    from runnel.project import Project

VALUES: dict[str, list[Any]] = {
    "x": [None, 0.0, -0.0, 1.5, 1e300],
    "y": [None, "0.00", "-12.50"],
    "s": [None, "", "s", "ü"],
    "f": [None, True, False],
}


def opened(folder: Path, engine: Engine, further: str = "") -> Project:
    folder.mkdir()
    (folder / "script.json").write_text("[[]]")
    lines = ["[project]", 'name = "p"', "[sources.s]", 'type = "tests.pipeline.script_store"', further]
    (folder / "runnel.toml").write_text("\n".join(lines) + "\n")
    return runnel.open(folder, engine=engine)


def script(rng: random.Random, live: set[tuple[int, str]], most: int, *, moves: bool) -> list[dict[str, Any]]:
    """Write change sets that can have happened; each has rows with the same columns."""
    made = []
    for _ in range(rng.randrange(1, most)):
        key = (rng.randrange(4), rng.choice("ab"))
        row: dict[str, Any] = {"a": key[0], "b": key[1]}
        draw = rng.random()
        if key in live and draw < 0.2:
            live.discard(key)
            made.append({"rows": [row], "ops": ["delete"]})
        elif draw < 0.3:
            live.discard(key)
            made.append({"rows": [row], "ops": ["remove"]})
        elif key in live and draw < 0.8:
            chosen = rng.sample(sorted(VALUES), rng.randrange(1, len(VALUES)))
            set_ = {name: rng.choice(VALUES[name]) for name in chosen}
            free = (9, "moved")
            if moves and free not in live:
                live.discard(key)
                live.add(free)
                made.append({"rows": [{"a": 9, "b": "moved"} | set_], "ops": ["update"], "was": [row]})
            else:
                again = {name: rng.choice(VALUES[name]) for name in chosen}
                made.append({"rows": [row | set_, row | again], "ops": ["update", "update"]})
        else:
            live.add(key)
            made.append({"rows": [row | {n: rng.choice(v) for n, v in VALUES.items()}], "ops": ["upsert"]})
    return made


def outcome(project: Project, steps: list[list[dict[str, Any]]]) -> list[str]:
    (project.folder / "script.json").write_text(json.dumps(steps))
    project.run(once=True)
    return sorted(map(repr, project.table("s.t").to_arrow().to_pylist()))


def compared(
    tmp_path: Path, engine: Engine, seed: int, *, count: int = 4, most: int = 30, moves: bool = False
) -> list[dict[str, int]]:
    """Give the same steps to a project of this engine and to one whose driver reads; compare after each."""
    rng, live = random.Random(seed), set[tuple[int, str]]()
    given = [opened(tmp_path / "one", engine), opened(tmp_path / "other", DuckDbEngine(threads=1))]
    steps: list[list[dict[str, Any]]] = []
    for _ in range(count):
        steps.append(script(rng, live, most, moves=moves))
        one, other = (outcome(project, steps) for project in given)
        assert one == other
        assert len(one) == len(live)
    found = [reads_of(project) for project in given]
    for project in given:
        project.close()
    return found


@pytest.mark.parametrize("seed", range(12))
def test_random_updates_by_tasks_give_the_rows_that_the_driver_finds(tmp_path: Path, seed: int) -> None:
    one, other = compared(tmp_path, ByTasks(threads=1), seed)
    assert list(one) == ["spark"]
    assert list(other) == ["driver"]


def test_updates_that_change_keys_are_gone_through_in_order_by_the_driver(tmp_path: Path) -> None:
    for seed in range(4):
        folder = tmp_path / str(seed)
        folder.mkdir()
        assert "driver" in compared(folder, ByTasks(threads=1), seed, moves=True)[0]


@pytest.mark.spark
def test_spark_finds_the_same_rows(tmp_path: Path, spark_engine: SparkEngine) -> None:
    one, _ = compared(tmp_path, SparkEngine(spark_engine.session, driver=Driver(changes=0)), 7, count=2, most=12)
    assert list(one) == ["spark"]


def test_columns_that_cannot_be_compared_leave_updates_to_the_driver(tmp_path: Path) -> None:
    row: dict[str, Any] = dict.fromkeys(COLUMNS) | {"a": 1, "b": "a", "m": {"k": 1}}
    steps = [[{"rows": [row], "ops": ["upsert"]}], [{"rows": [{"a": 1, "b": "a", "s": "new"}], "ops": ["update"]}]]
    with opened(tmp_path / "p", ByTasks(threads=1), "map = true") as project:
        for end in (1, 2):
            outcome(project, steps[:end])
        (found,) = project.table("s.t").to_arrow().to_pylist()
        assert (found["s"], found["m"]) == ("new", [("k", 1)])
        assert reads_of(project)["driver"] == 1


@pytest.mark.parametrize("before", [[], ["delete"], ["remove"], ["upsert", "delete"]])
def test_an_update_of_a_key_that_is_not_there_is_refused(tmp_path: Path, before: list[str]) -> None:
    row: dict[str, Any] = dict.fromkeys(COLUMNS) | {"a": 1, "b": "a"}
    key = {name: row[name] for name in KEY}
    steps = [[{"rows": [row], "ops": ["upsert"]}]] if before in (["delete"], ["remove"]) else []
    last = [{"rows": [row if op == "upsert" else key], "ops": [op]} for op in before]
    codes = []
    for name, engine in (("one", ByTasks(threads=1)), ("other", DuckDbEngine(threads=1))):
        with opened(tmp_path / name, engine) as project:
            outcome(project, steps)
            with pytest.raises(RunnelError) as raised:
                outcome(project, [*steps, [*last, {"rows": [key | {"s": "new"}], "ops": ["update"]}]])
            codes.append([word for word in str(raised.value).split() if word.startswith("RUNNEL-")])
    assert codes[0] == codes[1]
    assert "RUNNEL-KEY-MISSING:" in codes[0]
