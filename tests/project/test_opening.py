"""Opening a project: several at once for the first time, and nothing made by those who only read."""

from __future__ import annotations

import multiprocessing
from typing import TYPE_CHECKING

import pytest

import runnel
from runnel.engine.duckdb import DuckDbEngine
from runnel.errors import Terminal

if TYPE_CHECKING:
    from multiprocessing.synchronize import Barrier
    from pathlib import Path

PROCESSES = 3


def written(folder: Path, catalog: str = "") -> Path:
    for part in ("tables", "views"):
        (folder / part).mkdir(parents=True)
    (folder / "runnel.toml").write_text(f'[project]\nname = "first"\n[state]\n{catalog}\n')
    (folder / "tables" / "t.sql").write_text("CREATE TABLE t (id BIGINT, PRIMARY KEY (id));")
    (folder / "views" / "v.sql").write_text("CREATE MATERIALIZED VIEW v AS SELECT count(*) AS n FROM t;")
    return folder


def first_open(folder: Path, number: int, together: Barrier) -> None:
    together.wait(60)
    with runnel.open(folder, engine=DuckDbEngine(threads=1)) as project:
        project.sql(f"INSERT INTO t VALUES ({number})")


@pytest.mark.parametrize("kind", ["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def test_several_processes_may_open_a_new_project_at_once(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    catalog = ""
    if kind == "postgres":
        catalog = f'catalog = "{request.getfixturevalue("postgres_server").database()}"'
    folder = written(tmp_path / "p", catalog)
    spawn = multiprocessing.get_context("spawn")
    together = spawn.Barrier(PROCESSES)
    started = [spawn.Process(target=first_open, args=(folder, number, together)) for number in range(PROCESSES)]
    for process in started:
        process.start()
    for process in started:
        process.join()
    assert [process.exitcode for process in started] == [0] * PROCESSES
    with runnel.open(folder, engine=DuckDbEngine(), sync=False) as project:
        assert project.view("v").to_pylist() == [{"n": PROCESSES}]


def test_who_only_reads_makes_no_state(tmp_path: Path) -> None:
    folder = written(tmp_path / "p")
    with pytest.raises(Terminal, match="RUNNEL-CATALOG-MISSING"):
        runnel.open(folder, engine=DuckDbEngine(), sync=False, create=False)
    assert not (folder / ".runnel").exists()


def test_a_project_whose_catalog_got_lost_says_so_and_stays_as_it_is(tmp_path: Path) -> None:
    folder = written(tmp_path / "p")
    with runnel.open(folder, engine=DuckDbEngine()) as project:
        project.sql("INSERT INTO t VALUES (1)")
        catalog = project.runtime.lake.catalog.path
    assert catalog is not None
    copy = catalog.with_suffix(".copy")
    catalog.rename(copy)
    with pytest.raises(Terminal, match="RUNNEL-CATALOG-LOST"):
        runnel.open(folder, engine=DuckDbEngine())
    copy.rename(catalog)
    with runnel.open(folder, engine=DuckDbEngine()) as project:
        assert project.view("v").to_pylist() == [{"n": 1}]
