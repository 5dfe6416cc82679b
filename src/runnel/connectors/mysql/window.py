"""A window of the log: what lies between two positions, cut only between transactions and before definitions of followed tables."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from runnel.connectors.mysql.changes import row_size
from runnel.connectors.mysql.ddl import ALL, touched
from runnel.connectors.mysql.log.problems import Spot, refused
from runnel.connectors.mysql.log.row_events import Rows
from runnel.connectors.mysql.log.transactions import Aborted, Committed, Decided, Defined, Rotated

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from runnel.connectors.base import Offset
    from runnel.connectors.mysql.log.statements import Statement
    from runnel.connectors.mysql.log.transactions import Item
    from runnel.errors import Terminal

Stretch = tuple[str, int, int]
"""A file, and where a transaction begins and ends in it."""


@dataclass(frozen=True)
class Window:
    """What was found after a position: rows in the order of their commits, and where it ends.

    `defined` are followed tables that a definition at the end of the window is about. `prepared` are XA transactions that are not
    decided yet, by their names; `has_xa` says that there were some. `rows` is an estimate.
    """

    start: Spot
    end: Spot
    gtid: str = ""
    changes: tuple[Rows, ...] = ()
    rows: int = 0
    defined: frozenset[str] = frozenset()
    statement: Statement | None = None
    prepared: dict[str, Stretch] = field(default_factory=dict)
    has_xa: bool = False

    @property
    def empty(self) -> bool:
        """Whether nothing in it concerns followed tables."""
        return not self.changes and not self.defined


@dataclass(frozen=True)
class Wanted:
    """What is looked for: rows of the followed tables, each from a place of the log on, and definitions of those that may be.

    Without `candidates`, every table of the database may be followed.
    """

    database: str
    tables: Collection[str]
    candidates: Collection[str] = ()
    since: Mapping[str, Spot] = field(default_factory=dict)

    def rows(self, schema: str, table: str) -> bool:
        """Say whether rows of a table are followed."""
        return schema == self.database and table in self.tables

    def defined(self, statement: Statement, spot: Spot) -> frozenset[str]:
        """Give the tables that a statement is about, as far as they may be followed."""
        found: set[str] = set()
        # Some servers do not tell apart names by their case, and log definitions as they were written.
        spelled = {name.lower(): name for name in (*self.tables, *self.candidates)}
        for table in touched(statement):
            if table.database == self.database and table.rows:
                found |= set(self.tables) if table.table == ALL else {spelled.get(table.table.lower(), table.table)}
        return frozenset(
            name for name in found if (not self.candidates or name in self.candidates) and self.is_after(name, spot)
        )

    def is_after(self, table: str, spot: Spot) -> bool:
        """Say whether a place is one from which a table is followed."""
        since = self.since.get(table)
        return since is None or spot.order >= since.order


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
        changes: list[Rows] = []
        pending: list[Rows] = []
        defined: frozenset[str] = frozenset()
        for item in items:
            match item:
                case Rows():
                    if self.wanted.is_after(item.table.table, item.spot):
                        pending.append(item)
                case Decided():
                    pending += self._decided(found, item)
                case Defined():
                    about = self.wanted.defined(item.statement, item.spot)
                    if about and (changes or pending):
                        break
                    if about:
                        defined, found = defined | about, replace(found, statement=item.statement)
                case Committed():
                    found = _after(found, item, pending)
                    changes += pending if not item.prepared else ()
                    pending = []
                    if defined or found.rows >= self.limit or (self.single and changes):
                        break
                case Aborted():
                    pending, defined = [], frozenset()
                case Rotated() if item.file != found.end.file:
                    found = replace(found, end=Spot(item.file, item.position))
        else:
            found = found if upto is None or pending else replace(found, end=upto)
        return replace(found, changes=tuple(changes), defined=defined)

    def _decided(self, found: Window, item: Decided) -> list[Rows]:
        stretch = found.prepared.pop(item.xid, None)
        if not item.committed:
            return []
        if stretch is None:
            raise unknown_xa(item.spot, item.xid)
        # What was prepared earlier happens now.
        rows = [replace(rows, spot=item.spot) for rows in self.again(stretch)]
        return [one for one in rows if self.wanted.is_after(one.table.table, one.spot)]


def _after(found: Window, item: Committed, pending: list[Rows]) -> Window:
    """Give the window with one more transaction at its end."""
    gtid = item.gtid or found.gtid
    if item.prepared:
        stretch = (item.begin.file, item.begin.position, item.spot.position)
        prepared = {**found.prepared, item.prepared: stretch}
        return replace(found, end=item.spot, gtid=gtid, prepared=prepared, has_xa=True)
    rows = sum(len(rows.data) // row_size(rows.table) + 1 for rows in pending)
    return replace(found, end=item.spot, gtid=gtid, rows=found.rows + rows)


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
