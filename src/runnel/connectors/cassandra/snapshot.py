"""Reads whole tables by token ranges, several at a time, with the write time of each cell where it is asked for.

A row is what `SELECT` gives, in the server's bytes. The static columns of a partition are told once, with its first row.
"""

from __future__ import annotations

import struct
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa

from runnel.connectors.cassandra.schema.tables import name_of
from runnel.connectors.cassandra.values.decode import frozen_items
from runnel.connectors.cassandra.values.held import NotHeld, held_array, held_type
from runnel.connectors.cassandra.values.types import quoted
from runnel.errors import Terminal
from runnel.model import types as model

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from runnel.connectors.cassandra.client import Client, RawRow
    from runnel.connectors.cassandra.schema.tables import ColumnSchema, TableSchema

FIRST, LAST = -(2**63), 2**63 - 1
ROWS_PER_RANGE = 20_000
"""Rows that are asked for, and held, at once."""
SAMPLED_ROWS = 1_000
"""Rows whose tokens are read to say how many a table has."""
BYTES_PER_ROW = 100
"""About how many bytes a row takes, in tables and in the log."""
R = TypeVar("R")
_LONG = struct.Struct(">q")
_INT = struct.Struct(">i")


@dataclass(frozen=True)
class Cell:
    """A value with its write time in microseconds, and the seconds it has left; counters have no write time.

    Of a collection, `time` is that of the newest element, and `times` and `ttls` are those of each.
    """

    column: str
    value: bytes
    time: int | None = None
    ttl: int | None = None
    times: tuple[int | None, ...] = ()
    ttls: tuple[int | None, ...] = ()


@dataclass(frozen=True)
class SnapshotRow:
    """The live cells of one row; `clustering` is None for the static row, `()` in a table without clustering columns."""

    key: tuple[bytes, ...]
    clustering: tuple[bytes | None, ...] | None
    cells: tuple[Cell, ...]


@dataclass(frozen=True)
class Wanted:
    """What is read of each row beside its key."""

    columns: tuple[ColumnSchema, ...]
    times: bool = True
    ttls: bool = False


def token_ranges(tokens: Iterable[int], pieces: int) -> list[tuple[int, int]]:
    """Give ranges (after, up to] that cover the ring once: cut at the nodes' tokens and into about so many pieces.

    >>> token_ranges([0], 1)
    [(-9223372036854775808, 0), (0, 9223372036854775807)]
    """
    step = 2**64 // max(1, pieces)
    even = (FIRST + step * n for n in range(1, pieces))
    return list(pairwise(sorted({FIRST, LAST, *tokens, *even})))


def read_table(
    client: Client, table: TableSchema, wanted: Wanted, ranges: Iterable[tuple[int, int]] | None = None
) -> Iterator[SnapshotRow]:
    """Give every row of a table, or of some of its ranges, once, range by range."""
    cql = _query(client, table, wanted)
    ranges = ranges_of(client, table) if ranges is None else list(ranges)
    if len(ranges) == 1:  # nothing is read ahead, so nothing has to be held
        yield from _told_once(table, wanted, client.rows(cql, [_LONG.pack(at) for at in ranges[0]]))
        return

    def read(range_: tuple[int, int]) -> list[RawRow]:
        return list(client.rows(cql, [_LONG.pack(range_[0]), _LONG.pack(range_[1])]))

    for rows in _ahead(read, ranges, client.settings.parallel):
        yield from _told_once(table, wanted, rows)


def read_partition(client: Client, table: TableSchema, wanted: Wanted, key: Sequence[bytes]) -> Iterator[SnapshotRow]:
    """Give the rows of one partition."""
    where = " AND ".join(f"{quoted(column.name)} = ?" for column in table.partition_key)
    cql = f"SELECT {', '.join(_selected(client, table, wanted))} FROM {name_of(table)} WHERE {where}"
    yield from _told_once(table, wanted, client.rows(cql, list(key)))


def ranges_of(client: Client, table: TableSchema) -> list[tuple[int, int]]:
    """Give the token ranges that a table is read by."""
    return token_ranges(client.tokens(), _pieces(client, table))


def read_arrow(
    client: Client, table: TableSchema, ranges: list[tuple[int, int]] | None = None
) -> Iterator[pa.RecordBatch]:
    """Give every row of a table, or of some of its ranges, in Arrow, with the columns of `SELECT *`."""
    columns = table.columns
    policy = client.settings.unrepresentable
    schema = pa.schema([pa.field(c.name, model.to_arrow(held_type(c.type, policy))) for c in columns])
    names = ", ".join(quoted(column.name) for column in columns)
    cql = f"SELECT {names} FROM {name_of(table)} WHERE {_token(table)} > ? AND {_token(table)} <= ?"

    def read(range_: tuple[int, int]) -> pa.RecordBatch:
        rows = list(client.rows(cql, [_LONG.pack(range_[0]), _LONG.pack(range_[1])]))
        arrays = []
        for at, column in enumerate(columns):
            decode = column.type.decode
            values = [None if row[at] is None else decode(row[at] or b"") for row in rows]
            arrays.append(_held(table, column, values, policy))
        return pa.RecordBatch.from_arrays(arrays, schema=schema)

    yield from _ahead(read, ranges_of(client, table) if ranges is None else ranges, client.settings.parallel)


def _held(table: TableSchema, column: ColumnSchema, values: list[Any], policy: str) -> pa.Array:
    try:
        return held_array(column.type, policy, values, key=column.kind in ("partition_key", "clustering"))
    except NotHeld as error:
        raise Terminal(
            "RUNNEL-CASSANDRA-VALUE",
            f"{table.keyspace}.{table.name}: in the column {column.name}, {error}",
            hint="set unrepresentable = 'null' or 'text'",
        ) from error


def _ahead(read: Callable[[tuple[int, int]], R], ranges: list[tuple[int, int]], parallel: int) -> Iterator[R]:
    """Give each range's rows in order while the next ones are read."""
    with ThreadPoolExecutor(parallel, "runnel-cassandra") as pool:
        waiting: deque[Future[R]] = deque()
        try:
            for range_ in ranges:
                waiting.append(pool.submit(read, range_))
                if len(waiting) > parallel:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()


def _pieces(client: Client, table: TableSchema) -> int:
    """Give into how many ranges the ring is cut."""
    return max(client.settings.parallel, estimated_rows(client, table) // ROWS_PER_RANGE)


def estimated_rows(client: Client, table: TableSchema) -> int:
    """Give about how many rows a table has: exactly where there are few, else by the part of the ring that the first ones take.

    What the server itself estimates is minutes old, and nothing for a table that was just filled.
    """
    cql = f"SELECT {_token(table)} FROM {name_of(table)} LIMIT {SAMPLED_ROWS}"
    tokens = [_LONG.unpack(row[0] or bytes(8))[0] for row in client.rows(cql, [])]
    return len(tokens) if len(tokens) < SAMPLED_ROWS else round(SAMPLED_ROWS * 2**64 / (tokens[-1] - FIRST + 1))


def _token(table: TableSchema) -> str:
    return f"token({', '.join(quoted(column.name) for column in table.partition_key)})"


def _query(client: Client, table: TableSchema, wanted: Wanted) -> str:
    token = _token(table)
    return (
        f"SELECT {', '.join(_selected(client, table, wanted))} FROM {name_of(table)} WHERE {token} > ? AND {token} <= ?"
    )


def _selected(client: Client, table: TableSchema, wanted: Wanted) -> Iterator[str]:
    """Name what is selected: the key, then for each column its value, write time and time to live where they exist."""
    yield from (quoted(column.name) for column in (*table.partition_key, *table.clustering))
    for column in wanted.columns:
        name = quoted(column.name)
        yield name
        if wanted.times and column.type.name != "counter":
            if column.type.multicell and client.version < (5, 0):
                raise Terminal(
                    "RUNNEL-CASSANDRA-COLLECTION",
                    f"{table.keyspace}.{table.name}: this server tells no write time of the collection {column.name!r}",
                    hint="use Cassandra 5, a frozen collection, or another technique",
                )
            yield f"writetime({name})"
        if wanted.ttls and column.type.name != "counter":
            yield f"ttl({name})"


def _told_once(table: TableSchema, wanted: Wanted, rows: Iterable[RawRow]) -> Iterator[SnapshotRow]:
    keys, clusterings = len(table.partition_key), len(table.clustering)
    static = {column.name for column in table.static}
    last: tuple[bytes | None, ...] | None = None
    for row in rows:
        key, clustering = row[:keys], row[keys : keys + clusterings]
        cells = list(_cells(wanted, row[keys + clusterings :]))
        if static and key != last:
            yield SnapshotRow(_whole(key), None, tuple(cell for cell in cells if cell.column in static))
        last = key
        if clusterings and clustering[0] is None and all(part is None for part in clustering):
            continue  # the partition has nothing but its static columns
        yield SnapshotRow(_whole(key), clustering, tuple(cell for cell in cells if cell.column not in static))


def _whole(key: tuple[bytes | None, ...]) -> tuple[bytes, ...]:
    return tuple(part or b"" for part in key)


def _cells(wanted: Wanted, values: Sequence[bytes | None]) -> Iterator[Cell]:
    at = 0
    for column in wanted.columns:
        value, at = values[at], at + 1
        time = ttl = None
        if wanted.times and column.type.name != "counter":
            time, at = values[at], at + 1
        if wanted.ttls and column.type.name != "counter":
            ttl, at = values[at], at + 1
        if value is None:
            continue
        if column.type.multicell:
            times = tuple(None if t is None else _LONG.unpack(t)[0] for t in frozen_items(time)) if time else ()
            ttls = tuple(None if t is None else _INT.unpack(t)[0] for t in frozen_items(ttl)) if ttl else ()
            newest = max((t for t in times if t is not None), default=None)
            yield Cell(column.name, value, newest, None, times, ttls)
        else:
            yield Cell(
                column.name,
                value,
                None if time is None else _LONG.unpack(time)[0],
                None if ttl is None else _INT.unpack(ttl)[0],
            )
