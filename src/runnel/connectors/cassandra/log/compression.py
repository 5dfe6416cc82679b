"""Opens the sections of compressed segments, never into more bytes than the section says it has."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from importlib import import_module
from typing import Any

from runnel.errors import UsageError

Opener = Callable[[bytes, int], bytes]
"""(section, length it has when open) -> the open section; raises `ValueError` where that is not so"""


def opener(name: str) -> Opener | None:
    """Give the function for a compressor by the name of its Java class, or None for one that is not known."""
    return _OPENERS.get(name.rpartition(".")[2])


def lz4(data: bytes, length: int) -> bytes:
    """Open LZ4 as the server writes it: the length in little-endian order, then one block."""
    if len(data) < 4 or int.from_bytes(data[:4], "little") != length:
        raise ValueError("the two lengths of a section differ")
    _possible(data, length, 255)
    if length == 0:
        return b""
    blocks = _package("lz4.block")
    try:
        return _exactly(blocks.decompress(data[4:], uncompressed_size=length), length)
    except blocks.LZ4BlockError as error:
        raise ValueError(str(error)) from error


def _snappy(data: bytes, length: int) -> bytes:
    said = sum((byte & 0x7F) << (7 * n) for n, byte in enumerate(data[: _snappy_head(data)]))
    if said != length:
        raise ValueError("the two lengths of a section differ")
    _possible(data, length, 64)
    return _into(_package("cramjam").snappy.decompress_raw_into, data, length)


def _snappy_head(data: bytes) -> int:
    """Give how many bytes say the length: all but the last of them have their highest bit set."""
    for n, byte in enumerate(data[:5], 1):
        if byte < 0x80:
            return n
    raise ValueError("a section does not say its length")


def _zstd(data: bytes, length: int) -> bytes:
    return _into(_package("cramjam").zstd.decompress_into, data, length) if length else b""


def _deflate(data: bytes, length: int) -> bytes:
    stream = zlib.decompressobj()
    try:
        found = stream.decompress(data, length + 1)
    except zlib.error as error:
        raise ValueError(str(error)) from error
    return _exactly(found, length)


def _noop(data: bytes, length: int) -> bytes:
    return _exactly(data, length)


def _into(decompress: Callable[[bytes, bytearray], int], data: bytes, length: int) -> bytes:
    room = bytearray(length)
    try:
        written = decompress(data, room)
    except Exception as error:
        # The package has an exception of its own for data that is broken or longer than the room.
        if type(error).__name__ != "DecompressionError":
            raise
        raise ValueError(str(error)) from error
    return _exactly(bytes(room), length) if written == length else _exactly(b"", length)


def _possible(data: bytes, length: int, most: int) -> None:
    """Refuse a length that no data of this size opens to, before room is made for it."""
    if length > most * (len(data) + 16):
        raise ValueError("a section says it has more bytes than it can have")


def _exactly(found: bytes, length: int) -> bytes:
    if len(found) != length:
        raise ValueError("a section has another length than it says")
    return found


def _package(name: str) -> Any:
    try:
        return import_module(name)
    except ImportError as error:
        raise UsageError(
            "RUNNEL-CASSANDRA-PACKAGE",
            f"commit logs that are compressed this way need the package {name.partition('.')[0]}",
            hint="pip install 'runnel[cassandra]'",
        ) from error


_OPENERS: dict[str, Opener] = {
    "LZ4Compressor": lz4,
    "SnappyCompressor": _snappy,
    "DeflateCompressor": _deflate,
    "ZstdCompressor": _zstd,
    "NoopCompressor": _noop,
}
