"""Changes of a source's log that somebody decided to go past, each with the reason: `runnel skip`.

They are kept in the state, and looked at again whenever a log is read, so that a run that has stopped before such a change goes on without
being started again. Positions of the source carry them on.
"""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


@dataclass(frozen=True)
class Skip:
    """A decision: the position after the change, in the words of its store, why, and when (seconds since 1970)."""

    position: dict[str, Any]
    reason: str
    decided: int


class SourceState(Protocol):
    """The state that a source is read for, as far as the source has to know it."""

    id: str
    """By which stores that keep their log for readers know it."""

    def skipped(self) -> list[dict[str, Any]]:
        """Give the decisions about the source."""
        ...

    def skip(self, decisions: list[dict[str, Any]]) -> None:
        """Keep the decisions about the source, in place of those before."""
        ...


class Skips:
    """The decisions about one source."""

    def __init__(self, state: SourceState | None) -> None:
        """Nothing is read yet; without a state there are the decisions that a position carries."""
        self._state = state
        self._carried: list[Skip] = []

    def carry(self, told: Iterable[Mapping[str, Any]]) -> None:
        """Take the decisions that a position carries."""
        self._carried = [Skip(**one) for one in told]

    def carried(self) -> list[dict[str, Any]]:
        """Give the decisions for a position to carry."""
        return [asdict(skip) for skip in self.all()]

    def all(self) -> list[Skip]:
        """Give the decisions so far."""
        own = [] if self._state is None else [Skip(**told) for told in self._state.skipped()]
        known = [skip.position for skip in own]
        return [*(skip for skip in self._carried if skip.position not in known), *own]

    def add(self, position: dict[str, Any], reason: str) -> None:
        """Decide to go past a change; deciding it twice changes nothing."""
        assert self._state is not None
        kept = [told for told in self._state.skipped() if told["position"] != position]
        self._state.skip([*kept, asdict(Skip(position, reason, int(time.time())))])
