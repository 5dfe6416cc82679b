"""When to try again what failed: after a pause that doubles with each failure in a row, up to a limit, and ends with a success."""

from __future__ import annotations

import random
import time

FIRST_SECONDS, LONGEST_SECONDS = 0.1, 30.0


class BackOff:
    """Keeps the pauses of things that failed, by name.

    A pause is never longer than the time for which the thing has failed, so what was away for a moment is taken up in a moment.
    Jitter keeps several runners, or sources of one store, from asking all at once.
    """

    def __init__(self, first: float = FIRST_SECONDS, longest: float = LONGEST_SECONDS) -> None:
        """Keep the limits."""
        self._first, self._longest = first, longest
        self._pauses: dict[str, float] = {}
        self._until: dict[str, float] = {}

    def failed(self, name: str) -> float:
        """Note a failure; give the seconds to wait."""
        doubled = min(self._longest, 2 * self._pauses[name]) if name in self._pauses else self._first
        self._pauses[name] = doubled
        pause = doubled * random.uniform(0.75, 1.0)
        self._until[name] = time.monotonic() + pause
        return pause

    def succeeded(self, name: str) -> None:
        """Forget the failures of a thing that works."""
        self._pauses.pop(name, None)
        self._until.pop(name, None)

    def waiting(self, name: str) -> bool:
        """Say whether it is too early to try again."""
        return time.monotonic() < self._until.get(name, 0.0)
