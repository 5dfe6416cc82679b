"""Reads ALTER TABLE statements: columns added, dropped, renamed, or given a wider type.

>>> change = parse_alter("ALTER TABLE shop ADD COLUMN note STRING")[0]
>>> change.table, [str(column) for column in change.add]
('shop', ['note string'])
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlglot.errors import SqlglotError

from runnel.compiler.parse import place_at
from runnel.compiler.spark import DIALECT
from runnel.compiler.statements import split
from runnel.errors import Place, Terminal
from runnel.model.ddl import parse_columns

if TYPE_CHECKING:
    from sqlglot.tokenizer_core import Token

    from runnel.model.relation import Column

HINT = "write ALTER TABLE t ADD COLUMN c TYPE, DROP COLUMN c, RENAME COLUMN a TO b or ALTER COLUMN c TYPE wider"
_BEGINS = re.compile(r"(?:\s+|--[^\n]*(?:\n|$)|/\*.*?\*/)*ALTER\b", re.IGNORECASE | re.DOTALL)


@dataclass(frozen=True)
class Alteration:
    """One statement's change of a table's columns; `rename` has (old name, new name)."""

    table: str
    add: tuple[Column, ...] = ()
    drop: tuple[str, ...] = ()
    rename: tuple[tuple[str, str], ...] = ()
    widen: tuple[Column, ...] = ()


def is_alter(text: str) -> bool:
    """Say whether a text begins with ALTER, comments apart."""
    return _BEGINS.match(text) is not None


def parse_alter(text: str) -> tuple[Alteration, ...]:
    """Read ALTER TABLE statements separated by semicolons; raise `RUNNEL-SQL-SYNTAX` with the place for anything else."""
    try:
        tokens = list(DIALECT.tokenize(text))
    except SqlglotError as error:
        raise Terminal("RUNNEL-SQL-SYNTAX", str(error).splitlines()[0], hint=HINT) from error
    return tuple(_statement(_Words(text, group)) for group in split(tokens))


class _Words:
    """The tokens of one statement and how far they are read."""

    def __init__(self, text: str, tokens: list[Token]) -> None:
        self.text, self.tokens, self.at = text, tokens, 0

    def take(self, *words: str) -> bool:
        """Step over these words if they come next."""
        following = [token.text.upper() for token in self.tokens[self.at : self.at + len(words)]]
        if following != list(words):
            return False
        self.at += len(words)
        return True

    def need(self, *words: str) -> None:
        if not self.take(*words):
            raise self.wrong(f"expected {' '.join(words)}")

    def name(self) -> str:
        if self.at >= len(self.tokens):
            raise self.wrong("expected a name")
        self.at += 1
        return str(self.tokens[self.at - 1].text)

    def rest(self) -> str:
        """Give what is left of the statement, without brackets around it."""
        if self.at >= len(self.tokens):
            raise self.wrong("expected columns")
        begin, end = self.tokens[self.at].start, self.tokens[-1].end + 1
        if self.tokens[self.at].text == "(" and self.tokens[-1].text == ")":
            begin, end = begin + 1, end - 1
        self.at = len(self.tokens)
        return self.text[begin:end]

    def end(self) -> None:
        if self.at < len(self.tokens):
            raise self.wrong(f"{self.tokens[self.at].text!r} is too much")

    def wrong(self, message: str) -> Terminal:
        found = self.tokens[min(self.at, len(self.tokens) - 1)]
        place = place_at(self.text, found.start, Place("the statement", 1, 1))
        return Terminal("RUNNEL-SQL-SYNTAX", message, place=place, hint=HINT)


def _statement(words: _Words) -> Alteration:
    words.need("ALTER", "TABLE")
    table = words.name()
    while words.take("."):
        table += "." + words.name()
    if words.take("ADD"):
        found = Alteration(table, add=_columns(words, table))
    elif words.take("DROP"):
        found = Alteration(table, drop=_names(words))
    elif words.take("RENAME"):
        words.need("COLUMN")
        old = words.name()
        words.need("TO")
        found = Alteration(table, rename=((old, words.name()),))
    elif words.take("ALTER") or words.take("CHANGE"):
        words.need("COLUMN")
        column = words.name()
        words.need("TYPE")
        typed = parse_columns(f"`{column.replace('`', '``')}` {words.rest()}", owner=table)[0]
        found = Alteration(table, widen=typed)
    else:
        raise words.wrong("expected ADD, DROP, RENAME or ALTER COLUMN")
    words.end()
    return found


def _columns(words: _Words, table: str) -> tuple[Column, ...]:
    if not (words.take("COLUMNS") or words.take("COLUMN")):
        raise words.wrong("expected COLUMN")
    columns, key = parse_columns(words.rest(), owner=table)
    if key:
        raise words.wrong("an added column cannot be part of the key")
    return columns


def _names(words: _Words) -> tuple[str, ...]:
    if not (words.take("COLUMNS") or words.take("COLUMN")):
        raise words.wrong("expected COLUMN")
    if not words.take("("):
        return (words.name(),)
    names = [words.name()]
    while words.take(","):
        names.append(words.name())
    words.need(")")
    return tuple(names)
