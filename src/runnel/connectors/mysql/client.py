"""Talks SQL to a server: what it is, how its log is set, what its tables are. Errors come as runnel's, with the setting that mends them."""

from __future__ import annotations

import socket
import ssl
import threading
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pymysql
from pymysql.converters import conversions
from pymysql.cursors import SSCursor

from runnel.connectors.mysql.log.problems import Spot
from runnel.errors import RunnelError, Terminal, Transient, Unreachable, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from runnel.connectors.mysql.settings import Settings

_DENIED = {1044, 1045, 1142, 1143, 1227, 1370, 1698}
_PASSING = {1040, 1053, 1152, 1158, 1159, 1160, 1161, 3024}
"""Errors of the server that may pass: too many connections, shutting down, time-outs."""
_BUSY = {1020, 1205, 1213, 1412, 1614, 1615, 3572}
"""Errors that end when somebody else's transaction does: dead-locks, locks that are held too long, definitions that changed."""
_ENCODERS = {key: value for key, value in conversions.items() if not isinstance(key, int)}
"""Values are not converted by the driver, which knows no zero dates and no exact floats."""
SESSION = (
    "SET NAMES utf8mb4",
    "SET SESSION sql_mode = '', time_zone = '+00:00'",
    "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED",
)


@dataclass(frozen=True)
class Server:
    """What a server is: `identity` is another one for another server, even at the same address."""

    version: str
    identity: str

    @property
    def mariadb(self) -> bool:
        """Whether it is a MariaDB."""
        return "mariadb" in self.version.lower()


class Client:
    """One connection, opened when it is first needed and again after it broke."""

    def __init__(self, settings: Settings) -> None:
        """Keep the settings; nothing is connected to yet. `connected` counts the connections that were made."""
        self.settings = settings
        self._connection: Any = None
        self._turn = threading.RLock()  # whoever waits for a position asks while somebody else runs the project
        self.connected = 0

    def close(self) -> None:
        """Let go of the connection."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        """Give the rows of a statement; values are texts or bytes as the protocol has them. One statement at a time."""
        with self._turn, translate_errors(self.settings):
            try:
                if self._connection is None:
                    self._connection = connect(self.settings)
                    self.connected += 1
                with self._connection.cursor() as cursor:
                    cursor.execute(sql)
                    return list(cursor.fetchall())
            except (pymysql.OperationalError, pymysql.InterfaceError, OSError):
                self.close()
                raise

    def variables(self, *names: str) -> dict[str, str]:
        """Give the values of server variables; those that the server does not have are missing."""
        listed = ", ".join(f"'{name}'" for name in names)
        found = self.rows(f"SHOW GLOBAL VARIABLES WHERE Variable_name IN ({listed})")
        return {name.lower(): value for name, value in found}

    def server(self) -> Server:
        """Say which server it is."""
        found = self.variables("version", "server_uuid", "server_id")
        # MariaDB has no identity that outlives a change of its address: its transactions tell it apart.
        identity = found.get("server_uuid") or f"server_id {found.get('server_id')}"
        return Server(found["version"], identity)

    def end_of_log(self) -> Spot:
        """Give the end of the log as it is now."""
        status = self._status()
        return Spot(status[0], int(status[1]))

    def filters(self) -> tuple[set[str], set[str]]:
        """Give the databases that alone are logged, none where all are, and those that are not."""
        only, never = (set(filter(None, (name or "").split(","))) for name in self._status()[2:4])
        return only, never

    def _status(self) -> tuple[Any, ...]:
        try:
            found = self.rows("SHOW MASTER STATUS")
        except RunnelError as error:
            if error.code != "RUNNEL-MYSQL-SQL":  # MySQL 8.4 and later have another word for it
                raise
            found = self.rows("SHOW BINARY LOG STATUS")
        if not found:
            raise UsageError(
                "RUNNEL-BINLOG-OFF",
                f"{self.settings.label}: the server writes no binary log",
                hint="start it with log_bin = binlog and binlog_format = ROW",
            )
        return found[0]

    def sure_place(self) -> Spot | None:
        """Give a place of the log up to which all can be seen by whoever reads from now on; None where only MariaDB knows it."""
        if not self.server().mariadb:
            return None
        self.rows("START TRANSACTION WITH CONSISTENT SNAPSHOT")
        try:
            found = dict(self.rows("SHOW STATUS LIKE 'binlog_snapshot_%'"))
        finally:
            self.rows("COMMIT")
        named = {name.lower(): value for name, value in found.items()}
        return Spot(named["binlog_snapshot_file"], int(named["binlog_snapshot_position"]))

    def gtids(self, spot: Spot) -> str:
        """Give the transactions before a place of the log, as far as the server has them: of MySQL, all that there are now."""
        if self.server().mariadb:
            ((found,),) = self.rows(f"SELECT BINLOG_GTID_POS({text(spot.file)}, {spot.position})")
        else:
            ((found,),) = self.rows("SELECT @@GLOBAL.gtid_executed")
        return str(found or "").replace("\n", "")

    def files(self) -> list[str]:
        """Give the files of the log that the server still has, oldest first."""
        return [row[0] for row in self.rows("SHOW BINARY LOGS")]


def connect(
    settings: Settings,
    *,
    cursor: Any = SSCursor,
    session: Sequence[str] = SESSION,
    statement_seconds: float | None = None,
) -> Any:
    """Open a connection: times in UTC, texts in UTF-8, values as the protocol has them.

    `statement_seconds` is how long one statement may take, where that is longer than a server's answer otherwise.
    """
    connection = pymysql.connect(
        host=settings.host,
        port=settings.port,
        user=settings.user,
        password=settings.password.reveal() if settings.password is not None else "",
        database=None,
        charset="utf8mb4",
        autocommit=True,
        conv=_ENCODERS,
        cursorclass=cursor,
        connect_timeout=settings.timeout,
        read_timeout=settings.timeout,
        ssl=_tls(settings),
        defer_connect=True,
    )
    connection.connect(_socket(settings))
    with connection.cursor() as made:
        for statement in session:
            made.execute(statement)
    if statement_seconds is not None:
        connection._read_timeout = statement_seconds  # the driver has no other way to change it
    return connection


def _socket(settings: Settings) -> socket.socket:
    """Connect by TCP; a network that is cut is noticed while a statement runs, however long that takes."""
    made = socket.create_connection((settings.host, settings.port), settings.timeout)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    seconds = max(1, int(settings.timeout))
    for option, value in (("TCP_KEEPIDLE", seconds), ("TCP_KEEPINTVL", 5), ("TCP_USER_TIMEOUT", seconds * 1000)):
        if hasattr(socket, option):  # Linux has all of them
            made.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
    return made


def _tls(settings: Settings) -> ssl.SSLContext | None:
    if settings.tls == "off":
        return None
    context = ssl.create_default_context(cafile=settings.ca or None)
    if settings.tls == "on":
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


@contextmanager
def translate_errors(settings: Settings) -> Iterator[None]:
    """Turn what the driver raises into errors that say what to do."""
    try:
        yield
    except pymysql.MySQLError as error:
        raise translated(settings, error) from error
    except (OSError, EOFError) as error:
        raise _away(settings, str(error)) from error


def translated(settings: Settings, error: pymysql.MySQLError) -> RunnelError:
    """Give runnel's error for one of the driver."""
    code = error.args[0] if error.args and isinstance(error.args[0], int) else 0
    said = str(error.args[-1]) if error.args else type(error).__name__
    if code in _DENIED:
        return UsageError(
            "RUNNEL-MYSQL-DENIED",
            f"{settings.label}: the server refuses user {settings.user!r}: {said}",
            hint=f"see user and password; it needs: {settings.needs}",
        )
    if code in _BUSY:
        return Transient("RUNNEL-MYSQL-BUSY", f"{settings.label}: {said}", hint="somebody else works on these rows")
    if code == 1062:
        hint = (
            "see that no unique index but the key's stands in the way, and that the key's tells upper case from lower"
        )
        return Terminal(
            "RUNNEL-MYSQL-DUPLICATE", f"{settings.label}: two rows are the same to an index: {said}", hint=hint
        )
    if code == 1236:
        return log_error(settings, said)
    if code == 3159:
        return UsageError(
            "RUNNEL-MYSQL-TLS",
            f"{settings.label}: {said}",
            hint='set tls = "verify", or "on" to leave the certificate unchecked',
        )
    if code in _PASSING or code >= 2000 or code == 0:
        return _away(settings, said)
    return Terminal("RUNNEL-MYSQL-SQL", f"{settings.label}: {said}", hint="see that the database and tables exist")


def log_error(settings: Settings, said: str) -> RunnelError:
    """Give the error for a position that the server cannot read its log from."""
    if "server_id" in said or "server id" in said.lower() or "same server_uuid" in said:
        return Terminal(
            "RUNNEL-BINLOG-SERVER-ID",
            f"{settings.label}: another reader of the log has the same server id: {said}",
            hint="leave `server_id` out, or choose one that no other replica has",
        )
    return Terminal(
        "RUNNEL-BINLOG-PURGED",
        f"{settings.label}: the server no longer has the log from the position that was reached: {said}",
        hint=f"`runnel rebuild {settings.name}` reads all tables again and goes on from there; keep logs for longer than"
        " runnel may be stopped (binlog_expire_logs_seconds)",
    )


def _away(settings: Settings, said: str) -> Unreachable:
    where = f"{settings.host}:{settings.port}"
    return Unreachable(
        "RUNNEL-MYSQL-UNREACHABLE", f"{settings.label}: {where} does not answer: {said}", hint="it is tried again"
    )


def quoted(*names: str) -> str:
    """Write a name, or a database and a name, in backquotes."""
    return ".".join("`" + name.replace("`", "``") + "`" for name in names)


def text(value: str) -> str:
    """Write a text as a literal."""
    return "'" + value.replace("\\", "\\\\").replace("'", "''") + "'"


def listed(values: Sequence[str]) -> str:
    """Write texts as a list of literals."""
    return ", ".join(map(text, values))
