"""The server as a source sees it: statements over one connection, sessions whose values have one form, who the server is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import psycopg

from runnel.connectors.postgres.client import connect, told
from runnel.connectors.postgres.log.problems import lsn_number

if TYPE_CHECKING:
    from collections.abc import Sequence

    from psycopg import Connection

    from runnel.connectors.postgres.settings import SourceSettings

OLDEST = 140000
"""The oldest version that is read: 14."""
_SESSION = {
    "DateStyle": "ISO",
    "IntervalStyle": "postgres",
    "TimeZone": "UTC",
    "extra_float_digits": "1",
    "bytea_output": "hex",
    "lc_monetary": "C",
    "row_security": "off",
    "search_path": "pg_catalog",
    "statement_timeout": "0",
    "idle_in_transaction_session_timeout": "0",
}
"""Values are written as text: the same text by SELECT, by COPY and in the log. Rows are never left out by policies."""
_PAGE, _PAGE_HEADER, _SEGMENT_HEADER = 8192, 24, 40


def open_session(settings: SourceSettings, *, replication: bool = False) -> Connection[tuple[Any, ...]]:
    """Connect for reading; with `replication` the connection knows the commands of the log instead of parameters."""
    known = _SESSION | {"lock_timeout": f"{int(settings.timeout * 1000)}ms"}
    options = " ".join(f"-c {name}={value}" for name, value in known.items())
    further: dict[str, Any] = {"replication": "database"} if replication else {}
    return connect(settings, options=options, **further, **settings.security)


class Server:
    """One connection, opened when it is first needed and again after it broke."""

    def __init__(self, settings: SourceSettings) -> None:
        """Keep the settings; nothing is connected to yet. `connected` counts the connections that were made."""
        self.settings = settings
        self._connection: Connection[tuple[Any, ...]] | None = None
        self.connected = 0

    def close(self) -> None:
        """Let go of the connection."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def rows(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        """Give the rows of a statement."""
        if self._connection is None or self._connection.closed:
            self._connection = open_session(self.settings)
            self.connected += 1
        with told(self.settings):
            try:
                return rows_of(self._connection, sql, *values)
            except (psycopg.OperationalError, psycopg.InterfaceError):
                if self._connection.broken or self._connection.closed:
                    self.close()
                raise

    def value(self, sql: str, *values: Any) -> Any:
        """Give the one value of a statement."""
        return self.rows(sql, *values)[0][0]

    def version(self) -> int:
        """Give the version as a number, such as 180006."""
        return int(self.value("SELECT current_setting('server_version_num')"))

    def identity(self) -> str:
        """Say which database of which server it is: another one for another server, even at the same address."""
        sql = (
            "SELECT s.system_identifier, d.oid FROM pg_control_system() AS s, pg_database AS d"
            " WHERE d.datname = current_database()"
        )
        ((system, database),) = self.rows(sql)
        return f"{system}/{database}"

    def flushed(self) -> int:
        """Give the place up to which the log is on disk, and may be read."""
        return lsn_number(self.value("SELECT pg_current_wal_flush_lsn()::text"))

    def written(self) -> int:
        """Give the place after everything that was acknowledged, also by sessions that do not wait for the disk."""
        sql = (
            "SELECT pg_current_wal_insert_lsn()::text,"
            " (SELECT setting::bigint FROM pg_settings WHERE name = 'wal_segment_size')"
        )
        ((place, segment),) = self.rows(sql)
        return before_header(lsn_number(place), int(segment))


def rows_of(connection: Connection[tuple[Any, ...]], sql: str, *values: Any) -> list[tuple[Any, ...]]:
    """Give the rows of a statement over a connection; none where it has none."""
    cursor = connection.execute(sql, values or None)
    return cursor.fetchall() if cursor.description else []


def before_header(place: int, segment: int) -> int:
    """Give the end of the last record, where the server names the place after the header of a page that is still empty.

    >>> hex(before_header(0x3002018, 1 << 24)), hex(before_header(0x3000028, 1 << 24)), hex(before_header(0x3002028, 1 << 24))
    ('0x3002000', '0x3000000', '0x3002028')
    """
    header = _SEGMENT_HEADER if (place - _SEGMENT_HEADER) % segment == 0 else _PAGE_HEADER
    return place - header if place % _PAGE == header else place


def quoted(*names: str) -> str:
    """Write a name, or a schema and a name, in double quotes."""
    return ".".join('"' + name.replace('"', '""') + '"' for name in names)


def text(value: str) -> str:
    """Write a text as a literal."""
    return "'" + value.replace("'", "''") + "'"


def listed(names: Sequence[str]) -> str:
    """Write names in double quotes with commas."""
    return ", ".join(map(quoted, names))
