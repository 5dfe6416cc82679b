"""Tables that exist, held against the views they are to follow: the same rules for every SQL server."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from runnel.connectors.marks import column_misfit, column_there, misfit
from runnel.errors import Terminal, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from runnel.connectors.marks import Shape
    from runnel.model.types import Type

ROW, COPY = "_runnel_row", "_runnel_copy"
"""Columns of runnel's own where no key of the view can be the table's: a hash, and the number of a row among equal ones."""
MARKS = "_runnel"
"""The table of marks."""


@dataclass(frozen=True)
class There:
    """A column that exists."""

    type: str
    required: bool
    """Whether it is NOT NULL and has no default."""


@dataclass(frozen=True)
class Types:
    """A server's types: the one made for a type, whether an existing one fits, and those of runnel's own columns."""

    made: Callable[[Type], str]
    fits: Callable[[Type, str], bool]
    own: Mapping[str, str]


@dataclass(frozen=True)
class Held:
    """What each column of a view is called in a table, and the columns of the key there."""

    columns: Mapping[str, str]
    key: tuple[str, ...]


def held_against(shape: Shape, table: object, there: Mapping[str, There], server: Types) -> Held:
    """Find a view's columns in a table; raise `RUNNEL-TARGET-COLUMN` where one is missing or too narrow, or one too many is required."""
    columns = {column.name: column_there(column.name, there) for column in shape.columns}
    for column in shape.columns:
        found = there.get(columns[column.name])
        if found is None or not server.fits(column.type, found.type):
            is_there = found.type if found else None
            raise column_misfit(shape, table, column.name, is_there, server.made(column.type))
    key = tuple(columns[part] for part in shape.key) or (ROW, COPY)
    for own, type_ in server.own.items() if not shape.key else ():
        if own not in there or there[own].type != type_:
            raise misfit(shape, table, f"it has no column {own} {type_}, which rows without a key need")
    ours = {*columns.values(), *key}
    for name, column_of_table in there.items():  # in the table's order, so that the same table gives the same sentence
        if column_of_table.required and name not in ours:
            raise misfit(shape, table, f"its column {name!r} is not the view's, and must not be NULL")
    return Held(columns, key)


def no_index(shape: Shape, table: object, key: Sequence[str], why: str = "has no unique index on") -> Terminal:
    """Say that a table has nothing by which rows are told apart."""
    return Terminal(
        "RUNNEL-TARGET-KEY-INDEX",
        f"{table} {why} ({', '.join(key)}), by which the rows of {shape.view} are told apart",
        hint="create it, or drop the table: it is then created again",
    )


def name_parts(text: str, quote: str, longest: int) -> tuple[str | None, str]:
    """Cut a table's name into what contains it, where that is named, and the table; names with dots are in quotes.

    >>> name_parts("a.b", "`", 64), name_parts("`a.b`", "`", 64)
    (('a', 'b'), (None, 'a.b'))
    """
    part = re.compile(rf"(?:{quote}((?:[^{quote}]|{quote}{quote})+){quote}|([^{quote}.]+))(\.|$)")
    parts, at = [], 0
    while at < len(text) and (found := part.match(text, at)):
        parts.append(found[1].replace(quote * 2, quote) if found[1] else found[2])
        at = found.end()
    long = any(len(name.encode()) > longest for name in parts)
    if at < len(text) or not 1 <= len(parts) <= 2 or text.endswith(".") or long:
        hint = f"write schema.table, each of {longest} bytes at most"
        raise UsageError("RUNNEL-TARGET-NAME", f"{text!r} is not a name of a table", hint=hint)
    return (parts[0] if len(parts) == 2 else None), parts[-1]
