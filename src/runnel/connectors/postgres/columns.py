"""Columns of PostgreSQL: what a column is here, and how the texts of its values become Arrow, the same from COPY and from the log."""

from __future__ import annotations

import binascii
import math
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa
import pyarrow.compute as pc

from runnel.errors import Terminal
from runnel.model import types
from runnel.model.exact import arrow_reads_texts, exact_decimal

if TYPE_CHECKING:
    from collections.abc import Callable

    from runnel.errors import Place

MOST_DIGITS = 38
_PLAIN = {
    "bool": "boolean",
    "int2": "smallint",
    "int4": "int",
    "int8": "bigint",
    "oid": "bigint",
    "float4": "float",
    "float8": "double",
    "bytea": "binary",
    "date": "date",
    "timestamp": "timestamp_ntz",
    "timestamptz": "timestamp",
}
UNSIZED = types.decimal(38, 18)
"""What a `numeric` without digits is here."""


@dataclass(frozen=True)
class SqlColumn:
    """A column as the log describes it (`type` and `modifier`), and the type below its domains: `base` is such as `int4` or `int4[]`."""

    name: str
    type: int
    modifier: int
    base: str
    digits: int = -1


@dataclass(frozen=True)
class Reading:
    """Where values are read from and what becomes of those that have no place in Spark's types."""

    table: str
    unrepresentable: Literal["error", "null"] = "error"
    place: Place | None = None


def type_of(column: SqlColumn) -> types.Type:
    """Give the type that a column has here; what Spark has no type for is text.

    >>> str(type_of(SqlColumn("a", 1700, -1, "numeric", (5 << 16 | 2) + 4))), str(type_of(SqlColumn("a", 1231, -1, "numeric[]")))
    ('decimal(5,2)', 'array<decimal(38,18)>')
    """
    if column.base.endswith("[]"):
        return types.Array("array", _single(column.base[:-2], column.digits))
    return _single(column.base, column.digits)


def _single(base: str, modifier: int) -> types.Type:
    if base != "numeric":
        return types.parse(_PLAIN.get(base, "string"))
    if modifier < 4:
        return UNSIZED
    digits, scale = (modifier - 4) >> 16 & 0xFFFF, (((modifier - 4) & 0x7FF) ^ 1024) - 1024
    digits, scale = max(digits, scale, digits - scale), max(scale, 0)
    return types.decimal(digits, scale) if digits <= MOST_DIGITS else types.STRING


def array_of(column: SqlColumn, texts: pa.Array, reading: Reading) -> pa.Array:
    """Turn the texts of a column's values into Arrow."""
    kind = type_of(column)
    if isinstance(kind, types.Array):
        return _lists(column, kind, texts, reading)
    return _values(_Values(column, column.base, kind, reading), texts)


@dataclass(frozen=True)
class _Values:
    """The values of a column, or those in its arrays."""

    column: SqlColumn
    base: str
    type: types.Type
    reading: Reading

    @property
    def arrow(self) -> pa.DataType:
        return types.to_arrow(self.type)

    def unrepresentable(self, value: str) -> None:
        """Give NULL for a value that has no place here, or raise, as the settings say."""
        if self.reading.unrepresentable == "null":
            return
        shown = value if len(value) <= 60 else value[:57] + "..."
        raise Terminal(
            "RUNNEL-POSTGRES-VALUE",
            f"{self.reading.table}.{self.column.name} is {type_of(self.column)} here, which cannot hold {shown!r}",
            place=self.reading.place,
            hint='change the value, or set unrepresentable = "null" to have NULL in its place',
        )


def _values(values: _Values, texts: pa.Array) -> pa.Array:
    wanted = values.arrow
    if wanted == pa.string():
        return texts
    if values.base == "bool":
        return pc.equal(texts, "t")
    if values.base == "bytea":
        return pa.array([None if one is None else _bytes(one) for one in texts.to_pylist()], wanted)
    quick = _QUICK.get(values.base)
    if quick is None:
        return texts.cast(wanted)
    try:
        return quick(texts, wanted)
    except pa.ArrowException:
        one_by_one = [None if one is None else _single_value(values, one) for one in texts.to_pylist()]
        return pa.array(one_by_one, wanted)


def _bytes(text: str) -> bytes:
    if not text.startswith("\\x"):
        raise ValueError("bytes are not written in hex")
    return binascii.unhexlify(text[2:])


def _decimals(texts: pa.Array, wanted: pa.DataType) -> pa.Array:
    if not arrow_reads_texts(texts):
        raise pa.ArrowInvalid("they have more digits than Arrow reads exactly")
    return texts.cast(wanted)


def _times(texts: pa.Array, wanted: pa.DataType) -> pa.Array:
    plain = pc.replace_substring_regex(texts, pattern="[+]00$", replacement="")
    return plain.cast(pa.timestamp("us")).view(wanted)


_QUICK: dict[str, Callable[[pa.Array, pa.DataType], pa.Array]] = {
    "numeric": _decimals,
    "date": lambda texts, wanted: texts.cast(wanted),
    "timestamp": _times,
    "timestamptz": _times,
}


def _single_value(values: _Values, text: str) -> Any:
    """Give one value that Arrow could not read with the others; None where it has no place here."""
    if isinstance(values.type, types.Decimal):
        number = Decimal(text)
        if not math.isfinite(number):
            return values.unrepresentable(text)
        try:
            return exact_decimal(number, values.type.precision, values.type.scale)
        except (ValueError, ArithmeticError):
            return values.unrepresentable(text)
    try:
        return _QUICK[values.base](pa.array([text]), values.arrow)[0].as_py()
    except pa.ArrowException:
        return values.unrepresentable(text)


def _lists(column: SqlColumn, kind: types.Array, texts: pa.Array, reading: Reading) -> pa.Array:
    """Turn array literals into lists; arrays of several dimensions, or that do not begin at 1, have no place here."""
    inner = _Values(column, column.base[:-2], kind.element, reading)
    flat: list[str | None] = []
    bounds: list[int | None] = []
    for text in texts.to_pylist():
        found = None if text is None else elements(text)
        if text is not None and found is None:
            inner.unrepresentable(text)
        bounds.append(None if found is None else len(flat))
        flat.extend(found or ())
    end = len(flat)
    offsets = pa.array([*bounds, end], pa.int32())
    return pa.ListArray.from_arrays(offsets, _values(inner, pa.array(flat, pa.string())), type=types.to_arrow(kind))


def elements(text: str) -> list[str | None] | None:
    r"""Read an array literal of one dimension; None where it has several, or other bounds.

    >>> elements('{1,NULL,"a \\"b\\" ,","NULL",""}'), elements("{}"), elements("{{1},{2}}"), elements("[0:1]={1,2}")
    (['1', None, 'a "b" ,', 'NULL', ''], [], None, None)
    """
    if not text.startswith("{") or text.startswith("{{"):
        return None
    if text == "{}":
        return []
    found: list[str | None] = []
    at, end = 1, len(text) - 1
    while at < end:
        if text[at] == '"':
            value, at = _quoted_element(text, at + 1)
            found.append(value)
        else:
            until = text.find(",", at, end)
            until = end if until < 0 else until
            plain, at = text[at:until], until
            found.append(None if plain == "NULL" else plain)
        at += 1  # past the comma, or the brace
    return found


def _quoted_element(text: str, at: int) -> tuple[str, int]:
    parts = []
    while text[at] != '"':
        if text[at] == "\\":
            at += 1
        parts.append(text[at])
        at += 1
    return "".join(parts), at + 1
