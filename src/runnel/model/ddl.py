"""Column lists as `CREATE TABLE` writes them: `id BIGINT, name STRING NOT NULL, PRIMARY KEY (id)`.

>>> columns, key = parse_columns("id BIGINT, cost DECIMAL(12,2), PRIMARY KEY (id)")
>>> [str(column) for column in columns], key
(['id bigint', 'cost decimal(12,2)'], ('id',))
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from runnel.errors import RunnelError, UsageError, nearest
from runnel.model import types
from runnel.model.relation import Column, check_columns

if TYPE_CHECKING:
    from runnel.errors import Place

_NAME = r"`(?:[^`]|``)+`|[^\W\d]\w*"
_COLUMN = re.compile(rf"\s*({_NAME})(?:\s*:\s*|\s+)(.+)", re.DOTALL)
_KEY = re.compile(rf"\s*(?:CONSTRAINT\s+(?:{_NAME})\s+)?PRIMARY\s+KEY\s*\((.*)\)\s*", re.DOTALL | re.IGNORECASE)
_OPTION = re.compile(r"\s+(PRIMARY\s+KEY|NOT\s+NULL|NULL|COMMENT\s+'(?:[^']|'')*')\s*$", re.DOTALL | re.IGNORECASE)


def parse_columns(
    text: str, *, owner: str = "table", place: Place | None = None
) -> tuple[tuple[Column, ...], tuple[str, ...]]:
    """Give the columns and the key of a column list; raise `RUNNEL-SCHEMA-*` at `place` for what cannot be read."""
    columns: list[Column] = []
    key: list[str] = []
    for part in _split(_without_comments(text)):
        table_key = _KEY.fullmatch(part)
        if table_key is not None:
            key += [_bare(name) for name in _split(table_key.group(1))]
            continue
        column, is_key = _column(part, owner, place)
        columns.append(column)
        key += [column.name] if is_key else []
    if not columns:
        raise UsageError("RUNNEL-SCHEMA-EMPTY", f"{owner} has no columns", place=place, hint="write 'name TYPE, ...'")
    try:
        check_columns(owner, tuple(columns), tuple(key))
    except RunnelError as error:
        raise UsageError(error.code, error.message, place=place, hint=error.hint) from error
    return tuple(columns), tuple(dict.fromkeys(spelled(tuple(key), tuple(columns))))


def spelled(key: tuple[str, ...], columns: tuple[Column, ...]) -> tuple[str, ...]:
    """Write key names in the case of the columns they name; unknown names stay as they are."""
    by_name = {column.name.lower(): column.name for column in columns}
    return tuple(by_name.get(name.lower(), name) for name in key)


def _column(part: str, owner: str, place: Place | None) -> tuple[Column, bool]:
    match = _COLUMN.fullmatch(part)
    if match is None:
        raise UsageError(
            "RUNNEL-SCHEMA-SYNTAX", f"{owner}: {part.strip()!r} is no column", place=place, hint="write 'name TYPE'"
        )
    name, rest, is_key = _bare(match.group(1)), match.group(2), False
    while (option := _OPTION.search(rest)) is not None:
        is_key = is_key or option.group(1).upper().startswith("PRIMARY")
        rest = rest[: option.start()]
    try:
        return Column(name, types.parse(rest.strip())), is_key
    except RunnelError as error:
        near = nearest(rest.strip(), [*types.PRIMITIVES, *types.SYNONYMS, "decimal"])
        message = f"{owner}: column {name!r}: {error.message}"
        raise UsageError(error.code, message, place=place, hint=near or error.hint) from error


def _without_comments(text: str) -> str:
    keep = re.compile(r"(`(?:[^`]|``)*`|'(?:[^']|'')*')|--[^\n]*|/\*.*?\*/", re.DOTALL)
    return keep.sub(lambda match: match.group(1) or " ", text)


def _split(text: str) -> list[str]:
    """Split at the commas that stand outside brackets and quotes."""
    parts, depth, start = [], 0, 0
    for token in re.finditer(r"`(?:[^`]|``)*`|'(?:[^']|'')*'|[<(]|[>)]|,", text):
        if token.group() in ("<", "("):
            depth += 1
        elif token.group() in (">", ")"):
            depth -= 1
        elif token.group() == "," and depth == 0:
            parts.append(text[start : token.start()])
            start = token.end()
    parts.append(text[start:])
    return [part for part in parts if part.strip()]


def _bare(name: str) -> str:
    name = name.strip()
    return name[1:-1].replace("``", "`") if name.startswith("`") else name
