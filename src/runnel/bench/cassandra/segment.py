"""A segment that is always the same: inserts and updates of eight columns beside a key, 32 to a section, as Cassandra writes them."""

from __future__ import annotations

import random
import struct
import uuid
import zlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

TABLE_ID = uuid.UUID("6ba7b810-9dad-11d1-80b4-00c04fd430c8")
SCHEMA = f"""CREATE TABLE shop.orders (id bigint PRIMARY KEY, active boolean, amount double, customer bigint, placed timestamp,
  product text, quantity int, remark text, shipment uuid) WITH ID = {TABLE_ID}"""
COLUMNS = ("active", "amount", "customer", "placed", "product", "quantity", "remark", "shipment")
TEXTS = ("product", "remark")
PER_SECTION = 32
VERSION = 7
FIRST_ID = 1_700_000_000_001
KEYS = 50_000
EPOCH = 1_442_880_000_000_000
BEGIN = 1_750_000_000_000_000


def write_segment(folder: Path, mutations: int, number: int = 0, *, first: int = 0, keys: int = KEYS) -> Path:
    """Write the segment and give its path; another `number` is another segment with the same mutations.

    A log of several segments has the mutations `first`, `first + 1` and so on, each later than the ones before it, of so many `keys` in turn.
    """
    made, id_, end = random.Random(first + 1), FIRST_ID + number, first + mutations
    data = bytearray(_header(id_))
    for start in range(first, end, PER_SECTION):
        records = b"".join(_record(_body(n, made, keys)) for n in range(start, min(start + PER_SECTION, end)))
        place = struct.pack(">III", id_ % (1 << 32), id_ >> 32, len(data))
        data += struct.pack(">II", len(data) + 8 + len(records), zlib.crc32(place)) + records
    path = folder / f"CommitLog-{VERSION}-{id_}.log"
    path.write_bytes(bytes(data) + bytes(64))
    return path


def rows(mutations: int, *, first: int = 0, keys: int = KEYS) -> Iterator[dict[str, Any]]:
    """Give the rows that such a segment writes, in its order; of those with the same id the last one stays."""
    made = random.Random(first + 1)
    for n in range(first, first + mutations):
        active, amount, customer, placed, product, quantity, remark, shipment = _values(n, made)
        yield {
            "id": n % keys,
            "active": bool(active[0]),
            "amount": struct.unpack(">d", amount)[0],
            "customer": int.from_bytes(customer, "big", signed=True),
            "placed": int.from_bytes(placed, "big"),
            "product": product.decode(),
            "quantity": int.from_bytes(quantity, "big", signed=True),
            "remark": remark.decode(),
            "shipment": str(uuid.UUID(bytes=shipment)),
        }


def _header(id_: int) -> bytes:
    parameters = b"{}"
    checked = struct.pack(">iIII", VERSION, id_ % (1 << 32), id_ >> 32, len(parameters)) + parameters
    return struct.pack(">iqH", VERSION, id_, len(parameters)) + parameters + struct.pack(">I", zlib.crc32(checked))


def _record(body: bytes) -> bytes:
    size = struct.pack(">I", len(body))
    return size + struct.pack(">I", zlib.crc32(size)) + body + struct.pack(">I", zlib.crc32(size + body))


def _values(n: int, made: random.Random) -> tuple[bytes, ...]:
    """Give the values that one mutation writes, in the order of the columns."""
    return (
        bytes([n % 2]),
        made.randbytes(8),
        made.randbytes(8),
        (BEGIN // 1000 + n).to_bytes(8, "big"),
        f"product {n % 1000}".encode(),
        made.randbytes(4),
        b"nothing to remark, " * (n % 3) + b"thanks",
        uuid.UUID(int=made.getrandbits(128)).bytes,
    )


def _body(n: int, made: random.Random, keys: int) -> bytes:
    """Give one mutation: an UPDATE for even numbers, an INSERT, whose row has a time of its own, for odd ones."""
    values = tuple(
        _sized(value) if name in TEXTS else value for name, value in zip(COLUMNS, _values(n, made), strict=True)
    )
    names = _vint(len(COLUMNS)) + b"".join(_sized(name.encode()) for name in COLUMNS)
    # Key, flags (a row count follows), the smallest time, then deletion time and time to live, of which there are none.
    head = (
        b"\x01" + TABLE_ID.bytes + _sized((n % keys).to_bytes(8, "big")) + b"\x10" + _vint(BEGIN + n - EPOCH) + b"\0\0"
    )
    inserted = n % 2 == 1
    row = b"\x24\0" if inserted else b"\x20"
    cells = b"".join((b"\x08" if inserted else b"\0\0") + value for value in values)
    return head + names + b"\x01" + row + cells + b"\x01"


def _sized(value: bytes) -> bytes:
    return _vint(len(value)) + value


def _vint(number: int) -> bytes:
    """Write a number without a sign; the leading ones of the first byte say how many bytes follow."""
    for extra in range(8):
        if number < 1 << (7 * (extra + 1)):
            return (number + (((1 << extra) - 1) << (8 - extra) << (8 * extra))).to_bytes(extra + 1, "big")
    return b"\xff" + number.to_bytes(8, "big")
