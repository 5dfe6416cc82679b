"""Nested values as JSON text: decimals keep their digits, bytes are base64, times ISO text, NaN and the infinities strings."""

from __future__ import annotations

import base64
import datetime as dt
import json
import math
from typing import TYPE_CHECKING, Any

from runnel.model import types

if TYPE_CHECKING:
    from runnel.model.types import Type


def nested(type_: Type) -> bool:
    """Say whether values of a type have values in them."""
    return isinstance(type_, types.Array | types.Map | types.Struct)


def json_text(type_: Type, value: Any) -> str:
    """Write a value as JSON, the same text for equal values; a map is an object, whose keys are text.

    >>> json_text(types.parse("map<int,array<double>>"), [(1, [0.5, float("nan"), None])])
    '{"1":[0.5,"NaN",null]}'
    """
    if value is None:
        return "null"
    match type_:
        case types.Array(_, element):
            return "[" + ",".join(json_text(element, item) for item in value) + "]"
        case types.Struct(_, fields):
            return "{" + ",".join(f"{_text(name)}:{json_text(field, value[name])}" for name, field in fields) + "}"
        case types.Map(_, key_type, item_type):
            pairs = sorted((_member(key_type, key), json_text(item_type, item)) for key, item in value)
            return "{" + ",".join(f"{key}:{item}" for key, item in pairs) + "}"
        case types.Decimal():
            return format(value, "f")
    return _plain(value)


def _member(type_: Type, key: Any) -> str:
    text = json_text(type_, key)
    return text if text.startswith('"') else _text(text)


def _plain(value: Any) -> str:
    match value:
        case float() if not math.isfinite(value):
            return '"NaN"' if math.isnan(value) else '"Infinity"' if value > 0 else '"-Infinity"'
        case float():
            return repr(value + 0.0)  # 0.0 for -0.0, which SQL takes for equal
        case bytes():
            return _text(base64.b64encode(value).decode())
        case dt.date():
            return _text(value.isoformat())
    return _text(value)


def _text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
