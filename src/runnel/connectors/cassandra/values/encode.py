"""Turns Python values, as Arrow gives them, into the bytes of CQL values, exactly or not at all.

It is the other way round of `decode`. What a type cannot hold is a `ValueError` that says why.

>>> encoder(parse("decimal"))(Decimal("1.50")).hex(), encoder(parse("frozen<list<int>>"))([1]).hex()
('000000020096', '000000010000000400000001')
"""

from __future__ import annotations

import datetime as dt
import ipaddress
import struct
import uuid
from collections.abc import Callable
from decimal import Decimal
from functools import lru_cache
from typing import Any

from runnel.connectors.cassandra.values.order import sort_key
from runnel.connectors.cassandra.values.types import CqlType, ListOf, MapOf, Udt, parse

Encoder = Callable[[Any], bytes]

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_EPOCH_DAY = dt.date(1970, 1, 1).toordinal() - (1 << 31)
_INT = struct.Struct(">i")
_NULL = _INT.pack(-1)
_MILLISECOND = dt.timedelta(milliseconds=1)

__all__ = ["encoder", "parse"]


@lru_cache(maxsize=4096)
def encoder(type_: CqlType) -> Encoder:
    """Give the function that makes bytes of values of a type that are not NULL."""
    match type_:
        case ListOf(_, _, element):
            return _list(encoder(element))
        case MapOf(_, _, key, value):
            return _map(encoder(key), encoder(value), sort_key(key))
        case Udt(_, _, fields):
            return _fields([(name, encoder(field)) for name, field in fields])
    return _NATIVE[type_.name]


def _sized(value: bytes) -> bytes:
    return _INT.pack(len(value)) + value


def _element(encode: Encoder, value: Any) -> bytes:
    if value is None:
        raise ValueError("a NULL in a collection, which Cassandra does not allow")
    return encode(value)


def _list(encode: Encoder) -> Encoder:
    return lambda value: _INT.pack(len(value)) + b"".join(_sized(_element(encode, item)) for item in value)


def _map(key: Encoder, item: Encoder, order: Callable[[bytes], Any]) -> Encoder:
    def encode(value: Any) -> bytes:
        pairs = sorted(((_element(key, k), _element(item, v)) for k, v in value), key=lambda pair: order(pair[0]))
        return _INT.pack(len(pairs)) + b"".join(_sized(k) + _sized(v) for k, v in pairs)

    return encode


def _fields(fields: list[tuple[str, Encoder]]) -> Encoder:
    def encode(value: Any) -> bytes:
        named = {name.lower(): item for name, item in value.items()}
        items = [(inner, value.get(name, named.get(name.lower()))) for name, inner in fields]
        return b"".join(_NULL if item is None else _sized(inner(item)) for inner, item in items)

    return encode


def _packed(form: str) -> Encoder:
    pack = struct.Struct(form).pack

    def encode(value: Any) -> bytes:
        try:
            return pack(value)
        except struct.error as error:
            raise ValueError(f"{value!r}, which is too large") from error

    return encode


def _timestamp(value: dt.datetime) -> bytes:
    since = (value if value.tzinfo else value.replace(tzinfo=dt.UTC)) - _EPOCH
    if since % _MILLISECOND:
        raise ValueError(f"{value}, and Cassandra's times have milliseconds only")
    return struct.pack(">q", since // _MILLISECOND)


def _varint(value: Any) -> bytes:
    number = int(value)
    return number.to_bytes((number + (number < 0)).bit_length() // 8 + 1, "big", signed=True)


def _decimal(value: Any) -> bytes:
    sign, digits, exponent = Decimal(value).as_tuple()
    number = int("".join(map(str, digits)) or "0") * (-1 if sign else 1)
    return _INT.pack(-int(exponent)) + _varint(number)


_NATIVE: dict[str, Encoder] = {
    "ascii": str.encode,
    "bigint": _packed(">q"),
    "blob": bytes,
    "boolean": lambda value: b"\x01" if value else b"\x00",
    "date": lambda value: struct.pack(">I", value.toordinal() - _EPOCH_DAY),
    "decimal": _decimal,
    "double": _packed(">d"),
    "float": _packed(">f"),
    "inet": lambda value: ipaddress.ip_address(value).packed,
    "int": _packed(">i"),
    "smallint": _packed(">h"),
    "text": str.encode,
    "time": _packed(">q"),
    "timestamp": _timestamp,
    "timeuuid": lambda value: uuid.UUID(value).bytes,
    "tinyint": _packed(">b"),
    "uuid": lambda value: uuid.UUID(value).bytes,
    "varint": _varint,
}
