"""What every technique gives: deltas, each one operation at one place with its value and time.

    change  = ("ins" | "upd" | "ups") "/" keyspace "/" table "/" key "/" cluster "/" column ":" value [ "-" time ]
    removal = "del" "/" keyspace "/" table "/" key [ "/" cluster [ "/" column ] ] [ "-" time ]
            | "del" "/" keyspace "/" table "/[]" [ "/[]/" column ] [ "-" time ]

`ups` stands where insert and update cannot be told apart. A removal ends at the level that was deleted; `[]` are all keys, all
rows: a truncated table, a dropped column. How deltas are
written and read back is in `forms`, what may be done with a list of them in `reduce`.

>>> Delta(Operation.INS, "School", "Grades", ("Carol",), ("Second",), "Mathematic", "89", 1349430004096).level
'column'
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum

Parts = tuple[str, ...]


class Operation(str, Enum):
    """What was done; `UPS` where insertion and update cannot be told apart."""

    INS = "ins"
    UPD = "upd"
    UPS = "ups"
    DEL = "del"

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True)
class Span:
    """Rows from one clustering to another, as a range delete names them; an empty bound is open."""

    start: Parts = ()
    start_inclusive: bool = True
    end: Parts = ()
    end_inclusive: bool = True


@dataclass(frozen=True)
class Delta:
    """One operation. Key parts, clustering parts and values are text; `time` is in microseconds, as the store has it.

    `cluster` is `()` where there is no clustering: in a table without one, and for static columns. It is None for the delete
    of a whole key, and a `Span` for the delete of a range of rows. A delete of a row, a range or a key has no `column`. The
    column "" stands for the row itself: a row of nothing but its key. A delete whose key has no parts is of all keys: of the
    whole table, or with a `column` of that column in all its rows.

    The last four are told in JSON only. `previous` is the value before; `ttl` the seconds a value was written for, and in a
    delete those after which it expired; `row`
    says that the write made the row exist by itself (INSERT does, UPDATE does not); `counter` that a counter was changed.
    """

    operation: Operation
    keyspace: str
    table: str
    key: Parts
    cluster: Parts | Span | None = None
    column: str | None = None
    value: str | None = None
    time: int | None = None
    previous: str | None = None
    ttl: int | None = None
    row: bool = False
    counter: bool = False

    @property
    def level(self) -> str:
        """What it is about: `table`, `key`, `range`, `row` or `column`."""
        if self.column is not None:
            return "column"
        if not self.key:
            return "table"
        if self.cluster is None:
            return "key"
        return "range" if isinstance(self.cluster, Span) else "row"

    def bare(self) -> Delta:
        """Give what the text form tells: the same without what JSON alone tells."""
        return replace(self, previous=None, ttl=None, row=False, counter=False)

    def undated(self) -> Delta:
        """Give the same without its time."""
        return replace(self, time=None)
