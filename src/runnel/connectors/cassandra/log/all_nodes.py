"""The logs of all nodes of a source as one: how far they can be read, the mutations of a window, what may be forgotten."""

from __future__ import annotations

import json
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from runnel.connectors.cassandra.cells import COLUMN_DROP, RANGE_DELETE
from runnel.connectors.cassandra.log.errors import LogError
from runnel.connectors.cassandra.log.positions import START, position_of
from runnel.connectors.cassandra.log.readers import Readers
from runnel.connectors.cassandra.log.segment import segment_files

if TYPE_CHECKING:
    import uuid
    from collections.abc import Callable, Iterable, Iterator

    from runnel.connectors.cassandra.cells import ChangeTuple, Mutation
    from runnel.connectors.cassandra.client import Client
    from runnel.connectors.cassandra.log.nodes import NodeLog
    from runnel.connectors.cassandra.log.positions import Position as LogPosition
    from runnel.connectors.cassandra.schema.tables import TableSchema
    from runnel.connectors.cassandra.settings import Settings
    from runnel.connectors.deltas.technique import Position, Window
    from runnel.connectors.skips import Skips


ENOUGH = 100
"""Mutations from which something can be learned."""
FEWEST, MOST = 0.01, 10_000.0
"""Rows that a mutation may bring, on average."""


class Logs:
    """The logs of a keyspace; without a `client` they are copied files, of which nothing is ever deleted."""

    def __init__(
        self, nodes: list[NodeLog], settings: Settings, client: Client | None, reader: str, skips: Skips
    ) -> None:
        """Read these logs; `client` is the connection to close in the end, `reader` whoever reads, by a lasting name."""
        self.nodes, self.client, self.skips = nodes, client, skips
        self._settings, self._keyspace = settings, settings.keyspace
        self._rows_per_mutation = 1.0
        self._counted: dict[str, tuple[LogPosition, LogPosition, int]] = {}
        self._readers = {} if client is None else {n.host: Readers(n.folder.folder, reader) for n in nodes}

    def position(self) -> Position:
        """Give how far each log can be read, and the second up to which expiry is looked at."""
        hosts = {node.host: list(node.folder.latest(START)) for node in self.nodes}
        return {"hosts": hosts, "time": int(time.time())}

    def next_end(self, node: NodeLog, begin: LogPosition, max_rows: int) -> LogPosition:
        """Give the end of a node's next range, of about `max_rows` changed rows.

        The log is counted in mutations, of all tables; how many rows of ours come with one is learned from the ranges that were read.
        """
        end, counted = node.folder.latest_within(begin, max(1, round(max_rows / self._rows_per_mutation)))
        self._counted[node.host] = (begin, end, counted)
        return end

    def _learn(self, rows_per_mutation: float) -> None:
        """Take what a range that was read to its end had; what was learned last weighs most."""
        found = min(max(rows_per_mutation, FEWEST), MOST)
        self._rows_per_mutation = (self._rows_per_mutation + 3 * found) / 4

    def mutations(self, window: Window, *, drops: bool = False) -> Iterator[Mutation]:
        """Give the mutations of a window: in the order of the log, and those of several logs in the order of their times.

        A window may also begin at a write time instead of a position of the log. A row is named by one form of its
        clustering, also where several are equal: 1.0 and 1.00 are one row. Dropped columns are among the changes with `drops`.
        """
        left_out = None if drops else COLUMN_DROP
        if len(self.nodes) == 1:
            yield from self._of(self.nodes[0], window, left_out)
            return
        found = [mutation for node in self.nodes for mutation in self._of(node, window, left_out)]
        yield from sorted(found, key=lambda mutation: max(change[7] for change in mutation.changes))

    def has_any(self, window: Window) -> bool:
        """Say whether a window has a mutation at all, which one of any log shows."""
        return any(next(self._of(node, window, COLUMN_DROP), None) is not None for node in self.nodes)

    def learn(self) -> None:
        """Take in the definitions that the logs have."""
        for node in self.nodes:
            with self._passable(node):
                node.folder.learn(node.reader)

    def _of(self, node: NodeLog, window: Window, left_out: int | None) -> Iterator[Mutation]:
        begin = window.after or {}
        since = -(2**63) if "hosts" in begin or not begin else int(begin["time"])
        start, end = position_of(begin.get("hosts", {}), node.host), position_of(window.upto["hosts"], node.host)
        rows, learns = 0, self._counted.get(node.host, (START, START, 0))
        is_counted = learns[:2] == (start, end) and learns[2] >= ENOUGH
        for mutation in captured(self._read(node, start, end), self._keyspace, since, left_out):
            rows += len({(change[1].id, change[2], change[3]) for change in mutation.changes}) if is_counted else 0
            yield mutation
        if is_counted:
            self._learn(rows / learns[2])

    def _read(self, node: NodeLog, start: LogPosition, end: LogPosition) -> Iterator[Mutation]:
        """Give the mutations of one log but those that somebody decided to go past."""
        with self._passable(node):
            yield from node.folder.read(node.reader, start, end)

    @contextmanager
    def _passable(self, node: NodeLog) -> Iterator[None]:
        """Go past what somebody decided to go past in a node's log, and say of an error how to go past it."""
        node.reader.skipped = self.skipped(node)
        try:
            yield
        except LogError as error:
            raise with_way_past(error, node.host, self._settings.name) from error

    def skipped(self, node: NodeLog) -> frozenset[LogPosition]:
        """Give the mutations of a log to go past."""
        skipped = [skip.position for skip in self.skips.all() if node.host in skip.position]
        return frozenset(position_of(position, node.host) for position in skipped)

    def way_past(self, position: dict[str, list[int]]) -> str:
        """Say how to go past the mutation that ends at a position."""
        return _way_past(self._settings.name, position)

    def find(self, window: Window, wanted: Callable[[ChangeTuple], bool]) -> dict[str, list[int]]:
        """Give the positions, by host, of the last mutation of a window with such a change."""
        found: dict[str, list[int]] = {}
        for node in self.nodes:
            for mutation in self._of(node, window, None):
                if any(map(wanted, mutation.changes)):
                    found[node.host] = [mutation.segment, mutation.position]
        return found

    def table(self, table_id: uuid.UUID) -> TableSchema | None:
        """Give the newest definition of a table that one of the logs knows."""
        return next((found for node in self.nodes if (found := node.reader.catalog.table(table_id))), None)

    def release(self, upto: Position) -> None:
        """Let the server forget the segments before a position that no other reader needs, if that is wanted at all."""
        for node in self.nodes:
            position, readers = position_of(upto["hosts"], node.host), self._readers.get(node.host)
            node.folder.forget(position)
            if readers is not None and readers.hold(position) and self._settings.release:
                node.folder.release(readers.released(position))

    def hold(self, after: Position) -> None:
        """Let other readers know what is still needed: everything after a position."""
        for host, readers in self._readers.items():
            readers.hold(position_of(after.get("hosts", {}), host))

    def held_by(self) -> list[str]:
        """Give the other readers who need the oldest segments."""
        found = []
        for node in self.nodes:
            oldest = min((segment.id for segment in segment_files(node.folder.folder)), default=0)
            others = self._readers[node.host].others() if node.host in self._readers else []
            found += [reader.name for reader in others if reader.position.segment <= oldest]
        return sorted(set(found))

    def close(self) -> None:
        """Close the connection, if there is one."""
        if self.client is not None:
            self.client.close()


def captured(
    mutations: Iterable[Mutation], keyspace: str, since: int = -(2**63), left_out: int | None = COLUMN_DROP
) -> Iterator[Mutation]:
    """Give the mutations of a keyspace after a write time, without changes of one kind; rows are named by one form of their clustering."""
    for mutation in mutations:
        changes = [
            _canonical(c) for c in mutation.changes if c[1].keyspace == keyspace and c[7] > since and c[0] != left_out
        ]
        if changes:
            yield mutation._replace(changes=changes)


def with_way_past(error: LogError, host: str, source: str) -> LogError:
    """Say how to go past a mutation that cannot be read, where that is possible."""
    if error.passable is not None:
        way = _way_past(source, {host: list(error.passable)})
        error.hint = f"{error.hint}; or {way}" if error.hint else way
    return error


def _way_past(source: str, position: dict[str, list[int]]) -> str:
    return f"go past it: runnel skip {source} --position '{json.dumps(position)}' --reason '...'"


def _canonical(change: ChangeTuple) -> ChangeTuple:
    table, clustering = change[1], change[3]
    if not table.has_equal_forms:
        return change
    if change[0] == RANGE_DELETE:
        range_ = change[6]
        start, end = table.canonical_clustering(range_.start), table.canonical_clustering(range_.end)
        return (*change[:6], range_._replace(start=start, end=end), *change[7:])
    if not clustering:
        return change
    return (*change[:3], table.canonical_clustering(clustering), *change[4:])
