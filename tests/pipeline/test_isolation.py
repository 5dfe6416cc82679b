"""What goes wrong with one source stops nobody else: it is noted with its code, tried again, and taken up when it is back."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from typer.testing import CliRunner

import runnel
from runnel.cli.app import app
from runnel.connectors.base import ChangeSet, TableInfo
from runnel.engine.duckdb import DuckDbEngine
from runnel.errors import RunnelError, Transient, Unreachable
from runnel.model import types
from runnel.model.relation import Column
from runnel.pipeline.backoff import BackOff
from runnel.pipeline.runner import Runner

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from runnel.connectors.base import Offset
    from runnel.project import Project

SOURCE = '[sources.{0}]\ntype = "files"\npath = "{0}"\nschema = {{ t = "id BIGINT, PRIMARY KEY (id)" }}\n'
CONFIG = '[project]\nname = "i"\n[run]\nepoch = "10ms"\n' + SOURCE.format("a") + SOURCE.format("b")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Give a project of two feeds."""
    make_project(tmp_path)
    return tmp_path


def make_project(folder: Path) -> None:
    """Make a project of two feeds."""
    for source in "ab":
        (folder / source / "t").mkdir(parents=True)
    (folder / "runnel.toml").write_text(CONFIG)


def put(folder: Path, source: str, number: int) -> None:
    """Put a file of one row into a feed, whole at once."""
    hidden = folder / f".{source}"
    hidden.write_text(json.dumps({"id": number}) + "\n")
    hidden.rename(folder / source / "t" / f"{number:04}.jsonl")


def ids(project: Project, table: str) -> list[int]:
    """Give the keys of a table."""
    return sorted(row["id"] for row in project.table(table).to_pylist())


def until(what: Callable[[], bool]) -> None:
    """Wait for a condition."""
    deadline = time.monotonic() + 30
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def error_of(project: Project, source: str) -> str:
    """Give a source's error as `status` shows it."""
    return next(s.error or "" for s in project.status().sources if s.name == source)


def holds(project: Project, number: int) -> bool:
    """Say whether the first feed's table has this key."""
    return number in ids(project, "a.t")


class Running:
    """A project that runs in another thread."""

    def __init__(self, folder: Path) -> None:
        self.project = runnel.open(folder, engine=DuckDbEngine(threads=1))
        self.thread = threading.Thread(target=self.project.run, daemon=True)

    def __enter__(self) -> Running:
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.project.stop()
        self.thread.join(timeout=30)
        assert not self.thread.is_alive()
        self.project.close()


def _half(feed: Path) -> Callable[[], object]:
    (feed / "t" / "0009.jsonl").write_text('{"id": 9')
    return lambda: (feed / "t" / "0009.jsonl").write_text('{"id": 9}\n')


def _bad_value(feed: Path) -> Callable[[], object]:
    (feed / "t" / "0009.jsonl").write_text('{"id": "x"}\n')
    return lambda: (feed / "t" / "0009.jsonl").write_text('{"id": 9}\n')


def _moved(feed: Path) -> Callable[[], object]:
    feed.rename(feed.with_name("away"))
    return lambda: feed.with_name("away").rename(feed)


def _link_loop(feed: Path) -> Callable[[], object]:
    (feed / "t" / "0009.jsonl").symlink_to("0009.jsonl")
    return lambda: (feed / "t" / "0009.jsonl").unlink()


def _table_without_schema(feed: Path) -> Callable[[], object]:
    (feed / "u").mkdir()
    (feed / "u" / "1.jsonl").write_text('{"id": 1}\n')
    return lambda: (feed / "u").rename(feed.with_name("u"))


def _folder_named_like_a_file(feed: Path) -> Callable[[], object]:
    (feed / "t" / "0009.jsonl").mkdir()
    return lambda: (feed / "t" / "0009.jsonl").rmdir()


HARMS = {
    "RUNNEL-FILES-FORMAT": _folder_named_like_a_file,
    "RUNNEL-FILES-HALF": _half,
    "RUNNEL-FILES-VALUE": _bad_value,
    "RUNNEL-FILES-FOLDER": _moved,
    "RUNNEL-SOURCE-UNREADABLE": _link_loop,
    "RUNNEL-FILES-SCHEMA": _table_without_schema,
}


@pytest.mark.parametrize("code", HARMS)
def test_one_source_that_fails_stops_no_other_and_goes_on_when_it_is_back(folder: Path, code: str) -> None:
    with Running(folder) as running:
        put(folder, "a", 1)
        until(lambda: ids(running.project, "a.t") == [1])
        mend = HARMS[code](folder / "a")
        put(folder, "b", 2)
        until(lambda: ids(running.project, "b.t") == [2])
        until(lambda: code in error_of(running.project, "a"))
        mend()
        put(folder, "a", 10)
        until(lambda: 10 in ids(running.project, "a.t"))
        until(lambda: not error_of(running.project, "a"))
        assert running.thread.is_alive()


def test_a_folder_without_schema_holds_back_nothing_of_its_own_source(folder: Path) -> None:
    with Running(folder) as running:
        put(folder, "a", 1)
        until(lambda: ids(running.project, "a.t") == [1])
        mend = _table_without_schema(folder / "a")
        until(lambda: "RUNNEL-FILES-SCHEMA" in error_of(running.project, "a"))
        for number in range(2, 5):
            put(folder, "a", number)
            until(partial(holds, running.project, number))
        assert "RUNNEL-FILES-SCHEMA" in error_of(running.project, "a")
        mend()
        until(lambda: not error_of(running.project, "a"))


NOBODY = 65534
WITHOUT_RIGHTS = """
import sys, runnel
from runnel.engine.duckdb import DuckDbEngine
with runnel.open(sys.argv[1], engine=DuckDbEngine(threads=1)) as project:
    try: project.run(once=True)
    except runnel.errors.RunnelError as error: print(error.code, error)
    print([row["id"] for row in project.table("b.t").to_pylist()])
"""


def test_a_file_that_may_not_be_read_is_an_error_of_its_source_alone() -> None:
    """Root may read everything, so the run is somebody else's."""
    home = Path(tempfile.mkdtemp(prefix="rights"))
    try:
        make_project(home)
        for source in ("a", "b"):
            put(home, source, 1)
        (home / "a" / "t" / "0001.jsonl").chmod(0)
        other: dict[str, Any] = {}
        if os.getuid() == 0:
            other = {"user": NOBODY, "group": NOBODY, "extra_groups": []}
            for path in (home, *home.rglob("*")):
                os.chown(path, NOBODY, NOBODY)
        said = subprocess.run(
            [sys.executable, "-c", WITHOUT_RIGHTS, str(home)],
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "HOME": str(home)},
            **other,
        )
        assert "Permission denied" in said.stdout, said.stderr
        assert "RUNNEL-SOURCE-UNREADABLE" in said.stdout
        assert said.stdout.splitlines()[-1] == "[1]"
    finally:
        shutil.rmtree(home)


def test_a_file_that_vanishes_between_listing_and_opening_is_an_error_of_its_source(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from runnel.connectors.files import listing, source

    put(folder, "a", 1)
    put(folder, "b", 1)
    plain = listing.inspect

    def vanishing(file: Any, *rest: Any) -> Any:
        if file.path.parts[-3] == "a" and file.name == "0001.jsonl":
            file.path.unlink(missing_ok=True)
        return plain(file, *rest)

    monkeypatch.setattr(source, "inspect", vanishing)
    with runnel.open(folder, engine=DuckDbEngine()) as project:
        project.run(once=True)  # at the second look the file is not listed any more
        assert [e for e in caplog.messages if "RUNNEL-SOURCE-UNREADABLE" in e]
        assert ids(project, "b.t") == [1]
        put(folder, "a", 2)
        project.run(once=True)
        assert ids(project, "a.t") == [2]


def test_a_source_that_is_away_when_a_run_starts_is_followed_once_it_is_there(folder: Path) -> None:
    (folder / "views").mkdir()
    (folder / "views" / "v.sql").write_text(
        "CREATE MATERIALIZED VIEW n_a AS SELECT count(*) AS n FROM a.t;"
        "CREATE MATERIALIZED VIEW n_b AS SELECT count(*) AS n FROM b.t;"
    )
    (folder / "a").rename(folder / "away")
    put(folder, "b", 1)
    with runnel.open(folder, engine=DuckDbEngine(), sync=False) as project:
        thread = threading.Thread(target=project.run, daemon=True)
        thread.start()
        until(lambda: "b.t" in project.runtime.lake.snapshot().relations and ids(project, "b.t") == [1])
        assert project.view("n_b").to_pylist() == [{"n": 1}]
        (folder / "away").rename(folder / "a")
        put(folder, "a", 1)
        until(lambda: "n_a" in project.runtime.lake.snapshot().views)
        until(lambda: project.view("n_a").to_pylist() == [{"n": 1}])
        project.stop()
        thread.join(timeout=30)


def test_run_once_does_everything_else_and_its_exit_code_tells_what_failed(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RUNNEL_ENGINE", "duckdb")
    put(folder, "b", 1)
    (folder / "a").rename(folder / "away")
    told = CliRunner().invoke(app, ["run", "--once", "--project", str(folder)])
    assert (told.exit_code, "RUNNEL-FILES-FOLDER" in told.stderr) == (3, True)
    (folder / "away").rename(folder / "a")
    (folder / "a" / "t" / "0001.jsonl").write_text('{"id": "x"}\n')
    put(folder, "b", 2)
    told = CliRunner().invoke(app, ["run", "--once", "--project", str(folder)])
    assert (told.exit_code, "RUNNEL-FILES-VALUE" in told.stderr) == (1, True)
    with runnel.open(folder, engine=DuckDbEngine()) as project:
        assert ids(project, "b.t") == [1, 2]


class Odd:
    """A source of one table that raises what it is told, where it is told, as long as it is told."""

    def __init__(self, method: str = "", error: BaseException | None = None) -> None:
        self.method, self.error, self.rows = method, error, 1

    def _reach(self, method: str) -> None:
        if self.error is not None and method == self.method:
            raise self.error

    def tables(self) -> tuple[TableInfo, ...]:
        self._reach("tables")
        return (TableInfo("t", (Column("id", types.BIGINT),)),)

    def problems(self) -> tuple[RunnelError, ...]:
        return ()

    def advice(self) -> tuple[str, ...]:
        return ()

    def initial_offset(self) -> Offset:
        self._reach("initial_offset")
        return {"at": 0}

    def latest_offset(self, start: Offset, max_rows: int, *, single: bool = False) -> Offset:
        self._reach("latest_offset")
        return {"at": self.rows}

    def read(self, start: Offset, end: Offset) -> Iterator[ChangeSet]:
        self._reach("read")
        numbers = list(range(start["at"], end["at"]))
        yield ChangeSet("t", pa.table({"id": numbers, "_weight": pa.array([1] * len(numbers), pa.int64())}))

    def partitions(self, start: Offset, end: Offset) -> None:
        """Leave it to `read`."""

    def cells(self) -> None:
        """Say that changes are rows."""

    def commit(self, end: Offset) -> None:
        self._reach("commit")

    def covers(self, have: Offset, wanted: Offset) -> bool:
        return bool(have["at"] >= wanted["at"])

    def end_offset(self) -> Offset:
        return {"at": self.rows}

    def lag(self, start: Offset) -> Mapping[str, Any]:
        return {}

    def close(self) -> None:
        """Nothing is open."""


@pytest.mark.parametrize("method", ["tables", "initial_offset", "latest_offset", "read", "commit"])
@pytest.mark.parametrize(
    ("error", "code"),
    [
        (OSError(5, "Input/output error", "/f"), "RUNNEL-SOURCE-UNREADABLE"),
        (pa.ArrowInvalid("odd"), "RUNNEL-SOURCE-VALUE"),
        (UnicodeDecodeError("utf-8", b"\xff", 0, 1, "odd"), "RUNNEL-SOURCE-VALUE"),
        (RecursionError(), "RUNNEL-SOURCE-VALUE"),
        (MemoryError(), "RUNNEL-SOURCE-MEMORY"),
        (TypeError("a fault"), "RUNNEL-SOURCE-FAULT"),
        (Unreachable("RUNNEL-STORE-AWAY", "away"), "RUNNEL-STORE-AWAY"),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_whatever_a_source_raises_wherever_is_noted_with_a_code_and_the_others_go_on(
    project: Project, method: str, error: Exception, code: str
) -> None:
    bad: Any = Odd(method, error)
    good: Any = Odd()
    runner = Runner(project.runtime, {"bad": bad, "good": good}, gather=0.01)
    found = runner.run(once=True, stop=threading.Event())
    assert code in str(found.get("bad", "")) or method == "commit"
    assert ids(project, "good.t") == [0]
    noted = project.runtime.lake.snapshot().positions.get("bad#error", {}).get("error") or ""
    assert (code in noted) == (method != "commit")
    bad.error, good.rows = None, 2
    assert runner.run(once=True, stop=threading.Event()) == {}
    assert (ids(project, "bad.t"), ids(project, "good.t")) == ([0], [0, 1])
    assert project.runtime.lake.snapshot().positions.get("bad#error", {}).get("error") is None


def test_an_epoch_that_fails_for_one_sources_rows_is_taken_without_that_source(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = project.runtime.lake
    plain = lake.write

    def write(relation: Any, table: pa.Table, **more: Any) -> Any:
        if relation.name == "bad.t":
            raise TypeError("a fault below the sources")
        return plain(relation, table, **more)

    monkeypatch.setattr(lake, "write", write)
    sources: dict[str, Any] = {"bad": Odd(), "good": Odd()}
    runner = Runner(project.runtime, sources, gather=0.01)
    errors = runner.run(once=True, stop=threading.Event())
    assert list(errors) == ["bad"]
    assert ids(project, "good.t") == [0]


def test_an_epoch_that_fails_as_a_whole_is_noted_and_taken_again(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = project.runtime.lake
    plain, away = lake.publish, threading.Event()

    def publish(commit: Any) -> int:
        if away.is_set():
            raise Transient("RUNNEL-STORE-BUSY", "busy")
        return plain(commit)

    monkeypatch.setattr(lake, "publish", publish)
    project.create_table("x", "id BIGINT")
    good: Any = Odd()
    stop, runner = threading.Event(), Runner(project.runtime, {"good": good}, gather=0.01)
    thread = threading.Thread(target=lambda: runner.run(once=False, stop=stop))
    thread.start()
    until(lambda: "good.t" in lake.snapshot().relations and ids(project, "good.t") == [0])
    away.set()
    good.rows = 2
    until(lambda: "RUNNEL-STORE-BUSY" in (project.status().error or ""))
    away.clear()
    until(lambda: ids(project, "good.t") == [0, 1])
    until(lambda: project.status().error is None)
    stop.set()
    thread.join(timeout=30)


def test_an_engine_that_is_lost_is_noted_until_it_is_back_and_epochs_go_on(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost: list[Unreachable] = []
    monkeypatch.setattr(project.runtime.engine, "lost", lambda: lost[0] if lost else None)
    good: Any = Odd()
    stop, runner = threading.Event(), Runner(project.runtime, {"good": good}, gather=0.01)
    thread = threading.Thread(target=lambda: runner.run(once=False, stop=stop))
    thread.start()
    until(lambda: "good.t" in project.runtime.lake.snapshot().relations and ids(project, "good.t") == [0])
    assert project.status().error is None
    lost.append(Unreachable("RUNNEL-SPARK-GONE", "Spark's Java process has ended"))
    until(lambda: "RUNNEL-SPARK-GONE" in (project.status().error or ""))
    good.rows = 2
    until(lambda: ids(project, "good.t") == [0, 1])
    assert "RUNNEL-SPARK-GONE" in (project.status().error or "")
    lost.clear()
    until(lambda: project.status().error is None)
    stop.set()
    thread.join(timeout=30)


def test_a_view_that_fails_for_a_fault_of_ours_stops_no_other(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    from runnel.pipeline import maintain

    project.create_table("t", "x INT")
    project.create_view("bad", "SELECT x FROM t")
    project.create_view("good", "SELECT x FROM t")
    plain = maintain._run_steps

    def steps(runtime: Any, view: Any, *rest: Any) -> Any:
        if view.name == "bad":
            raise KeyError("a fault")
        return plain(runtime, view, *rest)

    monkeypatch.setattr(maintain, "_run_steps", steps)
    project.sql("INSERT INTO t VALUES (1)")
    errors = {view.name: view.error for view in project.status().views}
    assert "RUNNEL-VIEW-FAULT" in (errors["bad"] or "")
    assert errors["good"] is None
    assert project.view("good").to_pylist() == [{"x": 1}]


def test_pauses_grow_to_a_bound_and_end_with_a_success(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr("runnel.pipeline.backoff.time.monotonic", lambda: clock[0])
    tried = BackOff(first=1.0, longest=8.0)
    assert not tried.waiting("a")
    pauses = [tried.failed("a") for _ in range(6)]
    for pause, most in zip(pauses, (1.0, 2.0, 4.0, 8.0, 8.0, 8.0), strict=True):
        assert 0.75 * most <= pause <= most
    assert tried.waiting("a")
    assert not tried.waiting("b")
    clock[0] = 8.0
    assert not tried.waiting("a")
    tried.succeeded("a")
    assert tried.failed("a") <= 1.0


def test_a_run_ends_when_the_state_cannot_be_read(folder: Path) -> None:
    with runnel.open(folder, engine=DuckDbEngine(threads=1)) as project:
        ended: list[RunnelError] = []

        def run() -> None:
            try:
                project.run()
            except RunnelError as error:
                ended.append(error)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        put(folder, "a", 1)
        until(lambda: ids(project, "a.t") == [1])
        catalog = project.runtime.lake.catalog.path
        assert catalog is not None
        for file in (catalog, catalog.with_name(catalog.name + "-wal"), catalog.with_name(catalog.name + "-shm")):
            if file.exists():
                size = file.stat().st_size
                file.write_bytes(b"\x00" * size)
        until(lambda: not thread.is_alive())
        assert ended
