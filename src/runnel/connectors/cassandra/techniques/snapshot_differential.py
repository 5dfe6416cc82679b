"""The snapshot differential: two whole snapshots compared cell by cell. Nothing is installed; the last snapshot is kept here.

A snapshot is a Parquet file of cells. DuckDB compares two of them, on disk where they are large.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import duckdb
import pyarrow as pa
import pyarrow.dataset as pads
import pyarrow.parquet as pq

from runnel.connectors.cassandra.schema.twins import captured_columns
from runnel.connectors.cassandra.snapshot import Wanted, read_table
from runnel.connectors.cassandra.techniques.writing import Writer
from runnel.connectors.deltas.model import Delta, Operation
from runnel.connectors.deltas.technique import Abilities, NetEffect, Position, clock
from runnel.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from runnel.connectors.cassandra.client import Client
    from runnel.connectors.cassandra.schema.tables import TableSchema
    from runnel.connectors.deltas.technique import Cycle

CELLS = "cells.parquet"
BATCH = 20_000
_TEXTS = pa.list_(pa.string())
SCHEMA = pa.schema(
    [
        ("keyspace", pa.string()),
        ("table", pa.string()),
        ("key", _TEXTS),
        ("cluster", _TEXTS),
        ("column", pa.string()),
        ("value", pa.string()),
        ("time", pa.int64()),
        ("ttl", pa.int32()),
    ]
)
_PLACE = 'keyspace, "table", key, cluster, "column"'
_COMPARE = """
SELECT {names}, n.value, n.time, n.ttl, o.value AS was, n.value IS NOT NULL AS there, o.value IS NOT NULL AS was_there
FROM new_cells AS n FULL JOIN old_cells AS o USING ({place})
WHERE n.value IS DISTINCT FROM o.value {times}
ORDER BY ALL
"""
ABILITIES = Abilities(
    "snapshot",
    (Operation.INS, Operation.UPD, Operation.DEL),
    frozenset(NetEffect) - {NetEffect.DELETION},
    "a snapshot kept by runnel",
    previous=True,
    expiry=True,
    counters=True,
)


class SnapshotDifferential:
    """Capture by comparing snapshots."""

    def __init__(self, client: Client, tables: list[TableSchema]) -> None:
        """Compare these tables with what they were."""
        self._client, self._tables = client, tables

    def now(self) -> Position:
        """Give this moment."""
        return clock()

    def read(self, cycle: Cycle) -> Iterator[Delta]:
        """Take a snapshot and give what differs from the one before; without one, everything is an insertion."""
        if cycle.before is None and cycle.after is not None:
            raise UsageError(
                "RUNNEL-CAPTURE-SINCE",
                "the snapshot differential can only begin where its last cycle ended",
                hint="leave --since away, or choose another technique",
            )
        write_snapshot(self._client, self._tables, cycle.kept / CELLS)
        old = cycle.before / CELLS if cycle.before is not None else None
        yield from compare(old, cycle.kept / CELLS, times=self._client.settings.compare_times)

    def settle(self, cycle: Cycle) -> None:
        """Leave the store as it is."""

    def close(self) -> None:
        """Close the connection."""
        self._client.close()


def write_snapshot(client: Client, tables: Iterable[TableSchema], path: Path) -> None:
    """Write every cell of the tables; a row of nothing but its key has one cell of no name."""
    with pq.ParquetWriter(path, SCHEMA) as writer:
        waiting: list[Delta] = []
        for delta in read_cells(client, tables):
            waiting.append(delta)
            if len(waiting) == BATCH:
                writer.write_table(_table(waiting))
                waiting.clear()
        writer.write_table(_table(waiting))


def read_cells(client: Client, tables: Iterable[TableSchema]) -> Iterator[Delta]:
    """Give every cell of the tables as an insertion."""
    for table in tables:
        writer = Writer(table)
        wanted = Wanted(captured_columns(table), ttls=True)
        for row in read_table(client, table, wanted):
            for cell in row.cells:
                yield writer.delta(Operation.INS, row.key, row.clustering, cell)
            if not row.cells and row.clustering is not None:
                place = (table.keyspace, table.name, writer.key(row.key), writer.cluster(row.clustering))
                yield Delta(Operation.INS, *place, "", "", row=True)


def compare(old: Path | None, new: Path, *, times: bool = False) -> Iterator[Delta]:
    """Give what turns the old snapshot into the new one; `times` counts a value written again as an update."""
    clause = "OR n.time IS DISTINCT FROM o.time" if times else ""
    query = _COMPARE.format(names=_PLACE, place=_PLACE, times=clause)
    with duckdb.connect() as connection:
        before = str(old)
        if old is None:
            before = str(new.with_name("nothing.parquet"))
            pq.write_table(SCHEMA.empty_table(), before)
        # As data sets: DuckDB would take a path with `[` or `*` for a pattern.
        for name, path in (("new_cells", str(new)), ("old_cells", before)):
            connection.register(name, pads.dataset(path, schema=SCHEMA, format="parquet"))
        found = connection.execute(query)
        while rows := found.fetchmany(BATCH):
            for keyspace, table, key, cluster, column, value, time, ttl, was, there, was_there in rows:
                operation = Operation.DEL if not there else Operation.UPD if was_there else Operation.INS
                place = (keyspace, table, tuple(key), tuple(cluster), column)
                yield Delta(operation, *place, value, time, was, ttl, row=column == "" and there)


def _table(deltas: list[Delta]) -> pa.Table:
    columns = {name: [getattr(delta, name) for delta in deltas] for name in SCHEMA.names}
    return pa.table(columns, schema=SCHEMA)
