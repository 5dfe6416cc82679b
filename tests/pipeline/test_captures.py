"""Cycles of captures in the lake: ended once whoever runs them, what they leave in its order, and nothing else of the state disturbed."""

from __future__ import annotations

import time
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import runnel
from runnel.connectors.deltas import kept as lines
from runnel.connectors.deltas.cycles import Cycles, State
from runnel.connectors.deltas.kept import leave_lines, lines_left
from runnel.connectors.deltas.model import Delta, Operation
from runnel.engine.duckdb import DuckDbEngine
from runnel.errors import RunnelError
from runnel.lake import tables
from runnel.pipeline import captures
from runnel.pipeline.captures import LakeCycles, is_captured
from runnel.pipeline.upkeep import compact
from tests.connectors.cassandra.by_tasks import ByTasks

if TYPE_CHECKING:
    from collections.abc import Iterator

    from runnel.connectors.deltas.technique import Cycle, Position
    from runnel.project import Project
    from tests.servers.postgres import PostgresServer

VALUES = pa.schema([("name", pa.string()), ("value", pa.int64())])
CHANGES = """
SELECT coalesce(n.name, o.name) AS name, coalesce(n.value, 0) - coalesce(o.value, 0) AS value
FROM `new` AS n FULL OUTER JOIN `old` AS o ON n.name = o.name WHERE NOT (n.value <=> o.value) ORDER BY name
"""


class Counter:
    """Tells the numbers up to the one that is reached, each as a delta, and notes what it settles."""

    def __init__(self) -> None:
        self.reached = 0
        self.settled: list[Position] = []

    def now(self) -> Position:
        return {"time": self.reached}

    def read(self, cycle: Cycle) -> Iterator[Delta]:
        for number in range((cycle.after or {"time": 0})["time"], cycle.upto["time"]):
            yield Delta(Operation.INS, "k", "t", (str(number),), (), "c", str(number))

    def settle(self, cycle: Cycle) -> None:
        self.settled.append(cycle.upto)

    def close(self) -> None:
        """There is nothing to close."""


def cycles_of(project: Project) -> Cycles:
    return Cycles(LakeCycles(project.runtime, "shop", "counter"))


def told(project: Project, technique: Counter) -> list[str]:
    return [delta.value or "" for delta in cycles_of(project).run(technique)]


def captured(project: Project) -> list[str]:
    return [name for name in project.runtime.lake.snapshot().relations if is_captured(name)]


def test_a_run_that_was_cut_off_while_it_told_is_told_again_and_only_then_goes_on(project: Project) -> None:
    counter = Counter()
    counter.reached = 3
    with closing(cycles_of(project).run(counter)) as run:  # type: ignore[type-var]
        assert next(run).value == "0"
    counter.reached = 4
    assert told(project, counter) == ["0", "1", "2", "3"]
    assert counter.settled == [{"time": 3}, {"time": 3}, {"time": 4}]
    assert told(project, counter) == []


@pytest.mark.postgres
def test_two_folders_with_a_postgresql_go_on_with_each_other(tmp_path: Path, postgres_server: PostgresServer) -> None:
    catalog, counter, numbers = postgres_server.database(), Counter(), list[str]()
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        state = f'[state]\ncatalog = "{catalog}"\ndata = "{tmp_path / "data"}"\n'
        (tmp_path / name / "runnel.toml").write_text(f'[project]\nname = "shared"\n{state}')
    opened = [runnel.open(tmp_path / name, engine=DuckDbEngine()) for name in ("one", "two")]
    with opened[0] as one, opened[1] as two:
        for reached, project in enumerate((one, two, two, one), 1):
            counter.reached = reached
            numbers += told(project, counter)
        assert numbers == ["0", "1", "2", "3"]
        counter.reached = 5
        with closing(cycles_of(one).run(counter)) as run:  # type: ignore[type-var]
            assert next(run).value == "4"
            with pytest.raises(RunnelError, match="RUNNEL-CAPTURE-BUSY"):
                told(two, counter)
        assert told(two, counter) == ["4"]
        assert told(one, counter) == []


def test_what_somebody_else_ended_meanwhile_is_not_ended_again(project: Project) -> None:
    lake = project.runtime.lake
    one, other = (LakeCycles(project.runtime, "shop", "counter") for _ in range(2))
    counter = Counter()
    counter.reached = 2
    with one.kept() as kept:
        leave_lines(kept, "deltas", ["{}"])
        assert len([*Cycles(other).run(counter)]) == 2
        state = other.state()
        assert state is not None
        with pytest.raises(RunnelError, match="RUNNEL-CAPTURE-BUSY"):
            one.commit(kept, None, state)
    assert one.state() == state
    head = lake.snapshot()
    listed = {file.path for name in head.relations for file in head.files(name)}
    assert {path for path in listed if "capture" in path} == set(map(str, files_of_captures(lake.data)))


def files_of_captures(data: str) -> list[Path]:
    return [path for path in Path(data).rglob("*.parquet") if "capture" in str(path)]


def test_a_second_run_is_kept_out_and_the_lease_outlives_its_time(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(captures, "LEASE_SECONDS", 1.0)
    one, other = (LakeCycles(project.runtime, "shop", "counter") for _ in range(2))
    with one.alone():
        until = time.monotonic() + 2.5
        while time.monotonic() < until:
            with pytest.raises(RunnelError, match="RUNNEL-CAPTURE-BUSY"), other.alone():
                pass
            time.sleep(0.1)
    with other.alone():
        pass


def test_lines_come_back_in_their_order_also_when_their_files_were_folded(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lines, "LINES_AT_ONCE", 10)
    store, counter = LakeCycles(project.runtime, "shop", "counter"), Counter()
    counter.reached = 95
    assert len([*Cycles(store).run(counter)]) == 95
    lake = project.runtime.lake
    (name,) = captured(project)
    assert len(lake.snapshot().files(name)) == 10
    with store.kept() as kept:
        before = [*lines_left(kept, "deltas")]
    compact(project.runtime, lake.snapshot(), [name], all_files=True)
    assert len(lake.snapshot().files(name)) == 1
    with store.kept() as kept:
        assert [*lines_left(kept, "deltas")] == before
    assert len(before) == 95


@pytest.mark.parametrize("engine", [DuckDbEngine, ByTasks])
def test_what_two_cycles_left_is_compared_here_and_by_tasks(engine: type[DuckDbEngine]) -> None:
    with runnel.memory(engine=engine()) as project:
        store, found = LakeCycles(project.runtime, "shop", "counter"), []
        state: State | None = None
        for values in ({"a": 1, "b": 2}, {"b": 3, "c": 4}):
            rows = pa.table({"name": [*values], "value": [*values.values()]}, schema=VALUES)
            with store.kept() as kept:
                if kept.by_tasks(rows.num_rows):
                    kept.leave_read(
                        "values", [partial(iter, rows.slice(at, 1).to_batches()) for at in range(2)], VALUES
                    )
                else:
                    kept.leave("values", rows)
                found.append([row for part in kept.compare("values", CHANGES, VALUES) for row in part.to_pylist()])
                done = State(str(values), None, {})
                store.commit(kept, state, done)
                state = done
        assert [[(row["name"], row["value"]) for row in cycle] for cycle in found] == [
            [("a", 1), ("b", 2)],
            [("a", -1), ("b", 1), ("c", 4)],
        ]
        lake = project.runtime.lake
        with lake.catalog.read() as connection:
            listed = connection.execute(tables.data_file.select()).all()
        assert len(files_of_captures(lake.data)) == len(listed), "what was compared leaves nothing behind"


def test_captures_do_not_disturb_tables_and_views(project: Project) -> None:
    project.create_table("events", "id BIGINT, cost BIGINT", key=["id"])
    project.create_view("takings", "SELECT sum(cost) AS s FROM events")
    project.sql("INSERT INTO events VALUES (1, 5)")
    counter = Counter()
    for reached in range(1, 4):
        counter.reached = reached
        assert told(project, counter) == [str(reached - 1)]
        project.sql(f"INSERT INTO events VALUES ({reached + 1}, 5)")
    project.create_view("most", "SELECT max(cost) AS m FROM events")  # what no view reads is cleared away then
    assert captured(project)
    assert project.verify("takings").ok
    assert project.view("takings").to_arrow().to_pylist() == [{"s": 20}]
    assert [view.behind for view in project.status().views] == [0, 0]
    assert not project.fsck().damages


def test_a_window_that_is_read_once_leaves_no_trace(project: Project) -> None:
    counter = Counter()
    counter.reached = 2
    assert told(project, counter) == ["0", "1"]
    epoch, files = project.runtime.lake.head(), files_of_captures(project.runtime.lake.data)
    store = LakeCycles(project.runtime, "shop", "counter")
    assert len([*Cycles(store).read_once(counter, {"time": 1})]) == 1
    with store.kept(once=True) as kept:
        leave_lines(kept, "deltas", ["x"])
        assert [*lines_left(kept, "deltas")] == []
    assert (project.runtime.lake.head(), files_of_captures(project.runtime.lake.data)) == (epoch, files)


def test_a_capture_that_is_forgotten_begins_anew(project: Project) -> None:
    counter = Counter()
    counter.reached = 2
    assert told(project, counter) == ["0", "1"]
    cycles_of(project).forget()
    assert captured(project) == []
    assert cycles_of(project).state() is None
    assert told(project, counter) == ["0", "1"]


def test_many_cycles_leave_a_state_of_bounded_size(project: Project) -> None:
    project.runtime.keep, project.runtime.grace = 5, 0.0
    counter = Counter()
    for reached in range(60):
        counter.reached = reached
        told(project, counter)
    assert len(files_of_captures(project.runtime.lake.data)) < 40
    with project.runtime.lake.catalog.read() as connection:
        assert len(connection.execute(tables.runnel_relation.select()).all()) < 60
