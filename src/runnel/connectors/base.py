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
    from pathlib import Path

    import pyarrow as pa

    from runnel.errors import RunnelError
    from runnel.model.foreign_keys import Reference
    from runnel.model.relation import Column

OP = "_op"
UPSERT = "upsert"
DELETE = "delete"
Offset = dict[str, Any]


@dataclass(frozen=True)
class TableInfo:
    """A table of a source, by its name there; `key` is empty where rows may repeat, `references` are its foreign keys."""

    name: str
    columns: tuple[Column, ...]
    key: tuple[str, ...] = ()
    references: tuple[Reference, ...] = ()


@dataclass(frozen=True)
class ChangeSet:
    """Changes of one table, in one of two forms; the change sets of one read are in order.

    `signed` holds rows and `_weight`. `keyed` holds rows and `_op` (`upsert` or `delete`) of a table with a key where
    the old row is not known: of a delete only the key columns are set, and the state completes it. In both,
    rows of one set are in the order they happened.
    """

    table: str
    signed: pa.Table | None = None
    keyed: pa.Table | None = None
    place: str = ""

    @property
    def rows(self) -> int:
        """How many rows it holds."""
        return sum(part.num_rows for part in (self.signed, self.keyed) if part is not None)


class Capture(Protocol):
    """Change data capture alone, for stores that have it: deltas to be printed, and what must be made in the store first."""

    def lines(self, since: Offset | None, form: str, *, last: bool) -> Iterator[str]:
        """Give the deltas since the last time, or since a position, each as one line of text."""
        ...

    def position(self) -> Offset | None:
        """Give the position that was reached, or None before the first time."""
        ...

    def prepare(self, say: Callable[[str], None], *, undo: bool = False) -> None:
        """Make, or remove, what the technique needs in the store."""
        ...

    def build_triggers(self, libraries: Path, target: Path) -> Path:
        """Build what has to be installed in the server; give the file."""
        ...


class Source(Protocol):
    """Reads a store's changes."""

    HAS_BEFORE_IMAGE: ClassVar[bool]
    TRANSACTIONS: ClassVar[bool]

    def tables(self) -> tuple[TableInfo, ...]:
        """Give the tables that can be read now."""
        ...

    def initial_offset(self) -> Offset:
        """Give the position before the first change."""
        ...

    def latest_offset(self, start: Offset, max_rows: int) -> Offset:
        """Give the end of the next range after `start`, about `max_rows` long; `start` itself when nothing is new."""
        ...

    def read(self, start: Offset, end: Offset) -> Iterator[ChangeSet]:
        """Give the changes in (start, end], the same ones however often it is asked."""
        ...

    def commit(self, end: Offset) -> None:
        """Let the store forget its log up to `end`; called after the state holds it, never before."""
        ...

    def covers(self, have: Offset, wanted: Offset) -> bool:
        """Say whether a position lies at or behind another one, which may be given in a user's short form."""
        ...

    def lag(self, start: Offset) -> Mapping[str, Any]:
        """Say what waits after `start`."""
        ...

    def close(self) -> None:
        """Let go of connections and files."""
        ...


@dataclass(frozen=True)
class Shape:
    """A view (or table) as a target is to hold it, and the table's name there; an empty `key` says that rows may repeat."""

    view: str
    table: str
    columns: tuple[Column, ...]
    key: tuple[str, ...] = ()


@dataclass(frozen=True)
class Mark:
    """What a target's table holds: the rows as of `epoch` of what `state` names, one incarnation of a view in one state.

    In a store without transactions a delivery may be there in part: the one that was `begun` has to be done again first.
    """

    epoch: int
    state: str
    begun: Mark | None = None


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
