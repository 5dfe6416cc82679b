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

from runnel.model.types import Array, Decimal, Map, Struct, Type

RANGES = {"tinyint": 2**7, "smallint": 2**15, "int": 2**31, "bigint": 2**63}
EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_UNITS = {"s": 1_000_000, "ms": 1_000, "us": 1}
_INTEGER = re.compile(r"[+-]?\d+")
_FLOAT = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?|[+-]?(inf|infinity)|nan", re.IGNORECASE)
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
            pairs = _nested(value, Mapping, list)
            pairs = list(pairs.items()) if isinstance(pairs, Mapping) else pairs
            return [(convert(key_, key, time_unit), convert(item, item_type, time_unit)) for key_, item in pairs]
        case Struct(_, fields):
            return _struct(value, fields, time_unit)
    return _simple(value, type_.name, time_unit)


def _simple(value: Any, name: str, time_unit: str | None) -> Any:
    if name in RANGES:
        return _integer(value, RANGES[name])
    if name in ("float", "double"):
        return _float(value)
    if name == "boolean":
        return _boolean(value)
    if name == "string":
        return _expected(value, str)
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
    if isinstance(value, Number) and value == value.to_integral_value():
        value = int(value)
    number: int = _expected(value, int)
    if not -limit <= number < limit:
        raise ValueError("it is out of range")
    return number


def _float(value: Any) -> float:
    if isinstance(value, str):
        if not _FLOAT.fullmatch(value):
            raise ValueError("it is no number")
        return float(value)
    number = float(_expected(value, int, float, Number))
    if math.isinf(number) and isinstance(value, int | Number) and abs(value) != Number("Infinity"):
        raise ValueError("it is out of range")
    return number


def _decimal(value: Any, precision: int, scale: int) -> Number:
    try:
        number = Number(value) if isinstance(value, str | int) else _expected(value, Number)
        number = Number(repr(value)) if isinstance(value, float) else number
    except InvalidOperation:
        raise ValueError("it is no number") from None
    if isinstance(value, bool) or not number.is_finite():
        raise ValueError("it is no number")
    sign, digits, exponent = number.as_tuple()
    whole = Number((0, digits, int(exponent)))
    shifted = whole.scaleb(scale) if digits != (0,) else Number(0)
    if shifted != shifted.to_integral_value():
        raise ValueError(f"it has more than {scale} digits after the point")
    if len(str(int(shifted))) > precision:
        raise ValueError(f"it has more than {precision - scale} digits before the point")
    return Number((sign, tuple(int(digit) for digit in str(int(shifted))), -scale))


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


def _struct(value: Any, fields: tuple[tuple[str, Type], ...], time_unit: str | None) -> dict[str, Any]:
    given = _nested(value, Mapping)
    unknown = set(given) - {name for name, _ in fields}
    if unknown:
        raise ValueError(f"it has the unknown field {min(unknown)!r}")
    return {name: convert(given.get(name), type_, time_unit) for name, type_ in fields}


def _nested(value: Any, *kinds: type) -> Any:
    """Give a nested value; CSV has them as JSON text."""
    if isinstance(value, str):
        value = json.loads(value, parse_float=Number)
    return _expected(value, *kinds)


def _expected(value: Any, *kinds: type) -> Any:
    if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
        raise ValueError("it is of another kind")
    return value
