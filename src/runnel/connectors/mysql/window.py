"""A window of the log: what lies between two positions, cut only between transactions and before definitions of followed tables."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from runnel.connectors.mysql.log.problems import Spot, refused
from runnel.connectors.mysql.log.row_events import Rows
from runnel.connectors.mysql.log.transactions import Aborted, Committed, Decided, Defined, Rotated
from runnel.connectors.mysql.pieces import Cutter, Piece, read_piece

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from runnel.connectors.base import Offset
    from runnel.connectors.mysql.log.statements import Statement
    from runnel.connectors.mysql.log.transactions import Item
    from runnel.connectors.mysql.settings import Settings
    from runnel.connectors.mysql.wanted import Stretch, Wanted
    from runnel.errors import Terminal

HELD_BYTES = 64 << 20
"""Bytes of events up to which a window's rows are held for whoever reads it next; beyond, the log is read again."""
EVENT_BYTES = 500
"""What an event takes in memory besides its bytes."""


@dataclass(frozen=True)
class Window:
    """What was found after a position: where rows are, in the order of their commits, and where it ends.

    `changes` are the rows themselves, None where they are more than is held in memory. `defined` are followed tables that a definition at
    the end of the window is about. `prepared` are XA transactions that are not decided yet, by their names.
    """

    start: Spot
    end: Spot
    gtid: str = ""
    pieces: tuple[Piece, ...] = ()
    changes: tuple[Rows, ...] | None = ()
    defined: frozenset[str] = frozenset()
    statement: Statement | None = None
    prepared: dict[str, Stretch] = field(default_factory=dict)

    @property
    def empty(self) -> bool:
        """Whether nothing in it concerns followed tables."""
        return not self.pieces and not self.defined

    def read(self, settings: Settings, wanted: Wanted) -> Iterator[Rows]:
        """Give the rows: those that are held, or the log's once more."""
        if self.changes is not None:
            yield from self.changes
            return
        for piece in self.pieces:
            yield from read_piece(settings, piece, wanted)


class Held:
    """The rows of a window, as long as they are few."""

    def __init__(self) -> None:
        """Begin without any."""
        self._rows: list[Rows] | None = []
        self._committed = self._bytes = self._bytes_committed = 0

    def add(self, rows: Rows) -> None:
        """Hold the rows of an event, or let go of all where they become too many."""
        if self._rows is not None:
            self._rows.append(rows)
            self._bytes += len(rows.event.body) + EVENT_BYTES
            if self._bytes > HELD_BYTES:
                self._rows = None

    def commit(self) -> None:
        """Keep what was added."""
        if self._rows is not None:
            self._committed, self._bytes_committed = len(self._rows), self._bytes

    def leave_out(self) -> None:
        """Let go of what was added since the last commit."""
        if self._rows is not None:
            del self._rows[self._committed :]
            self._bytes = self._bytes_committed

    def rows(self) -> tuple[Rows, ...] | None:
        """Give what was kept; None where it was too much."""
        return None if self._rows is None else tuple(self._rows[: self._committed])


@dataclass
class Scan:
    """Goes through the items of a log until a window is large enough."""

    wanted: Wanted
    again: Callable[[Stretch], Iterable[Rows]]
    limit: int
    single: bool = False

    def window(
        self, start: Spot, prepared: Mapping[str, Stretch], items: Iterable[Item], upto: Spot | None = None
    ) -> Window:
        """Give the next window; a definition ends it: before it where there are rows, else after it.

        `upto` is a place between two transactions, at which the items end.
        """
        found = Window(start, start, prepared=dict(prepared))
        cutter, held = Cutter(), Held()
        defined: frozenset[str] = frozenset()
        for item in items:
            match item:
                case Rows():
                    self._add(item, cutter, held)
                case Decided():
                    self._decided(found, item, cutter, held)
                case Defined():
                    about = self.wanted.defined(item.statement, item.spot)
                    if about and (cutter.rows or cutter.pending):
                        break
                    if about:
                        defined, found = defined | about, replace(found, statement=item.statement)
                case Committed(prepared=""):
                    found = replace(found, end=item.spot, gtid=item.gtid or found.gtid)
                    cutter.commit(item)
                    held.commit()
                    if defined or cutter.rows >= self.limit or (self.single and cutter.rows):
                        break
                case Committed():
                    found = _prepared(found, item)
                    cutter.leave_out()
                    held.leave_out()
                case Aborted():
                    cutter.leave_out()
                    held.leave_out()
                    defined = frozenset()
                case Rotated() if item.file != found.end.file:
                    cutter.flush()
                    found = replace(found, end=Spot(item.file, item.position))
        else:
            found = found if upto is None or cutter.pending else replace(found, end=upto)
        return replace(found, pieces=cutter.pieces(), changes=held.rows(), defined=defined)

    def _add(self, rows: Rows, cutter: Cutter, held: Held) -> None:
        if self.wanted.is_after(rows.table.table, rows.spot):
            cutter.add(rows)
            held.add(rows)

    def _decided(self, found: Window, item: Decided, cutter: Cutter, held: Held) -> None:
        """Go through what was prepared earlier, where it is committed: it happens now."""
        stretch = found.prepared.pop(item.xid, None)
        if not item.committed:
            return
        if stretch is None:
            raise unknown_xa(item.spot, item.xid)
        file, begin, end = stretch
        for rows in self.again(stretch):
            if self.wanted.is_after(rows.table.table, item.spot):
                cutter.add(rows)
                held.add(replace(rows, spot=item.spot))
        cutter.decide(Spot(file, begin), end, item.spot)


def _prepared(found: Window, item: Committed) -> Window:
    """Give the window with a transaction at its end that is prepared and not decided."""
    stretch = (item.begin.file, item.begin.position, item.spot.position)
    prepared = {**found.prepared, item.prepared: stretch}
    return replace(found, end=item.spot, gtid=item.gtid or found.gtid, prepared=prepared)


def unknown_xa(spot: Spot, xid: str) -> Terminal:
    """Make the error for a commit of something that was prepared before runnel began to read."""
    return refused(
        "RUNNEL-BINLOG-XA",
        spot,
        f"the XA transaction {xid} was prepared before the snapshot and committed after it: its rows are in neither",
        "`runnel rebuild SOURCE` while no XA transaction is prepared (XA RECOVER lists them)",
    )


def spot_of(offset: Offset) -> Spot:
    """Read the place of the log out of a position."""
    return Spot(offset["file"], int(offset["at"]))


def prepared_of(offset: Offset) -> dict[str, Stretch]:
    """Read the undecided XA transactions out of a position."""
    kept: dict[str, Any] = offset.get("prepared", {})
    return {xid: (file, begin, end) for xid, (file, begin, end) in kept.items()}
