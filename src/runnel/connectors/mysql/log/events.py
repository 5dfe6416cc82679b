"""Events: the records of a binary log. Their header, their checksum, and where they begin and end."""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass
from enum import IntEnum

from runnel.connectors.mysql.log.problems import BadBytes

MAGIC = b"\xfebin"
HEADER = struct.Struct("<IBIIIH")
HEADER_SIZE = HEADER.size
CHECKSUM_SIZE = 4
LARGEST_EVENT = (1 << 30) + (1 << 20)
"""No server writes a longer event: a packet has at most 1 GiB."""
IN_USE, ARTIFICIAL, IGNORABLE = 0x1, 0x20, 0x80


class Kind(IntEnum):
    """The kinds of events that are read, or known not to matter; names are those of the servers."""

    QUERY = 2
    STOP = 3
    ROTATE = 4
    INTVAR = 5
    APPEND_BLOCK = 9
    RAND = 13
    USER_VAR = 14
    FORMAT_DESCRIPTION = 15
    XID = 16
    BEGIN_LOAD_QUERY = 17
    EXECUTE_LOAD_QUERY = 18
    TABLE_MAP = 19
    WRITE_ROWS_V1 = 23
    UPDATE_ROWS_V1 = 24
    DELETE_ROWS_V1 = 25
    INCIDENT = 26
    HEARTBEAT = 27
    IGNORABLE = 28
    ROWS_QUERY = 29
    WRITE_ROWS = 30
    UPDATE_ROWS = 31
    DELETE_ROWS = 32
    GTID = 33
    ANONYMOUS_GTID = 34
    PREVIOUS_GTIDS = 35
    TRANSACTION_CONTEXT = 36
    VIEW_CHANGE = 37
    XA_PREPARE = 38
    PARTIAL_UPDATE_ROWS = 39
    TRANSACTION_PAYLOAD = 40
    HEARTBEAT_V2 = 41
    GTID_TAGGED = 42
    ANNOTATE_ROWS = 160
    BINLOG_CHECKPOINT = 161
    MARIADB_GTID = 162
    MARIADB_GTID_LIST = 163
    START_ENCRYPTION = 164
    QUERY_COMPRESSED = 165
    WRITE_ROWS_COMPRESSED_V1 = 166
    UPDATE_ROWS_COMPRESSED_V1 = 167
    DELETE_ROWS_COMPRESSED_V1 = 168
    WRITE_ROWS_COMPRESSED = 169
    UPDATE_ROWS_COMPRESSED = 170
    DELETE_ROWS_COMPRESSED = 171


@dataclass(slots=True)
class Event:
    """One event: its kind, its body without header and checksum, and its bytes in the log from `start` to `end`.

    Events inside a compressed transaction have the start and end of the event that holds them. `displaced` says that events before
    it, whose places could only be counted, are not where they were counted to be.
    """

    kind: int
    flags: int
    timestamp: int
    server_id: int
    body: bytes
    file: str
    start: int
    end: int
    displaced: bool = False


@dataclass(frozen=True)
class Format:
    """What a format description says: the server's version, the lengths of post-headers by kind, and whether events end with a CRC-32."""

    version: str
    lengths: bytes
    checksums: bool

    @property
    def mariadb(self) -> bool:
        """Whether a MariaDB wrote the log."""
        return "mariadb" in self.version.lower()


def header(data: bytes, at: int = 0) -> tuple[int, int, int, int, int, int]:
    """Give timestamp, kind, server id, size, next position and flags of the event that begins at `at`."""
    found = HEADER.unpack_from(data, at)
    if not HEADER_SIZE <= found[3] <= LARGEST_EVENT:
        raise BadBytes(f"an event cannot be {found[3]} bytes long")
    return found


def body_of(data: bytes, kind: int, *, checksums: bool) -> bytes:
    """Give the body of one whole event, after its checksum was compared."""
    if kind == Kind.FORMAT_DESCRIPTION:
        return _format_body(data)
    if not checksums:
        return data[HEADER_SIZE:]
    if len(data) < HEADER_SIZE + CHECKSUM_SIZE:
        raise BadBytes("an event is too short for its checksum")
    _compare(data, zlib.crc32(memoryview(data)[:-CHECKSUM_SIZE]))
    return data[HEADER_SIZE:-CHECKSUM_SIZE]


def _compare(data: bytes, found: int) -> None:
    if found != int.from_bytes(data[-CHECKSUM_SIZE:], "little"):
        raise BadBytes("the checksum of an event does not fit its bytes")


def _format_body(data: bytes) -> bytes:
    """Give the body of a format description, which has a place for a checksum whether or not the other events have one.

    The server computes its checksum before it marks the file as being in use.
    """
    if len(data) < HEADER_SIZE + 57 + 1 + CHECKSUM_SIZE:
        raise BadBytes("a format description is too short")
    if data[-CHECKSUM_SIZE - 1] == 1:
        plain = bytearray(data[:-CHECKSUM_SIZE])
        plain[17] &= ~IN_USE
        _compare(data, zlib.crc32(plain))
    return data[HEADER_SIZE:-CHECKSUM_SIZE]


def read_format(body: bytes) -> Format:
    """Read a format description."""
    if body[:2] != b"\x04\x00" or body[56] != HEADER_SIZE:
        raise BadBytes("it is not a binary log of version 4")
    version = body[2:52].rstrip(b"\0").decode("ascii", "replace")
    if body[-1] not in (0, 1):
        raise BadBytes(f"checksum algorithm {body[-1]} is unknown")
    return Format(version, body[57:-1], bool(body[-1]))
