"""Writes segments as the server does, from a description of updates: what the decoder is held against.

Written from the format alone, without a line of the decoder's, so that a misreading has to be made twice to go unseen.
"""

from __future__ import annotations

import json
import struct
import zlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import cramjam
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from runnel.connectors.cassandra import cells

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from runnel.connectors.cassandra.cells import ChangeTuple, Clustering, Range
    from runnel.connectors.cassandra.schema.tables import TableSchema

LIVE = (-(1 << 63), (1 << 31) - 1)
Times = tuple[int, int]
"""Timestamp and local deletion time."""


@dataclass(frozen=True)
class Cell:
    column: str
    value: bytes | None
    timestamp: int
    ttl: int = 0
    ldt: int = 0
    path: bytes | None = None


@dataclass(frozen=True)
class Row:
    clustering: Clustering | None
    liveness: tuple[int, int, int] | None = None
    deletion: Times | None = None
    shadowable: bool = False
    complex: dict[str, Times] = field(default_factory=dict)
    cells: tuple[Cell, ...] = ()


@dataclass(frozen=True)
class Deleted:
    range: Range
    times: Times


@dataclass(frozen=True)
class Updated:
    """A partition update; `rows` are in the table's order, ranges not overlapping."""

    table: TableSchema
    key: bytes
    deletion: Times | None = None
    static: Row | None = None
    rows: tuple[Row | Deleted, ...] = ()


def expected(update: Updated) -> list[ChangeTuple]:
    """Give the changes an update stands for, in the order of the log."""
    found: list[ChangeTuple] = []
    head = (update.table, update.key)
    if update.deletion is not None:
        found.append((cells.PARTITION_DELETE, *head, None, None, None, None, update.deletion[0], 0, update.deletion[1]))
    for item in ([update.static] if update.static else []) + list(update.rows):
        if isinstance(item, Deleted):
            found.append((cells.RANGE_DELETE, *head, None, None, None, item.range, item.times[0], 0, item.times[1]))
        else:
            found += _expected_row(update.table, item, head)
    return found


def _expected_row(table: TableSchema, row: Row, head: tuple[TableSchema, bytes]) -> list[ChangeTuple]:
    found: list[ChangeTuple] = []
    at = row.clustering
    if row.liveness is not None:
        timestamp, ttl, ldt = row.liveness
        found.append((cells.LIVENESS, *head, at, None, None, None, timestamp, ttl, ldt))
    if row.deletion is not None:
        kind = cells.SHADOWABLE_DELETE if row.shadowable else cells.ROW_DELETE
        found.append((kind, *head, at, None, None, None, row.deletion[0], 0, row.deletion[1]))
    for name in _ordered(table, {cell.column for cell in row.cells} | set(row.complex)):
        if name in row.complex:
            timestamp, ldt = row.complex[name]
            found.append((cells.COMPLEX_DELETE, *head, at, name, None, None, timestamp, 0, ldt))
        for cell in (cell for cell in row.cells if cell.column == name):
            kind = cells.COUNTER if table.by_name[name].type.name == "counter" else cells.SET
            kind = cells.CELL_DELETE if cell.value is None else kind
            found.append((kind, *head, at, name, cell.path, cell.value, cell.timestamp, cell.ttl, cell.ldt))
    return found


def _ordered(table: TableSchema, names: set[str]) -> list[str]:
    """Give columns as the server lists them: simple ones by name, then complex ones by name."""
    return sorted(names, key=lambda name: (table.by_name[name].type.multicell, name))


def vint(number: int) -> bytes:
    number %= 1 << 64
    for extra in range(8):
        if number < 1 << (7 * (extra + 1)):
            return (number + (((1 << extra) - 1) << (8 - extra) << (8 * extra))).to_bytes(extra + 1, "big")
    return b"\xff" + number.to_bytes(8, "big")


def prefixed(value: bytes) -> bytes:
    return vint(len(value)) + value


class Encoder:
    """Writes one partition update."""

    def __init__(self, update: Updated) -> None:
        self.update = update
        self.rows = [item for item in update.rows if isinstance(item, Row)]
        times = self._times()
        self.timestamp = min((t for t, _, _ in times), default=1_442_880_000_000_000)
        self.ldt = min((ldt for _, ldt, _ in times if ldt), default=1_442_880_000)
        self.ttl = min((ttl for _, _, ttl in times if ttl), default=0)

    def _times(self) -> list[tuple[int, int, int]]:
        found = [(*times, 0) for times in [self.update.deletion] if times]
        found += [(*item.times, 0) for item in self.update.rows if isinstance(item, Deleted)]
        for row in [*self.rows, *([self.update.static] if self.update.static else [])]:
            if row.liveness:
                found.append((row.liveness[0], row.liveness[2], row.liveness[1]))
            found += [(*times, 0) for times in [row.deletion, *row.complex.values()] if times]
            found += [(cell.timestamp, cell.ldt, cell.ttl) for cell in row.cells]
        return found

    def encode(self) -> bytes:
        update = self.update
        static = self._names([update.static] if update.static else [])
        regular = self._names(self.rows)
        nothing = update.deletion is None and update.static is None and not update.rows
        flags = 1 if nothing else 16 | (4 if update.deletion else 0) | (8 if update.static else 0)
        made = update.table.id.bytes + prefixed(update.key) + bytes([flags])
        if nothing:
            return made
        made += vint(self.timestamp - 1_442_880_000_000_000) + vint(self.ldt - 1_442_880_000) + vint(self.ttl)
        if update.static:
            made += self._header(static)
        made += self._header(regular)
        if update.deletion:
            made += self._deletion(update.deletion)
        if update.static:
            made += self._row(update.static, static)
        made += vint(len(self.rows)) + self._unfiltereds(regular)
        return made + b"\x01"

    def _names(self, rows: Sequence[Row]) -> list[str]:
        return _ordered(
            self.update.table, {c.column for r in rows for c in r.cells} | {n for r in rows for n in r.complex}
        )

    def _header(self, names: list[str]) -> bytes:
        return vint(len(names)) + b"".join(prefixed(name.encode()) for name in names)

    def _deletion(self, times: Times) -> bytes:
        return vint(times[0] - self.timestamp) + vint((times[1] - self.ldt) % (1 << 64))

    def _unfiltereds(self, names: list[str]) -> bytes:
        made = b""
        items = list(self.update.rows)
        opened = False
        for n, item in enumerate(items):
            if isinstance(item, Row):
                made += self._row(item, names)
                continue
            if not opened:
                kind = 1 if item.range.start_inclusive else 7
                made += self._bound(kind, item.range.start) + self._deletion(item.times)
            after = items[n + 1] if n + 1 < len(items) else None
            opened = isinstance(after, Deleted) and _touches(item.range, after.range)
            if opened and isinstance(after, Deleted):
                made += self._bound(5 if item.range.end_inclusive else 2, item.range.end)
                made += self._deletion(item.times) + self._deletion(after.times)
            else:
                made += self._bound(6 if item.range.end_inclusive else 0, item.range.end) + self._deletion(item.times)
        return made

    def _bound(self, kind: int, values: Clustering) -> bytes:
        return bytes([2, kind]) + struct.pack(">H", len(values)) + self._clustering(values)

    def _clustering(self, values: Clustering) -> bytes:
        made = b""
        for start in range(0, len(values), 32):
            batch = values[start : start + 32]
            header = sum((2 if value is None else 1 if value == b"" else 0) << (2 * n) for n, value in enumerate(batch))
            made += vint(header)
            for n, value in enumerate(batch):
                if value:
                    made += self._value(self.update.table.clustering[start + n].type.width, value)
        return made

    def _value(self, width: int | None, value: bytes) -> bytes:
        return prefixed(value) if width is None else value

    def _row(self, row: Row, names: list[str]) -> bytes:
        present = _ordered(self.update.table, {cell.column for cell in row.cells} | set(row.complex))
        extended = (1 if row.clustering is None else 0) | (2 if row.shadowable else 0)
        flags = (4 if row.liveness else 0) | (8 if row.liveness and row.liveness[1] else 0)
        flags |= (16 if row.deletion else 0) | (32 if present == names else 0) | (64 if row.complex else 0)
        made = bytes([flags | 128, extended]) if extended else bytes([flags])
        if row.clustering is not None:
            made += self._clustering(row.clustering)
        if row.liveness:
            made += vint(row.liveness[0] - self.timestamp)
            if row.liveness[1]:
                made += vint(row.liveness[1] - self.ttl) + vint(row.liveness[2] - self.ldt)
        if row.deletion:
            made += self._deletion(row.deletion)
        if present != names:
            made += self._subset(present, names)
        for name in present:
            made += self._column(row, name)
        return made

    def _subset(self, present: list[str], names: list[str]) -> bytes:
        missing = [n for n, name in enumerate(names) if name not in present]
        if len(names) < 64:
            return vint(sum(1 << n for n in missing))
        there = [n for n, name in enumerate(names) if name in present]
        return vint(len(missing)) + b"".join(vint(n) for n in (there if len(there) < len(names) // 2 else missing))

    def _column(self, row: Row, name: str) -> bytes:
        found = [cell for cell in row.cells if cell.column == name]
        type_ = self.update.table.by_name[name].type
        if not type_.multicell:
            return self._cell(found[0], row, type_.width)
        made = self._deletion(row.complex.get(name, LIVE)) if row.complex else b""
        return made + vint(len(found)) + b"".join(self._cell(cell, row, None) for cell in found)

    def _cell(self, cell: Cell, row: Row, width: int | None) -> bytes:
        own_time = not (row.liveness and row.liveness[0] == cell.timestamp)
        own_ttl = not (cell.ttl and row.liveness and row.liveness[1:] == (cell.ttl, cell.ldt))
        flags = (1 if cell.value is None else 0) | (2 if cell.ttl else 0) | (4 if not cell.value else 0)
        flags |= (0 if own_time else 8) | (0 if own_ttl else 16)
        made = bytes([flags])
        if own_time:
            made += vint(cell.timestamp - self.timestamp)
        if own_ttl and (cell.value is None or cell.ttl):
            made += vint(cell.ldt - self.ldt)
        if own_ttl and cell.ttl:
            made += vint(cell.ttl - self.ttl)
        if cell.path is not None:
            made += prefixed(cell.path)
        return made + (self._value(width, cell.value) if cell.value else b"")


def _touches(one: Range, other: Range) -> bool:
    return one.end == other.start and one.end_inclusive != other.start_inclusive


def body(*updates: Updated) -> bytes:
    """Give the body of a mutation."""
    return vint(len(updates)) + b"".join(Encoder(update).encode() for update in updates)


def record(data: bytes) -> bytes:
    """Give a mutation's record: its size, two checksums, its body."""
    size = struct.pack(">I", len(data))
    return size + struct.pack(">I", zlib.crc32(size)) + data + struct.pack(">I", zlib.crc32(size + data))


@dataclass(frozen=True)
class Secret:
    alias: str
    key: bytes
    start: bytes


def header(version: int, id_: int, parameters: dict[str, Any]) -> bytes:
    text = json.dumps(parameters).encode()
    checked = struct.pack(">iIII", version, id_ % (1 << 32), id_ >> 32, len(text)) + text
    return struct.pack(">iqH", version, id_, len(text)) + text + struct.pack(">I", zlib.crc32(checked))


def write_segment(
    folder: Path,
    sections: Sequence[Sequence[bytes]],
    *,
    version: int = 7,
    id_: int = 1_700_000_000_001,
    compression: str | None = None,
    secret: Secret | None = None,
    room: int = 64,
) -> Path:
    """Write the bodies of each section; `room` zeros follow a plain segment, as in a file that is made in advance."""
    parameters: dict[str, Any] = {}
    if compression:
        parameters = {
            "compressionClass": f"org.apache.cassandra.io.compress.{compression}",
            "compressionParameters": None,
        }
    if secret:
        parameters = {"encCipher": "AES/CBC/PKCS5Padding", "encKeyAlias": secret.alias, "encIV": secret.start.hex()}
    made = header(version, id_, parameters)
    for bodies in sections:
        data = b"".join(map(record, bodies))
        if compression:
            data = struct.pack(">I", len(data)) + compressed(compression, data)
        elif secret:
            data = struct.pack(">I", len(data)) + _encrypted(data, secret)
        end = len(made) + 8 + len(data)
        checked = struct.pack(">III", id_ % (1 << 32), id_ >> 32, len(made))
        made += struct.pack(">II", end, zlib.crc32(checked)) + data
    path = folder / f"CommitLog-{version}-{id_}.log"
    path.write_bytes(made + (b"" if compression or secret else bytes(room)))
    return path


def compressed(name: str, data: bytes) -> bytes:
    if name == "LZ4Compressor":
        return struct.pack("<I", len(data)) + bytes(cramjam.lz4.compress_block(data, store_size=False))
    if name == "SnappyCompressor":
        return bytes(cramjam.snappy.compress_raw(data))
    if name == "DeflateCompressor":
        return zlib.compress(data)
    if name == "ZstdCompressor":
        return bytes(cramjam.zstd.compress(data))
    return data


def _encrypted(data: bytes, secret: Secret, chunk: int = 256) -> bytes:
    made = b""
    for start in range(0, len(data), chunk):
        part = data[start : start + chunk]
        inside = struct.pack(">I", len(part)) + compressed("LZ4Compressor", part)
        count = 16 - len(inside) % 16
        cipher = Cipher(algorithms.AES(secret.key), modes.CBC(secret.start)).encryptor()
        closed = cipher.update(inside + bytes([count]) * count) + cipher.finalize()
        made += struct.pack(">II", len(closed), len(inside)) + closed
    return made
