"""What a server must be set to so that its log can be followed, and which tables cannot be: each said with what mends it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from runnel.connectors.postgres.log.problems import lsn_text
from runnel.connectors.postgres.publication import command, wrong
from runnel.connectors.postgres.server import OLDEST, quoted
from runnel.connectors.postgres.slot import lag_of, read_slot
from runnel.errors import RunnelError, Terminal, Transient, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from runnel.connectors.base import Offset
    from runnel.connectors.postgres.definitions import Table
    from runnel.connectors.postgres.publication import Publication
    from runnel.connectors.postgres.server import Server
    from runnel.connectors.postgres.settings import SourceSettings


def check_settings(server: Server) -> None:
    """Raise unless the server logs what is needed and is the one that is written to."""
    label, version = server.settings.label, server.version()
    if version < OLDEST:
        raise UsageError(
            "RUNNEL-POSTGRES-VERSION",
            f"{label}: the server has version {version // 10000}, and {OLDEST // 10000} is the oldest that is read",
            hint="upgrade the server",
        )
    if server.value("SELECT pg_is_in_recovery()"):
        raise UsageError(
            "RUNNEL-POSTGRES-STANDBY", f"{label}: the server is a standby", hint="connect to the primary server"
        )
    level = server.value("SELECT current_setting('wal_level')")
    if level != "logical":
        raise UsageError(
            "RUNNEL-POSTGRES-WAL-LEVEL",
            f"{label}: the log has no rows (wal_level is {level})",
            hint="ALTER SYSTEM SET wal_level = logical, then restart the server",
        )


def check_same_server(server: Server, start: Offset) -> None:
    """Raise unless the server and its database are those that a position is of."""
    identity = server.identity()
    if identity != start["server"]:
        raise _other(server.settings, f"it is {identity}, the position is of {start['server']}")


def shorter_log(settings: SourceSettings, position: str, end: int) -> Terminal:
    """Make the error for a log that ends before a position."""
    return _other(settings, f"its log ends at {lsn_text(end)}, before the position {position}")


def _other(settings: SourceSettings, why: str) -> Terminal:
    return Terminal(
        "RUNNEL-POSTGRES-SERVER",
        f"{settings.label}: this is another server or database, or it was restored from a backup: {why}",
        hint=f"connect to the server of before, or read all tables of this one again: `runnel rebuild {settings.name}`",
    )


def nothing_to_follow(settings: SourceSettings, problems: Iterable[RunnelError]) -> RunnelError:
    """Give the error for a source without a table that can be followed: that of the first one."""
    for problem in problems:
        return problem
    return UsageError(
        "RUNNEL-POSTGRES-TABLE",
        f"{settings.label}: the publication {settings.publication} has no table of the schema {settings.schema}",
        hint="see `schema` and `publication`",
    )


def redefined(settings: SourceSettings) -> Transient:
    """Make the error for a definition that changed a moment ago, after the tables were described."""
    return Transient(
        "RUNNEL-POSTGRES-REDEFINED",
        f"{settings.label}: a table was redefined just now",
        hint="it is read again, as it is then",
    )


def advice(server: Server, tables: Mapping[str, Table]) -> tuple[str, ...]:
    """Give what would make following safer or cheaper."""
    settings, said = server.settings, []
    for name, table in tables.items():
        if table.generated:
            listed = ", ".join(table.generated)
            said.append(f"{settings.label}: table {name}: generated columns are not in the log and left out: {listed}")
    keyed = [name for name, table in tables.items() if not table.definition.whole]
    if keyed:
        said.append(
            f"{settings.label}: old rows of {', '.join(keyed)} are looked up in the state; with ALTER TABLE ... REPLICA IDENTITY FULL"
            " they are in the log"
        )
    if server.value("SELECT current_setting('max_slot_wal_keep_size')") == "-1":
        said.append(
            f"{settings.label}: the server keeps its log for as long as runnel is stopped, until its disk is full;"
            " max_slot_wal_keep_size is a bound"
        )
    slot = read_slot(server)
    if slot is not None and slot.status in ("extended", "unreserved"):
        said.append(
            f"{settings.label}: the slot {slot.name} holds back {lag_of(server, slot):,} bytes of the log; when"
            " max_slot_wal_keep_size is reached it is lost"
        )
    return tuple(said)


def refused_tables(
    settings: SourceSettings, publication: Publication, tables: Mapping[str, Table]
) -> dict[str, RunnelError]:
    """Give the tables that cannot be followed, each with the reason."""
    found: dict[str, RunnelError] = {}
    for name, table in tables.items():
        where = f"{settings.label}: table {name}"
        problem = _unreadable(settings, where, table) or _unpublished(settings, where, publication, table)
        if problem is None:
            try:
                table.definition.info()
            except RunnelError as error:
                hint = error.hint or "leave the table out of `tables`"
                problem = Terminal(error.code, f"{where}: {error.message}", hint=hint)
        if problem is not None:
            found[name] = problem
    return found


def refused(code: str, said: str, hint: str) -> RunnelError:
    """Make the error for a table that cannot be followed."""
    return Terminal(code, said, hint=hint)


def _unreadable(settings: SourceSettings, where: str, table: Table) -> RunnelError | None:
    """Give the error of a table whose log or rows cannot be read."""
    definition = table.definition
    name = quoted(settings.schema, definition.name)
    if not table.logged:
        return refused(
            "RUNNEL-POSTGRES-UNLOGGED", f"{where} is unlogged, or has parts that are", f"ALTER TABLE {name} SET LOGGED"
        )
    if definition.identity == "n":
        said = f"{where} has REPLICA IDENTITY NOTHING: its log does not say which rows changed"
        return refused("RUNNEL-POSTGRES-IDENTITY", said, f"ALTER TABLE {name} REPLICA IDENTITY DEFAULT, or FULL")
    if not definition.key and not definition.whole:
        said = f"{where} has no primary key, and its log does not have old rows"
        return refused(
            "RUNNEL-POSTGRES-IDENTITY", said, f"ALTER TABLE {name} REPLICA IDENTITY FULL, also of its partitions"
        )
    if not definition.columns:
        return refused("RUNNEL-POSTGRES-TABLE", f"{where} has no columns", "leave the table out of `tables`")
    if not table.readable:
        hint = f"GRANT SELECT ON {name} TO the user of the source"
        return refused("RUNNEL-POSTGRES-PERMISSION", f"{where} may not be read", hint)
    return None


def _unpublished(settings: SourceSettings, where: str, publication: Publication, table: Table) -> RunnelError | None:
    """Give the error of a table that the publication lacks, or has in part."""
    error, definition, named = wrong(settings, publication), table.definition, publication.name
    if error is not None:
        return refused(error.code, f"{where} is not published whole: {error.message}", error.hint or "")
    if definition.oid in publication.partial:
        said = f"{where} is published by {named} without some of its rows or columns"
        hint = "publish the table without WHERE and without a list of columns"
        return refused("RUNNEL-POSTGRES-PUBLICATION", said, hint)
    if table.partitioned and not publication.by_root:
        said = f"{where} is partitioned, and {named} publishes its partitions instead"
        hint = f"ALTER PUBLICATION {quoted(named)} SET (publish_via_partition_root = true)"
        return refused("RUNNEL-POSTGRES-PUBLICATION", said, hint)
    if not definition.mark and not (settings.managed and table.owned and (publication.owned or not publication.exists)):
        hint = f"as its owner: {command(settings, publication, [table])}"
        return refused("RUNNEL-POSTGRES-PUBLICATION", f"{where} is not in the publication {named}", hint)
    return None
