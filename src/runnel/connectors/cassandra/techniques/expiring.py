"""Values that a partial log has told and that are still to expire: the only thing of before that it has to remember.

A value is forgotten when something newer is written in its place, or deletes it there or above; write times decide, as in
the server. It expires at the second the server has noted with it.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from runnel.connectors.cassandra import cells
from runnel.connectors.cassandra.cells.live_rows import compare
from runnel.connectors.cassandra.techniques.clock import MICROSECONDS
from runnel.connectors.deltas.forms import from_json, to_json
from runnel.connectors.deltas.model import Delta, Operation

if TYPE_CHECKING:
    from collections.abc import Iterator

    from runnel.connectors.cassandra.cells import Change, Clustering
    from runnel.connectors.cassandra.schema.tables import TableSchema

Waiting = dict[str, dict[str, list[Any]]]
"""By table and key, by place: the second of expiry, the write time, and the delta that told the value."""


class Expiring:
    """What is still to expire; `kept` is what was kept of it, and may be kept again."""

    def __init__(self, kept: Waiting) -> None:
        """Go on with what is known."""
        self.kept = kept

    def note(self, change: Change, delta: Delta | None) -> None:
        """Learn of a change, and of the delta that tells it, if one does."""
        if change.kind in (cells.TRUNCATE, cells.COLUMN_DROP):
            for partition in self._partitions(change.table):
                self._forget(partition, change)
            return
        partition = f"{change.table.id.hex} {change.key.hex()}"
        if change.kind not in (cells.SET, cells.LIVENESS):
            self._forget(partition, change)
            return
        place, known = _place(change), self.kept.get(partition, {})
        if place in known and known[place][1] > change.timestamp:
            return
        known.pop(place, None)
        if change.ttl and delta is not None:
            self.kept.setdefault(partition, {})[place] = [change.ldt, change.timestamp, to_json(delta)]

    def _partitions(self, table: TableSchema) -> list[str]:
        return [partition for partition in self.kept if partition.startswith(table.id.hex)]

    def _forget(self, partition: str, change: Change) -> None:
        known = self.kept.get(partition, {})
        for place in [place for place, (_, time, _) in known.items() if time <= change.timestamp]:
            if _takes(change, place):
                del known[place]

    def expired(self, now: int) -> Iterator[Delta]:
        """Give, and forget, what has expired up to a second, in the order of its times."""
        gone = [
            (expiry, partition, place, line)
            for partition, known in self.kept.items()
            for place, (expiry, _, line) in known.items()
            if expiry <= now
        ]
        for expiry, partition, place, line in sorted(gone):
            del self.kept[partition][place]
            told = from_json(line)
            at = (told.keyspace, told.table, told.key, told.cluster, told.column)
            yield Delta(Operation.DEL, *at, time=expiry * MICROSECONDS, ttl=told.ttl)
        self.kept = {partition: known for partition, known in self.kept.items() if known}


def _place(change: Change) -> str:
    clustering = None if change.clustering is None else [None if p is None else p.hex() for p in change.clustering]
    return json.dumps([clustering, change.column, None if change.path is None else change.path.hex()])


def _takes(change: Change, place: str) -> bool:
    """Say whether a deletion takes in what is at a place, times left aside."""
    parts, column, path = json.loads(place)
    clustering = None if parts is None else tuple(None if part is None else bytes.fromhex(part) for part in parts)
    match change.kind:
        case cells.CELL_DELETE:
            own = None if change.path is None else change.path.hex()
            return (clustering, column, path) == (change.clustering, change.column, own)
        case cells.COMPLEX_DELETE:
            return (clustering, column) == (change.clustering, change.column)
        case cells.COLUMN_DROP:
            return bool(column == change.column)
        case cells.TRUNCATE:
            return True
    return covers(change, clustering)


def covers(change: Change, clustering: Clustering | None) -> bool:
    """Say whether a delete of a row, a range of rows or a key takes in a row of its partition."""
    if change.kind == cells.PARTITION_DELETE:
        return True
    if clustering is None:
        return False
    if change.kind != cells.RANGE_DELETE:
        return clustering == change.clustering
    range_ = change.value
    after, before = compare(change.table, clustering, range_.start), compare(change.table, clustering, range_.end)
    return (after > 0 or (after == 0 and range_.start_inclusive)) and (
        before < 0 or (before == 0 and range_.end_inclusive)
    )
