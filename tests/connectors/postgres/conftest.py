"""A database of its own and a project that follows it; `compare` holds its tables against the server's."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import psycopg
import pyarrow as pa
import pytest
from typer.testing import CliRunner

import runnel
from runnel import config
from runnel.cli import app
from runnel.connectors.postgres import open_source
from runnel.engine.duckdb import DuckDbEngine
from runnel.errors import Place
from runnel.model.relation import WEIGHT
from tests.servers.postgres import postgres_server

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from runnel.connectors.postgres.source import PostgresSource
    from runnel.project import Project
    from tests.servers.postgres import PostgresServer

__all__ = ["postgres_server"]


class Shop:
    """A database and the project over it."""

    def __init__(self, folder: Path, server: PostgresServer) -> None:
        self.folder, self.server = folder, server
        self.url = server.database()
        self.opened: list[PostgresSource] = []
        self.configure()

    def configure(self, run: str = "", **settings: Any) -> None:
        """Write runnel.toml anew with these settings of the source; None leaves one out."""
        known = {"url": self.url} | settings
        lines = ["[project]", 'name = "front"', "[sources.shop]", 'type = "postgres"']
        lines += [f"{name} = {json.dumps(value)}" for name, value in known.items() if value is not None]
        (self.folder / "runnel.toml").write_text("\n".join([*lines, run]) + "\n")

    def view(self, name: str, sql: str) -> None:
        """Define a view."""
        (self.folder / "views").mkdir(exist_ok=True)
        (self.folder / "views" / f"{name}.sql").write_text(f"CREATE MATERIALIZED VIEW {name} AS {sql};\n")

    def sql(self, *statements: str) -> list[tuple[Any, ...]]:
        """Run statements in the database, each a transaction of its own; give the rows of the last."""
        with psycopg.connect(self.url, autocommit=True) as db:
            cursors = [db.execute(statement) for statement in statements]
            return cursors[-1].fetchall() if cursors and cursors[-1].description else []

    def together(self, *statements: str) -> None:
        """Run statements as one transaction."""
        with psycopg.connect(self.url) as db:
            for statement in statements:
                db.execute(statement)

    def source(self, **settings: Any) -> PostgresSource:
        """Open the source alone; it is closed with the test."""
        known = {"url": self.url} | settings
        made = open_source(
            config.Source("shop", "postgres", known, Place("runnel.toml", 1), project="front"), self.folder
        )
        self.opened.append(made)
        return made

    def open(self) -> Project:
        """Open the project."""
        return runnel.open(self.folder, engine=DuckDbEngine())

    def catch_up(self) -> None:
        """Take in everything that was committed so far."""
        with self.open() as project:
            project.run(once=True)

    def rows(self, name: str) -> list[dict[str, Any]]:
        """Give the rows of a table or view as runnel has them."""
        with self.open() as project:
            return sorted(project.table(name).to_pylist(), key=repr)

    def there(self, table: str) -> pa.Table:
        """Give the rows of a table as a snapshot by a source of its own slot has them."""
        source = self.source(slot="reader")
        try:
            source.tables()
            end = source.latest_offset({}, 1)
            found = [one.signed for one in source.read({}, end) if one.table == table and one.signed is not None]
            return pa.concat_tables(found).drop_columns([WEIGHT]) if found else None
        finally:
            source.close()
            self.sql("SELECT pg_drop_replication_slot('reader')")

    def compare(self, *tables: str) -> None:
        """Raise unless these tables are the same on both sides; columns that the server dropped are left out."""
        with self.open() as project:
            self.compare_in(project, *tables)

    def compare_in(self, project: Project, *tables: str) -> None:
        """Compare as `compare` does, in a project that is open."""
        for table in tables:
            there = self.there(table)
            rows = project.table(f"shop.{table}").to_pylist()
            if there is None:
                assert rows == [], table
                continue
            here = [{name: row[name] for name in there.column_names} for row in rows]
            assert sorted(map(repr, here)) == sorted(map(repr, there.to_pylist())), table  # NaN is not NaN

    def run(self, *args: str, exit_code: int = 0) -> str:
        """Run a command and give what it printed."""
        done = CliRunner(env={"RUNNEL_ENGINE": "duckdb"}).invoke(app, ["--project", str(self.folder), *args])
        assert done.exit_code == exit_code, f"{done.output}\n{done.stderr}\n{done.exception!r}"
        return done.stdout + done.stderr

    def close(self) -> None:
        """Close what was opened, and leave no slot: the server has room for a few."""
        for source in self.opened:
            source.close()
        mine = "SELECT slot_name FROM pg_replication_slots WHERE database = current_database() AND NOT temporary"
        for (name,) in self.sql(mine):
            self.sql(f"SELECT pg_drop_replication_slot('{name}')")


@pytest.fixture
def shop(tmp_path: Path, postgres_server: PostgresServer) -> Iterator[Shop]:
    """Give an empty database and a project over it."""
    made = Shop(tmp_path, postgres_server)
    yield made
    made.close()
