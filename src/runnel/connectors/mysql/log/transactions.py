"""From events to transactions: what happened, in the order in which it was committed, and where the log may be cut.

A log holds committed transactions only, each in one piece. `Committed` is the one place at which reading may stop and begin again.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from runnel.connectors.mysql.log import gtids
from runnel.connectors.mysql.log.events import HEADER_SIZE, IGNORABLE, Event, Format, Kind, header, read_format
from runnel.connectors.mysql.log.payloads import unpack_transaction
from runnel.connectors.mysql.log.problems import BadBytes, Spot, damaged, not_understood, refused
from runnel.connectors.mysql.log.row_events import NO_TABLE, ROWS, Rows, ends_statement, read_rows, table_number
from runnel.connectors.mysql.log.statements import Statement, read_statement
from runnel.connectors.mysql.log.table_map import TableMap, read_table_map

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator


@dataclass(frozen=True, slots=True)
class Committed:
    """The end of a transaction: `spot` is after it, `begin` before it; `gtid` is empty where it has none.

    `prepared` names the XA transaction that was only prepared: its rows count when `decided` comes. `displaced` says that the places of
    events inside it are not those of the log, as far as they were counted.
    """

    spot: Spot
    begin: Spot
    gtid: str = ""
    timestamp: int = 0
    prepared: str = ""
    displaced: bool = False


@dataclass(frozen=True, slots=True)
class Decided:
    """The end of a prepared XA transaction, in a transaction of its own: committed or rolled back."""

    xid: str
    committed: bool
    spot: Spot


@dataclass(frozen=True, slots=True)
class Defined:
    """A statement that is not about rows: a definition, or something that does not concern tables."""

    statement: Statement
    spot: Spot


@dataclass(frozen=True, slots=True)
class Rotated:
    """The log goes on in another file."""

    file: str
    position: int


@dataclass(frozen=True, slots=True)
class Aborted:
    """The server ended before the transaction did: what was logged of it did not happen."""

    spot: Spot


Item = Rows | Committed | Decided | Defined | Rotated | Aborted
_IGNORED = {
    Kind.STOP,
    Kind.INTVAR,
    Kind.RAND,
    Kind.USER_VAR,
    Kind.HEARTBEAT,
    Kind.HEARTBEAT_V2,
    Kind.IGNORABLE,
    Kind.ROWS_QUERY,
    Kind.PREVIOUS_GTIDS,
    Kind.TRANSACTION_CONTEXT,
    Kind.VIEW_CHANGE,
    Kind.ANNOTATE_ROWS,
    Kind.BINLOG_CHECKPOINT,
    Kind.MARIADB_GTID_LIST,
}
_GTIDS = {Kind.GTID, Kind.ANONYMOUS_GTID, Kind.GTID_TAGGED, Kind.MARIADB_GTID}
_DML = re.compile(r"(INSERT|UPDATE|DELETE|REPLACE|LOAD|WITH|CALL|SELECT)\b")
_XA = re.compile(r"XA\s+(\w+)\s+(.*?)(\s+ONE\s+PHASE)?\s*;?$", re.DOTALL)
MOST_MAPS = 10_000
"""Tables whose maps are remembered; those of a statement are far fewer."""


class Assembler:
    """Goes through events and gives what they mean; it knows the format and the table maps that hold at the moment."""

    def __init__(self, wanted: Callable[[str, str], bool], maps: Iterable[bytes] = ()) -> None:
        """Give rows of tables for which `wanted(schema, table)` is true; others are passed by undecoded.

        `maps` are table maps that hold where reading begins, if that is inside a transaction.
        """
        self.wanted = wanted
        self.format: Format | None = None
        self._before = tuple(maps)
        self._maps: dict[int, TableMap | None] = {}
        self._logged: dict[int, bytes] = {}
        self._statement_ended = False
        self._parsed: dict[bytes, TableMap] = {}
        self._begin: Spot | None = None
        self._gtid = gtids.Gtid("")
        self._open = False

    def items(self, events: Iterable[Event]) -> Iterator[Item]:
        """Give what events mean, in their order."""
        for event in events:
            try:
                yield from self._item(event)
            except BadBytes as error:
                raise damaged(Spot(event.file, event.start), error) from error

    def _item(self, event: Event) -> Iterator[Item]:
        kind = event.kind
        if kind in ROWS:
            yield from self._rows(event)
        elif kind == Kind.TABLE_MAP:
            self._table_map(event.body, self._format(event))
        elif kind in _GTIDS:
            self._started(event)
        elif kind == Kind.XID:
            yield self._committed(event)
        elif kind in (Kind.QUERY, Kind.QUERY_COMPRESSED):
            yield from self._query(event)
        elif kind == Kind.FORMAT_DESCRIPTION:
            self.format = read_format(event.body)
            self._maps.clear()
            if self._open:
                yield Aborted(Spot(event.file, event.start))
            self._begin, self._gtid, self._open = None, gtids.Gtid(""), False
            for body in self._before:
                self._table_map(body, self.format)
            self._before = ()
        elif kind == Kind.ROTATE:
            yield Rotated(event.body[8:].decode("utf-8", "replace"), int.from_bytes(event.body[:8], "little"))
        elif kind == Kind.TRANSACTION_PAYLOAD:
            for inner in inner_events(event):
                yield from self._item(inner)
        elif kind == Kind.XA_PREPARE:
            yield self._prepared(event)
        elif kind not in _IGNORED and not event.flags & IGNORABLE:
            raise _refusal(event)

    def _started(self, event: Event) -> None:
        if self._open:
            raise BadBytes("a transaction begins before the one before it has ended")
        self._begin = Spot(event.file, event.start)
        if event.kind == Kind.MARIADB_GTID:
            self._gtid = gtids.mariadb_gtid(event.body, event.server_id)
            self._open = not self._gtid.alone
        elif event.kind == Kind.GTID_TAGGED:
            self._gtid = gtids.tagged_gtid(event.body)
        else:
            self._gtid = gtids.mysql_gtid(event.body) if event.kind == Kind.GTID else gtids.Gtid("")

    def _committed(self, event: Event, prepared: str = "") -> Committed:
        spot = Spot(event.file, event.end)
        begin = self._begin or Spot(event.file, event.start)
        done = Committed(spot, begin, self._gtid.text, event.timestamp, prepared, event.displaced)
        self._begin, self._gtid, self._open = None, gtids.Gtid(""), False
        self._maps.clear()
        return done

    def _table_map(self, body: bytes, format_: Format) -> None:
        size = 4 if format_.lengths[Kind.TABLE_MAP - 1] == 6 else 6
        number = int.from_bytes(body[:size], "little")
        if len(self._maps) > MOST_MAPS or len(self._parsed) > MOST_MAPS:
            self._maps.clear()
            self._parsed.clear()
        table = self._parsed.get(body)
        if table is None:
            _, table = read_table_map(body, id_size=size, mariadb=format_.mariadb)
            self._parsed[body] = table
        self._maps[number] = table if self.wanted(table.schema, table.table) else None
        # A new one each time: rows that were given keep theirs.
        self._logged = {number: body} if self._statement_ended else {**self._logged, number: body}
        self._statement_ended = False

    def _rows(self, event: Event) -> Iterator[Item]:
        format_ = self._format(event)
        number = table_number(event, format_)
        self._statement_ended = ends_statement(event, format_)
        if number not in self._maps:
            if number in (NO_TABLE, 0xFFFFFFFFFFFF):
                return
            raise BadBytes(f"rows of table number {number} come before its table map")
        table = self._maps[number]
        if table is not None:
            yield read_rows(event, table, format_, self._logged)

    def _format(self, event: Event) -> Format:
        if self.format is None:
            raise BadBytes("events come before the format description")
        return self.format

    def _query(self, event: Event) -> Iterator[Item]:
        statement = read_statement(event)
        word = statement.word
        spot = Spot(event.file, event.start)
        if word == "BEGIN":
            self._open = True
            self._begin = self._begin or spot
        elif word == "COMMIT":
            yield self._committed(event)
        elif word.startswith(("SAVEPOINT", "RELEASE SAVEPOINT")):
            return
        elif word.startswith("ROLLBACK"):
            raise refused(
                "RUNNEL-BINLOG-ROLLBACK",
                spot,
                "a transaction that was rolled back is in the log, for it changed a table that cannot be rolled back",
                "use InnoDB for all tables of such transactions, then `runnel rebuild SOURCE`: all tables are read again",
            )
        elif (xa := _XA.match(word)) is not None:
            yield from self._xa(event, xa[1], xa[2].strip())
        elif _DML.match(word):
            raise refused(
                "RUNNEL-BINLOG-STATEMENT",
                spot,
                f"a change was logged as a statement: {statement.text[:80]!r}",
                "set binlog_format = ROW on the server, for all sessions, then `runnel rebuild SOURCE`: all tables are read again",
            )
        else:
            yield Defined(statement, spot)
            if not self._open:
                yield self._committed(event)

    def _xa(self, event: Event, word: str, xid: str) -> Iterator[Item]:
        if word in ("START", "BEGIN"):
            self._open = True
        elif word in ("COMMIT", "ROLLBACK"):
            yield Decided(xid, word == "COMMIT", Spot(event.file, event.start))
            yield self._committed(event)

    def _prepared(self, event: Event) -> Committed:
        """Read the end of an XA transaction: one phase, which is a commit, or a prepare."""
        body = event.body
        if len(body) < 13:
            raise BadBytes("the end of an XA transaction is too short")
        first, second = int.from_bytes(body[5:9], "little"), int.from_bytes(body[9:13], "little")
        data = body[13 : 13 + first + second]
        if body[0] or len(data) != first + second:
            return self._committed(event)
        number = int.from_bytes(body[1:5], "little", signed=True)
        return self._committed(event, f"X'{data[:first].hex()}',X'{data[first:].hex()}',{number}".upper())


def inner_events(event: Event) -> Iterator[Event]:
    """Give the events inside a compressed transaction; they have the position of the event that holds them."""
    unpacked = unpack_transaction(event.body)
    while unpacked.left:
        if unpacked.left < HEADER_SIZE:
            raise BadBytes("an event inside a transaction is cut off")
        timestamp, kind, server_id, size, _, flags = header(unpacked.take(HEADER_SIZE))
        if size - HEADER_SIZE > unpacked.left or kind in (Kind.TRANSACTION_PAYLOAD, Kind.FORMAT_DESCRIPTION):
            raise BadBytes("an event inside a transaction is cut off, or cannot be inside one")
        body = unpacked.take(size - HEADER_SIZE)
        yield Event(kind, flags, timestamp, server_id, body, event.file, event.start, event.end, event.displaced)
    unpacked.end()


def _refusal(event: Event) -> Exception:
    spot = Spot(event.file, event.start)
    if event.kind == Kind.INCIDENT:
        return refused(
            "RUNNEL-BINLOG-INCIDENT",
            spot,
            "the server lost changes: it wrote an incident into its log",
            "`runnel rebuild SOURCE` reads all tables again and goes on after it",
        )
    if event.kind == Kind.START_ENCRYPTION:
        return refused(
            "RUNNEL-BINLOG-ENCRYPTED", spot, "the file is encrypted", "read it from the server, which decrypts it"
        )
    if event.kind in (Kind.BEGIN_LOAD_QUERY, Kind.EXECUTE_LOAD_QUERY, Kind.APPEND_BLOCK):
        return refused(
            "RUNNEL-BINLOG-STATEMENT",
            spot,
            "a LOAD DATA was logged as a statement",
            "set binlog_format = ROW, then begin anew",
        )
    return not_understood(spot, f"an event of kind {event.kind}")
