"""The servers that these tests share: each test that takes `sql_server` runs once on MariaDB and once on MySQL."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner

import runnel
from runnel.cli import app
from runnel.engine.duckdb import DuckDbEngine
from tests.connectors.mysql.reading import definition_of, selected, settings_of
from tests.servers.mariadb import mariadb_server
from tests.servers.mysql import mysql_server

if TYPE_CHECKING:
    from pathlib import Path

    from runnel.engine.base import Engine
    from runnel.project import Project
    from tests.servers.mysql import SqlServer

__all__ = ["mariadb_server", "mysql_server"]
FAMILIES = [pytest.param("mariadb", marks=pytest.mark.mariadb), pytest.param("mysql", marks=pytest.mark.mysql)]


@pytest.fixture(params=FAMILIES)
def sql_server(request: pytest.FixtureRequest) -> SqlServer:
    """Give a server of each family in turn."""
    server: SqlServer = request.getfixturevalue(f"{request.param}_server")
    return server


class Shop:
    """A database of its own and a project that follows it; `compare` holds its tables against the server's."""

    def __init__(self, folder: Path, server: SqlServer) -> None:
        self.folder, self.server = folder, server
        self.database = server.database()
        self.family = server.program.name.partition("-")[0]
        self.configure()

    def configure(self, run: str = "", **settings: Any) -> None:
        """Write runnel.toml anew with these settings of the source; None leaves one out."""
        known = {"host": "127.0.0.1", "port": self.server.port, "user": "root", "database": self.database} | settings
        lines = ["[project]", 'name = "shop"', "[sources.shop]", f'type = "{self.family}"']
        lines += [f"{name} = {json.dumps(value)}" for name, value in known.items() if value is not None]
        (self.folder / "runnel.toml").write_text("\n".join([*lines, run]) + "\n")

    def view(self, name: str, sql: str) -> None:
        """Define a view."""
        (self.folder / "views").mkdir(exist_ok=True)
        (self.folder / "views" / f"{name}.sql").write_text(f"CREATE MATERIALIZED VIEW {name} AS {sql};\n")

    def sql(self, *statements: str) -> tuple[tuple[Any, ...], ...]:
        """Run statements in the database."""
        return self.server.sql(*statements, database=self.database)

    def open(self, engine: Engine | None = None) -> Project:
        """Open the project."""
        return runnel.open(self.folder, engine=engine or DuckDbEngine())

    def catch_up(self) -> None:
        """Take in everything that was committed so far."""
        with self.open() as project:
            project.run(once=True)

    def rows(self, name: str) -> list[dict[str, Any]]:
        """Give the rows of a table or view as runnel has them."""
        with self.open() as project:
            return sorted(project.table(name).to_pylist(), key=repr)

    def there(self, table: str) -> list[dict[str, Any]]:
        """Give the rows of a table as the server has them."""
        settings = settings_of(self.server, self.database, zero_dates="null")
        return sorted(selected(settings, definition_of(settings, table)).to_pylist(), key=repr)

    def compare(self, *tables: str) -> None:
        """Raise unless these tables are the same on both sides; columns that the server dropped are left out."""
        with self.open() as project:
            self.compare_in(project, *tables)

    def compare_in(self, project: Project, *tables: str) -> None:
        """Compare as `compare` does, in a project that is open."""
        for table in tables:
            names = definition_of(settings_of(self.server, self.database), table).columns
            rows = project.table(f"shop.{table}").to_pylist()
            here = [{column.name: row[column.name] for column in names} for row in rows]
            assert sorted(here, key=repr) == self.there(table), table

    def run(self, *args: str, exit_code: int = 0) -> str:
        """Run a command and give what it printed."""
        done = CliRunner(env={"RUNNEL_ENGINE": "duckdb"}).invoke(app, ["--project", str(self.folder), *args])
        assert done.exit_code == exit_code, f"{done.output}\n{done.stderr}\n{done.exception!r}"
        return done.stdout + done.stderr


@pytest.fixture
def shop(tmp_path: Path, sql_server: SqlServer) -> Shop:
    """Give an empty database of a server of each family in turn, and a project over it."""
    return Shop(tmp_path, sql_server)
