"""Reads a view's SELECT with sqlglot, and keeps where every name stood so that errors can point into the user's file."""

from __future__ import annotations

import difflib
import re
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

from sqlglot import exp
from sqlglot.errors import SqlglotError
from sqlglot.tokenizer_core import TokenType

from runnel.compiler.spark import DIALECT
from runnel.compiler.text_limits import check_size, too_deep
from runnel.errors import Excerpt, Place, Terminal
from runnel.model.relation import UNWRITABLE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlglot.tokenizer_core import Token

KEYWORDS = ("SELECT", "FROM", "WHERE", "GROUP", "HAVING", "ORDER", "LIMIT", "OFFSET", "JOIN", "LEFT", "RIGHT", "INNER")
NAMES_FOLLOW = ("SELECT", "FROM", "JOIN", "AS", "BY", "ON", "WHERE", "AND", "OR", "DISTINCT", "=", "<", ">", "+", "-")
_QUOTED = re.compile(
    r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|`[^`]*`|--[^\n]*|/\*.*?\*/|(?P<open>['"`]|/\*)""", re.DOTALL
)


def parse_query(sql: str, place: Place | None = None) -> exp.Query:
    """Parse one query; raise `RUNNEL-VIEW-SYNTAX` with its line and column otherwise."""
    parsed = parse_statements(sql, place)
    if len(parsed) != 1 or not isinstance(parsed[0], exp.Query):
        raise Terminal(
            "RUNNEL-VIEW-SYNTAX",
            "a view is defined by exactly one SELECT",
            place=beginning(sql, place),
            hint="write SELECT ... or WITH ... SELECT ...",
        )
    return parsed[0]


def parse_statements(sql: str, place: Place | None = None) -> list[exp.Expr]:
    """Parse statements; raise `RUNNEL-VIEW-SYNTAX` for what cannot be read, `RUNNEL-VIEW-SIZE` for what is too large."""
    check_size(sql, place)
    try:
        tokens = DIALECT.tokenize(sql)
        if UNWRITABLE.search(sql):
            _refuse_unwritable(tokens, sql, place)
        return [_unhinted(tree) for tree in DIALECT.parser().parse(tokens, sql) if tree is not None]
    except SqlglotError as error:
        raise syntax_error(error, sql, place) from error
    except RecursionError as error:
        raise too_deep(place) from error


def _unhinted(tree: exp.Expr) -> exp.Expr:
    """Leave hints out of a tree: they mean nothing for the rows, and what they name are aliases, not tables that are read."""
    for hint in list(tree.find_all(exp.Hint)):
        hint.pop()
    return tree


def _refuse_unwritable(tokens: list[Token], sql: str, place: Place | None) -> None:
    for token in tokens:
        is_text = token.token_type is TokenType.STRING
        if (found := UNWRITABLE.search(token.text)) and not (is_text and found.group() == "\0"):
            raise Terminal(
                "RUNNEL-NAME-CHARACTER",
                f"the SQL has a NUL or half of a character in {token.text!r}",
                place=place_at(sql, token.start, place, len(token.text)),
                hint="leave that character out",
            )


def syntax_error(error: SqlglotError, sql: str, place: Place | None) -> Terminal:
    """Turn sqlglot's complaint into one sentence that points at the word it stumbled over."""
    first: dict[str, object] = next(iter(getattr(error, "errors", [])), {})
    line, highlight = first.get("line"), str(first.get("highlight") or "")
    column = first.get("col")
    if not first:
        return _unclosed(error, sql, place)
    where, hint = place, None
    if isinstance(line, int) and isinstance(column, int):
        begins = sum(len(text) + 1 for text in sql.split("\n")[: line - 1])
        start = begins + max(0, column - len(highlight))
        where = place_at(sql, start, place, len(highlight) or 1)
        hint = _misspelt(sql[: start + len(highlight)].split())
    said = str(first.get("description") or "").rstrip(".") or str(error).splitlines()[0]
    said = re.sub(r"<Token .*?text: (.*?), line.*?>", r"'\1'", said)
    said = re.sub(r"Required keyword: '\w+' missing for <class '[\w.]*?(\w+)'>", r"\1 is incomplete", said)
    near = f" near {highlight!r}" if highlight else ""
    return Terminal(
        "RUNNEL-VIEW-SYNTAX",
        f"the SQL cannot be read{near}: {said}",
        place=where,
        hint=hint or "mind commas, brackets and keywords",
    )


def _misspelt(words: list[str]) -> str | None:
    """Give the hint for the first or one of the last words if it is nearly a keyword and stands where a name would not."""
    last = [word for before, word in pairwise(words) if before.upper() not in NAMES_FOLLOW and before[-1] not in ",."]
    for word in [*words[:1], *last[-2:]]:
        found = difflib.get_close_matches(word.upper(), KEYWORDS, n=1, cutoff=0.75)
        if found and word.upper() not in KEYWORDS:
            return f"did you mean {found[0]!r}?"
    return None


def _unclosed(error: SqlglotError, sql: str, place: Place | None) -> Terminal:
    """Say which quote or comment is never closed."""
    found = next((m for m in _QUOTED.finditer(sql) if m["open"]), None)
    if found is None:
        return Terminal("RUNNEL-VIEW-SYNTAX", f"the SQL cannot be read: {str(error).splitlines()[0]}", place=place)
    return Terminal(
        "RUNNEL-VIEW-SYNTAX",
        f"what begins with {found['open']} is never closed",
        place=place_at(sql, found.start(), place, len(sql)),
        hint=f"close it with {found['open'].replace('/*', '*/')}",
    )


def beginning(sql: str, place: Place | None) -> Place | None:
    """Give the place of a text, its first word marked; None where the text came without one."""
    word = re.match(r"\s*\S+", sql)
    if place is None or place.line is None or word is None:
        return place
    return place_at(sql, word.end() - len(word[0].strip()), place, len(word[0].strip()))


def shifted(place: Place | None, line: int, column: int) -> Place | None:
    """Give the place of a line and column (from 1) of a text that itself begins at `place`."""
    if place is None:
        return Place("SQL", line, column)
    if place.line is None:
        return place
    first = (place.column or 1) - 1 if line == 1 else 0
    return Place(place.file, place.line + line - 1, column + first)


def place_at(sql: str, offset: int, place: Place | None, length: int = 0) -> Place | None:
    """Give the place of a character of the text; with a length, the line it stands in too, so that it can be underlined."""
    before = sql[:offset]
    begins = before.rfind("\n") + 1
    found = shifted(place, before.count("\n") + 1, offset - begins + 1)
    if found is None or not length:
        return found
    line = sql[begins:].partition("\n")[0]
    return replace(found, excerpt=Excerpt(line, offset - begins, length))


def place_of(node: exp.Expr, sql: str, place: Place | None) -> Place | None:
    """Give the place of a piece of SQL, from the leftmost name in it on, or the beginning of the text."""
    marks = list(_marks(node)) or _spelled(node, sql)
    if not marks:
        return beginning(sql, place)
    start, end = min(s for s, _ in marks), max(e for _, e in marks)
    return place_at(sql, start, place, len(_whole(sql, start, end)))


def _whole(sql: str, start: int, end: int) -> str:
    """Take the brackets of a call with its name and its arguments."""
    text = sql[start:end]
    follows = re.match(r"\s*\(", sql[end:]) if "(" not in text else None
    if follows is not None:
        end += follows.end()
    while sql[start:end].count("(") > sql[start:end].count(")") and ")" in sql[end:]:
        end = sql.index(")", end) + 1
    return sql[start:end]


def _spelled(node: exp.Expr, sql: str) -> list[tuple[int, int]]:
    """Find a call that sqlglot keeps no place of, such as CURRENT_DATE, by its name."""
    if not isinstance(node, exp.Func):
        return []
    names = {name.lower() for name in node.sql_names()}
    tokens = DIALECT.tokenize(sql)
    return [(t.start, t.end + 1) for t in tokens if t.text.lower() in names and sql[t.start] not in "'\"`"][:1]


def span(node: exp.Expr) -> tuple[int, int] | None:
    """Give the first and the one-past-last character of an identifier, where they are known."""
    start, end = node.meta.get("start"), node.meta.get("end")
    return (int(start), int(end) + 1) if start is not None and end is not None else None


def _marks(node: exp.Expr) -> Iterator[tuple[int, int]]:
    for found in node.walk():
        if "start" in found.meta:
            yield int(found.meta["start"]), int(found.meta["end"]) + 1
