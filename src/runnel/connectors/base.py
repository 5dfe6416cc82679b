"""What a source and a target are.

A source has tables, and a log of their changes that can be read again from any position not yet released. Positions are small
JSON objects; only the source that made one reads it. The words are those of PySpark's readers.

A target has tables that follow views. It keeps for each of them a `Mark`: what it holds, as of which epoch.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    import pyarrow as pa

    from runnel.connectors.cells import CellSource
    from runnel.connectors.marks import Mark, Shape
    from runnel.connectors.skips import Skip
    from runnel.errors import RunnelError
    from runnel.model.foreign_keys import Reference
    from runnel.model.relation import Column

OP = "_op"
UPSERT = "upsert"
UPDATE = "update"
DELETE = "delete"
REMOVE = "remove"
SEQUENCE, CHANGE, AT = "_seq", "_change", "_at"
BEFORE = "before"
Offset = dict[str, Any]


@dataclass(frozen=True)
class TableInfo:
    """A table of a source, by its name there; `key` is empty where rows may repeat, `references` are its foreign keys.

    `grows` says that columns may come and go in the store: added ones are added here, dropped ones stay and are NULL from then on.
    `versioned` says that every version of a row is told, with its own time; `cells` that changes are cells, which the state keeps.
    """

    name: str
    columns: tuple[Column, ...]
    key: tuple[str, ...] = ()
    references: tuple[Reference, ...] = ()
    grows: bool = False
    versioned: bool = False
    cells: bool = False


@dataclass(frozen=True)
class ChangeSet:
    """Changes of one table, in one of three forms; the change sets of one read are in order.

    `signed` holds rows and `_weight`. With `trusted` the store vouches for it: each row that goes is in the table as it is given, and
    no key comes twice. Nothing of it is then looked up in the state, and a wrong old row would stay unnoticed, so this is for whole
    images of a log that goes on exactly where the state is, never for a range that a snapshot may have seen too.

    `keyed` holds rows and `_op` (`upsert`, `update`, `delete` or `remove`) of a table with a key where the old row is not known: of a delete
    only the key columns are set, and the state completes it. To `delete` a key that does not exist is an error, to `remove` it is
    not: for logs that are read again over what a snapshot has seen. To `update` puts the columns that the set has into the row of that
    key, which keeps its others: for logs that leave out large values that stayed as they were. Where such rows had other keys, `was` has
    these, row by row, and the set has each key once.

    In both, rows of one set are in the order they happened.

    `cells` holds values, deletions and signs of life with their write times (see `connectors.cells`): the source says how they
    and the stored ones become rows.

    `whole` says that the table has no other rows than those of this change set and of those after it: it was emptied, or is read again.
    """

    table: str
    signed: pa.Table | None = None
    keyed: pa.Table | None = None
    place: str = ""
    trusted: bool = False
    cells: pa.Table | None = None
    whole: bool = False
    was: pa.Table | None = None

    @property
    def rows(self) -> int:
        """How many rows it holds."""
        return sum(part.num_rows for part in (self.signed, self.keyed, self.cells) if part is not None)


@dataclass(frozen=True)
class Partition:
    """A stretch of a source's range, of one table, that can be read anywhere: here, or by a task on another machine.

    `read` is picklable and needs nothing but itself. The partitions of a range are in the order in which its changes happened.
    `rows` is an estimate. `trusted` says that all its signed change sets are. A stretch of cells may be of several tables, and names none.
    """

    table: str
    rows: int
    read: Callable[[], Iterator[ChangeSet]]
    trusted: bool = False


class Capture(Protocol):
    """Change data capture alone, for stores that have it: deltas to be printed, and what must be made in the store first."""

    def lines(self, since: Offset | None, form: str, *, last: bool) -> Iterator[str]:
        """Give the deltas since the last time, or since a position, each as one line of text."""
        ...

    def position(self) -> Offset | None:
        """Give the position that was reached, or None before the first time."""
        ...

    def skip(self, position: Offset, reason: str) -> None:
        """Go past the change at a position of the log, in captures and for views; the decision is kept with its reason."""
        ...

    def skipped(self) -> list[Skip]:
        """Give the decisions so far."""
        ...

    def prepare(self, say: Callable[[str], None], *, undo: bool = False) -> None:
        """Make, or remove, what the technique needs in the store."""
        ...


class Source(Protocol):
    """Reads a store's changes."""

    def tables(self) -> tuple[TableInfo, ...]:
        """Give the tables that can be read now."""
        ...

    def problems(self) -> tuple[RunnelError, ...]:
        """Give what is wrong with some of the tables while the others can be read."""
        ...

    def advice(self) -> tuple[str, ...]:
        """Give what is worth knowing about the store though nothing is wrong, each in a sentence."""
        ...

    def initial_offset(self) -> Offset:
        """Give the position before the first change."""
        ...

    def latest_offset(self, start: Offset, max_rows: int, *, single: bool = False) -> Offset:
        """Give the end of the next range after `start`, about `max_rows` long; `start` itself when nothing is new.

        `single` asks for one transaction (of files: one file), which is still cut where it is far longer than that.
        """
        ...

    def read(self, start: Offset, end: Offset) -> Iterator[ChangeSet]:
        """Give the changes in (start, end], the same ones however often it is asked."""
        ...

    def partitions(self, start: Offset, end: Offset) -> Sequence[Partition] | None:
        """Cut (start, end] into stretches which, read one after the other, give what `read` gives; None where that cannot be done."""
        ...

    def cells(self) -> CellSource | None:
        """Give how cells become rows, where changes are cells; else None."""
        ...

    def commit(self, end: Offset) -> None:
        """Let the store forget its log up to `end`; called after the state holds it, never before."""
        ...

    def covers(self, have: Offset, wanted: Offset) -> bool:
        """Say whether the state at a position has every change up to another one, which may be given in a user's short form."""
        ...

    def end_offset(self) -> Offset:
        """Give a position after everything that the store has acknowledged so far, in a form that `covers` understands."""
        ...

    def lag(self, start: Offset) -> Mapping[str, Any]:
        """Say what waits after `start`."""
        ...

    def close(self) -> None:
        """Let go of connections and files."""
        ...


@dataclass(frozen=True)
class Handover:
    """How tables that were read again join a state that is at some position: the position that it has with them.

    `changes` lead from the rows, as of their place of the log, to that position. `ahead` says that the tables are further on than the
    position: they are whole as of their place, and the log counts for them from there on.
    """

    position: Offset
    changes: tuple[ChangeSet, ...] = ()
    ahead: bool = False


class Reread(Protocol):
    """Tables of a source that are read again as of one place of its log, while the log goes on; `tables` are their names."""

    tables: frozenset[str]
    place: str

    def rows(self) -> Iterator[ChangeSet]:
        """Give all rows that the tables have at the place; asked once, before any handover."""
        ...

    def handover(self, have: Offset) -> Handover | None:
        """Say how the rows join a state at a position; None where somebody else read the tables again: all begins anew."""
        ...

    def close(self) -> None:
        """Let go of what the reading needed in the store."""
        ...


class RereadableSource(Source, Protocol):
    """A source whose tables can be read again at any time."""

    def reread(self, start: Offset, tables: frozenset[str] | None = None) -> Reread:
        """Begin to read tables again, as of a place at or after `start`; the tables are those that `tables()` gave last.

        Without names it is all of them, and then the log after `start` need not be readable any more.
        """
        ...


@dataclass(frozen=True)
class Delivery:
    """What brings a target's table from one mark to another.

    With a key, `rows` are those that must be there as they are, and `gone` holds the keys of rows that must not. Without one,
    `rows` have a `_weight`: so many more copies, or fewer. A `whole` delivery holds all rows of the view: others must go.
    """

    shape: Shape
    since: Mark | None
    mark: Mark
    rows: Iterable[pa.Table] = ()
    gone: pa.Table | None = None
    whole: bool = False

    def close(self) -> None:
        """Stop reading rows that were not asked for: the epoch they are of need not be kept any longer."""
        if isinstance(self.rows, Generator):
            self.rows.close()


@dataclass
class Delivered:
    """What came of deliveries: rows written and removed, and what could not be delivered, by view."""

    rows: int = 0
    problems: dict[str, RunnelError] = field(default_factory=dict)


class Target(Protocol):
    """Holds views in a store. It connects when it is first asked, and again after whatever went wrong."""

    NEEDS_KEY: ClassVar[bool]
    """Whether rows that repeat cannot be held."""

    def check(self, shape: Shape) -> None:
        """Raise if the view cannot be held: the table there does not fit, or cannot be made. Nothing is made."""
        ...

    def marks(self, shapes: Sequence[Shape]) -> dict[str, Mark]:
        """Give the marks of those views whose table is there and has one."""
        ...

    def apply(self, deliveries: Sequence[Delivery]) -> Delivered:
        """Write deliveries, in one transaction where the store has them, and mark them; tables that are missing are made.

        Applying again what was applied changes nothing. A view that cannot be held is told in the outcome and left as it is,
        others are delivered; whatever else is wrong raises. A mark that is not `since` any more raises `Conflict` where the
        store can tell.
        """
        ...

    def close(self) -> None:
        """Let go of connections."""
        ...
