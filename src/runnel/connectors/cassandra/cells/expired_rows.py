"""Rows without values that came with a snapshot: CQL does not tell when they expire, so the server is asked again now and then."""

from __future__ import annotations

from typing import TYPE_CHECKING

from runnel.connectors.cassandra.cells.seed import partition_key
from runnel.connectors.cassandra.snapshot import Wanted, read_partition, read_table

if TYPE_CHECKING:
    from collections.abc import Iterable

    from runnel.connectors.cassandra.cells import Clustering
    from runnel.connectors.cassandra.client import Client
    from runnel.connectors.cassandra.schema.tables import TableSchema
    from runnel.connectors.cassandra.snapshot import SnapshotRow

MANY = 1_000
"""Partitions of a table from which on all keys of it are read instead of one partition after the other."""
Waiting = dict[bytes, set["Clustering"]]


def gone_rows(client: Client, table: TableSchema, doubtful: Waiting) -> Waiting:
    """Give, by partition, those of the doubtful rows that the server has no more."""
    waiting = {key: set(places) for key, places in doubtful.items()}
    for row in _there(client, table, list(waiting)):
        if row.clustering is not None:
            found = waiting.get(partition_key(table, row.key))
            if found is not None:
                found.discard(table.canonical_clustering(row.clustering))
    return {key: missing for key, missing in waiting.items() if missing}


def _there(client: Client, table: TableSchema, keys: list[bytes]) -> Iterable[SnapshotRow]:
    nothing = Wanted((), times=False)
    if len(keys) > MANY:
        return read_table(client, table, nothing)
    return (row for key in keys for row in read_partition(client, table, nothing, table.key_parts(key)))
