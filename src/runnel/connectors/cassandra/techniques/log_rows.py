"""Changes of a log as rows in Arrow, a row per delta, each at its own granularity."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from runnel.connectors.cassandra.cells import SET
from runnel.connectors.cassandra.schema.twins import is_twin
from runnel.connectors.cassandra.techniques.log_deltas import Teller
from runnel.connectors.cassandra.techniques.writing import Writer
from runnel.connectors.cassandra.values.text import to_text
from runnel.connectors.deltas.forms import cluster_text
from runnel.connectors.deltas.model import Operation, Span

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from runnel.connectors.cassandra.cells import ChangeTuple, Mutation
    from runnel.connectors.cassandra.schema.tables import TableSchema
    from runnel.connectors.deltas.model import Delta

_UPS = str(Operation.UPS)
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
    teller, plain = Teller(), _Plain()
    for mutation in mutations:
        for change in mutation.changes:
            if change[1].keyspace != keyspace:
                continue
            row = plain.row(change)
            if row is not None:
                yield (host, mutation.segment, mutation.position, *row)
                continue
            delta = teller.partial(change, mutation.changes)
            if delta is not None:
                yield (host, mutation.segment, mutation.position, *_row(delta))


class _Plain:
    """Writes values of plain columns, which most of a log is, without making a delta of each: much less work.

    The changes of one row follow each other, so its key is written once.
    """

    def __init__(self) -> None:
        self._columns: dict[tuple[int, str], Callable[[bytes], str] | None] = {}
        self._writers: dict[int, Writer] = {}
        self._at: tuple[Any, ...] = ()
        self._place: tuple[Any, ...] = ()

    def row(self, change: ChangeTuple) -> tuple[Any, ...] | None:
        """Give the row of a change, or None: it has to be told in the general way, or not at all."""
        kind, table, key, clustering, column, path, value, timestamp, ttl, _ = change
        if kind != SET or path is not None or column is None:
            return None
        try:
            text = self._columns[id(table), column]
        except KeyError:
            text = self._text(table, column)
        if text is None:
            return None
        at = (id(table), key, clustering)
        if at != self._at:
            writer = self._writers[id(table)]
            told = (writer.key(table.key_parts(key)), writer.cluster(clustering))
            self._at, self._place = at, (_UPS, table.keyspace, table.name, *told, None)
        return (*self._place, column, text(value), timestamp, ttl or None, False)

    def _text(self, table: TableSchema, column: str) -> Callable[[bytes], str] | None:
        self._writers.setdefault(id(table), Writer(table))  # it keeps the table, so that its id stays its own
        type_ = table.type_of(column) if column in table.by_name and not is_twin(table, column) else None
        text = self._columns[id(table), column] = to_text(type_) if type_ is not None else None
        return text


def _row(delta: Delta) -> tuple[Any, ...]:
    span = isinstance(delta.cluster, Span)
    cluster = None if span else delta.cluster
    range_ = cluster_text(delta.cluster) if isinstance(delta.cluster, Span) else None
    place = (str(delta.operation), delta.keyspace, delta.table, delta.key, cluster, range_, delta.column)
    return (*place, delta.value, delta.time, delta.ttl, delta.counter)
