"""Cuts a section into the bodies of its mutations, with both checksums of each."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING
from zlib import crc32

from runnel.connectors.cassandra.log.errors import LogError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from runnel.connectors.cassandra.log.segment import Section

OVERHEAD = 12
"""Bytes of a record besides its body: the size, and a checksum of the size and of all."""
SMALLEST = 10
"""Bytes the server holds for the least a mutation can have."""
_HEAD = struct.Struct(">II")
_WORD = struct.Struct(">I")


def records(section: Section, path: Path, after: int = 0) -> Iterator[tuple[int, bytes]]:
    """Give (position after the record, body) of the records that end behind a position.

    A size of 0 ends the section, as does its end; anything else that is no record raises a `LogError`.
    """
    data, start, _ = section
    at = max(0, after - start)
    end = len(data)
    head, word = _HEAD.unpack_from, _WORD.unpack_from
    while end - at >= OVERHEAD:
        size, checksum = head(data, at)
        if size == 0 and checksum == 0:
            return
        behind = at + size + OVERHEAD
        running = crc32(data[at : at + 4])
        if running != checksum:
            raise _broken("the checksum of a mutation's size is wrong", path, start + at, "CHECKSUM")
        if size < SMALLEST or behind > end:
            raise _broken(f"a mutation of {size} bytes cannot be there", path, start + at, "LENGTH")
        body = data[at + 8 : behind - 4]
        if crc32(body, running) != word(data, behind - 4)[0]:
            raise _broken("the checksum of a mutation is wrong", path, start + at, "CHECKSUM")
        at = behind
        yield start + at, body
    if any(data[at:]):
        raise _broken("bytes are left over that are no mutation", path, start + at, "LENGTH")


def _broken(message: str, path: Path, offset: int, what: str) -> LogError:
    if what == "CHECKSUM":
        return LogError("RUNNEL-CASSANDRA-LOG-CHECKSUM", message, path, offset)
    return LogError("RUNNEL-CASSANDRA-LOG-LENGTH", message, path, offset)
