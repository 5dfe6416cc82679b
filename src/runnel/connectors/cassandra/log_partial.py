"""Capture by the partial log: one delta per mutation, at its own granularity, with nothing known of what was before.

Every write is an upsert. What is remembered from cycle to cycle is only what cannot be read from the log again: which values
are still to expire, and, where several nodes hold the same mutation, which were told lately.
"""

from __future__ import annotations

import hashlib
import json
import time
from typing import TYPE_CHECKING, Any

from runnel.connectors.cassandra.delta_forms import from_json, to_json
from runnel.connectors.cassandra.deltas import Delta, Operation
from runnel.connectors.cassandra.log_deltas import MICROSECONDS, Teller
from runnel.connectors.cassandra.technique import Abilities

if TYPE_CHECKING:
    from collections.abc import Iterator

    from runnel.connectors.cassandra import cells
    from runnel.connectors.cassandra.logs import Logs
    from runnel.connectors.cassandra.technique import Cycle, Position

EXPIRING = "expiring.json"
TOLD = "told.json"
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
        teller = Teller()
        told = _loaded(cycle, TOLD) if len(self._logs.nodes) > 1 else {}
        waiting: dict[str, list[Any]] = _loaded(cycle, EXPIRING)
        for mutation in self._logs.mutations(cycle):
            for change in mutation.changes:
                if len(self._logs.nodes) > 1:
                    mark = _mark(change)
                    if mark in told:
                        continue
                    told[mark] = change[7]
                for delta in teller.partial(change, mutation.changes):
                    _watch(waiting, delta)
                    yield delta
        yield from _expired(waiting, int(cycle.upto["time"]))
        oldest = (time.time() - REMEMBERED_SECONDS) * MICROSECONDS
        _keep(cycle, TOLD, {mark: when for mark, when in told.items() if when > oldest})
        _keep(cycle, EXPIRING, waiting)

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


def _watch(waiting: dict[str, list[Any]], delta: Delta) -> None:
    """Remember a value that will expire, forget one that was written anew or deleted."""
    key = [delta.table, list(delta.key)]
    place = json.dumps([*key, list(delta.cluster) if isinstance(delta.cluster, tuple) else None, delta.column])
    if delta.column is None:
        below = json.dumps(key)[:-1]
        for other in [other for other in waiting if other.startswith(below)]:
            if delta.cluster is None or json.loads(other)[2][: len(delta.cluster)] == list(delta.cluster):  # type: ignore[arg-type]
                del waiting[other]
        return
    waiting.pop(place, None)
    if delta.ttl:
        waiting[place] = [delta.ttl + (delta.time or 0) // MICROSECONDS, to_json(delta)]


def _expired(waiting: dict[str, list[Any]], now: int) -> Iterator[Delta]:
    gone = sorted((expiry, place, line) for place, (expiry, line) in waiting.items() if expiry <= now)
    for expiry, place, line in gone:
        del waiting[place]
        delta = from_json(line)
        yield Delta(
            Operation.DEL,
            delta.keyspace,
            delta.table,
            delta.key,
            delta.cluster,
            delta.column,
            time=expiry * MICROSECONDS,
        )


def _loaded(cycle: Cycle, name: str) -> dict[str, Any]:
    path = None if cycle.before is None else cycle.before / name
    return {} if path is None or not path.exists() else dict(json.loads(path.read_text(encoding="utf-8")))


def _keep(cycle: Cycle, name: str, values: dict[str, Any]) -> None:
    (cycle.kept / name).write_text(json.dumps(values), encoding="utf-8")
