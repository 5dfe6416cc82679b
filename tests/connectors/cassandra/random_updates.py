"""Random partition updates over tables that between them need every part of the format."""

from __future__ import annotations

import functools
import random
from typing import TYPE_CHECKING

from runnel.connectors.cassandra.cells import Clustering, Range
from runnel.connectors.cassandra.schema.tables import ColumnSchema, SchemaRows, TableSchema, build_tables
from runnel.connectors.cassandra.schema.text import parse_schema
from tests.connectors.cassandra.encoder import Cell, Deleted, Row, Times, Updated

if TYPE_CHECKING:
    from collections.abc import Sequence

_MANY_COLUMNS = ", ".join(f"v{n:02} {'int' if n % 3 else 'text'}" for n in range(70))
_MANY_KEYS = ", ".join(f"k{n:02} {'text' if n % 2 else 'int'}" for n in range(35))

TEXT = f"""
CREATE TYPE r.person (name text, age int);
CREATE TABLE r.fixed (id int PRIMARY KEY, a int, b bigint, c boolean, d double, e uuid, f float, g timestamp, h timeuuid)
  WITH ID = 00000000-0000-0000-0000-000000000001;
CREATE TABLE r.mixed (id text PRIMARY KEY, a int, b text, c bigint, d blob, e smallint, f vector<float, 2>, g date, h int)
  WITH ID = 00000000-0000-0000-0000-000000000002;
CREATE TABLE r.rows (p int, q text, c int, d text, s text static, t int static, u set<int> static, v int, w text, x bigint,
  y map<text, int>, z list<text>, zz person, PRIMARY KEY ((p, q), c, d))
  WITH CLUSTERING ORDER BY (c DESC, d ASC) AND ID = 00000000-0000-0000-0000-000000000003;
CREATE TABLE r.wide (p int, c int, {_MANY_COLUMNS}, PRIMARY KEY (p, c)) WITH ID = 00000000-0000-0000-0000-000000000004;
CREATE TABLE r.deep (p int, {_MANY_KEYS}, v int, PRIMARY KEY (p, {", ".join(f"k{n:02}" for n in range(35))}))
  WITH ID = 00000000-0000-0000-0000-000000000005;
CREATE TABLE r.counted (p int, c int, n counter, m counter, PRIMARY KEY (p, c))
  WITH ID = 00000000-0000-0000-0000-000000000006;
CREATE TABLE r.bare (p int, c uuid, PRIMARY KEY (p, c)) WITH ID = 00000000-0000-0000-0000-000000000007;
"""


@functools.cache
def schema() -> SchemaRows:
    return parse_schema(TEXT)


@functools.cache
def tables() -> dict[str, TableSchema]:
    return {table.name: table for table in build_tables(schema())}


NOW = 1_750_000_000


class RandomUpdates:
    """Makes updates from a seed; local deletion times have 32 bits from version 8 on."""

    def __init__(self, seed: int, version: int = 7) -> None:
        self.random = random.Random(seed)
        self.latest = (1 << 32) - 2 if version >= 8 else (1 << 31) - 2

    def update(self, table: TableSchema | None = None, key: bytes | None = None) -> Updated:
        pick = self.random.random
        table = table or self.random.choice(list(tables().values()))
        rows: list[Row | Deleted] = [self.row(table, table.regular) for _ in range(self.random.choice([0, 1, 1, 1, 3]))]
        if table.clustering and not table.is_counter and pick() < 0.2:
            rows += self.ranges(table)
        if not table.clustering:
            rows = rows[:1]
        static = self.row(table, table.static, static=True) if table.static and pick() < 0.3 else None
        deletion = self.deletion() if pick() < 0.1 else None
        return Updated(table, key if key is not None else self.key(table), deletion, static, tuple(rows))

    def key(self, table: TableSchema) -> bytes:
        parts = [self.value(column.type.width) for column in table.partition_key]
        if len(parts) == 1:
            return parts[0]
        return b"".join(len(part).to_bytes(2, "big") + part + b"\x00" for part in parts)

    def row(self, table: TableSchema, columns: Sequence[ColumnSchema], *, static: bool = False) -> Row:
        clustering = None if static else self.clustering(table)
        ttl = self.random.choice([0, 0, 0, 3600, 7])
        timestamp = self.timestamp()
        inserted = not static and not table.is_counter and self.random.random() < 0.7
        liveness = (timestamp, ttl, NOW + ttl if ttl else 0) if inserted else None
        chosen = (
            list(columns)
            if self.random.random() < 0.6
            else self.random.sample(columns, self.random.randrange(len(columns) + 1))
        )
        found: list[Cell] = []
        complex_: dict[str, Times] = {}
        for column in chosen:
            if column.type.multicell:
                if self.random.random() < 0.4:
                    complex_[column.name] = self.deletion()
                count = self.random.choice([1, 2, 5])
                paths = [self.random.randbytes(self.random.choice([2, 16, 140])) for _ in range(count)]
                found += [self.cell(column, timestamp, ttl, path=path) for path in paths]
            else:
                found.append(self.cell(column, timestamp, ttl))
        deletion = self.deletion() if not static and self.random.random() < 0.1 else None
        shadowable = deletion is not None and self.random.random() < 0.3
        return Row(clustering, liveness, deletion, shadowable, complex_, tuple(found))

    def cell(self, column: ColumnSchema, timestamp: int, ttl: int, path: bytes | None = None) -> Cell:
        pick = self.random.random()
        if pick < 0.8:
            value = self.value(None if path is not None else column.type.width)
            return Cell(column.name, value, timestamp, ttl, NOW + ttl if ttl else 0, path)
        if pick < 0.88:
            return Cell(column.name, None, self.timestamp(), 0, self.seconds(), path)
        if pick < 0.94:
            return Cell(column.name, b"", self.timestamp(), 9, self.seconds(), path)
        return Cell(
            column.name, self.value(None if path is not None else column.type.width), self.timestamp(), path=path
        )

    def clustering(self, table: TableSchema) -> Clustering:
        return tuple(
            self.random.choice([self.value(column.type.width)] * 6 + [b"", None]) for column in table.clustering
        )

    def ranges(self, table: TableSchema) -> list[Row | Deleted]:
        """Give ranges that touch or do not; the format does not care whether they are in order."""
        found: list[Row | Deleted] = []
        at, inclusive = self.bound(table), True
        for _ in range(self.random.randrange(1, 4)):
            end, end_inclusive = self.bound(table), self.random.random() < 0.5
            found.append(Deleted(Range(at, inclusive, end, end_inclusive), self.deletion()))
            at, inclusive = (end, not end_inclusive) if self.random.random() < 0.5 else (self.bound(table), False)
        return found

    def bound(self, table: TableSchema) -> Clustering:
        return self.clustering(table)[: self.random.randrange(len(table.clustering) + 1)]

    def value(self, width: int | None) -> bytes:
        return self.random.randbytes(self.random.choice([1, 3, 30, 127, 128, 300]) if width is None else width)

    def timestamp(self) -> int:
        now = 1_750_000_000_000_000
        return self.random.choice([now, now, now, now + 1, 1, 0, -5, -(1 << 63) + 1, (1 << 63) - 1, now + 1000])

    def seconds(self) -> int:
        return self.random.choice([NOW, NOW + 1, NOW + 100, self.latest])

    def deletion(self) -> Times:
        return self.timestamp(), self.seconds()
