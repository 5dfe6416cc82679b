"""Spark's lexical rules: where in a text its strings, comments and quoted names are. No SQL is searched or changed without it.

>>> [(token.kind, token.text) for token in tokens("SELECT '`a`' AS `b``c` -- `d`")]  # doctest: +NORMALIZE_WHITESPACE
[('word', 'SELECT'), ('string', "'`a`'"), ('word', 'AS'), ('name', '`b``c`'), ('comment', '-- `d`')]
>>> replace_names("SELECT '`a`' FROM `a`", {"a": "b"})
"SELECT '`a`' FROM `b`"
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

TokenKind = Literal["word", "string", "name", "comment", "symbol"]

# A raw string begins with r or R where no word goes on; a backslash before the end of a line continues a `--` comment.
_TOKEN = re.compile(
    r"""
    (?P<string> (?<!\w)[rR]'[^']*' | (?<!\w)[rR]"[^"]*" | '(?:[^'\\]|\\.|'')*' | "(?:[^"\\]|\\.|"")*" )
    | (?P<dollar> \$(?P<tag>[A-Za-z]*)\$.*?\$(?P=tag)\$ )
    | (?P<name> `(?:[^`]|``)*` )
    | (?P<comment> --(?:\\\n|[^\r\n])*\r?\n? )
    | (?P<bracket> /\*(?!\+) )
    | (?P<word> \w+ )
    | (?P<space> \s+ )
    | (?P<symbol> . )
    """,
    re.VERBOSE | re.DOTALL,
)
_BRACKETS = re.compile(r"/\*(?!\+)|\*/", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Token:
    """A piece of a text that is not white space, from the character `start` on."""

    kind: TokenKind
    text: str
    start: int

    @property
    def end(self) -> int:
        """The place after its last character."""
        return self.start + len(self.text)

    @property
    def name(self) -> str:
        """What a word or quoted name says, without quotes."""
        return self.text[1:-1].replace("``", "`") if self.kind == "name" else self.text


def tokens(sql: str) -> Iterator[Token]:
    """Split a text as Spark's lexer does; a quote that is never closed is a symbol."""
    at = 0
    while at < len(sql):
        match = _TOKEN.match(sql, at)
        assert match is not None, at
        end = match.end()
        match match.lastgroup:
            case "string" | "dollar" | "tag":
                yield Token("string", match.group(), at)
            case "name":
                yield Token("name", match.group(), at)
            case "comment":
                yield Token("comment", match.group(), at)
            case "bracket":
                end = _comment_end(sql, end)
                yield Token("comment", sql[at:end], at)
            case "word":
                yield Token("word", match.group(), at)
            case "symbol":
                yield Token("symbol", match.group(), at)
        at = end


def _comment_end(sql: str, at: int) -> int:
    depth = 1
    while depth:
        found = _BRACKETS.search(sql, at)
        if found is None:
            return len(sql)
        depth += 1 if found.group() == "/*" else -1
        at = found.end()
    return at


@functools.lru_cache(maxsize=8192)
def parts(sql: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Give a text cut at its quoted names: the pieces between them, and the names, one fewer than pieces."""
    pieces, names, at = [], [], 0
    for token in tokens(sql):
        if token.kind == "name":
            pieces.append(sql[at : token.start])
            names.append(token.name)
            at = token.end
    return (*pieces, sql[at:]), tuple(names)


def quoted_names(sql: str) -> frozenset[str]:
    """Give the names that stand in backquotes, outside of strings and comments."""
    return frozenset(parts(sql)[1])


def replace_names(sql: str, names: Mapping[str, str]) -> str:
    """Put other names in the place of quoted ones, and change nothing else."""
    pieces, found = parts(sql)
    written = [pieces[0]]
    for name, piece in zip(found, pieces[1:], strict=True):
        written += ["`", names.get(name, name).replace("`", "``"), "`", piece]
    return "".join(written)
