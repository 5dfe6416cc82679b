"""MariaDB and MySQL in the suite: a database of its own on the shared server."""

from __future__ import annotations

import datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.connectors.sources.stores import Row
    from tests.servers.mysql import SqlServer


class MysqlStore:
    """A database; `before` is how the source takes old rows, `image` what the server logs of rows."""

    BAD = "RUNNEL-MYSQL-ZERO-DATE"

    def __init__(self, server: SqlServer, before: str = "row", image: str = "full") -> None:
        self.TYPE = server.program.name.partition("-")[0]
        self.server, self.database = server, server.database()
        self.before, self.image, self.zero_dates = before, image, "error"

    def settings(self) -> dict[str, Any]:
        known = {"host": "127.0.0.1", "port": self.server.port, "user": "root", "database": self.database}
        return known | {"before": self.before, "row_image": self.image, "zero_dates": self.zero_dates}

    def _run(self, *statements: str) -> tuple[tuple[Any, ...], ...]:
        session = f"SET SESSION sql_mode = '', binlog_row_image = {self.image}"
        return self.server.sql(session, *statements, database=self.database)

    def create(self) -> None:
        self._run(
            "CREATE TABLE t (id bigint PRIMARY KEY, g text, x int)",
            "CREATE TABLE far (id int PRIMARY KEY, d date)",
        )

    def put(self, *rows: Row) -> None:
        same = "ON DUPLICATE KEY UPDATE g = VALUES(g), x = VALUES(x)"
        self._run(*(f"INSERT INTO t VALUES ({row['id']}, '{row['g']}', {row['x']}) {same}" for row in rows))

    def delete(self, *ids: int) -> None:
        self._run(f"DELETE FROM t WHERE id IN ({', '.join(map(str, ids))})")

    def settle(self) -> None:
        pass

    def rows(self) -> list[Row]:
        return [{"id": i, "g": g, "x": x} for i, g, x in self._run("SELECT id, g, x FROM t ORDER BY id")]

    def damage(self) -> None:
        self._run("INSERT INTO far VALUES (1, '0000-00-00')")

    def mend(self) -> None:
        self.zero_dates = "null"

    def typed(self) -> tuple[dict[str, str], Row]:
        self._run(
            "CREATE TABLE typed (id bigint PRIMARY KEY, b bit(1), d decimal(12,2), f double, s text, day date,"
            " at timestamp(6) NULL)",
            "SET time_zone = '+01:00'",
            "INSERT INTO typed VALUES (4611686018427387904, 1, -1.50, 0.5, 'ü''\\n', '2024-02-29',"
            " '2024-02-29 13:00:00.000001')",
        )
        read = {"id": "bigint", "b": "boolean", "d": "decimal(12,2)", "f": "double", "s": "string", "day": "date"}
        at = datetime.datetime(2024, 2, 29, 12, 0, 0, 1, datetime.UTC)
        row = {"id": 2**62, "b": True, "d": Decimal("-1.50"), "f": 0.5, "s": "ü'\n", "day": datetime.date(2024, 2, 29)}
        return read | {"at": "timestamp"}, row | {"at": at}

    def close(self) -> None:
        self.server.sql(f"DROP DATABASE {self.database}")
