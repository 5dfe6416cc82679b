"""What a server must be set to so that its log can be followed, and which tables cannot be: each said with what mends it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from runnel.connectors.mysql.client import text
from runnel.connectors.mysql.definitions import need_key
from runnel.connectors.mysql.log.problems import Spot
from runnel.connectors.mysql.types import type_of
from runnel.errors import Problems, RunnelError, Terminal, UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from runnel.connectors.base import Offset
    from runnel.connectors.mysql.client import Client
    from runnel.connectors.mysql.definitions import Definition
    from runnel.connectors.mysql.settings import Settings

_NEEDED = {"log_bin": "ON", "binlog_format": "ROW", "binlog_row_image": "FULL"}


def _wrong(label: str, name: str, value: str) -> UsageError:
    """Make the error for a setting of the server under which its log cannot be followed."""
    sessions = "and in the server's configuration; sessions that are open keep the old one"
    if name == "binlog_format":
        return UsageError(
            "RUNNEL-BINLOG-FORMAT",
            f"{label}: changes are logged as statements, not as rows (binlog_format is {value})",
            hint=f"SET GLOBAL binlog_format = ROW, {sessions}",
        )
    if name == "binlog_row_image":
        return UsageError(
            "RUNNEL-BINLOG-IMAGE",
            f"{label}: rows are logged without all of their columns (binlog_row_image is {value})",
            hint=f'SET GLOBAL binlog_row_image = FULL, {sessions}; MySQL\'s can be read with row_image = "minimal"',
        )
    return UsageError(
        "RUNNEL-BINLOG-OFF",
        f"{label}: the server writes no binary log (log_bin is {value})",
        hint="start the server with log_bin = binlog",
    )


def check_settings(client: Client) -> None:
    """Raise unless rows are logged, whole, and the database is not left out of the log."""
    label, problems = client.settings.label, list[RunnelError]()
    found = client.variables(*_NEEDED)
    for name, wanted in _NEEDED.items():
        if name == "binlog_row_image" and client.settings.row_image == "minimal":
            continue
        if found.get(name, wanted).upper() != wanted:
            problems.append(_wrong(label, name, found[name]))
    if problems:
        raise problems[0] if len(problems) == 1 else Problems(problems)
    only, never = client.filters()
    database = client.settings.database
    if (only and database not in only) or database in never:
        raise UsageError(
            "RUNNEL-BINLOG-FILTER",
            f"{label}: the server leaves database {database} out of its binary log",
            hint="change binlog_do_db or binlog_ignore_db in the server's configuration",
        )


def advice(client: Client) -> tuple[str, ...]:
    """Give what would make following safer."""
    label = client.settings.label
    found = client.variables("binlog_row_metadata", "binlog_checksum", "binlog_expire_logs_seconds", "expire_logs_days")
    said = []
    if found.get("binlog_row_metadata", "").upper() != "FULL":
        said.append(f"{label}: with SET GLOBAL binlog_row_metadata = FULL the log names its columns by itself")
    if client.settings.row_image == "minimal":
        said.append(
            f"{label}: rows may be logged without all of their columns; they are completed from the state by key"
        )
    if found.get("binlog_checksum") == "NONE":
        said.append(f"{label}: with SET GLOBAL binlog_checksum = CRC32 damage of the log is always noticed")
    return tuple(said)


def refused_tables(client: Client, definitions: Mapping[str, Definition]) -> dict[str, RunnelError]:
    """Give the tables that cannot be followed, each with the reason."""
    label, found = client.settings.label, dict[str, RunnelError]()
    cascading = _cascading(client)
    for name, definition in definitions.items():
        try:
            need_key(label, definition)
            for column in definition.columns:
                type_of(column)
        except RunnelError as error:
            hint = error.hint
            found[name] = Terminal(error.code, _about(label, name, error.message), hint=hint)
        if name in cascading:
            found[name] = Terminal(
                "RUNNEL-MYSQL-CASCADE",
                f"{label}: table {name} changes by a cascade of its foreign key {cascading[name]}, which this server does not log",
                hint="use ON DELETE RESTRICT and change children by statements, or leave the table out of `tables`",
            )
    return found


def _about(label: str, name: str, message: str) -> str:
    return message if message.startswith(label) else f"{label}: table {name}: {message}"


def _cascading(client: Client) -> dict[str, str]:
    """Give the tables whose rows change when those of another table do, without an event of their own."""
    if client.variables("innodb_native_foreign_keys").get("innodb_native_foreign_keys") == "OFF":
        return {}
    rows = client.rows(
        "SELECT TABLE_NAME, CONSTRAINT_NAME FROM information_schema.REFERENTIAL_CONSTRAINTS WHERE CONSTRAINT_SCHEMA ="
        f" {text(client.settings.database)} AND (DELETE_RULE IN ('CASCADE', 'SET NULL', 'SET DEFAULT')"
        " OR UPDATE_RULE IN ('CASCADE', 'SET NULL', 'SET DEFAULT'))"
    )
    return dict(rows)


def check_same_server(client: Client, start: Offset) -> None:
    """Raise unless the server is the one that a position is of, and its log still has that history."""
    label, server = client.settings.label, client.server()
    if server.identity != start["server"]:
        raise _other(client.settings, f"the server is {server.identity}, the position is of {start['server']}")
    gtid, file, at = start.get("gtid", ""), start["file"], int(start["at"])
    if file not in client.files():
        raise Terminal(
            "RUNNEL-BINLOG-PURGED",
            f"{label}: the server no longer has {file}, which was read up to {at}",
            hint=f"`runnel rebuild {client.settings.name}` reads all tables again and goes on from there; keep logs for"
            " longer than runnel may be stopped (binlog_expire_logs_seconds)",
        )
    known = client.gtids(Spot(file, at))
    if server.mariadb:
        same = gtid in known.split(",") if gtid else known == start.get("gtids", "")
    else:
        ((contained,),) = client.rows(f"SELECT GTID_SUBSET({text(gtid or start.get('gtids', ''))}, {text(known)})")
        same = contained == "1"
    if not same:
        what = f"transaction {gtid}" if gtid else f"the transactions {start.get('gtids')}"
        raise _other(client.settings, f"its log does not have {what} before {file}:{at}")


def _other(settings: Settings, why: str) -> Terminal:
    return Terminal(
        "RUNNEL-BINLOG-SERVER",
        f"{settings.label}: this is another server, or its log was reset: {why}",
        hint=f"connect to the server of before, or read all tables of this one again: `runnel rebuild {settings.name}`",
    )
