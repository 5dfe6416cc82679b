"""The toy store of `docs/new-store.md`: the page has what is tested, it is small, and stores from outside are found by their module."""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

import runnel
from runnel.engine.duckdb import DuckDbEngine
from runnel.errors import RunnelError
from scripts.error_reference import ROOT
from tests.connectors import toy_store
from tests.connectors.sources.stores import ToyStore
from tests.pipeline.test_large_reads import ByTasks

if TYPE_CHECKING:
    from pathlib import Path

    from runnel.project import Project

PAGE = ROOT / "docs" / "new-store.md"
FILE = ROOT / "tests" / "connectors" / "toy_store" / "__init__.py"


def test_the_page_shows_the_store_that_is_tested() -> None:
    (shown,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert shown == FILE.read_text()
    assert len(shown.splitlines()) <= 200


def opened(folder: Path, type_: str = "tests.connectors.toy_store", engine: DuckDbEngine | None = None) -> Project:
    (folder / "runnel.toml").write_text(f'[project]\nname = "p"\n[sources.s]\ntype = "{type_}"\npath = "toy.db"\n')
    return runnel.open(folder, engine=engine or DuckDbEngine())


@pytest.mark.parametrize("engine", [DuckDbEngine, ByTasks])
def test_to_remove_a_key_that_does_not_exist_is_no_error_and_to_delete_it_is(
    tmp_path: Path, engine: type[DuckDbEngine]
) -> None:
    store = ToyStore(tmp_path)
    store.create()
    store.put({"id": 1, "g": "a", "x": 1}, {"id": 2, "g": "a", "x": 1})
    with opened(tmp_path, engine=engine()) as project:
        project.run(once=True)
        gone = "INSERT INTO log (tab, op, row) VALUES ('t', '{}', json_object('id', {}))"
        with closing(sqlite3.connect(tmp_path / "toy.db")) as db:
            for operation, id_ in (("remove", 1), ("remove", 1), ("remove", 77)):
                db.execute(gone.format(operation, id_))
            db.commit()
            project.run(once=True)
            assert [row["id"] for row in project.table("s.t").to_pylist()] == [2]
            for operation in ("remove", "delete"):
                db.execute(gone.format(operation, 2))
            db.commit()
        with pytest.raises(RunnelError, match="RUNNEL-KEY-MISSING"):
            project.run(once=True)


def test_a_module_that_does_not_exist_is_named(tmp_path: Path) -> None:
    with pytest.raises(RunnelError, match=r"RUNNEL-STORE-MODULE.*'nowhere'.*runnel.toml:4"):
        opened(tmp_path, "nowhere.store").run(once=True)
    with pytest.raises(RunnelError, match="RUNNEL-SOURCE-NOT-YET"):
        opened(tmp_path, "json.decoder").run(once=True)


def test_a_type_that_spark_cannot_hold_is_refused_with_its_column(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "toy.db")) as db:
        db.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, b BLOB)")
    source = toy_store.ToySource(tmp_path / "toy.db")
    with pytest.raises(RunnelError, match=r"TOY-TYPE: t.b has the type 'BLOB'"):
        source.tables()
