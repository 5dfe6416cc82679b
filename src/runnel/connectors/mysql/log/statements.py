"""Query events: statements that the log has as text. Transactions begin and end with some, others define tables."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from runnel.connectors.mysql.log.charsets import CODECS, decoded
from runnel.connectors.mysql.log.cursor import Cursor
from runnel.connectors.mysql.log.events import Kind
from runnel.connectors.mysql.log.payloads import unpack_event
from runnel.connectors.mysql.log.problems import BadBytes

if TYPE_CHECKING:
    from runnel.connectors.mysql.log.events import Event

_COMMENT = re.compile(r"\s*(?:/\*(?!!).*?\*/|#[^\n]*\n|--\s[^\n]*\n)\s*", re.DOTALL)
_CHARSET = 4
_SIZES = {0: 4, 1: 8, 3: 4, 7: 2, 8: 2, 9: 8, 10: 4, 13: 3}


@dataclass(frozen=True, slots=True)
class Statement:
    """A statement and the database it was given in."""

    database: str
    text: str

    @property
    def word(self) -> str:
        """Its first words in upper case, without comments: `BEGIN`, `XA COMMIT X'61'...`."""
        text = self.text
        while (comment := _COMMENT.match(text)) is not None and comment.end():
            text = text[comment.end() :]
        return text.strip().upper()


def read_statement(event: Event) -> Statement:
    """Read a query event, compressed or not."""
    cursor = Cursor(event.body)
    cursor.take(8)
    database_size = cursor.number(1)
    cursor.take(2)
    variables = cursor.take(cursor.number(2))
    database = decoded(cursor.text(database_size))
    text = cursor.take(cursor.left)
    if event.kind == Kind.QUERY_COMPRESSED:
        text = unpack_event(text)
    charset = _charset(variables)
    try:
        return Statement(database, decoded(text, charset))
    except BadBytes:
        return Statement(database, text.decode("latin-1"))


def _charset(variables: bytes) -> int | None:
    """Find the character set of the client; what comes before it among the variables has known sizes."""
    cursor = Cursor(variables)
    while cursor.left:
        kind = cursor.number(1)
        if kind == _CHARSET:
            number = cursor.number(2)
            return number if number in CODECS else None
        if kind in (5, 6):
            cursor.take(cursor.number(1))
        elif kind == 2:
            cursor.take(cursor.number(1) + 1)
        elif kind in _SIZES:
            cursor.take(_SIZES[kind])
        else:
            return None
    return None
