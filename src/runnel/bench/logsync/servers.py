"""The servers that are measured: given by URL, of a throw-away kind; each gets a database of its own, which is dropped again."""

from __future__ import annotations

import uuid
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import psycopg
import pymysql

from runnel.errors import Unreachable, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

TABLE = "orders"
COLUMNS = "id, shop, name, amount, at, weight, n, note"
ORDERS = (
    f"CREATE TABLE {TABLE} (id BIGINT PRIMARY KEY, shop INT, name VARCHAR(40), amount DECIMAL(12,2), at {{time}}, "
    "weight {double}, n SMALLINT, note VARCHAR(200))"
)
STATEMENT_ROWS = 1_000


@dataclass(frozen=True)
class MysqlServer:
    """A MariaDB or MySQL, and a database on it."""

    host: str
    port: int
    user: str
    family: str
    version: str
    database: str = ""

    def connect(self, **options: Any) -> Any:
        """Connect to the database."""
        found = {"host": self.host, "port": self.port, "user": self.user, "database": self.database or None}
        return pymysql.connect(**found, **({"autocommit": True} | options))

    def sql(self, *statements: str) -> list[tuple[Any, ...]]:
        """Run statements and give the rows of the last."""
        with self.connect() as connection, connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)
            return list(cursor.fetchall())

    def end_of_log(self) -> tuple[str, int]:
        """Give the file that is written, and where it ends."""
        ((file, position, *_),) = self.sql("SHOW MASTER STATUS")
        return file, position


def mysql(url: str) -> MysqlServer:
    """Ask a server what it is."""
    parts = urlsplit(url)
    if parts.scheme != "mysql" or not parts.hostname or parts.password:
        raise UsageError("RUNNEL-USAGE", "a server's URL is mysql://USER@HOST:PORT, of a user without a password")
    server = MysqlServer(parts.hostname, parts.port or 3306, parts.username or "root", "mysql", "")
    try:
        ((version,),) = server.sql("SELECT VERSION()")
    except pymysql.MySQLError as error:
        raise Unreachable("RUNNEL-BENCH-SERVER", f"{parts.hostname}:{server.port} does not answer: {error}") from error
    family = "mariadb" if "mariadb" in version.lower() else "mysql"
    return MysqlServer(server.host, server.port, server.user, family, version)


@contextmanager
def mysql_database(server: MysqlServer) -> Iterator[MysqlServer]:
    """Give the server with an empty table of orders in a database of its own."""
    name = "runnel_bench_" + uuid.uuid4().hex[:8]
    server.sql(f"CREATE DATABASE {name}")
    made = MysqlServer(server.host, server.port, server.user, server.family, server.version, name)
    try:
        made.sql(ORDERS.format(time="DATETIME(3)", double="DOUBLE"))
        yield made
    finally:
        server.sql(f"DROP DATABASE {name}")


@contextmanager
def postgres_database(url: str) -> Iterator[str]:
    """Give the URL of a database of its own."""
    name = "runnel_bench_" + uuid.uuid4().hex[:8]
    try:
        server = psycopg.connect(url, autocommit=True)
    except psycopg.OperationalError as error:
        raise Unreachable("RUNNEL-BENCH-SERVER", f"PostgreSQL does not answer: {error}") from error
    with server:
        server.execute(f"CREATE DATABASE {name}".encode())
        try:
            yield urlsplit(url)._replace(path=f"/{name}").geturl()
        finally:
            for (slot,) in server.execute("SELECT slot_name FROM pg_replication_slots WHERE database = %s", [name]):
                server.execute("SELECT pg_drop_replication_slot(%s)", [slot])
            server.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())


def inserts(rows: int) -> Iterator[str]:
    """Give statements that insert orders 1 to `rows`, a thousand each; every tenth has a note."""
    for begin in range(1, rows + 1, STATEMENT_ROWS):
        values = (row(number) for number in range(begin, min(begin + STATEMENT_ROWS, rows + 1)))
        yield f"INSERT INTO {TABLE} ({COLUMNS}) VALUES {', '.join(values)}"


def row(number: int) -> str:
    """Give the values of one order."""
    at = f"'2026-01-{number % 28 + 1:02d} 10:{number % 60:02d}:00.{number % 1000:03d}'"
    note = f"'a note about order {number}, which is as long as notes are'" if number % 10 == 0 else "NULL"
    return (
        f"({number}, {number % 2000}, 'customer number {number}', {number % 100000}.{number % 100:02d}, {at}, "
        f"{number / 7:.6f}, {number % 30000}, {note})"
    )
