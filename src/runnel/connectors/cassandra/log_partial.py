"""Capture by the partial log: one delta per mutation, at its own granularity, with nothing known of what was before.

Every write is an upsert. What is remembered from cycle to cycle is only what cannot be read from the log again: which values
are still to expire, and, where several nodes hold the same mutation, which were told lately.
"""

from __future__ import annotations

import hashlib
import json
import time
from typing import TYPE_CHECKING, Any, ClassVar

from runnel.connectors.cassandra.commitlog.positions import Position as LogPosition
from runnel.connectors.cassandra.commitlog.positions import position_of
from runnel.connectors.cassandra.delta_forms import from_json, to_json
from runnel.connectors.cassandra.deltas import Delta, Operation
from runnel.connectors.cassandra.log_deltas import MICROSECONDS, Teller

if TYPE_CHECKING:
    from collections.abc import Iterator

    from runnel.connectors.cassandra import cells
    from runnel.connectors.cassandra.cells import Mutation
    from runnel.connectors.cassandra.client import Client
    from runnel.connectors.cassandra.log_files import NodeLog
    from runnel.connectors.cassandra.technique import Cycle, NetEffect, Position

EXPIRING = "expiring.json"
TOLD = "told.json"
REMEMBERED_SECONDS = 3600
"""How long a mutation is remembered that may come again from another node."""


class LogPartial:
    """Capture by the mutations since the last cycle."""

    NAME: ClassVar[str] = "log-partial"
    OPERATIONS: ClassVar[tuple[Operation, ...]] = (Operation.UPS, Operation.DEL)
    SEES_DELETES: ClassVar[bool] = True
    SEES_PREVIOUS: ClassVar[bool] = False
    SEES_EXPIRY: ClassVar[bool] = True
    SEES_COUNTERS: ClassVar[bool] = True
    GRANULARITY: ClassVar[str] = "any"
    NET_EFFECTS: ClassVar[frozenset[NetEffect]] = frozenset()
    NEEDS: ClassVar[str] = "the nodes' log folders"

    def __init__(self, logs: list[NodeLog], keyspace: str, client: Client | None, *, release: bool = True) -> None:
        """Read these logs; `client` is the connection to close in the end."""
        self._logs, self._keyspace, self._client, self._release = logs, keyspace, client, release

    def now(self) -> Position:
        """Give how far each log can be read now."""
        return log_position(self._logs)

    def read(self, cycle: Cycle) -> Iterator[Delta]:
        """Give a delta per mutation and column, in the order of the log, then what has expired meanwhile."""
        teller = Teller()
        told = _loaded(cycle, TOLD) if len(self._logs) > 1 else {}
        waiting: dict[str, list[Any]] = _loaded(cycle, EXPIRING)
        for mutation in mutations(self._logs, self._keyspace, cycle):
            for change in mutation.changes:
                if len(self._logs) > 1:
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
        if self._release and self._client is not None:
            release(self._logs, cycle.upto)

    def close(self) -> None:
        """Close the connection, if there is one."""
        if self._client is not None:
            self._client.close()


def log_position(logs: list[NodeLog]) -> Position:
    """Give how far each log can be read, and the second up to which expiry is looked at."""
    start = LogPosition(0, 0)
    return {"hosts": {log.host: list(log.folder.latest(start)) for log in logs}, "time": int(time.time())}


def mutations(logs: list[NodeLog], keyspace: str, cycle: Cycle) -> Iterator[Mutation]:
    """Give the mutations of a window: in the order of the log, and those of several logs in the order of their times.

    A window may also begin at a write time instead of a position of the log.
    """
    begin = cycle.after or {}
    after = begin.get("hosts", {})
    since = -(2**63) if "hosts" in begin or not begin else int(begin["time"])

    def of(log: NodeLog) -> Iterator[Mutation]:
        start, end = position_of(after, log.host), position_of(cycle.upto["hosts"], log.host)
        for mutation in log.folder.read(log.reader, start, end):
            changes = [c for c in mutation.changes if c[1].keyspace == keyspace and c[7] > since]
            if changes:
                yield mutation._replace(changes=changes)

    if len(logs) == 1:
        yield from of(logs[0])
        return
    found = [mutation for log in logs for mutation in of(log)]
    yield from sorted(found, key=lambda mutation: max(change[7] for change in mutation.changes))


def release(logs: list[NodeLog], upto: Position) -> None:
    """Delete the segments before a position."""
    for log in logs:
        log.folder.release(position_of(upto["hosts"], log.host))


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
