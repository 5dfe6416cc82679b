"""Which tables a definition in the log is about. It is read word by word: every server has statements that no parser knows."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from runnel.connectors.mysql.log.statements import Statement

_TOKEN = re.compile(
    r"/\*!\d*|\*/"  # a comment that servers execute: its words count
    r"|/\*.*?\*/|--\s[^\n]*|\#[^\n]*"
    r"|'(?:[^'\\]|\\.|'')*'|\"(?:[^\"\\]|\\.|\"\")*\""
    r"|`((?:[^`]|``)+)`|([\w$\u0080-\uffff]+)|([.,();=])",
    re.DOTALL,
)
_SKIPPED = {"OR", "REPLACE", "IF", "NOT", "EXISTS", "IGNORE", "ONLINE", "OFFLINE", "TEMPORARY"}
ALL = "*"
"""Stands for all tables of a database."""
_NO_ROWS = {"INDEX", "KEY", "COMMENT", "AUTO_INCREMENT"}
_HARMLESS = {"UNIQUE", "FULLTEXT", "SPATIAL", "ADD", "DROP", "RENAME"}


@dataclass(frozen=True)
class Touched:
    """A table that a definition is about; `rows` says whether its rows or columns may have changed."""

    database: str
    table: str
    what: str
    rows: bool = True


def touched(statement: Statement) -> list[Touched]:
    """Give the tables that a statement creates, changes, empties, renames or drops; none for other statements.

    >>> from runnel.connectors.mysql.log.statements import Statement
    >>> [(t.database, t.table, t.what) for t in touched(Statement("shop", "ALTER TABLE `a b` ADD c INT"))]
    [('shop', 'a b', 'ALTER')]
    >>> [t.table for t in touched(Statement("shop", "RENAME TABLE a TO b, x.c TO d"))]
    ['a', 'b', 'c', 'd']
    >>> [t.table for t in touched(Statement("shop", "ALTER TABLE p EXCHANGE PARTITION q WITH TABLE `r`"))]
    ['p', 'r']
    """
    words = list(_words(statement.text))
    upper = [word.upper() if plain else "" for word, plain in words]
    if upper[:1] == ["TRUNCATE"]:
        at = 2 if upper[1:2] == ["TABLE"] else 1
        return [_named(statement, words, at, "TRUNCATE")[0]] if len(words) > at else []
    if upper[:1] == ["DROP"] and upper[1:2] in (["DATABASE"], ["SCHEMA"]):
        name = next((word for word, plain in words[2:] if not plain or word.upper() not in _SKIPPED), "")
        return [Touched(name, ALL, "DROP DATABASE")]
    kind = next((at for at, word in enumerate(upper[:6]) if word in ("TABLE", "TABLES")), None)
    if kind is None or not upper or upper[0] not in ("CREATE", "ALTER", "DROP", "RENAME"):
        return []  # of indexes, views, triggers, users: no row of a table changes
    if "TEMPORARY" in upper[:kind]:
        return []
    at = kind + 1
    while at < len(upper) and upper[at] in _SKIPPED:
        at += 1
    if upper[0] in ("DROP", "RENAME"):
        return _listed(statement, words, at, upper[0])
    found, after = _named(statement, words, at, upper[0])
    if upper[0] == "ALTER":
        return _altered(statement, words, upper, found, after)
    return [found]


def _altered(
    statement: Statement, words: list[tuple[str, bool]], upper: list[str], found: Touched, after: int
) -> list[Touched]:
    rest = [word for word in upper[after:] if word not in ("", "(", ")", ",")]
    if rest[:1] == ["RENAME"] and upper[after + 1] not in ("COLUMN", "INDEX", "KEY"):
        at = after + 2 if upper[after + 1] in ("TO", "AS", "=") else after + 1
        return [found, _named(statement, words, at, "ALTER")[0]]
    if "EXCHANGE" in rest:
        at = next((n + 2 for n in range(after, len(upper) - 2) if upper[n : n + 2] == ["WITH", "TABLE"]), len(words))
        return [found, _named(statement, words, at, "ALTER")[0]]
    plain = bool(rest) and (rest[0] in _NO_ROWS or (rest[0] in _HARMLESS and rest[1:2] and rest[1] in _NO_ROWS))
    several = any(word in ("ADD", "DROP", "MODIFY", "CHANGE", "CONVERT", "ENGINE", "PARTITION") for word in rest[1:])
    return [Touched(found.database, found.table, "ALTER", rows=not plain or several)]


def _listed(statement: Statement, words: list[tuple[str, bool]], at: int, what: str) -> list[Touched]:
    """Read names between commas, or old and new names with TO between them."""
    found = []
    while at < len(words):
        table, at = _named(statement, words, at, what)
        found.append(table)
        if at < len(words) and words[at][0].upper() in (",", "TO"):
            at += 1
            continue
        while at < len(words) and words[at][0].upper() in {"WAIT", "NOWAIT", "RESTRICT", "CASCADE"} | _numbers(
            words, at
        ):
            at += 1
        if at < len(words) and words[at][0].upper() == "TO":
            at += 1
            continue
        break
    return found


def _numbers(words: list[tuple[str, bool]], at: int) -> set[str]:
    return {words[at][0]} if words[at][0].isdigit() else set()


def _named(statement: Statement, words: list[tuple[str, bool]], at: int, what: str) -> tuple[Touched, int]:
    """Read a name, with its database or without; give where it ends."""
    if at >= len(words):
        return Touched(statement.database, "", what), at
    if words[at + 1 : at + 2] and words[at + 1][0] == "." and at + 2 < len(words):
        return Touched(words[at][0], words[at + 2][0], what), at + 3
    return Touched(statement.database, words[at][0], what), at + 1


def _words(text: str) -> Iterator[tuple[str, bool]]:
    """Give words, names and signs; the flag says that a word is not quoted."""
    for token in _TOKEN.finditer(text):
        quoted, word, sign = token.groups()
        if quoted is not None:
            yield quoted.replace("``", "`"), False
        elif word is not None:
            yield word, True
        elif sign is not None and sign != ";":
            yield sign, True
