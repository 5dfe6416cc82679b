"""A project with one source, which the same tests try in every store."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import runnel
from runnel import config
from runnel.connectors import guarded_source
from runnel.connectors.cells import CELLS, CHANGED, ROWS, STORED, schema_of
from runnel.engine.duckdb import DuckDbEngine
from runnel.failpoints import KILL_AT
from runnel.lake.compaction import fold
from runnel.model.relation import WEIGHT, Kind, Relation
from tests.connectors.sources.stores import STORES
from tests.servers.cassandra import cassandra_node
from tests.servers.mariadb import mariadb_server
from tests.servers.mysql import mysql_server
from tests.servers.postgres import postgres_server

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from runnel.connectors.base import ChangeSet, Offset, Source
    from runnel.connectors.cells import Reconciliation
    from runnel.engine.base import Engine
    from runnel.project import Project
    from tests.connectors.sources.stores import Row, Store

__all__ = ["cassandra_node", "mariadb_server", "mysql_server", "postgres_server"]
VIEW = "CREATE MATERIALIZED VIEW sums AS SELECT g, sum(x) AS s, count(*) AS n FROM s.t GROUP BY g;"

RUN_ONCE = """
import sys, runnel
from runnel.engine.duckdb import DuckDbEngine
runnel.open(sys.argv[1], engine=DuckDbEngine(), sync=False).run(once=True)
"""


class Shop:
    """A project over a store, whose table `t` exists."""

    def __init__(self, folder: Path, store: Store) -> None:
        self.folder, self.store = folder, store
        store.create()
        (folder / "views").mkdir()
        (folder / "views" / "v.sql").write_text(VIEW)

    def configure(self) -> config.Source:
        """Write runnel.toml as the store's settings are now; give the source's section."""
        lines = ["[project]", 'name = "shop"', "[sources.s]", f'type = "{self.store.TYPE}"']
        lines += [f"{name} = {_toml(value)}" for name, value in self.store.settings().items()]
        (self.folder / "runnel.toml").write_text("\n".join(lines) + "\n")
        return config.load(self.folder).sources[0]

    def open(self, engine: Engine | None = None) -> Project:
        self.configure()
        return runnel.open(self.folder, engine=engine or DuckDbEngine(), sync=False)

    def run(self, engine: Engine | None = None) -> None:
        """Take in everything that was written so far."""
        self.store.settle()
        with self.open(engine) as project:
            project.run(once=True)

    def killed(self, point: str) -> int:
        """Run in a process of its own that is killed at a point; give its exit code."""
        self.configure()
        self.store.settle()
        environment = os.environ | {KILL_AT: point, "PYTHONPATH": str(Path.cwd())}
        command = [sys.executable, "-c", RUN_ONCE, str(self.folder)]
        return subprocess.run(command, env=environment, capture_output=True, check=False).returncode

    def source(self) -> Source:
        """Open the source alone."""
        return guarded_source(self.configure(), self.folder)

    def check(self) -> None:
        """Compare the table with the store's, and the view with its text."""
        with self.open() as project:
            found = sorted(project.table("s.t").to_pylist(), key=lambda row: int(row["id"]))
            assert found == self.store.rows()
            assert project.verify("sums").ok


class Reader:
    """What somebody who reads a source's changes knows of `t`: rows with how often they are there."""

    def __init__(self, source: Source) -> None:
        self.source, self.position = source, source.initial_offset()
        self.counts: dict[str, int] = {}
        self.kept = KeptCells()
        source.tables()

    def take(self, max_rows: int = 1_000_000) -> Offset:
        """Read the next range, and let go of it."""
        end = self.source.latest_offset(self.position, max_rows)
        self.apply(self.position, end)
        self.source.commit(end)
        self.position = end
        return end

    def apply(self, start: Offset, end: Offset) -> None:
        for row, weight, operation in changes(self.source, start, end, self.kept):
            if operation is None:
                text = json.dumps(row, sort_keys=True)
                self.counts[text] = self.counts.get(text, 0) + weight
                continue
            known = [json.loads(t) for t, n in self.counts.items() if n and json.loads(t)["id"] == row["id"]]
            self.counts = {t: n for t, n in self.counts.items() if json.loads(t)["id"] != row["id"]}
            if operation == "update":
                (old,) = known
                row = old | row
            if operation in ("upsert", "update"):
                self.counts[json.dumps(row, sort_keys=True)] = 1

    def rows(self) -> list[Row]:
        """Give the rows; each is there once."""
        assert set(self.counts.values()) <= {0, 1}
        return sorted((json.loads(t) for t, n in self.counts.items() if n), key=lambda row: int(row["id"]))


class KeptCells:
    """The cells of `t` that a reader of a source of cells keeps."""

    RELATION = Relation("t#cells", Kind.STAGE, STORED)

    def __init__(self) -> None:
        self.stored = pa.schema([*schema_of(STORED), (WEIGHT, pa.int64())]).empty_table()

    def rows(self, how: Reconciliation, changed: list[pa.Table]) -> pa.Table:
        """Reconcile changed cells with those that are kept; give signed rows."""
        outcome = how.function(self.stored, pa.concat_tables([schema_of(CHANGED).empty_table(), *changed]))
        self.stored = fold(self.RELATION, pa.concat_tables([self.stored, outcome[CELLS].cast(self.stored.schema)]))
        return outcome[ROWS]


def changes(
    source: Source,
    start: Offset,
    end: Offset,
    kept: KeptCells | None = None,
    read: Iterable[ChangeSet] | None = None,
) -> list[tuple[Row, int, str | None]]:
    """Give the changes of `t` in a range: rows with a weight, or with an operation; `read` is what was read of it, if it was.

    Cells are reconciled with those that are `kept`.
    """
    if start == end:
        return []
    sets = [one for one in (source.read(start, end) if read is None else read) if one.table == "t"]
    cells = source.cells()
    if cells is None:
        tables = [table for one in sets for table in (one.signed, one.keyed) if table is not None]
    else:
        (how,) = (one for one in cells.reconciliations(start, end) if one.table == "t")
        tables = [(kept or KeptCells()).rows(how, [one.cells for one in sets if one.cells is not None])]
    return [(row, row.pop("_weight", 0), row.pop("_op", None)) for table in tables for row in table.to_pylist()]


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{name} = {json.dumps(item)}" for name, item in value.items()) + " }"
    return json.dumps(value)


@pytest.fixture(params=[pytest.param(name, marks=marks) for name, (_, marks) in STORES.items()])
def shop(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Shop]:
    """Give a project over each store in turn."""
    store = STORES[request.param][0](tmp_path, request)
    yield Shop(tmp_path, store)
    store.close()


@pytest.fixture
def source(shop: Shop) -> Iterator[Source]:
    """Give its source alone."""
    opened = shop.source()
    yield opened
    opened.close()
