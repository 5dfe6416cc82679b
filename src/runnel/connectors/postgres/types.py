"""Spark's types and values in PostgreSQL: what columns are made, which existing ones fit, and what is sent.

Arrays of plain values are arrays; structs, maps and arrays of those are `jsonb`, in which decimals keep their digits, bytes are
base64, times ISO text, and NaN and the infinities are strings, because JSON has no numbers for them.

>>> column_type(types.parse("array<decimal(12,2)>")), column_type(types.parse("map<string,int>"))
('numeric(12,2)[]', 'jsonb')
"""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING, Any

from runnel.connectors.sqltarget.json_text import json_text, nested
from runnel.model import types

if TYPE_CHECKING:
    from collections.abc import Callable

    from runnel.model.types import Type

_MADE = {
    "boolean": "boolean",
    "tinyint": "smallint",
    "smallint": "smallint",
    "int": "integer",
    "bigint": "bigint",
    "float": "real",
    "double": "double precision",
    "string": "text",
    "binary": "bytea",
    "date": "date",
    "timestamp": "timestamp with time zone",
    "timestamp_ntz": "timestamp without time zone",
}
_WIDER = {
    "tinyint": ("smallint", "integer", "bigint", "numeric"),
    "smallint": ("smallint", "integer", "bigint", "numeric"),
    "int": ("integer", "bigint", "numeric"),
    "bigint": ("bigint", "numeric"),
    "float": ("real", "double precision"),
    "string": ("text", "character varying", "uuid"),
}
_NUMERIC = re.compile(r"numeric\((\d+),(-?\d+)\)")
_LENGTH = re.compile(r"\(\d+\)")


def column_type(type_: Type) -> str:
    """Give the type of the column that holds a type's values."""
    match type_:
        case types.Decimal(_, precision, scale):
            return f"numeric({precision},{scale})"
        case types.Array(_, element) if not nested(element):
            return f"{column_type(element)}[]"
        case types.Array() | types.Map() | types.Struct():
            return "jsonb"
    return _MADE[type_.name]


def fits(type_: Type, there: str) -> bool:
    """Say whether a column of PostgreSQL's type `there` holds every value of a type.

    >>> fits(types.parse("int"), "bigint"), fits(types.parse("decimal(12,2)"), "numeric(12,1)")
    (True, False)
    """
    match type_:
        case types.Decimal(_, precision, scale):
            sized = _NUMERIC.fullmatch(there)
            if sized is None:
                return there == "numeric"
            digits, decimals = int(sized[1]), int(sized[2])
            return scale <= decimals and precision - scale <= digits - decimals
        case types.Array(_, element) if there.endswith("[]"):
            return not nested(element) and fits(element, there.removesuffix("[]"))
    plain = _LENGTH.sub("", there) if type_.name == "string" else there
    return plain in (column_type(type_), *_WIDER.get(type_.name, ()))


def sender(type_: Type) -> Callable[[Any], Any] | None:
    """Give the function that makes what is sent of a value that is not NULL; None where that is the value itself."""
    return partial(json_text, type_) if column_type(type_) == "jsonb" else None


def has_nul(value: Any) -> bool:
    """Say whether there is a NUL character in a value's text, which PostgreSQL cannot hold."""
    match value:
        case str():
            return "\0" in value
        case dict():
            return any(map(has_nul, value.values()))
        case list() | tuple():
            return any(map(has_nul, value))
    return False


def holds_text(type_: Type) -> bool:
    """Say whether values of this type are text, or have text in them."""
    match type_:
        case types.Array(_, element):
            return holds_text(element)
        case types.Map(_, key, value):
            return holds_text(key) or holds_text(value)
        case types.Struct(_, fields):
            return any(holds_text(field) for _, field in fields)
    return type_.name == "string"
