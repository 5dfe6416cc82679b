"""Reads a view's SELECT with sqlglot, and keeps where every name stood so that errors can point into the user's file."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from runnel.compiler.spark import DIALECT
from runnel.errors import Place, Terminal

if TYPE_CHECKING:
    from collections.abc import Iterator


def parse_query(sql: str, place: Place | None = None) -> exp.Query:
    """Parse one query; raise `RUNNEL-VIEW-SYNTAX` with its line and column otherwise."""
    try:
        parsed = [tree for tree in sqlglot.parse(sql, dialect=DIALECT) if tree is not None]
    except SqlglotError as error:
        raise syntax_error(error, sql, place) from error
    if len(parsed) != 1 or not isinstance(parsed[0], exp.Query):
        raise Terminal(
            "RUNNEL-VIEW-SYNTAX",
            "a view is defined by exactly one SELECT",
            place=place,
            hint="write SELECT ... or WITH ... SELECT ...",
        )
    return parsed[0]


def syntax_error(error: SqlglotError, sql: str, place: Place | None) -> Terminal:
    """Turn sqlglot's complaint into one sentence that points at the word it stumbled over."""
    first: dict[str, object] = next(iter(getattr(error, "errors", [])), {})
    line, highlight = first.get("line"), str(first.get("highlight") or "")
    column = first.get("col")
    where = place
    if isinstance(line, int) and isinstance(column, int):
        where = shifted(place, line, max(1, column - len(highlight) + 1))
    said = str(first.get("description") or "").rstrip(".") or str(error).splitlines()[0]
    said = re.sub(r"<Token .*?text: (.*?), line.*?>", r"'\1'", said)
    said = re.sub(r"Required keyword: '\w+' missing for <class '[\w.]*?(\w+)'>", r"\1 is incomplete", said)
    near = f" near {highlight!r}" if highlight else ""
    return Terminal(
        "RUNNEL-VIEW-SYNTAX",
        f"the SQL cannot be read{near}: {said}",
        place=where,
        hint="mind commas, brackets and keywords",
    )


def shifted(place: Place | None, line: int, column: int) -> Place | None:
    """Give the place of a line and column (from 1) of a text that itself begins at `place`."""
    if place is None:
        return Place("SQL", line, column)
    if place.line is None:
        return place
    first = (place.column or 1) - 1 if line == 1 else 0
    return Place(place.file, place.line + line - 1, column + first)


def place_at(sql: str, offset: int, place: Place | None) -> Place | None:
    """Give the place of a character of the text."""
    before = sql[:offset]
    return shifted(place, before.count("\n") + 1, offset - (before.rfind("\n") + 1) + 1)


def place_of(node: exp.Expr, sql: str, place: Place | None) -> Place | None:
    """Give the place of the leftmost name in a piece of SQL, or the beginning of the text."""
    starts = list(_starts(node))
    return place_at(sql, min(starts), place) if starts else place


def span(node: exp.Expr) -> tuple[int, int] | None:
    """Give the first and the one-past-last character of an identifier, where they are known."""
    start, end = node.meta.get("start"), node.meta.get("end")
    return (int(start), int(end) + 1) if start is not None and end is not None else None


def _starts(node: exp.Expr) -> Iterator[int]:
    for found in node.walk():
        if "start" in found.meta:
            yield int(found.meta["start"])
