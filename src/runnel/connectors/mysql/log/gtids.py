"""Global transaction ids: of MySQL `uuid:number` or `uuid:tag:number`, of MariaDB `domain-server-number`; and sets of them."""

from __future__ import annotations

import struct
import uuid
from typing import NamedTuple

from runnel.connectors.mysql.log.cursor import Cursor
from runnel.connectors.mysql.log.problems import BadBytes

_MARIADB = struct.Struct("<QIB")
STANDALONE = 0x01
PREPARED_XA, COMPLETED_XA = 0x40, 0x80


class Gtid(NamedTuple):
    """The id of one transaction; `text` is as the server shows it, empty for an anonymous one.

    `alone` says that no COMMIT follows: the transaction is one statement, such as a definition.
    """

    text: str
    alone: bool = False


def mysql_gtid(body: bytes) -> Gtid:
    """Read the GTID event of MySQL: flags, the server's UUID, the number."""
    if len(body) < 25:
        raise BadBytes("a GTID event is too short")
    return Gtid(f"{uuid.UUID(bytes=body[1:17])}:{int.from_bytes(body[17:25], 'little')}")


def mariadb_gtid(body: bytes, server_id: int) -> Gtid:
    """Read the GTID event of MariaDB: the number, the domain, flags."""
    if len(body) < _MARIADB.size:
        raise BadBytes("a GTID event is too short")
    number, domain, flags = _MARIADB.unpack_from(body)
    return Gtid(f"{domain}-{server_id}-{number}", bool(flags & STANDALONE))


def tagged_gtid(body: bytes) -> Gtid:
    """Read the tagged GTID event of MySQL 8.3 and later: fields by number, in the packing of `mysql::serialization`."""
    cursor = Cursor(body)
    for _ in range(3):  # version of the packing, size, last field that must be understood
        _varlen(cursor)
    server, tag, number = b"", b"", 0
    while cursor.left and (field := _varlen(cursor)) <= 3:
        if field == 0:
            _varlen(cursor)
        elif field == 1:
            server = bytes(_varlen(cursor) for _ in range(16))
        elif field == 2:
            number = _signed_varlen(cursor)
        else:
            tag = cursor.take(_varlen(cursor))
    if not server:
        raise BadBytes("a tagged GTID event has no server")
    named = f":{tag.decode('ascii', 'replace')}" if tag else ""
    return Gtid(f"{uuid.UUID(bytes=server)}{named}:{number}")


def _varlen(cursor: Cursor) -> int:
    """Read an unsigned number whose first byte tells by its trailing ones how many bytes follow."""
    first = cursor.number(1)
    more = 0
    while more < 8 and first >> more & 1:
        more += 1
    rest = cursor.number(more) if more else 0
    return (first >> (more + 1)) | (rest << (7 - more if more < 8 else 0))


def _signed_varlen(cursor: Cursor) -> int:
    found = _varlen(cursor)
    return -((found + 1) >> 1) if found & 1 else found >> 1
