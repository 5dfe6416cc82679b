"""What a capture technique is, and what it says of itself.

A technique gives the deltas of a half-open window: everything after one position, up to another. It writes nothing to
the store while it reads. What it has to tidy up in the store it does in `settle`, after its deltas are kept for good; a cycle that
died before is simply run again.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, Protocol

from runnel.connectors.deltas.model import Delta, Operation

if TYPE_CHECKING:
    from collections.abc import Iterator

    from runnel.connectors.deltas.kept import Kept

Position = dict[str, Any]
"""A small JSON object; only the technique that made one reads it. By write times it is `{"time": microseconds}`."""


class NetEffect(str, Enum):
    """What a technique may not see of what happened between two cycles."""

    DELETION = "deletion"
    UPDATE_AFTER_INSERTION = "update after insertion"
    MULTIPLE_UPDATES = "multiple updates"
    DELETION_AFTER_INSERTION = "deletion after insertion"
    GRANULARITY_LOST = "granularity lost"


@dataclass(frozen=True)
class Window:
    """What lies after one position, up to another."""

    after: Position | None
    upto: Position


@dataclass(frozen=True)
class Cycle(Window):
    """One cycle: its window, and what cycles leave for later ones. One that runs `once` follows no other, and none follows it."""

    kept: Kept
    once: bool = False


WRITE_TIMES = frozenset({NetEffect.DELETION, NetEffect.UPDATE_AFTER_INSERTION, NetEffect.MULTIPLE_UPDATES})
"""The net effects of techniques that go by write times."""


@dataclass(frozen=True)
class Abilities:
    """What a technique says of itself; it stands in the documentation and is checked by tests.

    `level` is the level of deletes where they are seen at all: column, or any.
    """

    name: str
    operations: tuple[Operation, ...]
    net_effects: frozenset[NetEffect]
    needs: str
    level: str = "column"
    previous: bool = False
    expiry: bool = False
    counters: bool = False

    @property
    def deletes(self) -> bool:
        """Whether deletes are seen."""
        return Operation.DEL in self.operations


class Technique(Protocol):
    """One way to find out what has changed."""

    def now(self) -> Position:
        """Give the position that a cycle begun now reaches."""
        ...

    def read(self, cycle: Cycle) -> Iterator[Delta]:
        """Give the deltas of a window, the same ones when it is asked again before anything else has changed."""
        ...

    def settle(self, cycle: Cycle) -> None:
        """Tidy up in the store after a window; it may be called twice for one window and does no harm then."""
        ...

    def close(self) -> None:
        """Let go of connections and files."""
        ...


def clock() -> Position:
    """Give this moment as a position among write times."""
    return {"time": time.time_ns() // 1000}


def after_time(cycle: Window) -> int:
    """Give the write time after which a window begins."""
    return -(2**63) if cycle.after is None else int(cycle.after["time"])
