"""Archived binary logs as a source, without a server: `logs = "binlogs/*"`. The log must describe its tables by itself.

The files must begin before the first row of each table: what they do not hold is not there. A row that changes and was never inserted
is an error, and so is a definition that may have changed rows in ways that the log does not say.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import sqlglot
from sqlglot import exp

from runnel.connectors.base import ChangeSet, Partition, TableInfo
from runnel.connectors.mysql.changes import Gathered
from runnel.connectors.mysql.ddl import touched
from runnel.connectors.mysql.definitions import Definition
from runnel.connectors.mysql.log.problems import Spot, refused
from runnel.connectors.mysql.log.row_events import Rows
from runnel.connectors.mysql.logs import FileLog
from runnel.connectors.mysql.pieces import PieceOfTable
from runnel.connectors.mysql.types import type_logged
from runnel.connectors.mysql.wanted import Wanted
from runnel.connectors.mysql.window import Scan, prepared_of
from runnel.errors import RunnelError, Terminal
from runnel.model.relation import Column, check_columns

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from runnel.connectors.base import Offset
    from runnel.connectors.mysql.log.table_map import TableMap
    from runnel.connectors.mysql.settings import Settings
    from runnel.connectors.mysql.window import Window


class ArchiveSource:
    """Reads the tables of one database out of archived logs."""

    def __init__(self, settings: Settings) -> None:
        """Keep the settings; nothing is read yet."""
        self.settings = settings
        self._log = FileLog(settings)
        self._seen: tuple[tuple[tuple[str, int], ...], dict[str, TableInfo]] | None = None
        self._refused: dict[str, RunnelError] = {}
        self._held: Window | None = None

    def tables(self) -> tuple[TableInfo, ...]:
        """Give the tables that the logs have rows of; all files are gone through once, and again when they have grown."""
        now = tuple((path.name, path.stat().st_size) for path in self._log.paths())
        if self._seen is None or self._seen[0] != now:
            self._seen = (now, self._described())
        return tuple(self._seen[1].values())

    def _described(self) -> dict[str, TableInfo]:
        maps: dict[str, list[TableMap]] = {}
        for item in self._log.items(self._log.first(), None, self._is_chosen):
            if isinstance(item, Rows):
                known = maps.setdefault(item.table.table, [])
                if not known or known[-1] is not item.table:
                    _need_description(item)
                    known.append(item.table)
        found: dict[str, TableInfo] = {}
        self._refused = {}
        for name, versions in maps.items():
            try:
                found[name] = _info(self.settings.label, name, versions)
            except RunnelError as error:
                self._refused[name] = error
        return found

    def _is_chosen(self, schema: str, table: str) -> bool:
        return schema == self.settings.database and (not self.settings.tables or table in self.settings.tables)

    def problems(self) -> tuple[RunnelError, ...]:
        """Give the tables that cannot be followed."""
        return tuple(self._refused.values())

    def advice(self) -> tuple[str, ...]:
        """Give nothing: files have no settings."""
        return ()

    def initial_offset(self) -> Offset:
        """Give the position before the first event."""
        first = self._log.first()
        return {"file": first.file, "at": first.position}

    def latest_offset(self, start: Offset, max_rows: int, *, single: bool = False) -> Offset:
        """Give the position after the next whole transactions of the files; `start` where nothing of it is ours."""
        window = self._window(start, None, max_rows, single=single)
        if window.empty and window.prepared == prepared_of(start) and window.end.file == window.start.file:
            return start
        self._held = window
        prepared = {xid: list(stretch) for xid, stretch in window.prepared.items()}
        gtid = window.gtid or start.get("gtid", "")
        return {"file": window.end.file, "at": window.end.position, "gtid": gtid, "prepared": prepared}

    def _window(self, start: Offset, end: Spot | None, limit: int, *, single: bool = False) -> Window:
        followed = frozenset(info.name for info in self.tables())
        wanted = Wanted(self.settings.database, followed, followed or ("",))
        scan = Scan(wanted, partial(self._log.stretch, wanted=wanted.rows), limit, single)
        begin = Spot(start["file"], int(start["at"]))
        return scan.window(begin, prepared_of(start), self._log.items(begin, end, wanted.rows))

    def read(self, start: Offset, end: Offset) -> Iterator[ChangeSet]:
        """Give the signed rows of the transactions in (start, end]."""
        window = self._between(start, end)
        self._held = None
        infos = {info.name: _nameless(info) for info in self.tables()}
        gathered = Gathered(infos, self.settings.zero_dates)
        for rows in window.read(self.settings, Wanted(self.settings.database, infos, infos)):
            yield from gathered.add(rows)
        yield from gathered.rest()
        yield from _defined(window)

    def _between(self, start: Offset, end: Offset) -> Window:
        ends = (Spot(start["file"], start["at"]), Spot(end["file"], end["at"]))
        if self._held is None or (self._held.start, self._held.end) != ends:
            self._held = self._window(start, ends[1], 1 << 62)
        return self._held

    def partitions(self, start: Offset, end: Offset) -> Sequence[Partition] | None:
        """Cut a range into pieces of the log, table by table; None where a definition makes its order matter."""
        window = self._between(start, end)
        if window.defined:
            return None
        infos = {info.name: info for info in self.tables()}
        return [
            Partition(name, amount.rows, PieceOfTable(self.settings, _nameless(infos[name]), piece))
            for piece in window.pieces
            for name, amount in piece.tables.items()
        ]

    def commit(self, end: Offset) -> None:
        """Leave the files as they are."""

    def cells(self) -> None:
        """Say that changes are rows."""

    def covers(self, have: Offset, wanted: Offset) -> bool:
        """Say whether the logs were read up to `{"file": ..., "at": ...}`, or have nothing of ours from there on to it."""
        if not have:
            return False
        begin, asked = Spot(have["file"], int(have["at"])), Spot(wanted["file"], int(wanted.get("at", 0)))
        return begin.order >= asked.order or self._window(have, asked, 1, single=True).empty

    def end_offset(self) -> Offset:
        """Give the end of the last file."""
        last = self._log.paths()[-1]
        return {"file": last.name, "at": last.stat().st_size}

    def lag(self, start: Offset) -> Mapping[str, Any]:
        """Say how many bytes of files wait."""
        if not start:
            return {}
        begin = Spot(start["file"], int(start["at"]))
        later = [path for path in self._log.paths() if Spot(path.name, 0).order[:2] >= begin.order[:2]]
        return {"behind_bytes": sum(path.stat().st_size for path in later) - begin.position}

    def close(self) -> None:
        """Let go of what was read ahead."""
        self._held = None


def _nameless(info: TableInfo) -> Definition:
    """Give a definition that leaves it to the log what columns are."""
    return Definition(info.name, (), info.key)


def _need_description(rows: Rows) -> None:
    if not rows.table.described:
        raise refused(
            "RUNNEL-BINLOG-METADATA",
            rows.spot,
            f"the log does not name the columns of table {rows.table.table}",
            "archived logs are read where the server has binlog_row_metadata = FULL; read older ones from the server",
        )


def _info(label: str, name: str, versions: Sequence[TableMap]) -> TableInfo:
    """Describe a table by its last map, with columns that earlier ones had after those that it has."""
    last = versions[-1]
    if not last.key:
        raise Terminal(
            "RUNNEL-MYSQL-KEY", f"{label}: table {name} has no primary key", hint="leave it out: tables = [...]"
        )
    columns = {column.name or "": Column(column.name or "", type_logged(column)) for column in last.columns}
    for version in reversed(versions):
        for column in version.columns:
            columns.setdefault(column.name or "", Column(column.name or "", type_logged(column)))
    key = tuple(last.columns[at].name or "" for at in last.key)
    check_columns(name, tuple(columns.values()), key)
    return TableInfo(name, tuple(columns.values()), key, grows=True)


def _defined(window: Window) -> Iterator[ChangeSet]:
    """Follow a definition as far as its text says what it does to rows; refuse others by name."""
    if window.statement is None:
        return
    for table in touched(window.statement):
        if table.table not in window.defined:
            continue
        if table.what in ("TRUNCATE", "DROP", "CREATE", "DROP DATABASE"):
            yield ChangeSet(table.table, place=str(window.end), whole=True)
        elif not only_adds_nulls(window.statement.text):
            raise refused(
                "RUNNEL-BINLOG-DEFINITION",
                window.end,
                f"{table.what} TABLE {table.table} may have changed rows, which the log does not say",
                "read the log from the server, which then reads such tables again, or begin with logs after it",
            )


def only_adds_nulls(text: str) -> bool:
    """Say whether an ALTER only adds columns that are NULL in all rows that exist.

    >>> only_adds_nulls("ALTER TABLE t ADD COLUMN a INT, ADD b TEXT NULL"), only_adds_nulls("ALTER TABLE t ADD a INT DEFAULT 1")
    (True, False)
    """
    try:
        parsed = sqlglot.parse_one(text, dialect="mysql", error_level=sqlglot.ErrorLevel.RAISE)
    except sqlglot.errors.SqlglotError:
        return False
    if not isinstance(parsed, exp.Alter):
        return False
    actions = parsed.args.get("actions") or []
    return bool(actions) and all(isinstance(action, exp.ColumnDef) and _is_null(action) for action in actions)


def _is_null(column: exp.ColumnDef) -> bool:
    kinds = [constraint.kind for constraint in column.constraints]
    plain = all(
        (isinstance(kind, exp.NotNullColumnConstraint) and kind.args.get("allow_null"))
        or (isinstance(kind, exp.DefaultColumnConstraint) and isinstance(kind.this, exp.Null))
        or isinstance(kind, exp.CommentColumnConstraint)
        for kind in kinds
    )
    return (
        plain
        and column.kind is not None
        and column.kind.this not in (exp.DataType.Type.TIMESTAMP, exp.DataType.Type.TIMESTAMPTZ)
    )
