"""The tables beside a tracked table: its journal, which a trigger or the application writes, and its old values.

A page of the journal is one change, in the server's bytes. Its place `at` is a time UUID of when it was written; windows are
tested on that, not on the time of the value it carries.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

from runnel.connectors.cassandra.schema.twins import captured_columns, twin_type
from runnel.connectors.cassandra.values.decode import frozen_items
from runnel.connectors.cassandra.values.types import quoted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from runnel.connectors.cassandra.client import Client
    from runnel.connectors.cassandra.schema.tables import TableSchema

JOURNAL, OLD = "_runnel_journal", "_runnel_old"
SHARDS = 16
_GREGORIAN = 0x01B21DD213814000
_LONG = struct.Struct(">q")
_INT = struct.Struct(">i")

_CREATE_JOURNAL = """CREATE TABLE IF NOT EXISTS {name} (
    shard int, at timeuuid, kind text, key blob, cluster frozen<list<blob>>, until frozen<list<blob>>, bounds text,
    name text, value blob, time bigint, ttl int, PRIMARY KEY (shard, at))"""
_COLUMNS = "at, kind, key, cluster, until, bounds, name, value, time, ttl"


@dataclass(frozen=True)
class Page:
    """One change as the journal has it; `cluster` is None for the static row and the bound a range starts with."""

    shard: int
    at: bytes
    kind: str
    key: bytes
    cluster: tuple[bytes | None, ...] | None
    until: tuple[bytes | None, ...] | None
    bounds: str
    name: str
    value: bytes
    time: int
    ttl: int | None

    @property
    def deletes(self) -> bool:
        """Whether it takes something away."""
        return self.kind.endswith("delete")


def journal_name(table: TableSchema) -> str:
    """Write the full name of a table's journal."""
    return f"{quoted(table.keyspace)}.{quoted(table.name + JOURNAL)}"


def old_name(table: TableSchema) -> str:
    """Write the full name of a table's old values."""
    return f"{quoted(table.keyspace)}.{quoted(table.name + OLD)}"


def create_statements(table: TableSchema) -> Iterator[str]:
    """Give the statements that make both tables where they are not there."""
    yield _CREATE_JOURNAL.format(name=journal_name(table))
    static = {column.name for column in table.static}
    columns = [f"{quoted(column.name)} {column.type}" for column in (*table.partition_key, *table.clustering)]
    columns += [
        f"{quoted(column.name)} {twin_type(column, 'value')}{' static' if column.name in static else ''}"
        for column in captured_columns(table)
    ]
    partition = ", ".join(quoted(column.name) for column in table.partition_key)
    clustering = "".join(f", {quoted(column.name)}" for column in table.clustering)
    order = ", ".join(f"{quoted(c.name)} {'DESC' if c.descending else 'ASC'}" for c in table.clustering)
    ordered = f" WITH CLUSTERING ORDER BY ({order})" if order else ""
    yield (
        f"CREATE TABLE IF NOT EXISTS {old_name(table)} ({', '.join(columns)}, "
        f"PRIMARY KEY (({partition}){clustering})){ordered}"
    )


def drop_statements(table: TableSchema) -> Iterator[str]:
    """Give the statements that remove both tables."""
    yield f"DROP TABLE IF EXISTS {journal_name(table)}"
    yield f"DROP TABLE IF EXISTS {old_name(table)}"


def read_journal(client: Client, table: TableSchema, after: int, upto: int) -> Iterator[Page]:
    """Give the pages written after one time and up to another, in microseconds."""
    cql = f"SELECT {_COLUMNS} FROM {journal_name(table)} WHERE shard = ? AND at > ? AND at <= ?"
    for shard in range(SHARDS):
        bounds = [_INT.pack(shard), time_bound(after), time_bound(upto)]
        for at, kind, key, cluster, until, ends, name, value, time, ttl in client.rows(cql, bounds):
            yield Page(
                shard,
                at or b"",
                (kind or b"").decode(),
                key or b"",
                None if cluster is None else tuple(frozen_items(cluster)),
                None if until is None else tuple(frozen_items(until)),
                (ends or b"").decode(),
                (name or b"").decode(),
                value or b"",
                _LONG.unpack(time or bytes(8))[0],
                None if ttl is None else _INT.unpack(ttl)[0],
            )


def remove_page(table: TableSchema) -> str:
    """Write the statement that removes a page: shard, at."""
    return f"DELETE FROM {journal_name(table)} WHERE shard = ? AND at = ?"


def time_bound(microseconds: int) -> bytes:
    """Give the last time UUID of a microsecond, in the server's order.

    >>> from uuid import UUID
    >>> UUID(bytes=time_bound(0))
    UUID('13814009-1dd2-11b2-7f7f-7f7f7f7f7f7f')
    """
    ticks = max(0, microseconds * 10 + 9 + _GREGORIAN)
    low, middle, high = ticks & 0xFFFFFFFF, ticks >> 32 & 0xFFFF, ticks >> 48 & 0x0FFF
    return struct.pack(">IHH", low, middle, 0x1000 | high) + b"\x7f" * 8
