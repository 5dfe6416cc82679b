"""Tables of MariaDB and MySQL as a source: a snapshot first, then the binary log, transaction by transaction.

A position is a place in the log (file and bytes), the transaction before it, the server it is of, and the definitions that hold there.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from runnel.connectors.base import ChangeSet, Partition
from runnel.connectors.mysql.checks import advice, check_same_server, check_settings, refused_tables
from runnel.connectors.mysql.client import Client
from runnel.connectors.mysql.definitions import Definition, read_definitions
from runnel.connectors.mysql.handover import Base, SnapshotPart, parts
from runnel.connectors.mysql.keyed import gathering
from runnel.connectors.mysql.log.problems import Spot
from runnel.connectors.mysql.log.transactions import Defined
from runnel.connectors.mysql.logs import ServerLog, Tail
from runnel.connectors.mysql.pieces import PieceOfTable
from runnel.connectors.mysql.reread import LOST, Reread, redefined
from runnel.connectors.mysql.wanted import Wanted
from runnel.connectors.mysql.window import Scan, Window, prepared_of, spot_of
from runnel.errors import Terminal

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from runnel.connectors.base import Offset, TableInfo
    from runnel.connectors.mysql.settings import Settings
    from runnel.errors import RunnelError

SETTLE_SECONDS = 1.0
"""How long a MySQL server gets to make visible what is in its log already, before a snapshot."""
QUIET_BYTES = 1 << 20
"""Bytes of others' changes after which a position moves on by itself."""
TRIES = 5


@dataclass(frozen=True)
class Known:
    """The tables as they are on the server now: those that are followed, and those that cannot be."""

    tables: Mapping[str, Definition]
    refused: Mapping[str, RunnelError]


class ServerSource:
    """Follows the tables of one database of a running server."""

    def __init__(self, settings: Settings) -> None:
        """Keep the settings; nothing is connected to yet."""
        self.settings = settings
        self._client = Client(settings)
        self._log, self._tail = ServerLog(settings), Tail(settings)
        self._checked = 0
        self._known = Known({}, {})
        self._told: Mapping[str, Definition] = {}
        self._held: Window | None = None
        self._quiet: tuple[Spot, Spot] | None = None

    def tables(self) -> tuple[TableInfo, ...]:
        """Give the tables as they are on the server now; their key is the primary key, or a unique one."""
        self._check()
        self._known = self._read_known()
        self._told = self._known.tables
        return tuple(definition.info() for definition in self._known.tables.values())

    def _read_known(self) -> Known:
        found = read_definitions(self._client)
        refused = refused_tables(self._client, found)
        return Known({name: one for name, one in found.items() if name not in refused}, refused)

    def _check(self, start: Offset | None = None) -> None:
        """Compare the server's settings, and whether it is the same one, whenever a connection was made."""
        if self._checked == self._client.connected and self._checked:
            return
        check_settings(self._client)
        if start:
            check_same_server(self._client, start)
            self._checked = self._client.connected

    def problems(self) -> tuple[RunnelError, ...]:
        """Give the tables that cannot be followed."""
        return tuple(self._known.refused.values())

    def advice(self) -> tuple[str, ...]:
        """Give what would make following safer."""
        return advice(self._client)

    def initial_offset(self) -> Offset:
        """Give the position before the snapshot, or the end of the log where no snapshot is wanted."""
        return {} if self.settings.start == "snapshot" else self._offset(self._client.end_of_log(), self._defined())

    def _defined(self) -> Mapping[str, Definition]:
        if not self._known.tables:
            self._known = self._read_known()
        return self._known.tables

    def _offset(self, spot: Spot, tables: Mapping[str, Definition], **further: Any) -> Offset:
        kept = {name: definition.as_position() for name, definition in tables.items()}
        identity = self._client.server().identity
        known = {"gtids": self._client.gtids(spot), "server": identity}
        return {"file": spot.file, "at": spot.position, "tables": kept} | known | further

    def latest_offset(self, start: Offset, max_rows: int, *, single: bool = False) -> Offset:
        """Give the position after the next transactions, about `max_rows` rows of them; `start` where nothing of it is ours."""
        if not start:
            return self._snapshot_offset()
        self._check(start)
        begin, end = spot_of(start), self._client.end_of_log()
        if end.order < begin.order:
            check_same_server(self._client, start)
        if end in (begin, self._quiet_end(begin)):
            return start
        window = self._window(start, end, max_rows, single=single)
        if window.empty and window.prepared == prepared_of(start) and _near(begin, window.end):
            self._quiet = (begin, window.end)
            return start
        after = self._after(start, window)
        if after is not None:
            self._quiet, self._held = None, window
        return after or start

    def _quiet_end(self, begin: Spot) -> Spot:
        """Give the place up to which nothing of ours comes after a position, as far as that is known."""
        known = self._quiet
        return known[1] if known is not None and known[0] == begin else begin

    def _window(self, start: Offset, end: Spot, limit: int, *, single: bool = False) -> Window:
        begin = spot_of(start)
        wanted = _wanted(self.settings, start)
        again = partial(self._log.stretch, wanted=wanted.rows)
        scan = Scan(wanted, again, limit, single)
        quiet = self._quiet_end(begin)
        window = scan.window(quiet, prepared_of(start), self._tail.items(quiet, end, wanted.rows), end)
        return Window(**{**vars(window), "start": begin})

    def _after(self, start: Offset, window: Window) -> Offset | None:
        """Give the position after a window; tables that were defined in it are read again from a place of their own.

        None where the pipeline does not know of a definition yet: it asks for the tables first.
        """
        tables = {name: _passed(kept, window.end) for name, kept in start["tables"].items()}
        if window.defined:
            base, known = self._settled(window.defined)
            places = {"from": list(base.place), "sure": list(base.sure)}
            for name in window.defined:
                if name in tables and name in known.refused:
                    raise known.refused[name]
                if known.tables.get(name) != self._told.get(name):
                    return None
                if name in known.tables:
                    tables[name] = known.tables[name].as_position() | places
                elif name in tables:
                    tables[name] = {"columns": [], "key": []} | places
        end = {**start, "file": window.end.file, "at": window.end.position, "tables": tables}
        if window.gtid:
            end["gtid"] = window.gtid
            end.pop("gtids", None)
        end["prepared"] = {xid: list(stretch) for xid, stretch in window.prepared.items()}
        return end

    def _snapshot_offset(self) -> Offset:
        base, known = self._settled(None)
        return self._offset(base.place, known.tables, sure=list(base.sure))

    def _settled(self, tables: frozenset[str] | None) -> tuple[Base, Known]:
        """Note a place of the log and the definitions that hold there; try again where one changed meanwhile."""
        for _ in range(TRIES):
            base = self._base()
            known = self._read_known()
            names = tables if tables is not None else frozenset(known.tables)
            if not self._redefined(base.place, names):
                self._known = known
                return base, known
        raise redefined(self.settings)

    def _redefined(self, place: Spot, names: frozenset[str]) -> bool:
        """Say whether the log has definitions of these tables after a place."""
        wanted = Wanted(self.settings.database, names, names)
        items = self._log.items(place, self._client.end_of_log(), lambda *_: False)
        return any(isinstance(item, Defined) and wanted.defined(item.statement, item.spot) for item in items)

    def _base(self) -> Base:
        exact = self._client.sure_place()
        if exact is not None:
            return Base(exact, exact)
        sure = self._client.end_of_log()
        time.sleep(SETTLE_SECONDS)
        # Without old rows in the log, what may not be seen yet could not be told from what is.
        minimal = self.settings.row_image == "minimal"
        return Base(sure, sure if minimal else self._client.end_of_log())

    def read(self, start: Offset, end: Offset) -> Iterator[ChangeSet]:
        """Give the changes in (start, end]: all rows of a snapshot, or signed rows of the log, table by table."""
        if not start:
            for part in self._snapshot(end):
                yield from part()
            return
        window = self._between(start, end)
        self._held = None
        gathered = gathering(self.settings, _definitions(start), self._trusted(start))
        for rows in window.read(self.settings, _wanted(self.settings, start)):
            yield from gathered.add(rows)
        yield from gathered.rest()
        yield from self._read_again(start, end)

    def _between(self, start: Offset, end: Offset) -> Window:
        """Give the window of a range: the one that was found last, or gone through again."""
        if self._held is None or (self._held.start, self._held.end) != (spot_of(start), spot_of(end)):
            self._quiet = None
            self._held = self._window(start, spot_of(end), 1 << 62)
        return self._held

    def _trusted(self, start: Offset) -> frozenset[str]:
        """Give the tables whose copy is surely as the log has it: those that are not ahead of it after a definition."""
        known = start["tables"].items() if self.settings.before == "trusted" else ()
        return frozenset(name for name, kept in known if "from" not in kept)

    def _read_again(self, start: Offset, end: Offset) -> Iterator[ChangeSet]:
        """Give all rows of tables that were defined anew at the end of the range."""
        for name, kept in end["tables"].items():
            if "from" not in kept or kept["from"] == start["tables"].get(name, {}).get("from"):
                continue
            place = f"table {name} as of {Spot(*kept['from'])}"
            yield ChangeSet(name, place=place, whole=True)
            if kept["columns"]:
                base = Base(Spot(*kept["sure"]), Spot(*kept["from"]))
                yield from SnapshotPart(self.settings, Definition.of(name, kept), base)()

    def _snapshot(self, end: Offset) -> Iterator[SnapshotPart]:
        base = Base(Spot(*end["sure"]), spot_of(end))
        for definition in _definitions(end).values():
            yield from (part for part, _ in parts(self._client, definition, base))

    def partitions(self, start: Offset, end: Offset) -> Sequence[Partition] | None:
        """Cut a snapshot by ranges of keys, the log into pieces, table by table; None where tables are read again after a definition."""
        if start:
            return self._pieces(start, end)
        base = Base(Spot(*end["sure"]), spot_of(end))
        found = []
        for name, definition in _definitions(end).items():
            found += [Partition(name, rows, part) for part, rows in parts(self._client, definition, base)]
        return found

    def _pieces(self, start: Offset, end: Offset) -> Sequence[Partition] | None:
        window = self._between(start, end)
        if window.defined:
            return None
        definitions, trusted, since = _definitions(start), self._trusted(start), _wanted(self.settings, start).since
        return [
            Partition(
                name,
                amount.rows,
                PieceOfTable(self.settings, definitions[name], piece, since.get(name), name in trusted),
                trusted=name in trusted,
            )
            for piece in window.pieces
            for name, amount in piece.tables.items()
        ]

    def commit(self, end: Offset) -> None:
        """Leave the log to the server, which keeps it for as long as it is set to."""

    def reread(self, start: Offset, tables: frozenset[str] | None = None) -> Reread:
        """Note a place of the log as of which tables are read again: some, or all."""
        lost = False
        try:
            self._check(start)
        except Terminal as error:
            if tables is not None or error.code not in LOST:
                raise
            lost = True
        base, known = self._settled_after(None if lost else spot_of(start), tables)
        for name in (start["tables"].keys() | known.tables.keys()) if tables is None else tables:
            if name in known.refused:
                raise known.refused[name]
            if known.tables.get(name) != self._told.get(name):
                raise redefined(self.settings)
        if tables is None:
            names = frozenset(known.tables) | frozenset(start["tables"])
            return Reread(self.settings, base, known.tables, start, names, self._offset(base.place, known.tables), lost)
        wanted = {name: known.tables[name] for name in sorted(tables)}
        return Reread(self.settings, base, wanted, start, tables)

    def _settled_after(self, start: Spot | None, tables: frozenset[str] | None) -> tuple[Base, Known]:
        """Note a place as `_settled` does, not before `start`: MariaDB sends what its readers see a moment later."""
        for _ in range(TRIES):
            base, known = self._settled(tables)
            if start is None or base.place.order >= start.order:
                return base, known
            time.sleep(SETTLE_SECONDS / 10)
        raise redefined(self.settings)

    def cells(self) -> None:
        """Say that changes are rows."""

    def covers(self, have: Offset, wanted: Offset) -> bool:
        """Say whether the log was read up to `{"file": ..., "at": ...}`, or has nothing of ours from there on to it."""
        if not have:
            return False
        begin, asked = spot_of(have), Spot(wanted["file"], int(wanted.get("at", 0)))
        begin, seen = self._quiet_end(begin), begin
        if begin.order >= asked.order:
            return True
        ours = _wanted(self.settings, have)
        scan = Scan(ours, partial(self._log.stretch, wanted=ours.rows), 1, single=True)
        window = scan.window(begin, prepared_of(have), self._log.items(begin, asked, ours.rows), asked)
        if window.empty and window.prepared == prepared_of(have):
            self._quiet = (seen, asked)
            return True
        return False

    def end_offset(self) -> Offset:
        """Give the end of the server's log."""
        end = self._client.end_of_log()
        return {"file": end.file, "at": end.position}

    def lag(self, start: Offset) -> Mapping[str, Any]:
        """Say where the log ends, and how many bytes of the same file wait."""
        end = self._client.end_of_log()
        if not start:
            return {"end": str(end)}
        begin = spot_of(start)
        begin = self._quiet_end(begin)
        same = begin.file == end.file
        return {"end": str(end), "behind_bytes": end.position - begin.position if same else None}

    def close(self) -> None:
        """Let go of the connections."""
        self._tail.close()
        self._client.close()


def _passed(kept: dict[str, Any], end: Spot) -> dict[str, Any]:
    """Give a table's entry of a position without the place it was read again at, once the position is past that."""
    if "from" not in kept or Spot(*kept["from"]).order > end.order:
        return kept
    return {key: value for key, value in kept.items() if key not in ("from", "sure")}


def _near(begin: Spot, end: Spot) -> bool:
    return begin.file == end.file and end.position - begin.position < QUIET_BYTES


def _definitions(offset: Offset) -> dict[str, Definition]:
    return {name: Definition.of(name, kept) for name, kept in offset["tables"].items()}


def _wanted(settings: Settings, start: Offset) -> Wanted:
    since = {name: Spot(*kept["from"]) for name, kept in start["tables"].items() if "from" in kept}
    return Wanted(settings.database, frozenset(start["tables"]), settings.tables, since)
