"""Pieces of the log: what a window holds, cut into stretches that can be read by themselves, also inside a transaction.

Whoever cuts sees events and their sizes and holds no rows. A piece says how much of each table is in it; whoever reads it finds just as
much, or says that the log is not what it was.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

from runnel.connectors.mysql.keyed import gathering
from runnel.connectors.mysql.log.problems import BadBytes, Spot, damaged
from runnel.connectors.mysql.log.row_events import Rows
from runnel.connectors.mysql.logs import log_of
from runnel.connectors.mysql.row_counts import RowCounter
from runnel.connectors.mysql.wanted import Wanted
from runnel.errors import Transient

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from runnel.connectors.base import ChangeSet
    from runnel.connectors.mysql.definitions import Definition
    from runnel.connectors.mysql.log.transactions import Committed
    from runnel.connectors.mysql.settings import Settings

PIECE_BYTES = 32 << 20
"""Bytes of a piece, of the log and of unpacked rows: a third of a second's decoding, against some milliseconds to ask for it."""
LAST_PLACE = (1 << 32) - 1
"""The last place of a file that the protocol can name."""


class Amount(NamedTuple):
    """How much of a table there is: rows, about, and the bytes of them exactly."""

    rows: int
    bytes: int


@dataclass(frozen=True)
class Piece:
    """A stretch of one file. `maps` are the table maps that hold where it begins, if that is inside a transaction.

    `decided` is the place at which an XA transaction was committed that was prepared here: its rows count there.
    """

    begin: Spot
    end: int
    tables: Mapping[str, Amount]
    maps: tuple[bytes, ...] = ()
    decided: Spot | None = None


@dataclass
class _Cut:
    """A piece that is being made: of whole transactions, or of one that has not ended."""

    begin: Spot
    maps: tuple[bytes, ...] = ()
    tables: dict[str, Amount] = field(default_factory=dict)
    bytes: int = 0

    def add(self, table: str, rows: int, size: int) -> None:
        known = self.tables.get(table)
        self.tables[table] = Amount(rows, size) if known is None else Amount(known.rows + rows, known.bytes + size)
        self.bytes += size

    def join(self, other: _Cut) -> None:
        for table, (rows, size) in other.tables.items():
            self.add(table, rows, size)

    def is_full(self, end: int) -> bool:
        return self.bytes >= PIECE_BYTES or end - self.begin.position >= PIECE_BYTES


class Cutter:
    """Cuts the rows of a log into pieces: between transactions, and inside those that are longer than a piece."""

    def __init__(self) -> None:
        """Begin without rows; `rows` counts those of transactions that have ended."""
        self.rows = 0
        self._done: list[Piece] = []
        self._last: tuple[_Cut, int] | None = None
        self._cuts: list[_Cut] = []
        self._at = -1
        self._counter = RowCounter()

    @property
    def pending(self) -> bool:
        """Whether there are rows of a transaction that has not ended."""
        return bool(self._cuts)

    def add(self, rows: Rows) -> None:
        """Go past the rows of an event; before it may be a cut, but not between those of one compressed transaction."""
        at = rows.spot.position
        if not self._cuts:
            self._cuts.append(_Cut(rows.spot))
        elif self._at < at <= LAST_PLACE and self._cuts[-1].is_full(at):
            self._cuts.append(_Cut(rows.spot, tuple(rows.maps.values())))
        self._at = at
        size = rows.size
        try:
            count = self._counter.images(rows, size)
        except BadBytes as error:
            raise damaged(rows.spot, error) from error
        self._cuts[-1].add(rows.table.table, count, size)

    def commit(self, done: Committed) -> None:
        """Take the rows since the last transaction: they count."""
        if not self._cuts:
            return
        cuts, end = self._taken(done.begin), done.spot.position
        if done.displaced:
            for cut in cuts[1:]:
                cuts[0].join(cut)
            del cuts[1:]
        if self._last is not None and len(cuts) == 1 and self._goes_on(self._last[0], cuts[0], end):
            self._last[0].join(cuts[0])
            self._last = self._last[0], end
            return
        self.flush()
        last = cuts.pop()
        if cuts:
            self._done += _pieces(cuts, last.begin.position)
        self._last = last, end

    @staticmethod
    def _goes_on(last: _Cut, cut: _Cut, end: int) -> bool:
        """Say whether a transaction can be in the piece of those before it."""
        near = last.begin.file == cut.begin.file and end - last.begin.position <= PIECE_BYTES
        return near and last.bytes + cut.bytes <= PIECE_BYTES

    def decide(self, begin: Spot, end: int, decided: Spot) -> None:
        """Take the rows of an XA transaction that was prepared earlier: they count now."""
        self.flush()
        if self._cuts:
            self._done += _pieces(self._taken(begin), end, decided)

    def leave_out(self) -> None:
        """Forget the rows since the last transaction: they do not count, or not yet."""
        self._cuts, self._at = [], -1
        self.flush()

    def flush(self) -> None:
        """End a piece: what comes next does not follow it."""
        if self._last is not None:
            self._done += _pieces([self._last[0]], self._last[1])
            self._last = None

    def pieces(self) -> tuple[Piece, ...]:
        """Give the pieces, in the order in which their rows were committed."""
        self.flush()
        return tuple(self._done)

    def _taken(self, begin: Spot) -> list[_Cut]:
        cuts, self._cuts, self._at = self._cuts, [], -1
        cuts[0].begin = begin
        self.rows += sum(amount.rows for cut in cuts for amount in cut.tables.values())
        return cuts


def _pieces(cuts: Sequence[_Cut], end: int, decided: Spot | None = None) -> Iterator[Piece]:
    """Make pieces of cuts that follow one another up to a place."""
    ends = [*(cut.begin.position for cut in cuts[1:]), end]
    for cut, upto in zip(cuts, ends, strict=True):
        yield Piece(cut.begin, upto, cut.tables, cut.maps, decided)


def read_piece(settings: Settings, piece: Piece, wanted: Wanted) -> Iterator[Rows]:
    """Give the rows of wanted tables in a piece; raise where it does not have as many bytes of them as it had."""
    found = dict.fromkeys((name for name in piece.tables if name in wanted.tables), 0)
    end = Spot(piece.begin.file, piece.end)
    for item in log_of(settings).items(piece.begin, end, wanted.rows, piece.maps):
        if not isinstance(item, Rows):
            continue
        rows = item if piece.decided is None else replace(item, spot=piece.decided)
        if wanted.is_after(rows.table.table, rows.spot):
            found[rows.table.table] = found.get(rows.table.table, 0) + rows.size
            yield rows
    if any(size != piece.tables[name].bytes if name in piece.tables else size for name, size in found.items()):
        raise Transient(
            "RUNNEL-BINLOG-CHANGED",
            f"{settings.label}: the log from {piece.begin} to {end} is not what it was when it was cut into pieces",
            hint="it is read again; see whether the server was replaced or its log reset meanwhile",
        )


@dataclass(frozen=True)
class PieceOfTable:
    """The changes of one table in a piece of the log; picklable, so a task can read it."""

    settings: Settings
    definition: Definition
    piece: Piece
    since: Spot | None = None
    trusted: bool = False

    def __call__(self) -> Iterator[ChangeSet]:
        """Give the changes."""
        name, settings = self.definition.name, self.settings
        since = {} if self.since is None else {name: self.since}
        wanted = Wanted(settings.database, (name,), (name,), since)
        gathered = gathering(settings, {name: self.definition}, (name,) if self.trusted else ())
        for rows in read_piece(settings, self.piece, wanted):
            yield from gathered.add(rows)
        yield from gathered.rest()
