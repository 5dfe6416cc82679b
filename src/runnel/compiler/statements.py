"""Reads the statements of a .sql file: CREATE MATERIALIZED VIEW and CREATE TABLE, with every problem of the file at once."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sqlglot.errors import SqlglotError
from sqlglot.tokenizer_core import TokenType

from runnel.compiler.forms import only_spark_reads, readable
from runnel.compiler.parse import parse_query, place_at, syntax_error
from runnel.compiler.spark import DIALECT
from runnel.errors import Place, Problems, RunnelError, Terminal
from runnel.model.ddl import parse_table

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sqlglot.tokenizer_core import Token

    from runnel.model.foreign_keys import Reference
    from runnel.model.relation import Column

PROPERTIES = ("refresh", "mode")


@dataclass(frozen=True)
class ViewStatement:
    """A view as its file defines it; `sql` is the user's own SELECT, `place` that of its first character."""

    name: str
    sql: str
    comment: str | None
    properties: Mapping[str, str]
    place: Place
    named: Place | None = field(default=None, compare=False)


@dataclass(frozen=True)
class TableStatement:
    """A managed table as its file defines it."""

    name: str
    columns: tuple[Column, ...]
    key: tuple[str, ...]
    place: Place
    named: Place | None = field(default=None, compare=False)
    references: tuple[Reference, ...] = ()


Statement = ViewStatement | TableStatement


def parse_statements(text: str, file: str) -> list[Statement]:
    """Read a file's statements; raise `Problems` with all that is wrong, each at its line and column."""
    try:
        tokens = list(DIALECT.tokenize(text))
    except SqlglotError as error:
        raise Problems([syntax_error(error, text, Place(file, 1, 1))]) from error
    statements: list[Statement] = []
    problems: list[RunnelError] = []
    for group in split(tokens):
        try:
            statements.append(_statement(_Reader(text, file, group)))
        except Problems as several:
            problems += several.problems
        except RunnelError as problem:
            problems.append(problem)
    if problems:
        raise Problems(problems)
    return statements


@dataclass
class _Reader:
    """The tokens of one statement and how far they are read."""

    text: str
    file: str
    tokens: list[Token]
    at: int = 0
    words: list[str] = field(default_factory=list)

    def word(self) -> str:
        return self.tokens[self.at].text.upper() if self.at < len(self.tokens) else ""

    def take(self, *words: str) -> bool:
        """Step over these words if they come next; a token may hold several of them."""
        start = self.at
        for word in words:
            if self.word() != word:
                self.at = start
                return False
            self.at += 1
        return True

    def next(self, what: str) -> Token:
        if self.at >= len(self.tokens):
            raise self.wrong(f"expected {what}, found the end of the statement")
        self.at += 1
        return self.tokens[self.at - 1]

    def place(self, *, marked: bool = False) -> Place:
        token = self.tokens[min(self.at, len(self.tokens) - 1)]
        length = token.end + 1 - token.start if marked else 0
        return place_at(self.text, token.start, Place(self.file, 1, 1), length) or Place(self.file)

    def wrong(self, message: str) -> Terminal:
        return Terminal(
            "RUNNEL-VIEW-SYNTAX",
            message,
            place=self.place(marked=True),
            hint="write CREATE MATERIALIZED VIEW name [COMMENT '...'] [TBLPROPERTIES (...)] AS SELECT ...",
        )


def split(tokens: list[Token]) -> list[list[Token]]:
    """Split tokens into statements at their semicolons."""
    groups: list[list[Token]] = [[]]
    for token in tokens:
        if token.token_type is TokenType.SEMICOLON:
            groups.append([])
        else:
            groups[-1].append(token)
    return [group for group in groups if group]


def _statement(reader: _Reader) -> Statement:
    if not reader.take("CREATE"):
        raise reader.wrong(f"expected CREATE, found {reader.word()!r}")
    reader.take("OR", "REPLACE")
    if reader.take("MATERIALIZED", "VIEW"):
        return _view(reader)
    if reader.take("TABLE"):
        return _table(reader)
    raise reader.wrong(f"expected MATERIALIZED VIEW or TABLE, found {reader.word()!r}")


def _view(reader: _Reader) -> ViewStatement:
    reader.take("IF", "NOT", "EXISTS")
    named = reader.place(marked=True)
    name = _name(reader)
    comment: str | None = None
    properties: dict[str, str] = {}
    while not reader.take("AS"):
        if reader.take("COMMENT"):
            comment = reader.next("a text").text
        elif reader.take("TBLPROPERTIES"):
            properties.update(_properties(reader))
        else:
            raise reader.wrong(f"expected AS, found {reader.word()!r}" if reader.word() else "expected AS and a SELECT")
    if reader.at >= len(reader.tokens):
        raise reader.wrong("expected a SELECT after AS")
    place = reader.place()
    sql = reader.text[reader.tokens[reader.at].start : reader.tokens[-1].end + 1]
    try:
        parse_query(readable(sql), place)
    except Terminal:
        if not only_spark_reads(sql):
            raise
    return ViewStatement(name, sql, comment, properties, place, named)


def _table(reader: _Reader) -> TableStatement:
    reader.take("IF", "NOT", "EXISTS")
    named = reader.place(marked=True)
    name = _name(reader)
    place = reader.place()
    if not reader.take("("):
        raise reader.wrong("expected '(' and the columns")
    start, depth = reader.tokens[reader.at - 1].end + 1, 1
    while depth:
        token = reader.next("')'")
        depth += (token.text == "(") - (token.text == ")")
    said = parse_table(reader.text[start : token.start], owner=name, place=place)
    return TableStatement(name, said.columns, said.key, place, named, said.references)


def _name(reader: _Reader) -> str:
    parts = [reader.next("a name").text]
    while reader.take("."):
        parts.append(reader.next("a name").text)
    return ".".join(parts)


def _properties(reader: _Reader) -> dict[str, str]:
    found: dict[str, str] = {}
    if not reader.take("("):
        raise reader.wrong("expected '(' after TBLPROPERTIES")
    while not reader.take(")"):
        name = reader.next("a property").text
        while reader.take("."):
            name += "." + reader.next("a property").text
        reader.take("=")
        found[name] = reader.next("a value").text
        reader.take(",")
    return found
