"""Types of columns: what a column of MariaDB or MySQL is in runnel, how it is selected, and how its logged values are to be read.

A value has one form here, whether it was read by SELECT or from the log. `docs/stores/mysql.md` has the table of types.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from runnel.connectors.mysql.log.charsets import BINARY, BY_NAME, decoded
from runnel.connectors.mysql.log.decimals import MOST_DIGITS
from runnel.connectors.mysql.log.problems import zero_date
from runnel.connectors.mysql.log.table_map import CHARACTER, LoggedColumn, Type
from runnel.errors import Terminal
from runnel.model import types

if TYPE_CHECKING:
    from collections.abc import Sequence

    from runnel.connectors.mysql.log.times import Zero

_INTEGERS = {
    "tinyint": ("tinyint", "smallint"),
    "smallint": ("smallint", "int"),
    "mediumint": ("int", "int"),
    "int": ("int", "bigint"),
    "bigint": ("bigint", "decimal(20,0)"),
}
_PLAIN = {"float": "float", "double": "double", "date": "date", "datetime": "timestamp_ntz", "timestamp": "timestamp"}
_PLAIN |= {"year": "smallint"}
_TEXTS = {"char", "varchar", "tinytext", "text", "mediumtext", "longtext"}
_WRITTEN = {"enum", "set", "json", "time", "uuid", "inet6", "inet4"}
_BYTES = {"binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob", "vector"}
_SHAPES = {"geometry", "point", "linestring", "polygon", "multipoint", "multilinestring", "multipolygon"}
_SHAPES |= {"geometrycollection", "geomcollection"}
_SPECIAL = ("uuid", "inet6", "inet4")
_WORD = re.compile(r"^(\w+)(?:\(([^)]*)\))?")
_MEMBER = re.compile(r"'((?:[^']|'')*)'")


@dataclass(frozen=True)
class SqlColumn:
    """A column as the server defines it: `sql` is its type, such as `int(10) unsigned`; `charset` is set for texts.

    `default` is what rows get that are inserted without it, as far as that is known (`has_default`).
    """

    name: str
    sql: str
    charset: str | None = None
    default: str | None = None
    has_default: bool = False

    @property
    def word(self) -> str:
        """The type without lengths and attributes."""
        found = _WORD.match(self.sql.lower())
        return found[1] if found else self.sql

    @property
    def numbers(self) -> tuple[int, ...]:
        """The numbers in brackets: digits, scale, length."""
        found = _WORD.match(self.sql)
        return tuple(map(int, re.findall(r"\d+", found[2]))) if found and found[2] and "'" not in found[2] else ()

    @property
    def unsigned(self) -> bool:
        """Whether it has no negative numbers."""
        return "unsigned" in self.sql.lower().split("(")[-1] or " unsigned" in self.sql.lower()

    @property
    def members(self) -> tuple[str, ...] | None:
        """The members of an enumeration or a set."""
        if self.word not in ("enum", "set"):
            return None
        return tuple(member.replace("''", "'") for member in _MEMBER.findall(self.sql))


def type_of(column: SqlColumn) -> types.Type:
    """Give the type that a column has here; raise for one that cannot be held."""
    word, numbers = column.word, column.numbers
    if word in _INTEGERS:
        return types.parse(_INTEGERS[word][column.unsigned])
    if word in _PLAIN:
        return types.parse(_PLAIN[word])
    if word == "decimal":
        return types.decimal(*numbers) if numbers[0] <= MOST_DIGITS else types.STRING
    if word == "bit":
        return types.parse({1: "boolean", 64: "decimal(20,0)"}.get(numbers[0], "bigint"))
    if word in _TEXTS and column.charset not in BY_NAME:
        raise Terminal(
            "RUNNEL-MYSQL-CHARSET",
            f"column {column.name} has the character set {column.charset}, which cannot be read",
            hint=f"convert it to utf8mb4, or leave the table out; read are {', '.join(sorted(BY_NAME))}",
        )
    if word in _TEXTS or word in _WRITTEN:
        return types.STRING
    if word in _BYTES or word in _SHAPES:
        return types.parse("binary")
    raise Terminal(
        "RUNNEL-MYSQL-TYPE",
        f"column {column.name} has the type {column.sql}, which cannot be read",
        hint="leave the table out of `tables`",
    )


def selected(column: SqlColumn) -> str:
    """Write the expression by which a column is read, exactly: texts of other character sets as their bytes, floats as doubles."""
    name = "`" + column.name.replace("`", "``") + "`"
    if column.word in ("float", "double"):
        return f"{name} * 1e0"
    if column.word == "bit":
        return f"{name} + 0"
    if column.word in _TEXTS:
        return f"CAST({name} AS BINARY)"
    return name


def selected_array(column: SqlColumn, values: Sequence[Any], zero: Zero) -> pa.Array:
    """Turn what a SELECT gave for a column, in the text form of the protocol, into Arrow."""
    wanted = types.to_arrow(type_of(column))
    if column.word in _TEXTS:
        charset = BY_NAME[column.charset or "utf8mb4"]
        return pa.array([None if value is None else decoded(value, charset) for value in values], wanted)
    if column.word in ("date", "datetime", "timestamp"):
        return _times(column, values, wanted, zero)
    if wanted in (pa.string(), pa.binary()):
        return pa.array(values, wanted)
    if column.word == "bit" and wanted == pa.bool_():
        return pa.array([None if value is None else value != "0" for value in values], wanted)
    if column.word in ("float", "double"):
        return pa.array([None if value is None else float(value) for value in values], pa.float64()).cast(
            wanted, safe=False
        )
    return pa.array(values, pa.string()).cast(wanted)


def default_is_known(word: str, default: str | None, nullable: str, extra: str) -> bool:
    """Say whether information_schema has the very value that rows get without the column.

    An expression is worked out for each row, which the log then has. A TIMESTAMP is written in the zone of whoever defined it, bytes and
    bits are written in forms of their own.

    >>> default_is_known("int", None, "YES", ""), default_is_known("int", None, "NO", ""), default_is_known("bit", "b'1'", "YES", "")
    (True, False, False)
    """
    if "GENERATED" in extra.upper():
        return False
    return nullable == "YES" if default is None else word not in ("timestamp", "bit", *_BYTES, *_SHAPES)


def default_array(column: SqlColumn, zero: Zero) -> pa.Array:
    """Give the default of a column as an array of one value."""
    wanted = types.to_arrow(type_of(column))
    if column.default is None or column.word in _TEXTS:
        return pa.array([column.default], wanted)
    return selected_array(column, [column.default], zero)


def _times(column: SqlColumn, values: Sequence[Any], wanted: pa.DataType, zero: Zero) -> pa.Array:
    plain = pa.timestamp("us") if wanted != pa.date32() else wanted
    try:
        return pa.array(values, pa.string()).cast(plain).view(wanted) if values else pa.array([], wanted)
    except pa.ArrowInvalid:
        if zero == "error":
            raise zero_date(None, f"column {column.name} has a zero date, or one that does not exist") from None
    return pa.concat_arrays([_one_time(value, plain) for value in values]).view(wanted)


def _one_time(value: str | None, type_: pa.DataType) -> pa.Array:
    try:
        return pa.array([value], pa.string()).cast(type_)
    except pa.ArrowInvalid:
        return pa.nulls(1, type_)


def described(logged: LoggedColumn, column: SqlColumn) -> LoggedColumn:
    """Complete a logged column by its definition; what the log itself says counts."""
    members = logged.members if logged.members is not None else column.members
    charset = logged.charset
    if charset is None and logged.type in CHARACTER:
        charset = BY_NAME[column.charset] if column.charset is not None else BINARY
    return replace(
        logged,
        name=logged.name or column.name,
        unsigned=column.unsigned if logged.unsigned is None else logged.unsigned,
        charset=charset,
        members=members,
        special=column.word if column.word in _SPECIAL else "",
    )


def type_logged(column: LoggedColumn) -> types.Type:
    """Give the type of a column that only the log describes."""
    kind = column.type
    names = {Type.TINY: "tinyint", Type.SHORT: "smallint", Type.INT24: "mediumint", Type.LONG: "int"}
    names[Type.LONGLONG] = "bigint"
    if kind in names:
        return types.parse(_INTEGERS[names[Type(kind)]][bool(column.unsigned)])
    if kind == Type.NEWDECIMAL:
        precision, scale = column.meta >> 8, column.meta & 0xFF
        return types.decimal(precision, scale) if precision <= MOST_DIGITS else types.STRING
    if kind == Type.BIT:
        bits = (column.meta >> 8) * 8 + (column.meta & 0xFF)
        return types.parse({1: "boolean", 64: "decimal(20,0)"}.get(bits, "bigint"))
    if kind in CHARACTER and column.charset == BINARY and not column.special:
        return types.parse("binary")
    return types.parse(_LOGGED.get(kind, "string"))


_LOGGED: dict[int, str] = {
    Type.FLOAT: "float",
    Type.DOUBLE: "double",
    Type.DATE: "date",
    Type.DATETIME: "timestamp_ntz",
    Type.DATETIME2: "timestamp_ntz",
    Type.TIMESTAMP: "timestamp",
    Type.TIMESTAMP2: "timestamp",
    Type.YEAR: "smallint",
    Type.GEOMETRY: "binary",
    Type.VECTOR: "binary",
}


_LOGGED_AS: dict[str, tuple[int, ...]] = {
    "tinyint": (Type.TINY,),
    "smallint": (Type.SHORT,),
    "mediumint": (Type.INT24,),
    "int": (Type.LONG,),
    "bigint": (Type.LONGLONG,),
    "float": (Type.FLOAT,),
    "double": (Type.DOUBLE,),
    "decimal": (Type.NEWDECIMAL,),
    "bit": (Type.BIT,),
    "date": (Type.DATE,),
    "datetime": (Type.DATETIME, Type.DATETIME2),
    "timestamp": (Type.TIMESTAMP, Type.TIMESTAMP2),
    "time": (Type.TIME, Type.TIME2),
    "year": (Type.YEAR,),
    "enum": (Type.ENUM,),
    "set": (Type.SET,),
    "json": (Type.JSON, Type.BLOB),
    "char": (Type.STRING,),
    "binary": (Type.STRING,),
    "varchar": (Type.VARCHAR, Type.VARCHAR_COMPRESSED),
    "varbinary": (Type.VARCHAR, Type.VARCHAR_COMPRESSED),
    "vector": (Type.VECTOR, Type.VARCHAR),
}


def fits(logged: LoggedColumn, column: SqlColumn) -> bool:
    """Say whether a logged column can be one of a definition: of its type, of its digits, and signed as it is where the log says so."""
    word = column.word
    if word in _INTEGERS and logged.unsigned not in (None, column.unsigned):
        return False
    if word == "decimal" and logged.meta != (column.numbers[0] << 8 | column.numbers[1]):
        return False
    if word in _LOGGED_AS:
        return logged.type in _LOGGED_AS[word]
    if word in _SPECIAL:
        return logged.type == Type.STRING
    return logged.type in ((Type.GEOMETRY,) if word in _SHAPES else (Type.BLOB, Type.BLOB_COMPRESSED))
