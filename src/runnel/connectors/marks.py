"""What a target remembers of its tables, and what fits which table: the same rules and errors for every store."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from runnel.errors import RunnelError, Terminal, Transient

if TYPE_CHECKING:
    from collections.abc import Collection

    from runnel.model.relation import Column


@dataclass(frozen=True)
class Shape:
    """A view (or table) as a target is to hold it, and the table's name there; an empty `key` says that rows may repeat."""

    view: str
    table: str
    columns: tuple[Column, ...]
    key: tuple[str, ...] = ()


@dataclass(frozen=True)
class Mark:
    """What a target's table holds: the rows as of `epoch` of what `state` names, one incarnation of a view in one state.

    In a store without transactions a delivery may be there in part: the one that was `begun` has to be done again first.
    """

    epoch: int
    state: str
    begun: Mark | None = None


def column_there(column: str, there: Collection[str]) -> str:
    """Find a view's column in a table by its very name, or by its name in another case; else give the name itself.

    >>> column_there("Total", ["id", "total"]), column_there("Total", ["TOTAL", "total"])
    ('total', 'Total')
    """
    alike = [name for name in there if name.lower() == column.lower()]
    return column if column in there or len(alike) != 1 else alike[0]


def view_problem(label: str, error: RunnelError) -> RunnelError:
    """Give the error of one view with the target's label before it; raise it where it concerns more than one view."""
    if isinstance(error, Transient):
        raise error
    if not error.message.startswith(label):
        error.message = f"{label}: {error.message}"
    return error


def misfit(
    shape: Shape, table: object, what: str, hint: str = "alter the table, or drop it: it is then created again"
) -> Terminal:
    """Say why a table that exists cannot hold a view."""
    return Terminal("RUNNEL-TARGET-COLUMN", f"{table} does not fit {shape.view}: {what}", hint=hint)


def column_misfit(shape: Shape, table: object, column: str, found: str | None, wanted: str) -> Terminal:
    """Say that a column is missing, or of a type that does not hold every value."""
    is_there = "is not there" if found is None else f"is {found}"
    return misfit(shape, table, f"column {column!r} {is_there}, and has to be {wanted}")


def value_problem(shape: Shape, column: str, what: str, hint: str = "convert it in the view") -> Terminal:
    """Say which column has a value that the store cannot hold."""
    return Terminal("RUNNEL-TARGET-VALUE", f"{shape.view}: column {column!r} has {what}", hint=hint)


def key_problem(shape: Shape, column: str, what: str, hint: str) -> Terminal:
    """Say which key column has a value that a key of the store must not have."""
    said = f"{shape.view} has a row whose key column {column!r} is {what}"
    return Terminal("RUNNEL-TARGET-KEY-NULL", said, hint=hint)
