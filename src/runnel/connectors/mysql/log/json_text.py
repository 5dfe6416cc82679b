"""MySQL's binary JSON, read and written as the server writes it: keys by length and bytes, a space after colons and commas.

A value is offsets into itself, so damaged bytes could point in circles: depth and the number of values are bounded by the bytes there are.
"""

from __future__ import annotations

import base64
import math
import struct
from decimal import Decimal
from typing import Any

from runnel.connectors.mysql.log.problems import BadBytes
from runnel.connectors.mysql.log.times import datetime_text, time_text

_SMALL_OBJECT, _LARGE_OBJECT, _SMALL_ARRAY, _LARGE_ARRAY, _LITERAL = range(5)
_INT16, _UINT16, _INT32, _UINT32, _INT64, _UINT64, _DOUBLE, _STRING = range(5, 13)
_OPAQUE = 15
_NUMBERS = {
    _INT16: struct.Struct("<h"),
    _UINT16: struct.Struct("<H"),
    _INT32: struct.Struct("<i"),
    _UINT32: struct.Struct("<I"),
    _INT64: struct.Struct("<q"),
    _UINT64: struct.Struct("<Q"),
    _DOUBLE: struct.Struct("<d"),
}
_LITERALS = {0: None, 1: True, 2: False}
DEEPEST = 100
"""The deepest nesting that a server allows."""


class Scalar(str):
    """A value written already: a number, or a text that stands for a date, a time, a decimal or bytes."""

    __slots__ = ()


def json_text(data: bytes) -> str:
    r"""Write a binary JSON value as the server does.

    >>> json_text(bytes([5, 5, 0])), json_text(b"\x0c\x01a"), json_text(b"")
    ('5', '"a"', 'null')
    """
    return written(json_value(data))


def json_value(data: bytes) -> Any:
    """Read a binary JSON value; numbers and special values come as `Scalar`, which are written as they are."""
    if not data:
        return None
    try:
        return _Reader(data).value(data[0], 1, 0)
    except (struct.error, IndexError, RecursionError) as error:
        raise BadBytes("a JSON value points outside of itself") from error


class _Reader:
    """Reads one document; counts values, for no document has more of them than bytes."""

    def __init__(self, data: bytes) -> None:
        self._data, self._left = data, len(data)

    def value(self, kind: int, at: int, depth: int) -> Any:
        self._left -= 1
        if depth > DEEPEST or self._left < 0 or not 0 <= at <= len(self._data):
            raise BadBytes("a JSON value is nested in itself")
        if kind <= _LARGE_ARRAY:
            return self._container(kind, at, depth)
        if kind == _LITERAL:
            return self._literal(self._data[at])
        if kind in _NUMBERS:
            (number,) = _NUMBERS[kind].unpack_from(self._data, at)
            return Scalar(double_text(number) if kind == _DOUBLE else number)
        if kind == _STRING:
            return self._sized(at).decode("utf-8", "strict")
        if kind == _OPAQUE:
            return _opaque(self._data[at], self._sized(at + 1))
        raise BadBytes(f"type {kind} of a JSON value is unknown")

    @staticmethod
    def _literal(number: int) -> Any:
        if number not in _LITERALS:
            raise BadBytes(f"there is no JSON literal {number}")
        return _LITERALS[number]

    def _sized(self, at: int) -> bytes:
        """Give bytes after a length of seven bits a byte."""
        size = shift = 0
        while True:
            byte = self._data[at]
            at, size, shift = at + 1, size | (byte & 0x7F) << shift, shift + 7
            if not byte & 0x80:
                break
            if shift > 28:
                raise BadBytes("the length of a JSON value is too long")
        if at + size > len(self._data):
            raise BadBytes("a JSON value points outside of itself")
        return self._data[at : at + size]

    def _container(self, kind: int, at: int, depth: int) -> Any:
        word = struct.Struct("<I" if kind in (_LARGE_OBJECT, _LARGE_ARRAY) else "<H")
        size = word.size
        (count,) = word.unpack_from(self._data, at)
        if count > self._left:
            raise BadBytes("a JSON value has more members than bytes")
        entries = at + 2 * size
        if kind in (_SMALL_ARRAY, _LARGE_ARRAY):
            return [self._entry(at, entries + n * (size + 1), word, depth) for n in range(count)]
        found: dict[str, Any] = {}
        values = entries + count * (size + 2)
        for n in range(count):
            (place,) = word.unpack_from(self._data, entries + n * (size + 2))
            (length,) = struct.unpack_from("<H", self._data, entries + n * (size + 2) + size)
            name = self._data[at + place : at + place + length].decode("utf-8", "strict")
            found[name] = self._entry(at, values + n * (size + 1), word, depth)
        return found

    def _entry(self, base: int, at: int, word: struct.Struct, depth: int) -> Any:
        kind = self._data[at]
        inline = kind in (_LITERAL, _INT16, _UINT16) or (word.size == 4 and kind in (_INT32, _UINT32))
        place = at + 1 if inline else base + word.unpack_from(self._data, at + 1)[0]
        return self.value(kind, place, depth + 1)


def _opaque(kind: int, data: bytes) -> Any:
    """Write a value of SQL inside JSON: decimals as numbers, dates and times as texts, all else as base64."""
    if kind == 246:
        from runnel.connectors.mysql.log.decimals import decimal_text

        return Scalar(decimal_text(data[2:], data[0], data[1]))
    if kind in (7, 10, 11, 12) and len(data) == 8:
        packed = int.from_bytes(data, "little", signed=True)
        return str(time_text(packed)) if kind == 11 else datetime_text(packed, date=kind == 10)
    return f"base64:type{kind}:{base64.b64encode(data).decode()}"


def double_text(number: float) -> str:
    """Write a double as MySQL does: the shortest digits that give it back, with an exponent from 1e15 on and below 1e-15.

    >>> double_text(1.0), double_text(1e20), double_text(1.5e-7), double_text(-1234.5)
    ('1.0', '1e20', '0.00000015', '-1234.5')
    """
    if not math.isfinite(number):
        raise BadBytes("a JSON value is not a number")
    sign, digits, exponent = Decimal(repr(number)).as_tuple()
    text = "".join(map(str, digits)).rstrip("0") or "0"
    point = len(digits) + int(exponent) if text != "0" else 1
    minus = "-" if sign else ""
    if not -14 <= point <= 15:
        return f"{minus}{text[0]}{'.' + text[1:] if len(text) > 1 else ''}e{point - 1}"
    if point <= 0:
        return f"{minus}0.{'0' * -point}{text}"
    return f"{minus}{text[:point].ljust(point, '0')}.{text[point:] or '0'}"


def written(value: Any) -> str:
    """Write a value as the server does."""
    match value:
        case None:
            return "null"
        case True:
            return "true"
        case False:
            return "false"
        case Scalar():
            return str(value)
        case str():
            return quoted(value)
        case list():
            return "[" + ", ".join(map(written, value)) + "]"
        case dict():
            keys = sorted(value, key=lambda name: (len(name.encode()), name.encode()))
            return "{" + ", ".join(f"{quoted(name)}: {written(value[name])}" for name in keys) + "}"
        case _:
            raise BadBytes(f"{value!r} is not a value of JSON")


_ESCAPES = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
_ESCAPED = str.maketrans({chr(n): f"\\u{n:04x}" for n in range(0x20)} | _ESCAPES)


def quoted(text: str) -> str:
    """Write a text in quotes, with the escapes that the server uses."""
    return f'"{text.translate(_ESCAPED)}"'
