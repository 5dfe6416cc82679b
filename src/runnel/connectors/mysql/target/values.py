"""Spark's types and values in MariaDB and MySQL: what columns are made, which existing ones fit, and what is sent.

Arrays, maps and structs are JSON in `longtext`: MySQL's own `json` reads numbers as doubles, and decimals would lose digits.

>>> column_type(types.parse("decimal(12,2)")), column_type(types.parse("array<int>"))
('decimal(12,2)', 'longtext')
"""

from __future__ import annotations

import math
import re
from functools import partial
from typing import TYPE_CHECKING, Any

from runnel.connectors.marks import misfit
from runnel.connectors.sqltarget.json_text import json_text
from runnel.connectors.sqltarget.rows import Unheld
from runnel.model import types

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Callable

    from runnel.connectors.marks import Shape
    from runnel.model.relation import Column
    from runnel.model.types import Type

LONGEST_NAME = 64
MOST_DECIMALS = 30
"""Digits after the point that a DECIMAL of MySQL may have."""
_MADE = {
    "boolean": "tinyint(1)",
    "tinyint": "tinyint",
    "smallint": "smallint",
    "int": "int",
    "bigint": "bigint",
    "float": "float",
    "double": "double",
    "string": "longtext",
    "binary": "longblob",
    "date": "date",
    "timestamp": "datetime(6)",
    "timestamp_ntz": "datetime(6)",
}
INTEGERS = ("tinyint", "smallint", "mediumint", "int", "bigint")
_DIGITS = {"tinyint": 3, "smallint": 5, "int": 10, "bigint": 19}
TEXTS = ("varchar", "tinytext", "text", "mediumtext", "longtext")
_FITTING = {
    "boolean": ("tinyint",),
    "float": ("float", "double"),
    "string": TEXTS,
    "binary": ("varbinary", "tinyblob", "blob", "mediumblob", "longblob"),
    "timestamp": ("datetime(6)", "timestamp(6)"),
}
_DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)")
_WIDTH = re.compile(r"^(tinyint|smallint|mediumint|int|bigint|varchar|varbinary)\(\d+\)")


def column_type(type_: Type) -> str:
    """Give the type of the column that holds a type's values."""
    match type_:
        case types.Decimal(_, precision, scale):
            return f"decimal({precision},{scale})"
        case types.Array() | types.Map() | types.Struct():
            return "longtext"
    return _MADE[type_.name]


def plain_type(sql: str) -> str:
    """Give a column's type without the widths of numbers and the lengths of texts, which say nothing of whether it fits.

    >>> plain_type("int(11)"), plain_type("varchar(9)"), plain_type("int(10) unsigned"), plain_type("datetime(6)")
    ('int', 'varchar', 'int unsigned', 'datetime(6)')
    """
    return _WIDTH.sub(r"\1", sql.lower())


def fits(type_: Type, there: str) -> bool:
    """Say whether a column whose plain type is `there` holds the values of a type; a text that is too long is an error then.

    >>> fits(types.parse("int"), "bigint"), fits(types.parse("int"), "int unsigned"), fits(types.parse("date"), "datetime")
    (True, False, False)
    """
    sized = _DECIMAL.fullmatch(there)
    whole = int(sized[1]) - int(sized[2]) if sized else 0
    if isinstance(type_, types.Decimal):
        return sized is not None and type_.scale <= int(sized[2]) and type_.precision - type_.scale <= whole
    if type_.name in _DIGITS:
        wider = INTEGERS[INTEGERS.index(type_.name) :]
        return there in wider or whole >= _DIGITS[type_.name]
    return there == plain_type(column_type(type_)) or there in _FITTING.get(type_.name, ())


def nameable(name: str) -> bool:
    """Say whether a table or column can have a name: names are shorter than texts there, and of the characters up to U+FFFF.

    >>> nameable("größe"), nameable("\U0001f600"), nameable("x "), nameable("x" * 65)
    (True, False, False, False)
    """
    return 0 < len(name) <= LONGEST_NAME and name[-1] != " " and "\0" not in name and max(name) <= "\uffff"


def check_columns(shape: Shape, table: object) -> None:
    """Raise for a column that no table of these servers can have."""
    for column in shape.columns:
        if not nameable(column.name):
            what = f"no column can be named {column.name!r}: names have up to {LONGEST_NAME} characters, up to U+FFFF"
            raise misfit(shape, table, what, hint="name it otherwise in the view: AS ...")
        if isinstance(column.type, types.Decimal) and column.type.scale > MOST_DECIMALS:
            what = f"column {column.name!r} has {column.type.scale} decimals, and a DECIMAL at most {MOST_DECIMALS}"
            raise misfit(shape, table, what, hint="cast it in the view")


def literals(column: Column, values: list[Any]) -> list[bytes | None]:
    """Write a column's values as SQL; raise for those that cannot be held."""
    if column.type.name in types.FLOATS:
        _check_finite(values)
    write = _writer(column.type)
    return [None if value is None else write(value) for value in values]


def _check_finite(values: list[float | None]) -> None:
    for at, value in enumerate(values):
        if value is not None and not math.isfinite(value):
            raise Unheld(at, f"{value}, which is not a number that MariaDB and MySQL can hold")


def _writer(type_: Type) -> Callable[[Any], bytes]:
    """Give the function that writes a type's values as literals."""
    if types.nested(type_):
        return lambda value: text_literal(json_text(type_, value))
    if type_.name in _WRITERS:
        return _WRITERS[type_.name]
    return partial(_decimal) if isinstance(type_, types.Decimal) else _whole


def text_literal(value: str) -> bytes:
    r"""Write a text as a literal, for sessions in which a backslash is an escape.

    >>> text_literal("it's \\ 漢").decode()
    "'it\\'s \\\\ 漢'"
    """
    return b"'" + value.encode().replace(b"\\", b"\\\\").replace(b"'", b"\\'").replace(b"\0", b"\\0") + b"'"


def bytes_literal(value: bytes) -> bytes:
    """Write bytes as a literal.

    >>> bytes_literal(b"a'")
    b"X'6127'"
    """
    return b"X'" + value.hex().encode() + b"'"


def _whole(value: int) -> bytes:
    return b"%d" % value


def _double(value: float) -> bytes:
    text = repr(value)
    return (text if "e" in text else text + "e0").encode()  # else it would be a decimal of at most 65 digits


def _decimal(value: Any) -> bytes:
    return format(value, "f").encode()


def _day(value: dt.date) -> bytes:
    return f"'{value.isoformat()}'".encode()


def _time(value: dt.datetime) -> bytes:
    return f"'{value.replace(tzinfo=None).isoformat(' ')}'".encode()


_WRITERS: dict[str, Callable[[Any], bytes]] = {
    "float": _double,
    "double": _double,
    "string": text_literal,
    "binary": bytes_literal,
    "date": _day,
    "timestamp": _time,
    "timestamp_ntz": _time,
}
