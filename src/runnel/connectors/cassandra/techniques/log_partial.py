"""Capture by the partial log: one delta per mutation, at its own granularity, with nothing known of what was before.

Every write is an upsert. What is remembered from cycle to cycle is only what cannot be read from the log again: which values
are still to expire, and, where several nodes hold the same mutation, which were told lately.
"""

from __future__ import annotations

import hashlib
import json
import time
from typing import TYPE_CHECKING, Any

from runnel.connectors.cassandra import cells
from runnel.connectors.cassandra.cells import Change
from runnel.connectors.cassandra.techniques.clock import MICROSECONDS
from runnel.connectors.cassandra.techniques.expiring import Expiring
from runnel.connectors.cassandra.techniques.log_deltas import Teller
from runnel.connectors.deltas.kept import leave_lines, lines_left
from runnel.connectors.deltas.model import Operation
from runnel.connectors.deltas.technique import Abilities

if TYPE_CHECKING:
    import uuid
    from collections.abc import Iterator

    from runnel.connectors.cassandra.log.all_nodes import Logs
    from runnel.connectors.deltas.model import Delta
    from runnel.connectors.deltas.technique import Cycle, Position

EXPIRING = "waiting"
TOLD = "told"
REMEMBERED_SECONDS = 3600
"""How long a mutation is remembered that may come again from another node."""
ABILITIES = Abilities(
    "log-partial",
    (Operation.UPS, Operation.DEL),
    frozenset(),
    "the nodes' log folders",
    level="any",
    expiry=True,
    counters=True,
)


class LogPartial:
    """Capture by the mutations since the last cycle."""

    def __init__(self, logs: Logs) -> None:
        """Read these logs."""
        self._logs = logs

    def now(self) -> Position:
        """Give how far each log can be read now."""
        return self._logs.position()

    def read(self, cycle: Cycle) -> Iterator[Delta]:
        """Give a delta per mutation and column, in the order of the log, then what has expired meanwhile."""
        if not cycle.once:
            self._logs.hold(cycle.after or {})
        teller = Teller()
        told = _loaded(cycle, TOLD) if len(self._logs.nodes) > 1 else {}
        waiting = Expiring(_loaded(cycle, EXPIRING))
        emptied: set[uuid.UUID] = set()
        for mutation in self._logs.mutations(cycle, drops=True):
            for change in mutation.changes:
                if len(self._logs.nodes) > 1:
                    mark = _mark(change)
                    if mark in told:
                        continue
                    told[mark] = change[7]
                    if change[0] == cells.TRUNCATE and change[1].id in emptied:
                        continue  # every node notes a TRUNCATE for itself, at a time of its own
                    (emptied.add if change[0] == cells.TRUNCATE else emptied.discard)(change[1].id)
                delta = teller.partial(change, mutation.changes)
                waiting.note(Change(*change), delta)
                if delta is not None:
                    yield delta
        yield from waiting.expired(int(cycle.upto["time"]))
        oldest = (time.time() - REMEMBERED_SECONDS) * MICROSECONDS
        _keep(cycle, TOLD, {mark: when for mark, when in told.items() if when > oldest})
        _keep(cycle, EXPIRING, waiting.kept)

    def settle(self, cycle: Cycle) -> None:
        """Let the server forget the segments that were read."""
        self._logs.release(cycle.upto)

    def close(self) -> None:
        """Close the connection, if there is one."""
        self._logs.close()


def _mark(change: cells.ChangeTuple) -> str:
    """Give a short text that is equal for copies of a change, wherever they were logged."""
    kind, table, *rest = change
    return f"{kind} {table.id} {hashlib.sha256(repr(rest).encode()).hexdigest()[:32]}"


def _loaded(cycle: Cycle, name: str) -> dict[str, Any]:
    return dict(map(json.loads, lines_left(cycle.kept, name)))


def _keep(cycle: Cycle, name: str, values: dict[str, Any]) -> None:
    leave_lines(cycle.kept, name, map(json.dumps, values.items()))
