"""Turns one value of a text file into one of a column's type, exactly or not at all.

Nothing is rounded, cut or guessed: a value that the type cannot hold is refused with `ValueError`.
"""

from __future__ import annotations

import base64
import datetime as dt
import json
import math
import re
from collections.abc import Mapping
from decimal import Decimal as Number
from decimal import InvalidOperation
from typing import Any

from runnel.model.exact import LARGEST_FLOAT, exact_decimal
from runnel.model.types import Array, Decimal, Map, Struct, Type

RANGES = {"tinyint": 2**7, "smallint": 2**15, "int": 2**31, "bigint": 2**63}
EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_UNITS = {"s": 1_000_000, "ms": 1_000, "us": 1}
_INTEGER = re.compile(r"[+-]?[0-9]+")
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_FLOAT = re.compile(_NUMBER.pattern + r"|[+-]?(inf|infinity)|nan", re.IGNORECASE | re.ASCII)
_DIGITS = 19
_TOO_FINE = re.compile(r"\.\d{6}\d*[1-9]")
_BOOLEANS = {"true": True, "false": False, "1": True, "0": False}


def convert(value: Any, type_: Type, time_unit: str | None = None) -> Any:
    """Give the Python value that Arrow stores as this type; `time_unit` is what a number means as a timestamp.

    >>> from runnel.model.types import parse
    >>> convert("12.50", parse("decimal(6,2)")), convert({"a": "7"}, parse("struct<a:int>"))
    (Decimal('12.50'), {'a': 7})
    """
    if value is None:
        return None
    match type_:
        case Decimal(_, precision, scale):
            return _decimal(value, precision, scale)
        case Array(_, element):
            return [convert(item, element, time_unit) for item in _nested(value, list)]
        case Map(_, key, item_type):
            return _map(value, key, item_type, time_unit)
        case Struct(_, fields):
            return _struct(value, fields, time_unit)
    return _simple(value, type_.name, time_unit)


def _simple(value: Any, name: str, time_unit: str | None) -> Any:
    if name in RANGES:
        return _integer(value, RANGES[name])
    if name in ("float", "double"):
        return _float(value, LARGEST_FLOAT if name == "float" else math.inf)
    if name == "boolean":
        return _boolean(value)
    if name == "string":
        return _text(value)
    if name == "binary":
        return value if isinstance(value, bytes) else base64.b64decode(_expected(value, str), validate=True)
    if name == "date":
        return _date(value)
    moment = _moment(value, time_unit)
    if name == "timestamp":
        return moment if moment.tzinfo else moment.replace(tzinfo=dt.UTC)
    if moment.tzinfo is not None and not isinstance(value, int):
        raise ValueError("it has a time zone")
    return moment.replace(tzinfo=None)


def _integer(value: Any, limit: int) -> int:
    if isinstance(value, str) and _INTEGER.fullmatch(value):
        value = int(value)
    if isinstance(value, Number):
        value = _whole_number(value)
    number: int = _expected(value, int)
    if not -limit <= number < limit:
        raise ValueError("it is out of range")
    return number


def _whole_number(value: Number) -> int:
    """Give a decimal as an integer; 1e99999999 is refused by its exponent, for its digits would fill the memory."""
    if not value.is_finite() or (value and value.adjusted() < 0):
        raise ValueError("it is no whole number")
    if value and value.adjusted() >= _DIGITS:
        raise ValueError("it is out of range")
    if not value:
        return 0
    if value != value.to_integral_value():
        raise ValueError("it is no whole number")
    return int(value)


def _text(value: Any) -> str:
    text: str = _expected(value, str)
    text.encode()  # half of a surrogate pair is no character
    return text


def _float(value: Any, limit: float) -> float:
    if isinstance(value, str):
        if not _FLOAT.fullmatch(value):
            raise ValueError("it is no number")
        number, finite = float(value), _NUMBER.fullmatch(value) is not None
    else:
        number = float(_expected(value, int, float, Number))
        finite = value.is_finite() if isinstance(value, Number) else math.isfinite(number)
    if finite and abs(number) >= limit:
        raise ValueError("it is out of range")
    return number


def _decimal(value: Any, precision: int, scale: int) -> Number:
    try:
        if isinstance(value, str) and not _NUMBER.fullmatch(value.strip()):
            raise ValueError("it is no number")
        if isinstance(value, float):
            value = repr(value)  # the shortest decimal that means it
        number = Number(value) if isinstance(value, str | int) else _expected(value, Number)
    except InvalidOperation:
        raise ValueError("it is no number") from None
    if isinstance(value, bool) or not number.is_finite():
        raise ValueError("it is no number")
    return exact_decimal(number, precision, scale)


def _boolean(value: Any) -> bool:
    if isinstance(value, str) and value.lower() in _BOOLEANS:
        return _BOOLEANS[value.lower()]
    flag: bool = _expected(value, bool)
    return flag


def _date(value: Any) -> dt.date:
    if isinstance(value, int) and not isinstance(value, bool):
        return (EPOCH + dt.timedelta(days=value)).date()
    if isinstance(value, dt.date) and not isinstance(value, dt.datetime):
        return value
    return dt.date.fromisoformat(_expected(value, str))


def _moment(value: Any, time_unit: str | None) -> dt.datetime:
    if isinstance(value, dt.datetime):
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        if time_unit is None:
            raise ValueError("a number needs the setting time_unit")
        return EPOCH + dt.timedelta(microseconds=value * _UNITS[time_unit])
    text = _expected(value, str)
    if _TOO_FINE.search(text):
        raise ValueError("it is finer than a microsecond")
    return dt.datetime.fromisoformat(text)


def _map(value: Any, key_type: Type, item_type: Type, time_unit: str | None) -> list[tuple[Any, Any]]:
    given = _nested(value, Mapping, list)
    made: list[tuple[Any, Any]] = []
    seen: set[Any] = set()
    for pair in given.items() if isinstance(given, Mapping) else given:
        if not isinstance(pair, list | tuple) or len(pair) != 2:
            raise ValueError("a map is an object, or a list of pairs")
        key = convert(pair[0], key_type, time_unit)
        marked = repr(key) if isinstance(key, list | dict) else key
        if key is None or marked in seen:
            raise ValueError("a key is NULL" if key is None else "a key comes twice")
        seen.add(marked)
        made.append((key, convert(pair[1], item_type, time_unit)))
    return made


def _struct(value: Any, fields: tuple[tuple[str, Type], ...], time_unit: str | None) -> dict[str, Any]:
    given = _nested(value, Mapping)
    unknown = set(given) - {name for name, _ in fields}
    if unknown:
        raise ValueError(f"it has the unknown field {min(unknown)!r}")
    return {name: convert(given.get(name), type_, time_unit) for name, type_ in fields}


def named_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Make a JSON object; of two values for one name none is taken."""
    made = dict(pairs)
    if len(made) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"an object names {next(name for name in names if names.count(name) > 1)!r} twice")
    return made


def _nested(value: Any, *kinds: type) -> Any:
    """Give a nested value; CSV has them as JSON text."""
    if isinstance(value, str):
        value = json.loads(value, parse_float=Number, object_pairs_hook=named_once)
    return _expected(value, *kinds)


def _expected(value: Any, *kinds: type) -> Any:
    if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
        raise ValueError("it is of another kind")
    return value
