"""Compressed parts of a log: MySQL's compressed transactions (zstd) and MariaDB's compressed events (zlib).

What comes out is bounded: the size that the event promises is compared with a limit before anything is unpacked, and with what was unpacked.
"""

from __future__ import annotations

import zlib
from typing import Any

import pyarrow as pa

from runnel.connectors.mysql.log.cursor import Cursor
from runnel.connectors.mysql.log.problems import BadBytes

LARGEST_PAYLOAD = 4 << 30
"""Bytes of one transaction after unpacking; MySQL compresses none that is larger than 4 GiB."""
LARGEST_EVENT_BODY = 1 << 30
ZSTD, NOT_COMPRESSED = 0, 255
_END, _SIZE, _ALGORITHM, _UNPACKED_SIZE = range(4)


def unpack_transaction(body: bytes) -> Unpacked:
    """Give the events inside a transaction payload, one after the other, without checksums; they are unpacked as they are read."""
    cursor = Cursor(body)
    fields: dict[int, int] = {}
    while (kind := cursor.packed()) != _END:
        value = Cursor(cursor.take(cursor.packed()))
        fields[kind] = value.packed()
    payload = cursor.take(fields.get(_SIZE, cursor.left))
    algorithm = fields.get(_ALGORITHM, NOT_COMPRESSED)
    if algorithm == NOT_COMPRESSED:
        return Unpacked(pa.BufferReader(payload), len(payload))
    if algorithm != ZSTD:
        raise BadBytes(f"compression algorithm {algorithm} of a transaction is unknown")
    size = fields.get(_UNPACKED_SIZE, -1)
    if not 0 <= size <= LARGEST_PAYLOAD:
        raise BadBytes(f"a transaction cannot be {size} bytes long")
    return Unpacked(pa.CompressedInputStream(pa.BufferReader(payload), "zstd"), size)


class Unpacked:
    """Reads what was packed, piece by piece, up to the size that was promised and no further."""

    def __init__(self, stream: Any, size: int) -> None:
        """Begin at the first byte."""
        self._stream, self.left = stream, size

    def take(self, size: int) -> bytes:
        """Give the next bytes."""
        found: bytes = self._read(size) if size <= self.left else b""
        if len(found) != size:
            raise BadBytes("a compressed transaction does not have the length it says")
        self.left -= size
        return found

    def end(self) -> None:
        """Raise if more comes than was promised."""
        if self._read(1):
            raise BadBytes("a compressed transaction does not have the length it says")

    def _read(self, size: int) -> bytes:
        try:
            found: bytes = self._stream.read(size)
        except (OSError, pa.ArrowException) as error:
            raise BadBytes(f"a compressed transaction cannot be unpacked: {error}") from error
        return found


def unpacked_size(data: bytes, at: int = 0) -> int:
    """Give the size that a compressed event promises; the compressed part begins at `at`."""
    digits = data[at] & 7 if len(data) > at else 0
    return int.from_bytes(data[at + 1 : at + 1 + digits], "big")


def unpack_event(data: bytes) -> bytes:
    """Give what a MariaDB server compressed of an event: one byte of how, the length in big-endian order, a zlib stream."""
    if not data or data[0] & 0x80 == 0 or (data[0] >> 4) & 7 != 0:
        raise BadBytes("the compression of an event is unknown")
    digits = data[0] & 7
    if not 1 <= digits <= 4 or len(data) <= digits:
        raise BadBytes("the length of a compressed event is missing")
    size = unpacked_size(data)
    if size > LARGEST_EVENT_BODY:
        raise BadBytes(f"an event cannot be {size} bytes long")
    unpacker = zlib.decompressobj()
    try:
        found = unpacker.decompress(data[1 + digits :], size + 1)
    except zlib.error as error:
        raise BadBytes(f"a compressed event cannot be unpacked: {error}") from error
    if len(found) != size or not unpacker.eof:
        raise BadBytes("a compressed event does not have the length it says")
    return found
