"""The snapshot differential: two whole snapshots compared cell by cell. Nothing is installed; the last snapshot is kept with the state.

A snapshot is cells, one row each, read by token ranges: here, or by tasks where there are many. The engine compares two of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

import pyarrow as pa

from runnel.connectors.cassandra.client import Client
from runnel.connectors.cassandra.schema.twins import captured_columns
from runnel.connectors.cassandra.snapshot import Wanted, estimated_rows, ranges_of, read_table
from runnel.connectors.cassandra.techniques.writing import Writer
from runnel.connectors.deltas.model import Delta, Operation
from runnel.connectors.deltas.technique import Abilities, NetEffect, Position, clock
from runnel.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from runnel.connectors.cassandra.schema.tables import TableSchema
    from runnel.connectors.cassandra.settings import Settings
    from runnel.connectors.deltas.technique import Cycle

CELLS = "cells"
BATCH = 100_000
RANGES_PER_TASK = 5
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
_COMPARED = pa.schema([*SCHEMA, ("was", pa.string()), ("is_new", pa.bool_()), ("is_old", pa.bool_())])
_PLACE = "keyspace, `table`, key, cluster, `column`"
_COMPARE = """
SELECT {place}, n.value, n.time, n.ttl, o.value AS was, n.value IS NOT NULL AS is_new, o.value IS NOT NULL AS is_old
FROM `new` AS n FULL OUTER JOIN `old` AS o USING ({place})
WHERE NOT (n.value <=> o.value) {times}
ORDER BY {place}
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
        if cycle.once:
            raise UsageError(
                "RUNNEL-CAPTURE-SINCE",
                "the snapshot differential can only begin where its last cycle ended",
                hint="leave --since away, or choose another technique",
            )
        rows = sum(estimated_rows(self._client, table) for table in self._tables)
        if cycle.kept.by_tasks(rows):
            cycle.kept.leave_read(CELLS, [*self._parts()], SCHEMA)
        else:
            for batch in _batches(read_cells(self._client, self._tables)):
                cycle.kept.leave(CELLS, pa.Table.from_batches([batch]))
        yield from self._compare(cycle)

    def _parts(self) -> Iterator[TokenRanges]:
        for table in self._tables:
            ranges = ranges_of(self._client, table)
            for at in range(0, len(ranges), RANGES_PER_TASK):
                yield TokenRanges(self._client.settings, table, tuple(ranges[at : at + RANGES_PER_TASK]))

    def _compare(self, cycle: Cycle) -> Iterator[Delta]:
        """Give what turns the old snapshot into the new one."""
        times = "OR NOT (n.time <=> o.time)" if self._client.settings.compare_times else ""
        for found in cycle.kept.compare(CELLS, _COMPARE.format(place=_PLACE, times=times), _COMPARED):
            columns = (column.to_pylist() for column in found.columns)
            for keyspace, table, key, cluster, column, value, time, ttl, was, is_new, is_old in zip(
                *columns, strict=True
            ):
                operation = Operation.DEL if not is_new else Operation.UPD if is_old else Operation.INS
                place = (keyspace, table, tuple(key), tuple(cluster), column)
                yield Delta(operation, *place, value, time, was, ttl, row=column == "" and is_new)

    def settle(self, cycle: Cycle) -> None:
        """Leave the store as it is."""

    def close(self) -> None:
        """Close the connection."""
        self._client.close()


@dataclass(frozen=True)
class TokenRanges:
    """Ranges of a table's tokens, whose cells can be read anywhere."""

    settings: Settings
    table: TableSchema
    ranges: tuple[tuple[int, int], ...]

    def __call__(self) -> Iterator[pa.RecordBatch]:
        """Give the cells of the ranges."""
        with Client(self.settings) as client:
            yield from _batches(read_cells(client, [self.table], self.ranges))


def read_cells(
    client: Client, tables: Iterable[TableSchema], ranges: Iterable[tuple[int, int]] | None = None
) -> Iterator[Delta]:
    """Give every cell of tables, or of some ranges of them, as an insertion; a row of nothing but its key has one cell of no name."""
    for table in tables:
        writer = Writer(table)
        for row in read_table(client, table, Wanted(captured_columns(table), ttls=True), ranges):
            for cell in row.cells:
                yield writer.delta(Operation.INS, row.key, row.clustering, cell)
            if not row.cells and row.clustering is not None:
                place = (table.keyspace, table.name, writer.key(row.key), writer.cluster(row.clustering))
                yield Delta(Operation.INS, *place, "", "", row=True)


def _batches(cells: Iterator[Delta]) -> Iterator[pa.RecordBatch]:
    while taken := list(islice(cells, BATCH)):
        columns = {name: [getattr(cell, name) for cell in taken] for name in SCHEMA.names}
        yield pa.RecordBatch.from_pydict(columns, schema=SCHEMA)
