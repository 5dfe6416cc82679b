"""Changes of a log as rows in Arrow, a row per delta, each at its own granularity."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from runnel.connectors.cassandra.delta_forms import cluster_text
from runnel.connectors.cassandra.deltas import Span
from runnel.connectors.cassandra.log_deltas import Teller

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from runnel.connectors.cassandra.cells import Mutation
    from runnel.connectors.cassandra.deltas import Delta

ROWS = 10_000
SCHEMA = pa.schema(
    [
        pa.field("host", pa.string()),
        pa.field("segment", pa.int64()),
        pa.field("position", pa.int64()),
        pa.field("operation", pa.string()),
        pa.field("keyspace", pa.string()),
        pa.field("table", pa.string()),
        pa.field("key", pa.list_(pa.string())),
        pa.field("cluster", pa.list_(pa.string())),
        pa.field("range", pa.string()),
        pa.field("column", pa.string()),
        pa.field("value", pa.string()),
        pa.field("time", pa.int64()),
        pa.field("ttl", pa.int32()),
        pa.field("counter", pa.bool_()),
    ]
)


def log_rows(host: str, keyspace: str, mutations: Iterable[Mutation]) -> Iterator[pa.RecordBatch]:
    """Give a row per delta of a keyspace, with the position behind its mutation."""
    rows = _rows(host, keyspace, mutations)
    while part := list(islice(rows, ROWS)):
        columns = zip(*part, strict=True)
        arrays = [pa.array(values, field.type) for values, field in zip(columns, SCHEMA, strict=True)]
        yield pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


def _rows(host: str, keyspace: str, mutations: Iterable[Mutation]) -> Iterator[tuple[Any, ...]]:
    teller = Teller()
    for mutation in mutations:
        for change in mutation.changes:
            if change[1].keyspace == keyspace:
                for delta in teller.partial(change, mutation.changes):
                    yield (host, mutation.segment, mutation.position, *_row(delta))


def _row(delta: Delta) -> tuple[Any, ...]:
    span = isinstance(delta.cluster, Span)
    cluster = None if span else delta.cluster
    range_ = cluster_text(delta.cluster) if isinstance(delta.cluster, Span) else None
    place = (str(delta.operation), delta.keyspace, delta.table, delta.key, cluster, range_, delta.column)
    return (*place, delta.value, delta.time, delta.ttl, delta.counter)
