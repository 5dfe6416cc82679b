"""A project with one target, which the same tests try in every store."""

from __future__ import annotations

import json
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner

import runnel
from runnel.cli import app
from runnel.engine.duckdb import DuckDbEngine
from tests.connectors.targets.stores import CassandraStore, MysqlStore, PostgresStore
from tests.servers.cassandra import cassandra_node
from tests.servers.mariadb import mariadb_server
from tests.servers.mysql import mysql_server
from tests.servers.postgres import postgres_server

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from runnel.project import Project
    from runnel.project.status import TargetStatus
    from tests.connectors.targets.stores import Store

__all__ = ["cassandra_node", "mariadb_server", "mysql_server", "postgres_server"]
MYSQL_LIKE = [pytest.param("mariadb", marks=pytest.mark.mariadb), pytest.param("mysql", marks=pytest.mark.mysql)]
SQL_STORES = [pytest.param("postgres", marks=pytest.mark.postgres), *MYSQL_LIKE]
STORES = [
    *SQL_STORES,
    pytest.param("cassandra", marks=pytest.mark.cassandra),
]


class Front:
    """A project whose target `front` is a store."""

    def __init__(self, folder: Path, store: Store) -> None:
        self.folder, self.store = folder, store

    def configure(self, *views: str, keys: dict[str, list[str]] | None = None, keep: int = 100, **more: Any) -> None:
        """Write runnel.toml: each view is delivered to a table of its own name, without the source's before it."""
        settings = self.store.settings() | more
        lines = ["[project]", 'name = "shop"', "[state]", f"keep = {keep}", "[run]", 'epoch = "20ms"']
        lines += ["[targets.front]", f'type = "{self.store.type}"']
        lines += [f"{name} = {json.dumps(value)}" for name, value in settings.items()]
        named = {view: view.rpartition(".")[2] for view in views}
        lines += [f"views = {_inline(named)}", f"keys = {_inline(keys or {})}"]
        (self.folder / "runnel.toml").write_text("\n".join(lines) + "\n")

    @contextmanager
    def open(self) -> Iterator[Project]:
        """Open the project as it is configured now."""
        with runnel.open(self.folder, engine=DuckDbEngine(), sync=False) as project:
            yield project

    def command(self, *args: str, exit_code: int = 0) -> str:
        """Run a command and give all it printed."""
        done = CliRunner(env={"RUNNEL_ENGINE": "duckdb"}).invoke(app, ["--project", str(self.folder), *args])
        assert done.exit_code == exit_code, f"{done.output}\n{done.stderr}\n{done.exception!r}"
        return done.output

    def rows(self, table: str, *columns: str) -> list[tuple[Any, ...]]:
        """Give a table's rows in the store, sorted; all columns by name where none is named."""
        rows = self.store.rows(table)
        return sorted((tuple(row[name] for name in columns or sorted(row)) for row in rows), key=lambda row: str(row))


def _inline(values: dict[str, Any]) -> str:
    return "{ " + ", ".join(f"{json.dumps(name)} = {json.dumps(value)}" for name, value in values.items()) + " }"


def state(project: Project, view: str) -> TargetStatus:
    """Give what `status` says of a view's delivery."""
    return next(found for found in project.status().targets if found.view == view)


def wait_until(true: Callable[[], bool], seconds: float = 90, pause: float = 0.02) -> None:
    """Wait for a condition."""
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline
        time.sleep(pause)


@pytest.fixture
def postgres_store(postgres_server: Any) -> Iterator[PostgresStore]:
    store = PostgresStore(postgres_server)
    store.gate.open()
    yield store
    store.gate.shut()


@pytest.fixture
def mariadb_store(mariadb_server: Any) -> Iterator[MysqlStore]:
    store = MysqlStore(mariadb_server)
    store.gate.open()
    yield store
    store.gate.shut()


@pytest.fixture
def mysql_store(mysql_server: Any) -> Iterator[MysqlStore]:
    store = MysqlStore(mysql_server)
    store.gate.open()
    yield store
    store.gate.shut()


@pytest.fixture
def cassandra_store(cassandra_node: Any) -> Iterator[CassandraStore]:
    store = CassandraStore(cassandra_node)
    store.gate.open()
    yield store
    store.gate.shut()
    store.close()


@pytest.fixture(params=STORES)
def front(request: pytest.FixtureRequest, tmp_path: Path) -> Front:
    """Give an empty project with an empty store."""
    return Front(tmp_path, request.getfixturevalue(f"{request.param}_store"))


@pytest.fixture(params=SQL_STORES)
def sql_front(request: pytest.FixtureRequest, tmp_path: Path) -> Front:
    """Give an empty project with an empty SQL store."""
    return Front(tmp_path, request.getfixturevalue(f"{request.param}_store"))


@pytest.fixture(params=MYSQL_LIKE)
def mysql_front(request: pytest.FixtureRequest, tmp_path: Path) -> Front:
    """Give an empty project with an empty MariaDB or MySQL."""
    return Front(tmp_path, request.getfixturevalue(f"{request.param}_store"))
