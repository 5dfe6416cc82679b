"""A range that is too large for the driver is read by the engine's tasks, with the same rows and the same refusals."""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import runnel
from runnel.connectors.base import OP
from runnel.connectors.files import source as files_source
from runnel.engine.base import Rows
from runnel.engine.driver import Driver
from runnel.engine.duckdb import DuckDbEngine
from runnel.engine.spark import SparkEngine
from runnel.errors import RunnelError
from runnel.model import types
from runnel.model.relation import Column, Kind, Relation
from runnel.pipeline.large_reads import CHANGES, PART, ROW, missing_sql

if TYPE_CHECKING:
    from pathlib import Path

    from runnel.engine.base import Engine
    from runnel.project import Project

SETTINGS = """[project]
name = "p"
[sources.s]
type = "files"
path = "feed"
schema = { keyed = "id BIGINT, g STRING, x DECIMAL(12,2), m MAP<STRING, INT>, PRIMARY KEY (id)", bag = "g STRING, x DOUBLE" }
"""
VIEWS = {
    "sums": "SELECT g, sum(x) AS s, count(*) AS n FROM keyed GROUP BY g",
    "joined": "SELECT k.id, b.x FROM keyed k JOIN bag b ON k.g = b.g",
}


class ByTasks(DuckDbEngine):
    """The second engine, which reads every range by tasks."""

    def reads(self, rows: int) -> bool:
        return rows > 0


def reads_of(project: Project) -> dict[str, int]:
    """Count the reads of all epochs by place."""
    read = [epoch["work"]["read"] for epoch in project.epochs() if "read" in epoch.get("work", {})]
    return {place: number for place in ("driver", "spark") if (number := sum(one[place] for one in read))}


def write(folder: Path, name: str, *rows: dict[str, Any]) -> None:
    path = folder / "feed" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def opened(folder: Path, engine: Engine) -> Project:
    folder.mkdir(exist_ok=True)
    (folder / "runnel.toml").write_text(SETTINGS)
    return runnel.open(folder, engine=engine)


def outcome(project: Project) -> Any:
    """Run until caught up; give the rows of everything, or the code and text of the error."""
    try:
        project.run(once=True)
    except RunnelError as error:
        return str(error).replace(str(project.folder), "")
    project.run(once=True)
    shown = [project.table(f"s.{name}").to_arrow() for name in ("keyed", "bag")]
    # In a view -0.0 may become 0.0, which SQL finds equal.
    views = [
        sorted(repr(row).replace("-0.0", "0.0") for row in project.view(name).to_arrow().to_pylist()) for name in VIEWS
    ]
    return [sorted(map(repr, table.to_pylist())) for table in shown], views


def compared(tmp_path: Path, engine: Engine, files: list[dict[str, list[dict[str, Any]]]]) -> Any:
    """Feed the same files to a project of this engine and to one whose driver reads; compare after each step."""
    given = [opened(tmp_path / "one", engine), opened(tmp_path / "other", DuckDbEngine(threads=1))]
    for project in given:
        for name in ("keyed", "bag"):
            (project.folder / "feed" / name).mkdir(parents=True)
        project.run(once=True)
        for name, sql in VIEWS.items():
            project.create_view(name, sql)
    found: Any = None
    for step, these in enumerate(files):
        for name, rows in these.items():
            for project in given:
                write(project.folder, f"{name}/{step:03}.jsonl", *rows)
        found, expected = (outcome(project) for project in given)
        assert found == expected
    assert [list(reads_of(project)) for project in given] == [["spark"], ["driver"]]
    for project in given:
        assert all(report.ok for report in project.verify_all())
        left = [path for path in (project.folder / ".runnel" / "data").rglob("*") if path.is_file()]
        listed = [
            file.path
            for name in project.runtime.lake.snapshot().relations
            for file in project.runtime.lake.snapshot().files(name)
        ]
        assert {str(path) for path in left if path.suffix == ".parquet"} >= set(listed)
        project.close()
    return found


def random_files(rng: random.Random, steps: int) -> list[dict[str, list[dict[str, Any]]]]:
    """Write upserts and deletes of one table, and signed rows of another, that can have happened."""
    live: set[int] = set()
    bag: list[tuple[str | None, float | None]] = []
    files: list[dict[str, list[dict[str, Any]]]] = []
    for _ in range(steps):
        keyed: list[dict[str, Any]] = []
        rows: list[dict[str, Any]] = []
        for _ in range(rng.randrange(1, 25)):
            id_ = rng.randrange(12)
            if id_ in live and rng.random() < 0.4:
                live.discard(id_)
                keyed.append({"op": "d", "before": {"id": id_}, "after": None})
            else:
                live.add(id_)
                row = {
                    "id": id_,
                    "g": rng.choice(["a", "b", None]),
                    "x": rng.randrange(9),
                    "m": {"k": rng.randrange(3)},
                }
                keyed.append({"op": "u", "before": None, "after": row})
        for _ in range(rng.randrange(20)):
            if bag and rng.random() < 0.4:
                g, x = bag.pop(rng.randrange(len(bag)))
                rows.append({"g": g, "x": x, "_weight": -1})
            else:
                bag.append((rng.choice(["a", "b", None]), rng.choice([1.5, -0.0, None, 1e300])))
                rows.append({"g": bag[-1][0], "x": bag[-1][1], "_weight": 1})
        files.append({"keyed": keyed, "bag": rows} if rows else {"keyed": keyed})
    return files


@pytest.mark.parametrize("seed", range(6))
def test_tasks_and_the_driver_find_the_same_rows(tmp_path: Path, seed: int) -> None:
    compared(tmp_path, ByTasks(threads=1), random_files(random.Random(seed), 4))


@pytest.mark.parametrize(
    ("table", "rows"),
    [
        ("keyed", [{"op": "d", "before": {"id": 7}, "after": None}]),
        ("keyed", [{"op": "u", "after": {"id": 5, "g": "a"}}, *2 * [{"op": "d", "before": {"id": 5}, "after": None}]]),
        ("keyed", [{"id": 1, "g": "a"}, {"id": 1, "g": "b"}]),
        ("keyed", [{"id": None, "g": "a"}]),
        ("bag", [{"g": "a", "x": 1.0, "_weight": -1}]),
        ("bag", [{"g": "a", "x": "no number"}]),
    ],
)
def test_what_the_driver_refuses_is_refused_by_tasks_with_the_same_code(
    tmp_path: Path, table: str, rows: list[dict[str, Any]]
) -> None:
    codes = []
    for name, engine in (("one", ByTasks(threads=1)), ("other", DuckDbEngine(threads=1))):
        with opened(tmp_path / name, engine) as project:
            (project.folder / "feed" / table).mkdir(parents=True)
            write(project.folder, f"{table}/1.jsonl", *rows)
            with pytest.raises(RunnelError) as raised:
                project.run(once=True)
            codes.append([word for word in str(raised.value).split() if word.startswith("RUNNEL-")])
            assert project.table(f"s.{table}").to_arrow().num_rows == 0
    assert codes[0] == codes[1]


def test_changes_of_both_forms_in_one_table_are_gone_through_in_order_by_the_driver(tmp_path: Path) -> None:
    with opened(tmp_path / "p", ByTasks(threads=1)) as project:
        write(project.folder, "keyed/1.jsonl", {"id": 1, "g": "a"})
        write(project.folder, "keyed/2.jsonl", {"op": "d", "before": {"id": 1}, "after": None})
        write(project.folder, "keyed/3.jsonl", {"id": 1, "g": "b"})
        project.run(once=True)
        assert [row["g"] for row in project.table("s.keyed").to_arrow().to_pylist()] == ["b"]
        assert reads_of(project) == {"driver": 1, "spark": 3}


def test_a_large_parquet_file_is_several_partitions_in_its_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files_source, "RUN", 40)
    with opened(tmp_path / "p", ByTasks(threads=1)) as project:
        folder = project.folder / "feed" / "bag"
        folder.mkdir(parents=True)
        pq.write_table(pa.table({"g": ["a"] * 100, "x": [float(n) for n in range(100)]}), folder / "1.parquet")
        project.run(once=True)
        assert sorted(project.table("s.bag").to_arrow()["x"].to_pylist()) == [float(n) for n in range(100)]
        assert reads_of(project) == {"spark": 3}


@pytest.mark.spark
def test_executors_read_and_write_what_the_driver_never_holds(tmp_path: Path, spark_engine: SparkEngine) -> None:
    engine = SparkEngine(spark_engine.session, driver=Driver(changes=0))
    compared(tmp_path, engine, random_files(random.Random(99), 2))


@pytest.mark.spark
def test_an_error_of_a_task_names_file_and_line(tmp_path: Path, spark_engine: SparkEngine) -> None:
    engine = SparkEngine(spark_engine.session, driver=Driver(changes=0))
    with opened(tmp_path / "p", engine) as project:
        write(project.folder, "bag/1.jsonl", {"g": "a", "x": 1.0}, {"g": "b", "x": "no number"})
        with pytest.raises(RunnelError, match=r"RUNNEL-FILES-\w+.*bag/1\.jsonl:2"):
            project.run(once=True)


def put(row: dict[str, Any]) -> dict[str, Any]:
    return {"op": "u", "before": None, "after": row}


def gone(key: int) -> dict[str, Any]:
    return {"op": "d", "before": {"changes": key, "stored": 1}, "after": None}


@pytest.mark.parametrize("engine_name", ["duckdb", pytest.param("spark", marks=pytest.mark.spark)])
def test_columns_may_be_called_like_anything_in_the_text_of_a_large_read(
    engine_name: str, tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine: Any = ByTasks(threads=1)
    if engine_name == "spark":
        engine = request.getfixturevalue("spark_engine")
        monkeypatch.setattr(engine, "driver", Driver(0))
    columns = "changes BIGINT, stored BIGINT, now STRING, touched STRUCT<stored: BIGINT, now: STRING>, rows_now STRING"
    settings = SETTINGS.partition("schema")[0]
    (tmp_path / "feed" / "t").mkdir(parents=True)
    (tmp_path / "runnel.toml").write_text(f'{settings}schema = {{ t = "{columns}, PRIMARY KEY (changes, stored)" }}\n')
    rows = [
        {"changes": at, "stored": 1, "now": f"n{at}", "touched": {"stored": at, "now": "x"}, "rows_now": "c"}
        for at in range(5)
    ]
    changes = [{**rows[1], "now": "other"}, {**rows[3], "rows_now": None}]
    project = runnel.open(tmp_path, engine=engine)
    try:
        write(tmp_path, "t/1.jsonl", *(put(row) for row in rows))
        project.run(once=True)
        write(tmp_path, "t/2.jsonl", put(changes[0]), gone(2), put(changes[1]))
        project.run(once=True)
        found = sorted(project.table("s.t").to_pylist(), key=lambda row: row["changes"])
        assert found == [rows[0], *changes, rows[4]]
        assert list(reads_of(project)) == ["spark"]
        write(tmp_path, "t/3.jsonl", gone(77))
        with pytest.raises(RunnelError, match=r"RUNNEL-KEY-MISSING.*changes=77"):
            project.run(once=True)
    finally:
        project.runtime.lake.close()


def test_a_key_may_be_called_like_the_change_before() -> None:
    """Such a table cannot come as envelopes; other stores have it."""
    relation = Relation("t", Kind.TABLE, (Column("before", types.BIGINT),), ("before",))
    shape = (*relation.columns, Column(OP, types.STRING), Column(PART, types.BIGINT), Column(ROW, types.BIGINT))
    given = [{"before": key, OP: "delete", PART: 0, ROW: row} for row, key in enumerate([1, 2])]
    stored = Rows(pa.table({"before": [1], "_weight": [1]}), (*relation.columns, Column("_weight", types.BIGINT)))
    inputs = {CHANGES: Rows(pa.Table.from_pylist(given), shape), "t__stored_old": stored}
    assert DuckDbEngine(threads=1).rows(missing_sql(relation), inputs).to_pylist() == [{"before": 2}]
