"""Reads plain values out of INSERT ... VALUES, so that writing a few rows needs no engine."""

from __future__ import annotations

import datetime
import decimal
import re
from typing import TYPE_CHECKING

from sqlglot import exp

from runnel.errors import Terminal
from runnel.model.types import FLOATS, INTEGERS, MOST_DIGITS, Decimal

if TYPE_CHECKING:
    from runnel.model.relation import Column, Relation

_BITS = {"tinyint": 7, "smallint": 15, "int": 31, "bigint": 63}


_WIDEST = 400
"""Digits before or after the point, more than which no type has."""
_SMALLEST = decimal.Decimal("1e-37")
_LARGEST = {"float": decimal.Decimal("3e38"), "double": decimal.Decimal("1.7e308")}
"""Numbers nearer to zero, or as large, may become zero or infinity: the engine says which, or that it is an error."""
_DAY = re.compile(r"\d{4}-\d\d-\d\d")
"""Python also reads `20240101` and `2024-W01-1`, which are no dates to Spark."""
_ROUNDED_ONCE = {"float": 7, "double": 15}
"""Digits of a number that is the same whether it is rounded to the type at once, or to a double first."""


class _NotPlain(Exception):
    """The value needs an engine."""


def literal_rows(source: exp.Values, columns: list[Column], relation: Relation) -> tuple[dict[str, object], ...] | None:
    """Give the rows as Python values of all the table's columns, or None when any value needs an engine."""
    rows: list[dict[str, object]] = []
    try:
        for item in source.expressions:
            values = item.expressions if isinstance(item, exp.Tuple) else [item]
            row: dict[str, object] = {c.name: None for c in relation.columns}
            row.update({c.name: _value(v, c) for c, v in zip(columns, values, strict=True)})
            rows.append(row)
    except _NotPlain:
        return None
    return tuple(rows)


def _value(node: exp.Expr, column: Column) -> object:
    negative = isinstance(node, exp.Neg)
    plain = node.this if negative else node
    if isinstance(plain, exp.Null):
        return None
    if isinstance(plain, exp.Boolean) and column.type.name == "boolean":
        return bool(plain.this)
    if isinstance(plain, exp.Cast) and isinstance(plain.this, exp.Literal) and plain.this.is_string:
        wanted = {"date": exp.DataType.Type.DATE}.get(column.type.name)
        if wanted is not None and plain.to.this == wanted:
            return _date(plain.this.this)
    if not isinstance(plain, exp.Literal):
        raise _NotPlain
    if plain.is_string:
        return _from_string(plain.this, column)
    return _number(("-" if negative else "") + plain.this, column)


def _from_string(text: str, column: Column) -> object:
    if column.type.name == "string":
        return text
    if column.type.name == "date":
        return _date(text)
    raise _NotPlain


def _date(text: str) -> datetime.date:
    if not _DAY.fullmatch(text):
        raise _NotPlain
    try:
        return datetime.date.fromisoformat(text)
    except ValueError as error:
        raise _NotPlain from error


def _number(text: str, column: Column) -> object:
    """Give a number's value. In the text, one with an exponent is a double, any other an exact number, which has no -0."""
    try:
        value = decimal.Decimal(text)
    except decimal.InvalidOperation as error:
        raise _NotPlain from error
    type_ = column.type
    exact = "e" not in text.lower()
    if exact and len(value.as_tuple().digits) > MOST_DIGITS:
        raise _NotPlain
    if value and not -_WIDEST <= value.adjusted() <= _WIDEST:
        raise _NotPlain  # the engine says whether it is an error, and which
    if isinstance(type_, Decimal):
        if not exact and len(value.as_tuple().digits) > _ROUNDED_ONCE["double"]:
            raise _NotPlain
        with decimal.localcontext(decimal.Context(prec=60)):
            rounded = value.quantize(decimal.Decimal(1).scaleb(-type_.scale), rounding=decimal.ROUND_HALF_UP)
        if abs(rounded) >= decimal.Decimal(10) ** (type_.precision - type_.scale):
            raise _too_large(text, column)
        return rounded
    if type_.name in INTEGERS:
        if value != value.to_integral_value():
            raise _NotPlain
        if not -(2 ** _BITS[type_.name]) <= value < 2 ** _BITS[type_.name]:
            raise _too_large(text, column)
        return int(value)
    if type_.name in FLOATS:
        if type_.name == "float" and exact and len(value.as_tuple().digits) > _ROUNDED_ONCE["float"]:
            raise _NotPlain
        if value and not _SMALLEST < abs(value) < _LARGEST[type_.name]:
            raise _NotPlain
        return float(value) if value or not exact else 0.0
    raise _NotPlain


def _too_large(text: str, column: Column) -> Terminal:
    return Terminal(
        "RUNNEL-SQL-VALUE",
        f"{text} does not fit in {column.name} {column.type}",
        hint="use a smaller value or a wider column",
    )
