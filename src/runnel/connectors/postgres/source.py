"""Tables of PostgreSQL as a source: a snapshot first, then the log, transaction by transaction.

A position is a place in the log, the server and database it is of, and the definitions of the tables that hold there. A table that was
redefined is read again as of a place of its own (`from` in its definition), and its log counts from there on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from psycopg import OperationalError

from runnel.connectors.base import ChangeSet, Partition
from runnel.connectors.postgres import slot
from runnel.connectors.postgres.changes import Gathered
from runnel.connectors.postgres.checks import (
    advice,
    check_same_server,
    check_settings,
    nothing_to_follow,
    redefined,
    shorter_log,
)
from runnel.connectors.postgres.definitions import Definition
from runnel.connectors.postgres.followed import Followed, Known
from runnel.connectors.postgres.log.problems import lsn_number, lsn_text
from runnel.connectors.postgres.peek import nothing_between
from runnel.connectors.postgres.publication import missing
from runnel.connectors.postgres.reread import LOST, Reread
from runnel.connectors.postgres.server import Server, open_session
from runnel.connectors.postgres.snapshot import Snapshot, gone, parts, seeing
from runnel.connectors.postgres.stream import LogStream
from runnel.connectors.postgres.window import Wanted, Window, take_window
from runnel.errors import Terminal, Unreachable

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from runnel.connectors.base import Offset, TableInfo
    from runnel.connectors.postgres.settings import SourceSettings
    from runnel.connectors.postgres.snapshot import SnapshotPart
    from runnel.errors import RunnelError

QUIET_BYTES = 1 << 20
"""Bytes of others' changes after which a position moves on by itself."""


class PostgresSource:
    """Follows the tables of one schema of a running server."""

    def __init__(self, settings: SourceSettings) -> None:
        """Keep the settings; nothing is connected to yet."""
        self.settings = settings
        self._server = Server(settings)
        self._followed = Followed(settings, self._server)
        self._checked = self._same = 0
        self._known: Known | None = None
        self._told: dict[str, TableInfo] = {}
        self._stream: LogStream | None = None
        self._held: Window | None = None
        self._snapshot: tuple[Snapshot, Known] | None = None
        self._quiet: tuple[int, int] = (0, 0)

    # -- what can be read

    def tables(self) -> tuple[TableInfo, ...]:
        """Give the tables as they are on the server now; their key is that of their replica identity, or a unique one."""
        try:
            self._check()
            self._known = self._followed.now()
        except Unreachable:
            self._close_stream()  # a server that shuts down waits for whoever reads its log
            raise
        self._told = {name: one.info() for name, one in self._known.definitions.items()}
        return tuple(self._told.values())

    def _check(self) -> None:
        """Look at the server's settings, and whether its log may be read, whenever a connection was made."""
        if self._checked == self._server.connected and self._checked:
            return
        check_settings(self._server)
        open_session(self.settings, replication=True).close()
        self._checked = self._server.connected

    def _tables(self) -> Known:
        if self._known is None:
            self.tables()
        assert self._known is not None
        return self._known

    def problems(self) -> tuple[RunnelError, ...]:
        """Give the tables that cannot be followed."""
        return tuple(self._tables().refused.values())

    def advice(self) -> tuple[str, ...]:
        """Give what would make following safer or cheaper."""
        return advice(self._server, self._tables().tables)

    # -- positions

    def initial_offset(self) -> Offset:
        """Give the position before the snapshot."""
        return {}

    def _offset(self, place: int, tables: Mapping[str, dict[str, Any]]) -> Offset:
        return {"lsn": lsn_text(place), "server": self._server.identity(), "tables": dict(tables)}

    def latest_offset(self, start: Offset, max_rows: int, *, single: bool = False) -> Offset:
        """Give the position after the next transactions, about `max_rows` rows of them; `start` where nothing of it is ours.

        Tables that were redefined are read again, as of now.
        """
        if not start:
            return self._first_offset()
        begin, target = _place(start), self._server.flushed()
        self._check_position(start, begin, target)
        window = Window(begin, self._quiet_end(begin))
        if target > window.end:
            window = self._window(start, target, max_rows, single=single)
        elif self._stream is not None:
            self._stream.answer()
        if window.changes:
            # What was redefined before the window's end can be seen by now, also where its rows look as before.
            self._known = self._followed.now()
        names = self._redefined(start) | window.defined
        if names:
            return self._read_again_from(start, names, window)
        self._quiet = (0, 0) if window.changes else (begin, window.end)
        if not window.changes and window.end - begin < QUIET_BYTES:
            return start
        self._held = window
        return self._moved(start, window.end)

    def _quiet_end(self, begin: int) -> int:
        """Give the place up to which nothing of ours comes after a position, as far as that is known."""
        return max(begin, self._quiet[1]) if self._quiet[0] == begin else begin

    def _check_position(self, start: Offset, begin: int, flushed: int) -> None:
        """Raise where a position is of another server, or slot or publication are gone."""
        known = self._tables()
        if self._same != self._server.connected:
            check_same_server(self._server, start)
            self._same = self._server.connected
        if flushed < begin:
            raise shorter_log(self.settings, start["lsn"], flushed)
        if not known.publication.exists:
            raise missing(self.settings, known.publication)
        if self._stream is None:
            slot.check_slot(self._server, begin)

    def _first_offset(self) -> Offset:
        """Make publication and slot, and give the place of a new snapshot."""
        known = self._tables()
        if not known.tables:
            raise nothing_to_follow(self.settings, known.refused.values())
        if self._followed.publish(self._server, known):
            self._known = self._followed.now()
        slot.ensure_slot(self._server)
        snapshot, seen = self._new_snapshot()
        return self._offset(snapshot.place, {name: one.as_position() for name, one in seen.definitions.items()})

    def _new_snapshot(self) -> tuple[Snapshot, Known]:
        """Make a snapshot; raise where tables are not in it as the pipeline knows them, which asks for them in every cycle."""
        self._close_snapshot()
        snapshot = Snapshot(self.settings)
        try:
            with seeing(self.settings, snapshot.name) as connection:
                seen = self._followed.seen_by(connection)
            if any(self._told.get(name) != one.info() for name, one in seen.definitions.items()):
                raise redefined(self.settings)
        except BaseException:
            snapshot.close()
            raise
        self._snapshot = (snapshot, seen)
        return self._snapshot

    def _redefined(self, start: Offset) -> set[str]:
        """Give the tables that are not what a position says of them, that came, or that went; raise for one that cannot be followed any more."""
        known, kept = self._tables(), _definitions(start)
        for name in kept:
            if name in known.refused:
                raise known.refused[name]
        now = known.definitions
        return {name for name in {*kept, *now} if name not in now or not now[name].is_like(kept.get(name))}

    def _moved(self, start: Offset, end: int, tables: Mapping[str, Any] | None = None) -> Offset:
        """Give a position further on; a table that was read again is as far as the others once the log has passed its place."""
        moved = {}
        for name, kept in (start["tables"] if tables is None else tables).items():
            passed = "from" in kept and lsn_number(kept["from"]) <= end
            moved[name] = {key: value for key, value in kept.items() if key != "from"} if passed else kept
        return {**start, "lsn": lsn_text(end), "tables": moved}

    def _read_again_from(self, start: Offset, names: set[str], window: Window) -> Offset:
        """Give the position at which some tables are read again, as of a snapshot that is made now."""
        known = self._tables()
        if self._followed.publish(self._server, known):
            self._known = self._followed.now()
        snapshot, seen = self._new_snapshot()
        for name in names:
            if name in start["tables"] and name in seen.refused:
                raise seen.refused[name]
        moved = self._moved(start, window.end)
        tables = {name: kept for name, kept in moved["tables"].items() if name not in names}
        for name in names & set(seen.definitions):
            tables[name] = seen.definitions[name].as_position() | {"from": lsn_text(snapshot.place)}
        self._held = window
        return {**moved, "tables": tables}

    # -- rows

    def _window(self, start: Offset, target: int, limit: int, *, single: bool = False) -> Window:
        begin = _place(start)
        wanted = self._wanted(start)
        kept = self._stream is not None and self._stream.at in (begin, self._quiet_end(begin))
        try:
            stream = self._opened(self._quiet_end(begin), wanted)
            found = take_window(stream, wanted, target, limit, single=single)
        except (Unreachable, OperationalError):
            self._close_stream()
            if not kept:
                raise
            # A connection that nobody read for a while may be closed by the server.
            found = take_window(self._opened(begin, wanted), wanted, target, limit, single=single)
        except BaseException:
            self._close_stream()
            raise
        return Window(begin, found.end, found.changes, found.defined)

    def _wanted(self, start: Offset) -> Wanted:
        since = {name: lsn_number(kept["from"]) for name, kept in start["tables"].items() if "from" in kept}
        return Wanted(self.settings.schema, _definitions(start), since)

    def _opened(self, begin: int, wanted: Wanted) -> LogStream:
        """Give the stream where it is at a place, else a new one."""
        if self._stream is not None and self._stream.at != begin:
            self._close_stream()
        if self._stream is None:
            slot.check_slot(self._server, begin)
            self._stream = LogStream(self.settings, begin, wanted.has)
        self._stream.assembler.wanted = wanted.has
        return self._stream

    def read(self, start: Offset, end: Offset) -> Iterator[ChangeSet]:
        """Give the changes in (start, end]: all rows of a snapshot, or changes of the log, table by table."""
        if not start:
            for part, _ in self._parts(dict.fromkeys(end["tables"], _place(end))):
                yield from part()
            return
        held, self._held = self._held, None
        if held is None or (held.start, held.end) != (_place(start), _place(end)):
            self._quiet = (0, 0)
            held = self._window(start, _place(end), 1 << 62)
        places, gone_ones = _read_again(start, end), start["tables"].keys() - end["tables"].keys()
        gathered = Gathered(_definitions(start), self.settings.unrepresentable)
        for change in held.changes:
            if change.relation.name not in places and change.relation.name not in gone_ones:
                yield from gathered.add(change)
        yield from gathered.rest()
        for name in sorted(gone_ones):
            yield ChangeSet(name, place=f"table {name}, which was dropped", whole=True)
        for name, place in places.items():
            yield ChangeSet(name, place=f"table {name} as of {lsn_text(place)}", whole=True)
        for part, _ in self._parts(places):
            yield from part()

    def _parts(self, places: Mapping[str, int]) -> Iterator[tuple[SnapshotPart, int]]:
        """Cut the tables that are read as of a place; the snapshot of that place must still be open."""
        for name, place in places.items():
            if self._snapshot is None or self._snapshot[0].place != place:
                raise gone(self.settings)
            snapshot, known = self._snapshot
            yield from parts(self._followed, known.tables[name], snapshot)

    def partitions(self, start: Offset, end: Offset) -> Sequence[Partition] | None:
        """Cut a snapshot by ranges of blocks; the log of a server is read by the driver, in windows of `max_rows`."""
        if start:
            return None
        found = self._parts(dict.fromkeys(end["tables"], _place(end)))
        return [Partition(part.definition.name, rows, part, trusted=True) for part, rows in found]

    def commit(self, end: Offset) -> None:
        """Let the server forget its log up to a position."""
        place = _place(end)
        self._close_snapshot()
        if self._stream is not None:
            self._stream.confirm(place)
        else:
            slot.advance(self._server, place)

    def reread(self, start: Offset, tables: frozenset[str] | None = None) -> Reread:
        """Make a snapshot from which tables are read again: some, or all."""
        lost = self._is_lost(start, raising=tables is not None)
        if lost:
            if self._followed.publish(self._server, self._tables()):
                self._known = self._followed.now()
            slot.renew_slot(self._server)
        snapshot, seen = self._new_snapshot()
        self._snapshot = None
        try:
            for name in (start["tables"].keys() | seen.definitions.keys()) if tables is None else tables:
                if name in seen.refused:
                    raise seen.refused[name]
            return self._reread(start, tables, (snapshot, seen), lost=lost)
        except BaseException:
            snapshot.close()
            raise

    def _reread(
        self, start: Offset, tables: frozenset[str] | None, read: tuple[Snapshot, Known], *, lost: bool
    ) -> Reread:
        snapshot, seen = read
        if tables is None:
            plain = {name: one.as_position() for name, one in seen.definitions.items()}
            fresh, names = self._offset(snapshot.place, plain), frozenset(seen.tables) | frozenset(start["tables"])
            return Reread(self._server, self._followed, snapshot, seen.tables, start, names, fresh, lost)
        if missing_ones := tables - seen.tables.keys():
            raise redefined(self.settings) from KeyError(*missing_ones)
        wanted = {name: seen.tables[name] for name in sorted(tables)}
        return Reread(self._server, self._followed, snapshot, wanted, start, tables)

    def _is_lost(self, start: Offset, *, raising: bool) -> bool:
        """Say whether the log cannot be gone on with from a position, or raise why."""
        try:
            check_same_server(self._server, start)
            flushed = self._server.flushed()
            if flushed < _place(start):
                raise shorter_log(self.settings, start["lsn"], flushed)
            if not self._tables().publication.exists:
                raise missing(self.settings, self._tables().publication)
            slot.check_slot(self._server, None)
        except Terminal as error:
            if raising or error.code not in LOST:
                raise
            return True
        return False

    def rows_now(self, table: str) -> Iterator[ChangeSet]:
        """Give the rows of one table as of now, without a slot that stays."""
        self.tables()
        snapshot, seen = self._new_snapshot()
        try:
            for part, _ in parts(self._followed, seen.tables[table], snapshot):
                yield from part()
        finally:
            self._close_snapshot()

    def cells(self) -> None:
        """Say that changes are rows."""

    def covers(self, have: Offset, wanted: Offset) -> bool:
        """Say whether the log was read up to `{"lsn": ...}`, or has nothing of ours from there on to it."""
        if not have:
            return False
        begin, asked = self._quiet_end(_place(have)), _place(wanted)
        if begin >= asked:
            return True
        ours = self._wanted(have)
        if nothing_between(self._server, ours, begin, asked):
            self._quiet = (_place(have), asked)
            return True
        return False

    def end_offset(self) -> Offset:
        """Give the end of the server's log."""
        return {"lsn": lsn_text(self._server.written())}

    def lag(self, start: Offset) -> Mapping[str, Any]:
        """Say where the log ends, how many bytes of it wait, and what the slot holds back."""
        end = self._server.written()
        said: dict[str, Any] = {"end": lsn_text(end)}
        if start:
            said["behind_bytes"] = max(0, end - self._quiet_end(_place(start)))
        found = slot.read_slot(self._server)
        if found is None:
            return said | {"slot": None}
        return said | {"slot": found.name, "wal_status": found.status, "kept_bytes": slot.lag_of(self._server, found)}

    def let_go(self) -> None:
        """Let another process read the slot."""
        self._close_stream()

    def _close_snapshot(self) -> None:
        held, self._snapshot = self._snapshot, None
        if held is not None:
            held[0].close()

    def _close_stream(self) -> None:
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.close()

    def close(self) -> None:
        """Let go of the connections."""
        self._close_stream()
        self._close_snapshot()
        self._server.close()


def _place(offset: Offset) -> int:
    return lsn_number(offset["lsn"])


def _read_again(start: Offset, end: Offset) -> dict[str, int]:
    """Give the tables that are read again at the end of a range, with the place as of which they are."""
    return {
        name: lsn_number(kept["from"])
        for name, kept in end["tables"].items()
        if "from" in kept and kept["from"] != start["tables"].get(name, {}).get("from")
    }


def _definitions(offset: Offset) -> dict[str, Definition]:
    return {name: Definition.of(name, kept) for name, kept in offset["tables"].items()}
