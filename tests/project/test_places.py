"""Names and places: a project works in any folder, with any names, and what cannot be reached is said in one sentence."""

from __future__ import annotations

import multiprocessing
import os
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import runnel
from runnel.cli import app
from runnel.cli.values import to_csv
from runnel.engine.duckdb import DuckDbEngine
from runnel.errors import RunnelError
from runnel.lake import encoding

if TYPE_CHECKING:
    from collections.abc import Callable
    from multiprocessing.queues import Queue
    from pathlib import Path

ODD = "a[1]{x,y}*?"
FOLDERS = [ODD, "b'\"c d%20#", "ünï 日本 \\ `$HOME` \n", "long" * 60]
TOML = """[sources.feed]
type = "files"
path = "{path}"
schema = {{ t = "id BIGINT, v STRING, PRIMARY KEY (id)" }}
[state]
data = "{data}"
"""
NOBODY = 65534


def written(folder: Path, path: str = "feed", data: str = "data") -> Path:
    (folder / path / "t").mkdir(parents=True)
    (folder / "views").mkdir()
    (folder / "runnel.toml").write_text(TOML.format(path=path, data=data))
    (folder / path / "t" / "1.jsonl").write_text('{"id": 1, "v": "a"}\n')
    pq.write_table(pa.table({"id": [2], "v": ["b"]}), folder / path / "t" / "2.parquet")
    (folder / "views" / "v.sql").write_text("CREATE MATERIALIZED VIEW v AS SELECT v, count(*) AS n FROM t GROUP BY v;")
    return folder


def engine() -> DuckDbEngine:
    return DuckDbEngine(threads=1)


@pytest.mark.parametrize("name", FOLDERS)
def test_a_project_works_in_any_folder(name: str, tmp_path: Path) -> None:
    folder = written(tmp_path / name)
    with runnel.open(folder, engine=engine()) as project:
        project.run(once=True)
        project.compact()
    with runnel.open(folder, engine=engine()) as project:
        assert project.query("SELECT * FROM v ORDER BY v").to_pylist() == [{"v": "a", "n": 1}, {"v": "b", "n": 1}]
        assert project.verify("v").ok


@pytest.mark.spark
def test_spark_takes_a_folder_with_glob_characters_for_itself(tmp_path: Path) -> None:
    beside = tmp_path / "a1x" / "data"  # what the name would match as a pattern
    beside.mkdir(parents=True)
    folder = written(tmp_path / ODD, path="f[e]ed", data=f"{ODD} %20#")
    with (folder / "runnel.toml").open("a") as settings:
        settings.write("[run]\ndriver_rows = 0\n")  # so that Spark reads the files itself
    with runnel.open(folder) as project:
        project.run(once=True)
        spark = project.query("SELECT id, v FROM t ORDER BY id").df().collect()
        assert [tuple(row) for row in spark] == [(1, "a"), (2, "b")]
        assert project.verify("v").ok


@pytest.mark.parametrize("name", FOLDERS)
def test_a_project_can_be_created_in_any_folder(name: str, tmp_path: Path) -> None:
    with runnel.create(tmp_path / name, engine=engine()) as project:
        project.create_table("t", "a INT")
        project.sql("INSERT INTO t VALUES (1)")
        assert project.status().project == name
    with runnel.open(tmp_path / name, engine=engine()) as project:
        assert project.table("t").to_pylist() == [{"a": 1}]


@pytest.mark.parametrize("name", ["..", ".", "/", "../../x", "日" * 100, "é" * 150, "x" * 300, "a`b\"c'd"])
def test_a_table_of_any_name_lies_in_a_folder_of_its_own(name: str, tmp_path: Path) -> None:
    quoted = "`" + name.replace("`", "``") + "`"
    with runnel.create(tmp_path / "p", engine=engine()) as project:
        project.create_table(name, "a INT, b STRING")
        project.create_view(f"{name}_v", f"SELECT b, count(*) AS n FROM {quoted} GROUP BY b")
        project.sql(f"INSERT INTO {quoted} VALUES (1, 'x'), (2, 'x')")
        assert project.view(f"{name}_v").to_pylist() == [{"b": "x", "n": 2}]
        assert project.verify(f"{name}_v").ok
    data = tmp_path / "p" / ".runnel" / "data"
    assert all(path.relative_to(data / "state").parts[1:] for path in data.rglob("*.parquet"))
    assert not list(tmp_path.glob("*.parquet"))


def test_folders_are_short_and_names_that_are_cut_stay_apart() -> None:
    names = ["日" * 100, "日" * 101, "日" * 100 + "!", "x" * 255, "x" * 256, "x" * 300, ".", "..", "~2e~", "~~"]
    folders = [encoding.folder_name(name) for name in names]
    assert len(set(folders)) == len(names)
    assert all(len(folder.encode()) <= 255 and "/" not in folder and folder not in (".", "..") for folder in folders)


# -- what may only be read


def read_all(folder: str, told: Queue[Any]) -> None:
    """Read a project as somebody who may not write, and say what came of it."""
    os.environ["RUNNEL_ENGINE"] = "duckdb"
    try:
        if os.getuid() == 0:
            read(folder)  # so that all modules are loaded: Python itself may be closed to others
            os.setuid(NOBODY)
        said = read(folder)
        with runnel.open(folder, engine=engine()) as project, pytest.raises(RunnelError) as refused:
            project.sql("INSERT INTO m VALUES (1)")
        told.put(said | {"written": str(refused.value)})
    except BaseException as error:
        told.put({"failed": repr(error)})
        raise


def read(folder: str) -> dict[str, Any]:
    said: dict[str, Any] = {}
    for args in (["status"], ["query", "SELECT v, n FROM v ORDER BY v", "--format", "csv"], ["show", "v"]):
        done = CliRunner().invoke(app, [*args, "--project", folder])
        said[args[0]] = (done.exit_code, done.output)
    with runnel.open(folder, engine=engine()) as project:
        said["rows"] = project.view("v").to_pylist()
    return said


def closed(folder: Path, *, writable: bool) -> None:
    for path in [folder, *folder.rglob("*")]:
        path.chmod((0o755 if writable else 0o555) if path.is_dir() else (0o644 if writable else 0o444))


@pytest.mark.parametrize("writer", ["gone", "there"])
def test_a_project_that_may_only_be_read_can_be_read(writer: str, tmp_path: Path) -> None:
    folder = written(tmp_path / "p [1]%20?")
    (folder / "tables").mkdir()
    (folder / "tables" / "m.sql").write_text("CREATE TABLE m (id BIGINT);")
    project = runnel.open(folder, engine=engine())
    project.run(once=True)
    if writer == "gone":
        project.close()
    for parent in (tmp_path, *tmp_path.parents[:3]):
        parent.chmod(parent.stat().st_mode | 0o055)
    closed(folder, writable=False)
    try:
        spawn = multiprocessing.get_context("spawn")
        told: Queue[Any] = spawn.Queue()
        child = spawn.Process(target=read_all, args=(str(folder), told))
        child.start()
        said = told.get(timeout=120)
        child.join()
    finally:
        closed(folder, writable=True)
        project.close()
    assert "failed" not in said, said
    assert said["rows"] == [{"v": "a", "n": 1}, {"v": "b", "n": 1}]
    assert said["query"] == (0, "v,n\na,1\nb,1\n")
    assert (said["status"][0], said["show"][0]) == (0, 0), said
    assert said["written"].startswith("RUNNEL-CATALOG-READ-ONLY"), said


# -- what cannot be reached


def under_a_file(path: Path) -> Path:
    (path / "file").write_text("")
    return path / "file" / "below"


PLACES: dict[str, Callable[[Path], object]] = {
    "below a file": under_a_file,
    "too long": lambda path: path / ("x" * 300),
    "a null character": lambda path: f"{path}/a\0b",
    "no text": lambda path: path / "a\udcff\ud800",
}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("do", [runnel.open, runnel.create])
def test_a_folder_that_cannot_be_is_said_in_one_sentence(place: str, do: Callable[..., Any], tmp_path: Path) -> None:
    with pytest.raises(RunnelError, match=r"RUNNEL-PLACE|RUNNEL-PROJECT-MISSING"):
        do(PLACES[place](tmp_path), engine=engine())


@pytest.mark.parametrize("setting", ['catalog = "sqlite:file/c.sqlite"', 'data = "file/data"', 'catalog = "sqlite:."'])
def test_a_state_that_cannot_be_is_said_in_one_sentence(setting: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "runnel.toml").write_text(f"[state]\n{setting}\n")
    with pytest.raises(RunnelError):
        runnel.open(tmp_path, engine=engine())


def test_a_command_says_what_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RUNNEL_ENGINE", "duckdb")
    below = under_a_file(tmp_path)
    folder = written(tmp_path / "p")
    query = ["query", "SELECT 1 AS one", "--project", str(folder), "--output", str(below)]
    for args in ([*query, "--format", "csv"], [*query, "--format", "parquet"], ["init", str(below)]):
        done = CliRunner().invoke(app, args)
        assert done.exit_code == 2
        assert "code: RUNNEL-PLACE" in done.output


def test_csv_quotes_a_carriage_return() -> None:
    rows = pa.table({"a": ["x\ry", "x\ny", 'x"y', None, "plain"], "b": [1, 2, 3, 4, 5]})
    assert to_csv(rows) == 'a,b\n"x\ry",1\n"x\ny",2\n"x""y",3\n,4\nplain,5'
