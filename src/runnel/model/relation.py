"""Relations: what the lake stores and SQL names. A relation's rows at a moment are the sum of its signed rows up to then.

Two forms are stored. A *bag* (`final is None`) keeps the rows themselves, each with `_weight` copies. *Partials*
(`final` is set) keep additive sums per group: stored rows with equal `key` are added up column by column, `_weight` adds up
to the number of base rows in the group, and `final` says how the sums become the rows a user sees.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from runnel.errors import Terminal, nearest
from runnel.model import types
from runnel.model.program import ROLES, quote

if TYPE_CHECKING:
    from collections.abc import Iterable

    from runnel.model.types import Type

WEIGHT = "_weight"
INTERNAL = "~"
"""How names begin that the compiler gives to the inputs of a view's SQL: `~1`, `~2`; it also marks columns named like ours."""
UNWRITABLE = re.compile("[\0\ud800-\udfff]")
"""Characters that not every reader of the state can write: NUL, and halves of characters, which have no encoding."""
RESERVED_PREFIXES = ("_runnel", "__")
RESERVED_SUFFIXES = tuple(f"__{role}" for role in ROLES)
RESERVED = (WEIGHT, "_op", "_epoch", "_time", "_transaction")


@dataclass(frozen=True)
class Column:
    """A named, typed column. Names keep the case they were given and are compared without it."""

    name: str
    type: Type

    def __str__(self) -> str:
        return f"{types.quoted(self.name)} {self.type}"


class Kind(str, Enum):
    """What a relation is to a user: a table that changes, a view that follows, or a stage inside a view (not shown)."""

    TABLE = "table"
    VIEW = "view"
    STAGE = "stage"


@dataclass(frozen=True)
class Final:
    """How partial sums become rows: one expression per column, in Spark's SQL and in DuckDB's.

    The expressions read the key columns, the *summed* partial columns and the summed `_weight` by their stored names.
    A relation of partials without a key is a global aggregate: it has one row even over nothing, and sums over nothing are 0.

    A group may be stored in several rows, one for each combination of its *bands*: stored columns that say by which power of two
    numbers are scaled whose size has no place in the sums of the others. Sums of equal key and bands are added up first; then `merged`
    says how the rows of a group become one. What `merged` does not name is added up there, too.
    """

    columns: tuple[Column, ...]
    spark: tuple[str, ...]
    duckdb: tuple[str, ...]
    bands: tuple[str, ...] = ()
    merged: tuple[Merged, ...] = ()


@dataclass(frozen=True)
class Merged:
    """A column over the rows of one group, one per combination of bands: an aggregate, in Spark's SQL and in DuckDB's.

    With `window`, the column is instead added to each of these rows, computed over all rows of its group, for aggregates to read.
    """

    name: str
    spark: str
    duckdb: str
    window: bool = False


class Trust(str, Enum):
    """Why a foreign key holds: it is checked at every commit, the user vouches for it, or nobody says so."""

    ENFORCED = "enforced"
    RELY = "relied on"
    NONE = "not enforced"


@dataclass(frozen=True)
class ForeignKey:
    """Wherever none of `columns` is NULL, a row of `table` has these values as its key, part by part in the key's order.

    It holds after every epoch. Only a key with `holds` may be used: a wrong one would give wrong rows.
    """

    columns: tuple[str, ...]
    table: str
    trust: Trust = Trust.ENFORCED

    @property
    def holds(self) -> bool:
        """Whether somebody answers for it."""
        return self.trust is not Trust.NONE

    def __str__(self) -> str:
        return f"({', '.join(self.columns)}) references {self.table}, {self.trust.value}"


@dataclass(frozen=True)
class Relation:
    """A named bag of rows. `columns` are those stored, without `_weight`; `key` is unique in the rows, or empty.

    `name` is unique in a project: `orders`, `shop.orders` for a table of a source, `takings#1` for a stage of a view.
    """

    name: str
    kind: Kind
    columns: tuple[Column, ...]
    key: tuple[str, ...] = ()
    final: Final | None = None
    references: tuple[ForeignKey, ...] = ()

    @property
    def rows(self) -> tuple[Column, ...]:
        """The columns a user sees."""
        return self.final.columns if self.final else self.columns

    @property
    def unique(self) -> tuple[str, ...]:
        """The columns a user sees that no two rows have in common; empty where none are known."""
        if self.final is None:
            return self.key
        shown = dict(zip(reversed(self.final.spark), reversed([c.name for c in self.final.columns]), strict=True))
        found = [shown.get(quote(name)) for name in self.key]
        return tuple(name for name in found if name is not None) if None not in found else ()

    @property
    def partial_sums(self) -> tuple[str, ...]:
        """The stored columns that are added up; empty for a bag."""
        by = set(self.summed_by)
        return tuple(c.name for c in self.columns if c.name not in by) if self.final else ()

    @property
    def summed_by(self) -> tuple[str, ...]:
        """The stored columns by which sums are told apart: the key, and the bands of a group."""
        return (*self.key, *self.final.bands) if self.final else self.key

    def column(self, name: str) -> Column:
        """Find a user-visible column without regard to case; raise with the nearest name otherwise."""
        for column in self.rows:
            if column.name.lower() == name.lower():
                return column
        raise Terminal(
            "RUNNEL-COLUMN-UNKNOWN",
            f"{self.name} has no column {name!r}",
            hint=nearest(name, [c.name for c in self.rows]) or f"it has {', '.join(c.name for c in self.rows)}",
        )


def is_alias(name: str) -> bool:
    """Say whether a name is one that the compiler gives to an input of a view's SQL.

    >>> is_alias("~1"), is_alias("~a"), is_alias("~~1")
    (True, False, False)
    """
    return name.startswith(INTERNAL) and name[len(INTERNAL) :].isdigit()


def check_name(name: str, what: str) -> None:
    """Refuse a name that some reader of the state could not write: an empty one, a NUL, half of a character."""
    if not name.strip():
        raise Terminal("RUNNEL-NAME-EMPTY", f"{what} cannot be named {name!r}", hint="give it a name")
    if UNWRITABLE.search(name):
        raise Terminal(
            "RUNNEL-NAME-CHARACTER",
            f"{what} cannot be named {name!r}: it holds a NUL or half of a character",
            hint="leave that character out; any other one is allowed",
        )


def check_columns(owner: str, columns: tuple[Column, ...], key: tuple[str, ...] = ()) -> None:
    """Refuse reserved, repeated and missing names, and keys of nested types, before they can reach the state."""
    check_name(owner, "a table or view")
    seen: dict[str, Type] = {}
    for column in columns:
        check_name(column.name, f"{owner}: a column")
        name = column.name.lower()
        if name in RESERVED or name.startswith(RESERVED_PREFIXES) or name.endswith(RESERVED_SUFFIXES) or is_alias(name):
            raise Terminal(
                "RUNNEL-COLUMN-RESERVED",
                f"{owner}: the column name {column.name!r} is reserved",
                hint="choose a name that does not begin with '__' or '_runnel', does not end with '__delta' or its like, "
                f"is not '{INTERNAL}' and a number, and none of {', '.join(RESERVED)}",
            )
        if name in seen:
            raise Terminal(
                "RUNNEL-COLUMN-TWICE", f"{owner}: two columns are named {column.name!r}", hint="rename one of them"
            )
        seen[name] = column.type
    for part in key:
        if part.lower() not in seen:
            raise Terminal(
                "RUNNEL-KEY-UNKNOWN", f"{owner}: the key column {part!r} does not exist", hint=nearest(part, seen)
            )
        if isinstance(seen[part.lower()], types.Array | types.Map | types.Struct):
            raise Terminal(
                "RUNNEL-KEY-TYPE",
                f"{owner}: the key column {part!r} is {seen[part.lower()]}, which cannot be a key",
                hint="take columns of plain types: numbers, strings, dates",
            )


def find_relation(relations: Iterable[Relation], name: str) -> Relation:
    """Find a table or view without regard to case; `orders` stands for `shop.orders` where that is unambiguous."""
    shown, name = list(relations), str(name)
    exact = [r for r in shown if r.name.lower() == name.lower()]
    short = [r for r in shown if r.name.lower().rpartition(".")[2] == name.lower()]
    if exact or len(short) == 1:
        return (exact or short)[0]
    if short:
        raise Terminal(
            "RUNNEL-NAME-AMBIGUOUS",
            f"{name!r} may be {' or '.join(r.name for r in short)}",
            hint="write the whole name",
        )
    raise Terminal(
        "RUNNEL-RELATION-UNKNOWN",
        f"there is no table or view {name!r}",
        hint=nearest(name, [r.name for r in shown]) or f"there are {', '.join(r.name for r in shown) or 'none yet'}",
    )
