"""The table map: what the row events after it are about. With `binlog_row_metadata=FULL` it describes its columns by itself.

Without, it has types alone: names, signs, character sets and members of enumerations then come from kept definitions (`described`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import IntEnum
from typing import TYPE_CHECKING

from runnel.connectors.mysql.log.charsets import BINARY, decoded
from runnel.connectors.mysql.log.cursor import Cursor
from runnel.connectors.mysql.log.problems import BadBytes

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence


class Type(IntEnum):
    """Types of columns as the log numbers them."""

    TINY = 1
    SHORT = 2
    LONG = 3
    FLOAT = 4
    DOUBLE = 5
    TIMESTAMP = 7
    LONGLONG = 8
    INT24 = 9
    DATE = 10
    TIME = 11
    DATETIME = 12
    YEAR = 13
    VARCHAR = 15
    BIT = 16
    TIMESTAMP2 = 17
    DATETIME2 = 18
    TIME2 = 19
    BLOB_COMPRESSED = 140
    VARCHAR_COMPRESSED = 141
    VECTOR = 242
    JSON = 245
    NEWDECIMAL = 246
    ENUM = 247
    SET = 248
    BLOB = 252
    VAR_STRING = 253
    STRING = 254
    GEOMETRY = 255


NUMERIC = {Type.TINY, Type.SHORT, Type.INT24, Type.LONG, Type.LONGLONG, Type.NEWDECIMAL, Type.FLOAT, Type.DOUBLE}
NUMERIC |= {Type.YEAR}
CHARACTER = {Type.STRING, Type.VAR_STRING, Type.VARCHAR, Type.BLOB, Type.VARCHAR_COMPRESSED, Type.BLOB_COMPRESSED}
_ONE_BYTE = {Type.FLOAT, Type.DOUBLE, Type.BLOB, Type.GEOMETRY, Type.JSON, Type.VECTOR, Type.BLOB_COMPRESSED}
_ONE_BYTE |= {Type.TIMESTAMP2, Type.DATETIME2, Type.TIME2}
_TWO_BYTES = {Type.VARCHAR, Type.VARCHAR_COMPRESSED, Type.BIT, Type.NEWDECIMAL}
_STRINGS = {Type.STRING, Type.VAR_STRING, Type.ENUM, Type.SET}
MOST_COLUMNS = 4096 + 64


@dataclass(frozen=True)
class LoggedColumn:
    """A column as its values are in the log.

    `meta` is what the type needs: digits and scale (`precision << 8 | scale`), digits after the second, bytes of a length, the longest
    value. `charset` is a collation's number, `special` a type that the log writes as bytes: uuid, inet6, inet4.
    """

    type: int
    meta: int
    nullable: bool = True
    name: str | None = None
    unsigned: bool | None = None
    charset: int | None = None
    members: tuple[str, ...] | None = None
    special: str = ""


@dataclass(frozen=True)
class TableMap:
    """A table of the log; `key` are the numbers of the columns of its primary key where the log says so."""

    schema: str
    table: str
    columns: tuple[LoggedColumn, ...]
    key: tuple[int, ...] = ()

    @property
    def described(self) -> bool:
        """Whether the log itself describes the columns: `binlog_row_metadata` is FULL."""
        return all(column.name is not None for column in self.columns)


def read_table_map(body: bytes, *, id_size: int = 6, mariadb: bool = False) -> tuple[int, TableMap]:
    """Read a table map; give the number by which row events name it, and what it says. MariaDB lists spatial columns as texts."""
    cursor = Cursor(body)
    number = cursor.number(id_size)
    cursor.take(2)
    schema = decoded(cursor.text(cursor.number(1)))
    table = decoded(cursor.text(cursor.packed()))
    count = cursor.packed()
    if not 0 < count <= MOST_COLUMNS:
        raise BadBytes(f"a table cannot have {count} columns")
    kinds = cursor.take(count)
    metas = Cursor(cursor.take(cursor.packed()))
    columns = [_column(kind, metas) for kind in kinds]
    nullable = cursor.take((count + 7) // 8)
    columns = [replace(c, nullable=bool(nullable[at >> 3] >> (at & 7) & 1)) for at, c in enumerate(columns)]
    columns, key = _with_metadata(columns, cursor, CHARACTER | {Type.GEOMETRY} if mariadb else CHARACTER)
    return number, TableMap(schema, table, tuple(columns), key)


def _column(kind: int, metas: Cursor) -> LoggedColumn:
    if kind in _ONE_BYTE:
        return LoggedColumn(kind, metas.number(1))
    if kind == Type.NEWDECIMAL:
        return LoggedColumn(kind, metas.number(1) << 8 | metas.number(1))
    if kind in _TWO_BYTES:
        return LoggedColumn(kind, metas.number(2))
    if kind in _STRINGS:
        real, size = metas.number(1), metas.number(1)
        if real in (Type.ENUM, Type.SET):
            return LoggedColumn(real, size)
        # Two bits of the length are hidden, inverted, in the type.
        return LoggedColumn(Type.STRING, size | ((real & 0x30) ^ 0x30) << 4)
    try:
        return LoggedColumn(Type(kind), 0)
    except ValueError:
        raise BadBytes(f"type {kind} of a column is unknown") from None


def _with_metadata(
    columns: list[LoggedColumn], cursor: Cursor, with_charset: Collection[int]
) -> tuple[list[LoggedColumn], tuple[int, ...]]:
    fields: dict[int, Cursor] = {}
    while cursor.left:
        kind = cursor.number(1)
        fields[kind] = Cursor(cursor.take(cursor.packed()))
    numeric = [at for at, c in enumerate(columns) if c.type in NUMERIC]
    character = [at for at, c in enumerate(columns) if c.type in with_charset]
    listed = [at for at, c in enumerate(columns) if c.type in (Type.ENUM, Type.SET)]
    changed = list(columns)
    for at, unsigned in zip(numeric, _bits(fields.get(1)), strict=False):
        changed[at] = replace(changed[at], unsigned=unsigned)
    for places, numbers in (
        (character, _charsets(fields, (2, 3), character)),
        (listed, _charsets(fields, (10, 11), listed)),
    ):
        for at, number in zip(places, numbers, strict=False):
            changed[at] = replace(changed[at], charset=number)
    for at, name in enumerate(_names(fields.get(4), len(columns))):
        changed[at] = replace(changed[at], name=name)
    for field, kind in ((5, Type.SET), (6, Type.ENUM)):
        of_kind = [at for at in listed if columns[at].type == kind]
        for at, members in zip(of_kind, _members(fields.get(field)), strict=False):
            texts = tuple(decoded(member, changed[at].charset) for member in members)
            changed[at] = replace(changed[at], members=texts)
    return changed, _key(fields, len(columns))


def _bits(field: Cursor | None) -> Iterator[bool]:
    """Give bits, the highest of each byte first."""
    for byte in field.take(field.left) if field is not None else b"":
        for bit in range(7, -1, -1):
            yield bool(byte >> bit & 1)


def _charsets(fields: dict[int, Cursor], kinds: tuple[int, int], places: Sequence[int]) -> list[int]:
    """Give the collation of each of these columns: a default one with exceptions, or one by one."""
    default, each = (fields.get(kind) for kind in kinds)
    if each is not None:
        found = []
        while each.left:
            found.append(each.packed())
        return found
    if default is None:
        return []
    found = [default.packed()] * len(places)
    while default.left:
        at, number = default.packed(), default.packed()
        if at >= len(found):
            raise BadBytes("a character set is given for a column that does not exist")
        found[at] = number
    return found


def _names(field: Cursor | None, count: int) -> list[str]:
    if field is None:
        return []
    found = []
    while field.left:
        found.append(decoded(field.take(field.packed())))
    if len(found) != count:
        raise BadBytes("a table map does not name each of its columns")
    return found


def _members(field: Cursor | None) -> Iterator[list[bytes]]:
    while field is not None and field.left:
        count = field.packed()
        if count > field.left:
            raise BadBytes("an enumeration has more members than bytes")
        yield [field.take(field.packed()) for _ in range(count)]


def _key(fields: dict[int, Cursor], count: int) -> tuple[int, ...]:
    found = []
    for kind in (8, 9):
        field = fields.get(kind)
        while field is not None and field.left:
            found.append(field.packed())
            if kind == 9:
                field.packed()  # how much of the column is in the index
    if any(at >= count for at in found):
        raise BadBytes("a key has a column that does not exist")
    return tuple(found)


def is_binary(column: LoggedColumn) -> bool:
    """Say whether values of a character type are bytes without a character set."""
    return column.charset == BINARY
