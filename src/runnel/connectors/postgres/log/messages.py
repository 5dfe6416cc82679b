"""Messages of pgoutput, protocol 1: one row of `pg_logical_slot_peek_binary_changes` is one message.

A decoder is a pure function of the bytes. It takes every length from the bytes that are there, so it neither waits nor asks for more
memory than the message has, and bytes that are left over are an error.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

from runnel.connectors.postgres.log.problems import BadBytes, damaged

if TYPE_CHECKING:
    from collections.abc import Callable


class Unchanged:
    """Stands for a large value that an update left as it was and the log therefore does not have."""

    def __repr__(self) -> str:
        return "UNCHANGED"


UNCHANGED = Unchanged()
Value = str | None | Unchanged
Tuple = tuple[Value, ...]
_TEXT = ord("t")
_NO_TEXT: dict[int, Value] = {ord("n"): None, ord("u"): UNCHANGED}
IDENTITIES = "dnfi"
"""Replica identities: default, nothing, full, index."""


@dataclass(frozen=True)
class Begin:
    """A transaction begins; `final` is where its commit begins in the log, `xid` its number of 32 bits."""

    final: int
    time: int
    xid: int


@dataclass(frozen=True)
class Commit:
    """A transaction ends; `end` is the place after it."""

    commit: int
    end: int
    time: int


@dataclass(frozen=True)
class RelationColumn:
    """A column as a relation message has it; `key` says that it belongs to the replica identity."""

    name: str
    type: int
    modifier: int
    key: bool


@dataclass(frozen=True)
class Relation:
    """A table as it is from here on; the messages after it refer to it by its number."""

    number: int
    schema: str
    name: str
    identity: str
    columns: tuple[RelationColumn, ...]


@dataclass(frozen=True)
class Insert:
    """A row that came."""

    relation: int
    new: Tuple


@dataclass(frozen=True)
class Update:
    """A row that changed. `old` is the whole old row where `whole`, else its key where that changed, else missing."""

    relation: int
    new: Tuple
    old: Tuple | None = None
    whole: bool = False


@dataclass(frozen=True)
class Delete:
    """A row that went: the whole of it where `whole`, else its key and NULLs."""

    relation: int
    old: Tuple
    whole: bool


@dataclass(frozen=True)
class Truncate:
    """Tables that were emptied."""

    relations: tuple[int, ...]
    cascade: bool
    restart: bool


@dataclass(frozen=True)
class Type:
    """The name of a type that is not built in."""

    number: int
    schema: str
    name: str


@dataclass(frozen=True)
class Origin:
    """Where a transaction was made first, if not here."""

    commit: int
    name: str


@dataclass(frozen=True)
class Message:
    """A message that somebody wrote into the log by `pg_logical_emit_message`."""

    transactional: bool
    lsn: int
    prefix: str
    content: bytes


AnyMessage = Begin | Commit | Relation | Insert | Update | Delete | Truncate | Type | Origin | Message


class Cursor:
    """A place in the bytes of a message that moves on with every read; numbers are big-endian."""

    __slots__ = ("at", "data")

    def __init__(self, data: bytes) -> None:
        """Begin after the letter that names the message."""
        self.data, self.at = data, 1

    def take(self, size: int) -> bytes:
        """Give the next bytes."""
        end = self.at + size
        if size < 0 or end > len(self.data):
            raise BadBytes("it ends within a value")
        found, self.at = self.data[self.at : end], end
        return found

    def number(self, size: int) -> int:
        """Give the next bytes as an unsigned number."""
        return int.from_bytes(self.take(size), "big")

    def text(self) -> str:
        """Give the text up to the next zero byte."""
        end = self.data.find(b"\0", self.at)
        if end < 0:
            raise BadBytes("a name has no end")
        found, self.at = self.data[self.at : end], end + 1
        return decoded(found)

    def letter(self, allowed: str, what: str) -> str:
        """Give the next byte, which must be one of these letters."""
        found = chr(self.number(1))
        if found not in allowed:
            raise BadBytes(f"{found!r} is not {what}")
        return found

    def row(self) -> Tuple:
        """Give the values of a row; most of the log is rows, so that they are read in one loop."""
        count, data, at, values = self._count(1), self.data, self.at, list[Value]()
        size = len(data)
        for _ in range(count):
            kind = data[at] if at < size else 0
            if kind == _TEXT:
                end = at + 5 + int.from_bytes(data[at + 1 : at + 5], "big")
                if at + 5 > size or end > size:
                    raise BadBytes("it ends within a value")
                values.append(decoded(data[at + 5 : end]))
                at = end
                continue
            if kind not in _NO_TEXT:
                raise BadBytes(f"{chr(kind)!r} is not a kind of value that was asked for")
            values.append(_NO_TEXT[kind])
            at += 1
        self.at = at
        return tuple(values)

    def _count(self, least: int) -> int:
        """Give a number of things, each of which takes some bytes at least."""
        count = self.number(2)
        if count * least > len(self.data) - self.at:
            raise BadBytes(f"{count} columns are more than it has bytes for")
        return count

    def columns(self) -> tuple[RelationColumn, ...]:
        """Give the columns of a relation."""
        return tuple(self._column() for _ in range(self._count(10)))

    def _column(self) -> RelationColumn:
        flags = self.number(1)
        if flags > 1:
            raise BadBytes(f"a column has the flags {flags}")
        name = self.text()
        type_, modifier = struct.unpack(">Ii", self.take(8))
        return RelationColumn(name, type_, modifier, bool(flags))


def decoded(data: bytes) -> str:
    """Give a text; the session's encoding is UTF-8."""
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise BadBytes(f"a text is not UTF-8: {error}") from error


def _begin(cursor: Cursor) -> Begin:
    return Begin(cursor.number(8), cursor.number(8), cursor.number(4))


def _commit(cursor: Cursor) -> Commit:
    if cursor.number(1):
        raise BadBytes("a commit has flags")
    return Commit(cursor.number(8), cursor.number(8), cursor.number(8))


def _relation(cursor: Cursor) -> Relation:
    number, schema, name = cursor.number(4), cursor.text() or "pg_catalog", cursor.text()
    return Relation(number, schema, name, cursor.letter(IDENTITIES, "a replica identity"), cursor.columns())


def _insert(cursor: Cursor) -> Insert:
    number = cursor.number(4)
    cursor.letter("N", "the mark of a new row")
    return Insert(number, cursor.row())


def _update(cursor: Cursor) -> Update:
    number = cursor.number(4)
    kind = cursor.letter("KON", "the mark of a row")
    if kind == "N":
        return Update(number, cursor.row())
    old = cursor.row()
    cursor.letter("N", "the mark of a new row")
    return Update(number, cursor.row(), old, whole=kind == "O")


def _delete(cursor: Cursor) -> Delete:
    number = cursor.number(4)
    kind = cursor.letter("KO", "the mark of an old row")
    return Delete(number, cursor.row(), whole=kind == "O")


def _truncate(cursor: Cursor) -> Truncate:
    count, flags = cursor.number(4), cursor.number(1)
    if flags > 3 or count * 4 != len(cursor.data) - cursor.at:
        raise BadBytes("a truncation does not have the tables that it names")
    return Truncate(tuple(cursor.number(4) for _ in range(count)), bool(flags & 1), bool(flags & 2))


def _type(cursor: Cursor) -> Type:
    return Type(cursor.number(4), cursor.text() or "pg_catalog", cursor.text())


def _origin(cursor: Cursor) -> Origin:
    return Origin(cursor.number(8), cursor.text())


def _message(cursor: Cursor) -> Message:
    flags, lsn, prefix = cursor.number(1), cursor.number(8), cursor.text()
    return Message(bool(flags & 1), lsn, prefix, cursor.take(cursor.number(4)))


_READERS: dict[int, Callable[[Cursor], AnyMessage]] = {
    ord("B"): _begin,
    ord("C"): _commit,
    ord("R"): _relation,
    ord("I"): _insert,
    ord("U"): _update,
    ord("D"): _delete,
    ord("T"): _truncate,
    ord("Y"): _type,
    ord("O"): _origin,
    ord("M"): _message,
}


def decode(lsn: int, data: bytes) -> AnyMessage:
    """Read one message; `lsn` is where the server has it from, for errors.

    >>> decode(0, b"O" + bytes(8) + b"elsewhere" + bytes(1))
    Origin(commit=0, name='elsewhere')
    """
    read = _READERS.get(data[0]) if data else None
    if read is None:
        raise damaged(lsn, f"it begins with {data[:1]!r}")
    cursor = Cursor(data)
    try:
        found = read(cursor)
    except BadBytes as error:
        raise damaged(lsn, error) from error
    if cursor.at != len(data):
        raise damaged(lsn, f"{len(data) - cursor.at} bytes are left over")
    return found
