"""Turns the bytes of one CQL value into a Python value that fits the type's runnel type, exactly or not at all.

A value of no bytes is NULL for every type that has no empty value of its own. One that Python cannot hold is a `Beyond`. Collections come as lists, maps as lists
of pairs, tuples and user-defined types as dicts, UUIDs and addresses as text, a time as nanoseconds since midnight.
"""

from __future__ import annotations

import datetime as dt
import ipaddress
import struct
from collections.abc import Callable
from decimal import Decimal
from functools import lru_cache
from typing import Any

from runnel.connectors.cassandra.values.beyond import Beyond
from runnel.connectors.cassandra.values.types import CqlType, Custom, ListOf, MapOf, TupleOf, Udt, Vector
from runnel.connectors.cassandra.values.vints import read_signed, read_unsigned
from runnel.errors import Terminal

Decoder = Callable[[bytes], Any]
Items = Callable[[bytes], list[bytes | None]]

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_EPOCH_DAY = dt.date(1970, 1, 1).toordinal() - (1 << 31)
_INT = struct.Struct(">i")
_MOST_BYTES = 1700
"""Of a number: Python writes out and reads integers of up to 4,300 digits, which have some more bytes than this."""
_from_bytes = int.from_bytes


@lru_cache(maxsize=4096)
def decoder(type_: CqlType) -> Decoder:
    """Give the function that decodes values of a type; what it refuses it refuses with `RUNNEL-CASSANDRA-VALUE`."""
    inner = _decoder(type_)

    def decode(value: bytes) -> Any:
        try:
            return inner(value)
        except (ValueError, IndexError, OverflowError, struct.error, TypeError) as error:
            raise _no_value(type_, value) from error

    return decode


def _decoder(type_: CqlType) -> Decoder:
    match type_:
        case ListOf(_, _, element):
            return _listed(_or_null(_decoder(element)), frozen_items)
        case MapOf(_, _, key, value):
            return _map(_or_null(_decoder(key)), _or_null(_decoder(value)))
        case TupleOf(_, _, items):
            return _fields([(f"_{n}", _decoder(item)) for n, item in enumerate(items, 1)])
        case Udt(_, _, fields):
            return _fields([(name, _decoder(field)) for name, field in fields])
        case Vector(_, _, element, size):
            return _listed(_decoder(element), vector_items(element.width, size))
        case Custom():
            return bytes
    return _NATIVE[type_.name]


def _or_null(decode: Decoder) -> Callable[[bytes | None], Any]:
    return lambda item: None if item is None else decode(item)


def _listed(decode: Callable[[Any], Any], items: Items) -> Decoder:
    return lambda value: [decode(item) for item in items(value)] if value else None


def _map(key: Callable[[bytes | None], Any], item: Callable[[bytes | None], Any]) -> Decoder:
    def decode(value: bytes) -> Any:
        if not value:
            return None
        found = frozen_items(value, per_entry=2)
        return [(key(found[n]), item(found[n + 1])) for n in range(0, len(found), 2)]

    return decode


def _fields(fields: list[tuple[str, Decoder]]) -> Decoder:
    def decode(value: bytes) -> Any:
        if not value:
            return None
        found = tuple_items(value)
        if len(found) > len(fields):
            raise ValueError("it has more fields than its type")
        found += [None] * (len(fields) - len(found))
        return {name: None if item is None else inner(item) for (name, inner), item in zip(fields, found, strict=True)}

    return decode


def frozen_items(value: bytes, per_entry: int = 1) -> list[bytes | None]:
    """Cut a frozen collection into the bytes of its items; of a map, keys and values by turns.

    >>> frozen_items(bytes.fromhex("00000001 00000002 6869"))
    [b'hi']
    """
    count = _INT.unpack_from(value, 0)[0] * per_entry
    if not 0 <= count <= len(value) // 4:
        raise ValueError("it has an impossible number of items")
    items, at = _length_prefixed(value, 4, count)
    if at != len(value):
        raise ValueError("bytes are left over")
    return items


def tuple_items(value: bytes) -> list[bytes | None]:
    """Cut a tuple or user-defined type into the bytes of its fields; trailing ones may be absent."""
    return _length_prefixed(value, 0, None)[0]


def _length_prefixed(value: bytes, at: int, count: int | None) -> tuple[list[bytes | None], int]:
    items: list[bytes | None] = []
    end = len(value)
    while (at < end) if count is None else (len(items) < count):
        length = _INT.unpack_from(value, at)[0]
        at += 4
        if length < 0:
            items.append(None)
            continue
        if at + length > end:
            raise ValueError("an item is longer than what is left")
        items.append(value[at : at + length])
        at += length
    return items, at


def vector_items(width: int | None, size: int) -> Items:
    """Give the function that cuts a vector into the bytes of its elements."""

    def fixed(value: bytes) -> list[bytes | None]:
        if width is None or len(value) != width * size:
            raise ValueError("it has another length than its type")
        return [value[n * width : (n + 1) * width] for n in range(size)]

    def variable(value: bytes) -> list[bytes | None]:
        items: list[bytes | None] = []
        at = 0
        for _ in range(size):
            length, at = read_unsigned(value, at)
            if at + length > len(value):
                raise ValueError("an item is longer than what is left")
            items.append(value[at : at + length])
            at += length
        if at != len(value):
            raise ValueError("bytes are left over")
        return items

    return variable if width is None else fixed


def _unpacked(form: str) -> Decoder:
    unpack = struct.Struct(form).unpack
    return lambda value: unpack(value)[0] if value else None


def _timestamp(value: bytes) -> dt.datetime | Beyond | None:
    if not value:
        return None
    _expect_length(value, 8)
    try:
        return _EPOCH + dt.timedelta(milliseconds=_from_bytes(value, "big", signed=True))
    except OverflowError:
        return Beyond("timestamp", value)


def _date(value: bytes) -> dt.date | Beyond | None:
    if not value:
        return None
    _expect_length(value, 4)
    try:
        return dt.date.fromordinal(_from_bytes(value, "big") + _EPOCH_DAY)
    except (ValueError, OverflowError):
        return Beyond("date", value)


def _uuid(value: bytes) -> str | None:
    if not value:
        return None
    _expect_length(value, 16)
    text = value.hex()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def _inet(value: bytes) -> str | None:
    return str(ipaddress.ip_address(value)) if value else None


def _varint(value: bytes) -> int | Beyond | None:
    if len(value) > _MOST_BYTES:
        return Beyond("varint", value)
    return _from_bytes(value, "big", signed=True) if value else None


def _decimal(value: bytes) -> Decimal | Beyond | None:
    if not value:
        return None
    if len(value) - 4 > _MOST_BYTES:
        return Beyond("decimal", value)
    scale, number = _INT.unpack_from(value, 0)[0], _from_bytes(value[4:], "big", signed=True)
    return Decimal((number < 0, tuple(map(int, str(abs(number)))), -scale))


def _duration(value: bytes) -> dict[str, int] | None:
    if not value:
        return None
    months, at = read_signed(value, 0)
    days, at = read_signed(value, at)
    nanoseconds, at = read_signed(value, at)
    if at != len(value):
        raise ValueError("it has another length than its type")
    return {"months": months, "days": days, "nanoseconds": nanoseconds}


def _expect_length(value: bytes, length: int) -> None:
    if len(value) != length:
        raise ValueError("it has another length than its type")


_NATIVE: dict[str, Decoder] = {
    "ascii": bytes.decode,
    "bigint": _unpacked(">q"),
    "blob": bytes,
    "boolean": lambda value: None if not value else _from_bytes(value, "big") != 0,
    "counter": _unpacked(">q"),
    "date": _date,
    "decimal": _decimal,
    "double": _unpacked(">d"),
    "duration": _duration,
    "empty": bytes,
    "float": _unpacked(">f"),
    "inet": _inet,
    "int": _unpacked(">i"),
    "smallint": _unpacked(">h"),
    "text": bytes.decode,
    "time": _unpacked(">q"),
    "timestamp": _timestamp,
    "timeuuid": _uuid,
    "tinyint": _unpacked(">b"),
    "uuid": _uuid,
    "varint": _varint,
}


def _no_value(type_: CqlType, value: bytes) -> Terminal:
    shown = value[:16].hex() + ("..." if len(value) > 16 else "")
    return Terminal(
        "RUNNEL-CASSANDRA-VALUE",
        f"the {len(value)} bytes {shown} are not a {type_}",
    )
