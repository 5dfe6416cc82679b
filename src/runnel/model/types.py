"""Column types, named as Spark names them, and their forms in Arrow.

`parse` and `str` are inverse. What is not listed here (intervals, variants, ...) is refused by `parse` with
`RUNNEL-TYPE-UNSUPPORTED`, so that every type in a relation can be stored, compared and read back exactly.

>>> str(parse("DECIMAL(12, 2)")), str(parse("array<struct<a:int,b:string>>"))
('decimal(12,2)', 'array<struct<a:int,b:string>>')
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import pyarrow as pa

from runnel.errors import Terminal

PRIMITIVES = {
    "boolean": pa.bool_(),
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}
SYNONYMS = {
    "bool": "boolean",
    "byte": "tinyint",
    "short": "smallint",
    "integer": "int",
    "long": "bigint",
    "real": "float",
    "text": "string",
    "timestamp_ltz": "timestamp",
    "timestamptz": "timestamp",
}
INTEGERS = ("tinyint", "smallint", "int", "bigint")
FLOATS = ("float", "double")
MOST_DIGITS = 38


@dataclass(frozen=True)
class Type:
    """A column's type; `name` is the word before any bracket."""

    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Decimal(Type):
    """`decimal(precision,scale)`."""

    precision: int
    scale: int

    def __str__(self) -> str:
        return f"decimal({self.precision},{self.scale})"


@dataclass(frozen=True)
class Array(Type):
    """`array<element>`."""

    element: Type

    def __str__(self) -> str:
        return f"array<{self.element}>"


@dataclass(frozen=True)
class Map(Type):
    """`map<key,value>`."""

    key: Type
    value: Type

    def __str__(self) -> str:
        return f"map<{self.key},{self.value}>"


@dataclass(frozen=True)
class Struct(Type):
    """`struct<name:type,...>`."""

    fields: tuple[tuple[str, Type], ...]

    def __str__(self) -> str:
        return "struct<" + ",".join(f"{quoted(name)}:{type_}" for name, type_ in self.fields) + ">"


def nested(type_: Type) -> bool:
    """Say whether values of this type hold other values."""
    return isinstance(type_, Array | Map | Struct)


def holds_map(type_: Type) -> bool:
    """Say whether values of this type are, or hold, maps, which SQL cannot compare."""
    match type_:
        case Map():
            return True
        case Array(_, element):
            return holds_map(element)
        case Struct(_, fields):
            return any(holds_map(field) for _, field in fields)
        case _:
            return False


def floating(type_: Type) -> bool:
    """Say whether values of this type are, or hold, floating-point numbers."""
    match type_:
        case Array(_, element):
            return floating(element)
        case Map(_, key, value):
            return floating(key) or floating(value)
        case Struct(_, fields):
            return any(floating(field) for _, field in fields)
        case _:
            return type_.name in FLOATS


def decimal(precision: int, scale: int) -> Decimal:
    """Give `decimal(precision,scale)`."""
    return Decimal("decimal", precision, scale)


def quoted(name: str) -> str:
    """Write a name as Spark reads it back: bare where it can be, else in backquotes."""
    return name if re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name) else "`" + name.replace("`", "``") + "`"


BIGINT = Type("bigint")
STRING = Type("string")

_TOKEN = re.compile(r"\s*(?:`((?:[^`]|``)+)`|([A-Za-z_][A-Za-z0-9_]*)|(\d+)|([<>(),:]))")


def parse(text: str) -> Type:
    """Read a type as Spark writes it; raise `RUNNEL-TYPE-UNSUPPORTED` for anything runnel cannot store."""
    tokens: list[str] = []
    at = 0
    while at < len(text.rstrip()):
        match = _TOKEN.match(text, at)
        if match is None:
            raise _unsupported(text)
        tokens.append(match.group(1).replace("``", "`") if match.group(1) else match.group().strip())
        at = match.end()
    try:
        type_, rest = _parse(tokens)
    except (IndexError, ValueError, KeyError) as error:
        raise _unsupported(text) from error
    if rest:
        raise _unsupported(text)
    return type_


def _parse(tokens: list[str]) -> tuple[Type, list[str]]:
    name, rest = tokens[0].lower(), tokens[1:]
    name = SYNONYMS.get(name, name)
    if name in ("decimal", "dec", "numeric"):
        if rest[:1] != ["("]:
            return decimal(10, 0), rest
        if rest[2] == ")":
            return _bounded(int(rest[1]), 0), rest[3:]
        _expect(rest[2] == "," and rest[4] == ")")
        return _bounded(int(rest[1]), int(rest[3])), rest[5:]
    if name in ("varchar", "char", "character"):
        return STRING, rest[3:] if rest[:1] == ["("] else rest
    if name == "array":
        _expect(rest[0] == "<")
        element, rest = _parse(rest[1:])
        _expect(rest[0] == ">")
        return Array("array", element), rest[1:]
    if name == "map":
        _expect(rest[0] == "<")
        key, rest = _parse(rest[1:])
        _expect(rest[0] == ",")
        value, rest = _parse(rest[1:])
        _expect(rest[0] == ">" and not holds_map(key))
        return Map("map", key, value), rest[1:]
    if name == "struct":
        return _parse_struct(rest)
    _expect(name in PRIMITIVES)
    return Type(name), rest


def _parse_struct(rest: list[str]) -> tuple[Type, list[str]]:
    _expect(rest[0] == "<")
    rest = rest[1:]
    fields: list[tuple[str, Type]] = []
    while rest[0] != ">":
        name, rest = rest[0], rest[1:]
        if rest[0] == ":":
            rest = rest[1:]
        type_, rest = _parse(rest)
        fields.append((name, type_))
        if rest[0] == ",":
            rest = rest[1:]
    _expect(bool(fields) and len({name.lower() for name, _ in fields}) == len(fields))
    return Struct("struct", tuple(fields)), rest[1:]


def _bounded(precision: int, scale: int) -> Decimal:
    _expect(1 <= precision <= MOST_DIGITS and scale <= precision)
    return decimal(precision, scale)


def _expect(right: bool) -> None:  # noqa: FBT001
    if not right:
        raise ValueError


def _unsupported(text: str) -> Terminal:
    return Terminal(
        "RUNNEL-TYPE-UNSUPPORTED",
        f"type {text!r} cannot be kept",
        hint=f"use one of {', '.join(PRIMITIVES)}, decimal(p,s), array<>, map<>, struct<>",
    )


def to_arrow(type_: Type) -> pa.DataType:
    """Give the Arrow type that holds this type's values exactly."""
    match type_:
        case Decimal(_, precision, scale):
            return pa.decimal128(precision, scale)
        case Array(_, element):
            return pa.list_(pa.field("element", to_arrow(element)))
        case Map(_, key, value):
            return pa.map_(to_arrow(key), to_arrow(value))
        case Struct(_, fields):
            return pa.struct([pa.field(name, to_arrow(field)) for name, field in fields])
        case _:
            return PRIMITIVES[type_.name]


def from_arrow(type_: pa.DataType) -> Type:
    """Give the type that holds an Arrow column's values; unsigned integers and times of other units widen."""
    simple = _simple_from_arrow(type_)
    if simple is not None:
        return Type(simple)
    if pa.types.is_decimal(type_):
        return decimal(type_.precision, type_.scale)
    if pa.types.is_list(type_) or pa.types.is_large_list(type_) or pa.types.is_fixed_size_list(type_):
        return Array("array", from_arrow(type_.value_type))
    if pa.types.is_map(type_):
        return Map("map", from_arrow(type_.key_type), from_arrow(type_.item_type))
    if pa.types.is_struct(type_):
        return Struct("struct", tuple((field.name, from_arrow(field.type)) for field in type_))
    if pa.types.is_dictionary(type_):
        return from_arrow(type_.value_type)
    raise _unsupported(str(type_))


_FROM_ARROW = (
    (pa.types.is_boolean, "boolean"),
    (pa.types.is_int8, "tinyint"),
    (lambda t: pa.types.is_int16(t) or pa.types.is_uint8(t), "smallint"),
    (lambda t: pa.types.is_int32(t) or pa.types.is_uint16(t), "int"),
    (lambda t: pa.types.is_int64(t) or pa.types.is_uint32(t), "bigint"),
    (lambda t: pa.types.is_float32(t) or pa.types.is_float16(t), "float"),
    (pa.types.is_float64, "double"),
    (lambda t: pa.types.is_string(t) or pa.types.is_large_string(t) or pa.types.is_string_view(t), "string"),
    (lambda t: pa.types.is_binary(t) or pa.types.is_large_binary(t) or pa.types.is_fixed_size_binary(t), "binary"),
    (pa.types.is_date, "date"),
    (lambda t: pa.types.is_timestamp(t) and t.tz is not None, "timestamp"),
    (pa.types.is_timestamp, "timestamp_ntz"),
    (pa.types.is_null, "string"),
)


def _simple_from_arrow(type_: pa.DataType) -> str | None:
    return next((name for matches, name in _FROM_ARROW if matches(type_)), None)
