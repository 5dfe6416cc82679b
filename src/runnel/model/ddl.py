"""Column lists as `CREATE TABLE` writes them: `id BIGINT, name STRING NOT NULL, PRIMARY KEY (id)`.

>>> columns, key = parse_columns("id BIGINT, cost DECIMAL(12,2), PRIMARY KEY (id)")
>>> [str(column) for column in columns], key
(['id bigint', 'cost decimal(12,2)'], ('id',))
>>> parse_table("id INT PRIMARY KEY, shop INT REFERENCES shops (id)").references[0].table
'shops'
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from runnel.errors import RunnelError, UsageError, nearest
from runnel.model import types
from runnel.model.foreign_keys import Reference
from runnel.model.relation import Column, Trust, check_columns

if TYPE_CHECKING:
    from runnel.errors import Place

_NAME = r"`(?:[^`]|``)+`|[^\W\d]\w*"
_COLUMN = re.compile(rf"\s*({_NAME})(?:\s*:\s*|\s+)(.+)", re.DOTALL)
_KEY = re.compile(rf"\s*(?:CONSTRAINT\s+(?:{_NAME})\s+)?PRIMARY\s+KEY\s*\((.*)\)\s*", re.DOTALL | re.IGNORECASE)
_TARGET = (
    rf"REFERENCES\s+((?:{_NAME})(?:\s*\.\s*(?:{_NAME}))*)\s*(?:\(([^()]*)\))?((?:\s+(?:NOT\s+ENFORCED|RELY|NORELY))*)"
)
_REFERENCE = re.compile(_TARGET, re.DOTALL | re.IGNORECASE)
_FOREIGN = re.compile(
    rf"\s*(?:CONSTRAINT\s+(?:{_NAME})\s+)?FOREIGN\s+KEY\s*\(([^()]*)\)\s*({_TARGET})\s*", re.DOTALL | re.IGNORECASE
)
_CONSTRAINT = re.compile(rf"\s*(?:CONSTRAINT\s+(?:{_NAME})\s+)?(?:FOREIGN|PRIMARY)\s+KEY\b", re.IGNORECASE)
_OPTION = re.compile(
    rf"\s+(PRIMARY\s+KEY|NOT\s+NULL|NULL|COMMENT\s+'(?:[^']|'')*'|{_TARGET})\s*$", re.DOTALL | re.IGNORECASE
)


@dataclass(frozen=True)
class TableText:
    """What the column list of a `CREATE TABLE` says."""

    columns: tuple[Column, ...]
    key: tuple[str, ...]
    references: tuple[Reference, ...] = ()


def parse_columns(
    text: str, *, owner: str = "table", place: Place | None = None
) -> tuple[tuple[Column, ...], tuple[str, ...]]:
    """Give the columns and the key of a list in which foreign keys have no place."""
    table = parse_table(text, owner=owner, place=place)
    if table.references:
        raise UsageError(
            "RUNNEL-SCHEMA-SYNTAX",
            f"{owner}: a foreign key has no place here",
            place=place,
            hint="it is part of CREATE TABLE",
        )
    return table.columns, table.key


def parse_table(text: str, *, owner: str = "table", place: Place | None = None) -> TableText:
    """Read columns, key and foreign keys; raise `RUNNEL-SCHEMA-*` at `place` for what cannot be read."""
    columns: list[Column] = []
    key: list[str] = []
    references: list[Reference] = []
    for part in _split(_without_comments(text)):
        if (table_key := _KEY.fullmatch(part)) is not None:
            key += [_bare(name) for name in _split(table_key.group(1))]
        elif (foreign := _FOREIGN.fullmatch(part)) is not None:
            references.append(_reference([_bare(name) for name in _split(foreign.group(1))], foreign.group(2)))
        else:
            column, is_key, found = _column(part, owner, place)
            columns.append(column)
            references += found
            key += [column.name] if is_key else []
    if not columns:
        raise UsageError("RUNNEL-SCHEMA-EMPTY", f"{owner} has no columns", place=place, hint="write 'name TYPE, ...'")
    try:
        check_columns(owner, tuple(columns), tuple(key))
    except RunnelError as error:
        raise UsageError(error.code, error.message, place=place, hint=error.hint) from error
    named = tuple(dict.fromkeys(spelled(tuple(key), tuple(columns))))
    return TableText(tuple(columns), named, tuple(references))


def _reference(columns: list[str], target: str) -> Reference:
    match = _REFERENCE.match(target)
    assert match is not None, target
    words = match.group(3).upper().split()
    trust = Trust.RELY if "RELY" in words else Trust.NONE if words else Trust.ENFORCED
    table = ".".join(_bare(name) for name in re.findall(_NAME, match.group(1)))
    return Reference(tuple(columns), table, tuple(_bare(name) for name in _split(match.group(2) or "")), trust)


def spelled(key: tuple[str, ...], columns: tuple[Column, ...]) -> tuple[str, ...]:
    """Write key names in the case of the columns they name; unknown names stay as they are."""
    by_name = {column.name.lower(): column.name for column in columns}
    return tuple(by_name.get(name.lower(), name) for name in key)


def _column(part: str, owner: str, place: Place | None) -> tuple[Column, bool, list[Reference]]:
    match = _COLUMN.fullmatch(part)
    if match is None or _CONSTRAINT.match(part):
        what, hint = "column", "write 'name TYPE'"
        if _CONSTRAINT.match(part):
            what = "key"
            hint = "write PRIMARY KEY (a, ...), or FOREIGN KEY (a, ...) REFERENCES t (b, ...) [NOT ENFORCED] [RELY]"
        raise UsageError("RUNNEL-SCHEMA-SYNTAX", f"{owner}: {part.strip()!r} is no {what}", place=place, hint=hint)
    name, rest, is_key = _bare(match.group(1)), match.group(2), False
    references: list[Reference] = []
    while (option := _OPTION.search(rest)) is not None:
        said = option.group(1).upper()
        is_key = is_key or said.startswith("PRIMARY")
        references += [_reference([name], option.group(1))] if said.startswith("REFERENCES") else []
        rest = rest[: option.start()]
    try:
        return Column(name, types.parse(rest.strip())), is_key, references
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
