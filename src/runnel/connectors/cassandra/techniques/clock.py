"""When a mutation was written, as far as its log tells.

Write times come from clients, who may write any number there. What the server notes by its own clock are the seconds of
deletions, and those at which values expire; a write time is taken for a clock only where it can be one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from runnel.connectors.cassandra import cells
from runnel.connectors.cassandra.cells.reconcile import EXPIRED_TTL

if TYPE_CHECKING:
    from collections.abc import Iterable

    from runnel.connectors.cassandra.cells import ChangeTuple

MICROSECONDS = 1_000_000
_DELETES = (
    cells.CELL_DELETE,
    cells.COMPLEX_DELETE,
    cells.ROW_DELETE,
    cells.RANGE_DELETE,
    cells.PARTITION_DELETE,
)


class Clock:
    """The clock of one window of a log: it begins where the one before ended, and never goes back behind what is certain."""

    def __init__(self, after: int, upto: int) -> None:
        """Begin at a second; a write time beyond the other one cannot have been."""
        self._certain, self._upto = after, upto

    def of(self, changes: Iterable[ChangeTuple]) -> int:
        """Give the second at which the changes of a mutation were made."""
        noted, written = self._certain, -1
        for change in changes:
            noted = max(noted, _noted(change))
            written = max(written, change[7] // MICROSECONDS)
        if noted > self._certain:
            self._certain = noted
        elif noted < written <= self._upto:
            return written
        return self._certain


def _noted(change: ChangeTuple) -> int:
    """Give the second that the server noted with a change, or one long ago."""
    kind, ttl, ldt = change[0], change[8], change[9]
    if kind in _DELETES:
        return ldt
    return ldt - ttl if ttl and ttl != EXPIRED_TTL else 0
