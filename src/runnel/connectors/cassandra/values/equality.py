"""One form for values that the server takes for equal though their bytes differ, such as the decimals 1.0 and 1.00.

Clustering values and the elements of sets and keys of maps are told apart by the type's order, not by their bytes: the
server keeps two such writes in one row or cell. Which of the forms it shows depends on which came first; here it is always
the shortest one.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING

from runnel.connectors.cassandra.values.decode import frozen_items, tuple_items, vector_items
from runnel.connectors.cassandra.values.types import CqlType, ListOf, MapOf, TupleOf, Udt, Vector
from runnel.connectors.cassandra.values.vints import write_unsigned

if TYPE_CHECKING:
    from collections.abc import Sequence

Canonical = Callable[[bytes], bytes]


@lru_cache(maxsize=4096)
def canonical(type_: CqlType) -> Canonical | None:
    """Give the function that makes equal values equal bytes, or None where they always are."""
    match type_:
        case ListOf(_, _, element):
            return _collection((canonical(element),))
        case MapOf(_, _, key, value):
            return _collection((canonical(key), canonical(value)))
        case TupleOf(_, _, items):
            return _fields([canonical(item) for item in items])
        case Udt(_, _, fields):
            return _fields([canonical(field) for _, field in fields])
        case Vector(_, _, element, size):
            return _vector(element, size)
    return _NATIVE.get(type_.name)


def _each(forms: Sequence[Canonical | None], items: list[bytes | None]) -> list[bytes | None]:
    made: list[bytes | None] = []
    for n, item in enumerate(items):
        form = forms[n % len(forms)]
        made.append(item if item is None or form is None else form(item))
    return made


def _written(items: list[bytes | None]) -> bytes:
    return b"".join(b"\xff\xff\xff\xff" if item is None else struct.pack(">i", len(item)) + item for item in items)


def _collection(forms: tuple[Canonical | None, ...]) -> Canonical | None:
    if not any(forms):
        return None

    def of(value: bytes) -> bytes:
        return value[:4] + _written(_each(forms, frozen_items(value, per_entry=len(forms)))) if value else value

    return of


def _fields(forms: list[Canonical | None]) -> Canonical:
    def of(value: bytes) -> bytes:
        items = _each(forms, tuple_items(value))
        # Fields that are NULL may be written or left out at the end.
        while items and items[-1] is None:
            items.pop()
        return _written(items)

    return of


def _vector(element: CqlType, size: int) -> Canonical | None:
    form = canonical(element)
    if form is None:
        return None
    items_of = vector_items(element.width, size)

    def of(value: bytes) -> bytes:
        items = [item or b"" for item in _each((form,), items_of(value))] if value else []
        if element.width is not None:
            return b"".join(items)
        return b"".join(write_unsigned(len(item)) + item for item in items)

    return of


def _shortest(number: int) -> bytes:
    return number.to_bytes((number + (number < 0)).bit_length() // 8 + 1, "big", signed=True)


def _varint(value: bytes) -> bytes:
    return _shortest(int.from_bytes(value, "big", signed=True)) if value else value


def _decimal(value: bytes) -> bytes:
    if len(value) < 4:
        return value
    scale, number = struct.unpack_from(">i", value)[0], int.from_bytes(value[4:], "big", signed=True)
    if number == 0:
        return bytes(4) + b"\x00"
    while number % 10 == 0 and scale > -(1 << 31):
        number, scale = number // 10, scale - 1
    return struct.pack(">i", scale) + _shortest(number)


def _nan(form: str) -> Canonical:
    whole = struct.Struct(form)
    nan = whole.pack(float("nan"))

    def of(value: bytes) -> bytes:
        return nan if len(value) == whole.size and whole.unpack(value)[0] != whole.unpack(value)[0] else value

    return of


_NATIVE: dict[str, Canonical] = {
    "boolean": lambda value: b"\x01" if value and value != b"\x00" else value,
    "decimal": _decimal,
    "double": _nan(">d"),
    "float": _nan(">f"),
    "varint": _varint,
}
