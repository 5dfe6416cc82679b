"""Two real servers in step: a shop in MariaDB, a project that follows it, and a PostgreSQL database that gets its views."""

from __future__ import annotations

import json
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from tests.connectors.mysql.conftest import Shop
from tests.connectors.targets.conftest import wait_until
from tests.servers.mariadb import mariadb_server
from tests.servers.postgres import postgres_server
from tests.support.runner import Runnel

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from tests.servers.mysql import SqlServer
    from tests.servers.postgres import PostgresServer

__all__ = ["mariadb_server", "postgres_server"]
BOTH = [pytest.mark.mariadb, pytest.mark.postgres, pytest.mark.timeout(900)]
"""The marks of a test that takes `pair`."""


class Pair(Shop):
    """A database that is followed and one that gets views; each transaction of the first is an epoch."""

    def __init__(self, folder: Path, source: SqlServer, target: PostgresServer) -> None:
        self.url = target.database()
        super().__init__(folder, source)

    def deliver(
        self,
        views: Mapping[str, str],
        *,
        keys: Any = None,
        url: str = "",
        run: str = 'epoch = "transaction"',
        **settings: Any,
    ) -> None:
        """Write runnel.toml: `views` are delivered to the tables of these names, by way of `url` where it is given."""
        lines = ["[run]", run, "[targets.front]", 'type = "postgres"']
        lines += [f"url = {json.dumps(url or self.url)}", f"views = {_inline(views)}", f"keys = {_inline(keys or {})}"]
        self.configure("\n".join(lines), **settings)

    def arrived(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        """Run a query in the target and give its rows, sorted; none while its tables are not made yet."""
        with psycopg.connect(self.url) as connection:
            try:
                return sorted(connection.execute(sql.encode(), values or None).fetchall(), key=repr)
            except psycopg.errors.UndefinedTable:
                return []

    def wait_for(self, sql: str, *values: Any) -> None:
        """Wait until a query gives rows in the target."""
        wait_until(lambda: bool(self.arrived(sql, *values)))

    def change_target(self, *statements: str) -> None:
        """Run statements in the target, as somebody else would."""
        with psycopg.connect(self.url) as connection:
            for statement in statements:
                connection.execute(statement.encode())

    @contextmanager
    def running(self) -> Iterator[Runnel]:
        """Run `runnel run` as a process meanwhile; it has to end well."""
        runner = Runnel(self.folder, "duckdb")
        runner.start()
        try:
            yield runner
            runner.stop()
        finally:
            runner.kill()


def _inline(values: Mapping[str, Any]) -> str:
    return "{ " + ", ".join(f"{json.dumps(name)} = {json.dumps(value)}" for name, value in values.items()) + " }"


@pytest.fixture
def pair(tmp_path: Path, mariadb_server: SqlServer, postgres_server: PostgresServer) -> Pair:
    """Give an empty database on either side, and a project between them."""
    return Pair(tmp_path, mariadb_server, postgres_server)
