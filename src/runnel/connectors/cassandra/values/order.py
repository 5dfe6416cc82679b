"""The order in which the server sorts values of a CQL type: clustering columns, sets and keys of maps.

`sort_key` gives for the bytes of a value an object that compares as the server's comparator does. Values of no bytes come
first. Deletions of ranges are compared in this order, so it has to be the server's, not Python's.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from decimal import Decimal
from functools import lru_cache
from typing import Any

from runnel.connectors.cassandra.values.decode import frozen_items, tuple_items, vector_items
from runnel.connectors.cassandra.values.types import CqlType, ListOf, MapOf, TupleOf, Udt, Vector
from runnel.errors import Terminal

Key = Callable[[bytes | None], Any]
"""None and b"" sort first and are equal: `(0,)`; all others are `(1, ...)`."""

_FIRST = (0,)
_TIME = struct.Struct(">IHH")


@lru_cache(maxsize=4096)
def sort_key(type_: CqlType) -> Key:
    """Give the function that makes comparable keys of values of a type."""
    inner = _key(type_)

    def key(value: bytes | None) -> Any:
        if not value:
            return _FIRST
        try:
            return (1, inner(value))
        except (ValueError, IndexError, struct.error) as error:
            raise Terminal(
                "RUNNEL-CASSANDRA-VALUE", f"the {len(value)} bytes {value[:16].hex()} are no {type_}"
            ) from error

    return key


def _key(type_: CqlType) -> Callable[[bytes], Any]:
    match type_:
        case ListOf(_, _, element):
            each = sort_key(element)
            return lambda value: [each(item) for item in frozen_items(value)]
        case MapOf(_, _, key_type, value_type):
            return _map_key(sort_key(key_type), sort_key(value_type))
        case TupleOf(_, _, items):
            return _fields_key([sort_key(item) for item in items])
        case Udt(_, _, fields):
            return _fields_key([sort_key(field) for _, field in fields])
        case Vector(_, _, element, size):
            each, items_of = sort_key(element), vector_items(element.width, size)
            return lambda value: [each(item) for item in items_of(value)]
    return _NATIVE.get(type_.name, bytes)


def _map_key(key: Key, item: Key) -> Callable[[bytes], Any]:
    def of(value: bytes) -> Any:
        found = frozen_items(value, per_entry=2)
        return [(key(found[n]), item(found[n + 1])) for n in range(0, len(found), 2)]

    return of


def _fields_key(keys: list[Key]) -> Callable[[bytes], Any]:
    def of(value: bytes) -> Any:
        # A field that is NULL comes before one of no bytes.
        found = tuple_items(value)
        return [(-1,) if item is None else key(item) for key, item in zip(keys, found, strict=False)]

    return of


def _signed(value: bytes) -> int:
    return int.from_bytes(value, "big", signed=True)


def _floating(form: str) -> Callable[[bytes], Any]:
    """Order as Java does: -0.0 before 0.0, and NaN after all."""
    width = struct.calcsize(form)
    whole = struct.Struct(form)
    top = 1 << (8 * width - 1)

    def of(value: bytes) -> int:
        number = whole.unpack(value)[0]
        bits = int.from_bytes(value, "big")
        if number != number:
            return 2 * top
        return bits | top if bits < top else 2 * top - 1 - bits

    return of


def _decimal(value: bytes) -> Any:
    scale, number = struct.unpack_from(">i", value)[0], int.from_bytes(value[4:], "big", signed=True)
    if number == 0:
        return (0, 0, Decimal(0))
    digits = str(abs(number))
    # Exponents beyond what arithmetic could hold are compared by their size first, digits only within one size.
    size, fraction = len(digits) - scale, Decimal((0, tuple(map(int, digits)), -len(digits)))
    return (1, size, fraction) if number > 0 else (-1, -size, -fraction)


def _time(value: bytes) -> int:
    low, middle, high = _TIME.unpack_from(value)
    return int(((high & 0x0FFF) << 48) | (middle << 32) | low)


def _uuid(value: bytes) -> Any:
    if len(value) != 16:
        raise ValueError("it is no UUID")
    version = value[6] >> 4
    return (version, _time(value) if version == 1 else value[:8], value[8:])


def _timeuuid(value: bytes) -> Any:
    if len(value) != 16:
        raise ValueError("it is no UUID")
    return (_time(value), bytes(byte ^ 0x80 for byte in value[8:]))


def list_path_key(path: bytes) -> Any:
    """Give the key that sorts the cells of a list: their paths are time UUIDs."""
    return _timeuuid(path)


_NATIVE: dict[str, Callable[[bytes], Any]] = {
    "bigint": _signed,
    "boolean": lambda value: value[0] != 0,
    "decimal": _decimal,
    "double": _floating(">d"),
    "float": _floating(">f"),
    "int": _signed,
    "smallint": _signed,
    "timestamp": _signed,
    "timeuuid": _timeuuid,
    "tinyint": _signed,
    "uuid": _uuid,
    "varint": _signed,
}
