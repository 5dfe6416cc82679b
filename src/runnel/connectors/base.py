"""What a source is: tables, and a log of their changes that can be read again from any position not yet released.

Positions are small JSON objects; only the source that made one reads it. The words are those of PySpark's readers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    import pyarrow as pa

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
