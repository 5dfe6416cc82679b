"""Rows without values that came with a snapshot: CQL does not tell when they expire, so the server is asked again now and then."""

from __future__ import annotations

from typing import TYPE_CHECKING

from runnel.connectors.cassandra.seed import partition_key
from runnel.connectors.cassandra.single_row import unproven
from runnel.connectors.cassandra.snapshot import Wanted, read_partition, read_table

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from runnel.connectors.cassandra.cell_store import CellStore
    from runnel.connectors.cassandra.cells import Clustering
    from runnel.connectors.cassandra.client import Client
    from runnel.connectors.cassandra.schema import TableSchema
    from runnel.connectors.cassandra.snapshot import SnapshotRow

MANY = 1_000
"""Partitions of a table from which on all keys of it are read instead of one partition after the other."""


def gone_rows(client: Client, store: CellStore, now: int) -> Iterator[tuple[TableSchema, bytes, list[Clustering]]]:
    """Give, by partition, the doubtful rows that the server has no more; the others are noted as seen.

    Rows that were seen less than `recheck` seconds ago are not asked for.
    """
    for table, keys in store.doubtful(now - int(client.settings.recheck)):
        waiting = {key: set(unproven(store.get(table, key), table, now)) for key in keys}
        for row in _there(client, table, keys):
            if row.clustering is not None:
                found = waiting.get(partition_key(table, row.key))
                if found is not None:
                    found.discard(table.canonical_clustering(row.clustering))
        store.seen_again(table, (key for key, missing in waiting.items() if not missing), now)
        yield from ((table, key, list(missing)) for key, missing in waiting.items() if missing)


def _there(client: Client, table: TableSchema, keys: list[bytes]) -> Iterable[SnapshotRow]:
    nothing = Wanted((), times=False)
    if len(keys) > MANY:
        return read_table(client, table, nothing)
    return (row for key in keys for row in read_partition(client, table, nothing, table.key_parts(key)))
