"""One connection of a target, with the settings under which the server refuses what it would otherwise change."""

from __future__ import annotations

from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import pymysql
from pymysql.cursors import Cursor, SSCursor

from runnel.connectors.mysql.client import connect

if TYPE_CHECKING:
    from collections.abc import Iterator

    from runnel.connectors.mysql.settings import Settings

STATEMENT_SECONDS = 6 * 3600.0
"""How long one statement of a delivery may take: a first load of a large view is few statements."""
_MODE = "STRICT_ALL_TABLES,NO_ZERO_DATE,NO_ZERO_IN_DATE,NO_ENGINE_SUBSTITUTION,NO_AUTO_VALUE_ON_ZERO"


class Session:
    """A connection; whoever meets an error closes it, and with it transactions and temporary tables end."""

    def __init__(self, settings: Settings) -> None:
        """Connect."""
        seconds = max(1, int(settings.timeout))
        session = (
            "SET NAMES utf8mb4",
            f"SET SESSION sql_mode = '{_MODE}', time_zone = '+00:00'",
            f"SET SESSION innodb_lock_wait_timeout = {seconds}, lock_wait_timeout = {seconds}",
            "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED",
        )
        self.settings = settings
        self._connection = connect(settings, cursor=Cursor, session=session, statement_seconds=STATEMENT_SECONDS)
        ((version, packet),) = self.rows("SELECT VERSION(), @@max_allowed_packet")
        self.packet = int(packet)
        self._mariadb = "mariadb" in version.lower()

    @property
    def open(self) -> bool:
        """Whether the connection is believed to hold."""
        return bool(self._connection.open)

    def close(self) -> None:
        """Close it at once, whatever it is doing."""
        self._connection._force_close()  # close() says goodbye, and can wait for an answer

    def run(self, sql: str | bytes) -> int:
        """Run a statement and give how many rows it changed."""
        return int(self._connection.query(sql))

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        """Give the rows of a statement; values are texts."""
        with self._connection.cursor() as cursor:
            cursor.execute(sql)
            return list(cursor.fetchall())

    def pass_over(self, sql: str) -> None:
        """Run a statement whose rows nobody needs, however many they are: it is for the locks it takes."""
        with self._connection.cursor(SSCursor) as cursor:
            cursor.execute(sql)
            while cursor.fetchmany(10_000):
                pass

    def allow_recursion(self, depth: int) -> None:
        """Let a recursive query go this deep; MariaDB would else stop without a word."""
        name = "max_recursive_iterations" if self._mariadb else "cte_max_recursion_depth"
        self.run(f"SET SESSION {name} = {depth + 1}")

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """Read everything as of one moment."""
        self.run("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        with self.transaction("START TRANSACTION WITH CONSISTENT SNAPSHOT"):
            yield

    @contextmanager
    def transaction(self, begin: str = "START TRANSACTION") -> Iterator[None]:
        """Commit at the end, or roll back after an error."""
        self.run(begin)
        try:
            yield
        except Exception:
            with suppress(pymysql.MySQLError, OSError):  # where the connection broke, the server rolls back by itself
                self.run("ROLLBACK")
            raise
        self.run("COMMIT")
