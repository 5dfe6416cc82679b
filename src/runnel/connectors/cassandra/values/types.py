"""CQL types: their tree, their text, how wide a value is, and the runnel type that holds it.

`parse` and `str` are inverse. User-defined types are named in the text and looked up in a mapping. How bytes become
Python values is in `decode`, how the server orders them in `order`.

>>> str(parse("frozen<map<text, list<int>>>")), parse("vector<float, 3>").width
('frozen<map<text, list<int>>>', 12)
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from runnel.errors import Terminal
from runnel.model import types as model

if TYPE_CHECKING:
    from collections.abc import Mapping

DEEPEST = 32
"""Levels of nesting that are read; the server's own types have far fewer."""

MOST_DIMENSIONS = 1 << 16

WIDTHS = {
    "boolean": 1,
    "int": 4,
    "float": 4,
    "bigint": 8,
    "double": 8,
    "timestamp": 8,
    "uuid": 16,
    "timeuuid": 16,
    "empty": 0,
}
"""Bytes of a value that is written without its length. Every other type has its length before it."""

_DURATION = model.Struct(
    "struct", (("months", model.Type("int")), ("days", model.Type("int")), ("nanoseconds", model.BIGINT))
)

NATIVE: dict[str, model.Type] = {
    "ascii": model.STRING,
    "bigint": model.BIGINT,
    "blob": model.Type("binary"),
    "boolean": model.Type("boolean"),
    "counter": model.BIGINT,
    "date": model.Type("date"),
    "decimal": model.decimal(38, 18),
    "double": model.Type("double"),
    "duration": _DURATION,
    "empty": model.Type("binary"),
    "float": model.Type("float"),
    "inet": model.STRING,
    "int": model.Type("int"),
    "smallint": model.Type("smallint"),
    "text": model.STRING,
    "time": model.BIGINT,
    "timestamp": model.Type("timestamp"),
    "timeuuid": model.STRING,
    "tinyint": model.Type("tinyint"),
    "uuid": model.STRING,
    "varint": model.decimal(38, 0),
}
"""The native types and what holds them. A time is its nanoseconds since midnight."""

_SYNONYMS = {"varchar": "text"}
_EMPTY = "org.apache.cassandra.db.marshal.EmptyType"


@dataclass(frozen=True)
class CqlType:
    """A native type, or the root of the other kinds; `frozen` says that it was written so."""

    name: str
    frozen: bool = False

    @property
    def width(self) -> int | None:
        """Bytes of a value where every value has the same number and is written without its length, else None."""
        return WIDTHS.get(self.name)

    @property
    def multicell(self) -> bool:
        """Whether a column of this type is kept as one cell per element."""
        return False

    def decode(self, value: bytes) -> Any:
        """Give the Python value of a value's bytes; refuse bytes that are none with `RUNNEL-CASSANDRA-VALUE`."""
        from runnel.connectors.cassandra.values.decode import decoder

        return decoder(self)(value)

    @property
    def model_type(self) -> model.Type:
        """The runnel type that holds what `decode` gives."""
        return NATIVE[self.name]

    def _written(self) -> str:
        return f"'{_EMPTY}'" if self.name == "empty" else self.name

    def __str__(self) -> str:
        return f"frozen<{self._written()}>" if self.frozen else self._written()


@dataclass(frozen=True)
class ListOf(CqlType):
    """`list<element>`."""

    element: CqlType = CqlType("int")

    @property
    def multicell(self) -> bool:  # noqa: D102
        return not self.frozen

    @property
    def model_type(self) -> model.Type:  # noqa: D102
        return model.Array("array", self.element.model_type)

    def _written(self) -> str:
        return f"{self.name}<{self.element}>"


@dataclass(frozen=True)
class SetOf(ListOf):
    """`set<element>`."""


@dataclass(frozen=True)
class MapOf(CqlType):
    """`map<key, value>`."""

    key: CqlType = CqlType("text")
    value: CqlType = CqlType("int")

    @property
    def multicell(self) -> bool:  # noqa: D102
        return not self.frozen

    @property
    def model_type(self) -> model.Type:  # noqa: D102
        return model.Map("map", self.key.model_type, self.value.model_type)

    def _written(self) -> str:
        return f"map<{self.key}, {self.value}>"


@dataclass(frozen=True)
class TupleOf(CqlType):
    """`tuple<...>`; its fields are called `_1`, `_2`, ... in runnel."""

    items: tuple[CqlType, ...] = ()

    @property
    def model_type(self) -> model.Type:  # noqa: D102
        return model.Struct("struct", tuple((f"_{n}", item.model_type) for n, item in enumerate(self.items, 1)))

    def _written(self) -> str:
        return f"tuple<{', '.join(map(str, self.items))}>"


@dataclass(frozen=True)
class Udt(CqlType):
    """A user-defined type with its fields in their order."""

    fields: tuple[tuple[str, CqlType], ...] = ()

    @property
    def multicell(self) -> bool:  # noqa: D102
        return not self.frozen

    @property
    def model_type(self) -> model.Type:  # noqa: D102
        return model.Struct("struct", tuple((name, type_.model_type) for name, type_ in self.fields))

    def _written(self) -> str:
        return quoted(self.name)


@dataclass(frozen=True)
class Vector(CqlType):
    """`vector<element, size>`."""

    element: CqlType = CqlType("float")
    size: int = 1

    @property
    def width(self) -> int | None:  # noqa: D102
        return None if self.element.width is None else self.element.width * self.size

    @property
    def model_type(self) -> model.Type:  # noqa: D102
        return model.Array("array", self.element.model_type)

    def _written(self) -> str:
        return f"vector<{self.element}, {self.size}>"


@dataclass(frozen=True)
class Custom(CqlType):
    """A type named by its Java class; its values stay bytes."""

    @property
    def model_type(self) -> model.Type:  # noqa: D102
        return model.Type("binary")

    def _written(self) -> str:
        return f"'{self.name}'"


_RESERVED = frozenset(
    [
        "add",
        "allow",
        "alter",
        "and",
        "apply",
        "asc",
        "authorize",
        "batch",
        "begin",
        "by",
        "columnfamily",
        "create",
        "default",
        "delete",
        "desc",
        "describe",
        "drop",
        "entries",
        "execute",
        "from",
        "full",
        "grant",
        "if",
        "in",
        "index",
        "infinity",
        "insert",
        "into",
        "is",
        "keyspace",
        "limit",
        "materialized",
        "mbean",
        "mbeans",
        "modify",
        "nan",
        "norecursive",
        "not",
        "null",
        "of",
        "on",
        "or",
        "order",
        "primary",
        "rename",
        "replace",
        "revoke",
        "schema",
        "select",
        "set",
        "table",
        "to",
        "token",
        "truncate",
        "unlogged",
        "unset",
        "update",
        "use",
        "using",
        "view",
        "where",
        "with",
    ]
)


_CONSTANTS = frozenset(["true", "false"])
"""Words that the server's own list of reserved ones lacks, and that it takes for values all the same."""


def quoted(name: str) -> str:
    """Write a CQL name: bare where the server would read it back so, else in double quotes.

    >>> quoted("amount"), quoted("order"), quoted("Amount")
    ('amount', '"order"', '"Amount"')
    """
    bare = re.fullmatch(r"[a-z][a-z0-9_]*", name) and name not in _RESERVED and name not in _CONSTANTS
    return name if bare else '"' + name.replace('"', '""') + '"'


_TOKEN = re.compile(r"""\s*(?:"((?:[^"]|"")+)"|'([^']*)'|([A-Za-z_][A-Za-z0-9_.]*)|(\d+)|([<>,]))""")


def parse(text: str, udts: Mapping[str, Udt] | None = None) -> CqlType:
    """Read a type as CQL writes it, with the user-defined types it may name; refuse others with `RUNNEL-CASSANDRA-TYPE`."""
    known = udts or {}
    return _parse_cached(text) if not known else _parse_all(text, known)


@lru_cache(maxsize=1024)
def _parse_cached(text: str) -> CqlType:
    return _parse_all(text, {})


def _parse_all(text: str, udts: Mapping[str, Udt]) -> CqlType:
    tokens: list[tuple[str, str]] = []
    at, end = 0, len(text.rstrip())
    while at < end:
        match = _TOKEN.match(text, at)
        if match is None:
            raise _unknown(text)
        kind = ("quoted", "class", "word", "number", "sign")[(match.lastindex or 1) - 1]
        tokens.append((kind, match.group(match.lastindex or 1)))
        at = match.end()
    try:
        type_, rest = _type(tokens, udts, 0)
    except (IndexError, ValueError, KeyError) as error:
        raise _unknown(text) from error
    if rest:
        raise _unknown(text)
    return type_


_Tokens = list[tuple[str, str]]


def _type(tokens: _Tokens, udts: Mapping[str, Udt], depth: int) -> tuple[CqlType, _Tokens]:
    (kind, word), rest = tokens[0], tokens[1:]
    if depth > DEEPEST:
        raise ValueError(word)
    if kind == "class":
        return (CqlType("empty") if word == _EMPTY else Custom(word)), rest
    if kind == "quoted":
        return udts[word.replace('""', '"')], rest
    name = _SYNONYMS.get(word.lower(), word.lower())
    if kind != "word":
        raise ValueError(word)
    if rest[:1] == [("sign", "<")]:
        return _bracketed(name, rest[1:], udts, depth + 1)
    if name in NATIVE and name != "empty":
        return CqlType(name), rest
    return udts[name.rpartition(".")[2]], rest


def _bracketed(name: str, rest: _Tokens, udts: Mapping[str, Udt], depth: int) -> tuple[CqlType, _Tokens]:
    arguments: list[CqlType] = []
    size = 0
    while True:
        if rest[0][0] == "number" and name == "vector" and arguments:
            size, rest = int(rest[0][1]), rest[1:]
        else:
            argument, rest = _type(rest, udts, depth)
            arguments.append(argument)
        sign, rest = rest[0][1], rest[1:]
        if sign == ">":
            break
        if sign != ",":
            raise ValueError(sign)
    return _applied(name, arguments, size), rest


def _applied(name: str, arguments: list[CqlType], size: int) -> CqlType:
    match name, arguments:
        case "frozen", [inner]:
            return freeze(inner)
        case "list", [element]:
            return ListOf("list", element=element)
        case "set", [element]:
            return SetOf("set", element=element)
        case "map", [key, value]:
            return MapOf("map", key=key, value=value)
        case "tuple", [_, *_]:
            return TupleOf("tuple", items=tuple(arguments))
        case "vector", [element] if 0 < size <= MOST_DIMENSIONS:
            return Vector("vector", element=element, size=size)
    raise ValueError(name)


def freeze(type_: CqlType) -> CqlType:
    """Give the type as one value; only collections and user-defined types can be anything else.

    >>> freeze(parse("list<int>")).multicell
    False
    """
    match type_:
        case SetOf(name, _, element):
            return SetOf(name, frozen=True, element=element)
        case ListOf(name, _, element):
            return ListOf(name, frozen=True, element=element)
        case MapOf(name, _, key, value):
            return MapOf(name, frozen=True, key=key, value=value)
        case Udt(name, _, fields):
            return Udt(name, frozen=True, fields=fields)
        case TupleOf(name, _, items):
            return TupleOf(name, frozen=True, items=items)
    return type_


def _unknown(text: str) -> Terminal:
    return Terminal(
        "RUNNEL-CASSANDRA-TYPE",
        f"the CQL type {text!r} is not known",
        hint="name user-defined types before the tables that use them",
    )
