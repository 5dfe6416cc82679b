"""The logs of all nodes of a source as one: how far they can be read, the mutations of a window, what may be forgotten."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from runnel.connectors.cassandra.commitlog.positions import START, position_of

if TYPE_CHECKING:
    import uuid
    from collections.abc import Iterator

    from runnel.connectors.cassandra.cells import ChangeTuple, Mutation
    from runnel.connectors.cassandra.client import Client
    from runnel.connectors.cassandra.log_files import NodeLog
    from runnel.connectors.cassandra.schema import TableSchema
    from runnel.connectors.cassandra.technique import Cycle, Position


class Logs:
    """The logs of a keyspace; without a `client` they are copied files, of which nothing is ever deleted."""

    def __init__(self, nodes: list[NodeLog], keyspace: str, client: Client | None, *, release: bool = True) -> None:
        """Read these logs; `client` is the connection to close in the end."""
        self.nodes, self.client = nodes, client
        self._keyspace, self._release = keyspace, release

    def position(self) -> Position:
        """Give how far each log can be read, and the second up to which expiry is looked at."""
        hosts = {node.host: list(node.folder.latest(START)) for node in self.nodes}
        return {"hosts": hosts, "time": int(time.time())}

    def mutations(self, cycle: Cycle) -> Iterator[Mutation]:
        """Give the mutations of a window: in the order of the log, and those of several logs in the order of their times.

        A window may also begin at a write time instead of a position of the log. A row is named by one form of its
        clustering, also where several are equal: 1.0 and 1.00 are one row.
        """
        if len(self.nodes) == 1:
            yield from self._of(self.nodes[0], cycle)
            return
        found = [mutation for node in self.nodes for mutation in self._of(node, cycle)]
        yield from sorted(found, key=lambda mutation: max(change[7] for change in mutation.changes))

    def _of(self, node: NodeLog, cycle: Cycle) -> Iterator[Mutation]:
        begin = cycle.after or {}
        since = -(2**63) if "hosts" in begin or not begin else int(begin["time"])
        start, end = position_of(begin.get("hosts", {}), node.host), position_of(cycle.upto["hosts"], node.host)
        for mutation in node.folder.read(node.reader, start, end):
            changes = [_canonical(c) for c in mutation.changes if c[1].keyspace == self._keyspace and c[7] > since]
            if changes:
                yield mutation._replace(changes=changes)

    def table(self, table_id: uuid.UUID) -> TableSchema | None:
        """Give the newest definition of a table that one of the logs knows."""
        return next((found for node in self.nodes if (found := node.reader.catalog.table(table_id))), None)

    def release(self, upto: Position) -> None:
        """Let the server forget the segments before a position, unless somebody else reads them too."""
        if self._release and self.client is not None:
            for node in self.nodes:
                node.folder.release(position_of(upto["hosts"], node.host))

    def close(self) -> None:
        """Close the connection, if there is one."""
        if self.client is not None:
            self.client.close()


def _canonical(change: ChangeTuple) -> ChangeTuple:
    table, clustering = change[1], change[3]
    if not clustering or not table.has_equal_forms:
        return change
    return (*change[:3], table.canonical_clustering(clustering), *change[4:])
