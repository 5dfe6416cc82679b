"""What every technique gives: deltas, each one operation at one place with its value and time.

    change  = ("ins" | "upd" | "ups") "/" keyspace "/" table "/" key "/" cluster "/" column ":" value [ "-" time ]
    removal = "del" "/" keyspace "/" table "/" key [ "/" cluster [ "/" column ] ] [ "-" time ]

`ups` stands where insert and update cannot be told apart. A removal ends at the level that was deleted. How deltas are
written and read back stands in `delta_forms`; here is what they are, and what may be done with a list of them.

>>> Delta(Operation.INS, "School", "Grades", ("Carol",), ("Second",), "Mathematic", "89", 1349430004096).level
'column'
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

Parts = tuple[str, ...]
Place = tuple[Any, ...]


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
    column "" stands for the row itself: a row of nothing but its key.

    The last four are told in JSON only. `previous` is the value before; `ttl` the seconds a value was written for; `row`
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
        """What it is about: `key`, `range`, `row` or `column`."""
        if self.column is not None:
            return "column"
        if self.cluster is None:
            return "key"
        return "range" if isinstance(self.cluster, Span) else "row"

    def bare(self) -> Delta:
        """Give what the text form tells: the same without what JSON alone tells."""
        return replace(self, previous=None, ttl=None, row=False, counter=False)

    def undated(self) -> Delta:
        """Give the same without its time."""
        return replace(self, time=None)


def merge_equal(deltas: Iterable[Delta]) -> Iterator[Delta]:
    """Give each delta once: of those that are equal the first."""
    seen: set[Delta] = set()
    for delta in deltas:
        if delta not in seen:
            seen.add(delta)
            yield delta


def last_per_key(deltas: Iterable[Delta]) -> list[Delta]:
    """Give the last operation of each place, in the order they happened.

    A coarse delete is the last operation of everything below it: what was done there before is left out.

    >>> carol = ("School", "Grades", ("Carol",))
    >>> [str(d.operation) for d in last_per_key([Delta(Operation.INS, *carol, (), "a", "1"), Delta(Operation.DEL, *carol)])]
    ['del']
    """
    kept: dict[Place, Delta] = {}
    below: dict[Place, set[Place]] = {}
    for delta in deltas:
        places = _places(delta)
        if delta.column is None:
            for lower in below.pop(places[-1], set()):
                kept.pop(lower, None)
        kept.pop(places[-1], None)
        kept[places[-1]] = delta
        for upper in places[:-1]:
            below.setdefault(upper, set()).add(places[-1])
    return list(kept.values())


def _places(delta: Delta) -> list[Place]:
    """Give the places a delta is in, from its key to its own."""
    key: Place = (delta.keyspace, delta.table, delta.key)
    places = [key]
    if isinstance(delta.cluster, Span):
        return [*places, (*key, delta.cluster)]
    if delta.cluster is None:
        return places
    places += [(*key, delta.cluster[:length]) for length in range(1, len(delta.cluster))]
    places.append((*key, delta.cluster))
    return places if delta.column is None else [*places, (*key, delta.cluster, delta.column)]


def expand_deletes(deltas: Iterable[Delta], live: Callable[[Delta], Iterable[Delta]]) -> Iterator[Delta]:
    """Replace each coarse delete by one delete per column that was alive below it.

    `live` is asked at the delete's turn and gives a delta for each such column; only its place and value are used.
    """
    for delta in deltas:
        if delta.operation is not Operation.DEL or delta.column is not None:
            yield delta
            continue
        for cell in live(delta):
            yield replace(
                cell, operation=Operation.DEL, value=None, previous=cell.value, time=delta.time, ttl=None, row=False
            )
