"""What an aggregate is kept as: sums that are stored, and a formula over them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from runnel.compiler.emit import quoted
from runnel.model.relation import WEIGHT

if TYPE_CHECKING:
    from runnel.model.types import Type

TIMES = f"CAST({quoted(WEIGHT)} AS DECIMAL(10,0))"
"""The weight as a decimal narrow enough to multiply 27 digits without losing any."""


@dataclass(frozen=True)
class Partial:
    """One stored sum: its kind and argument make its identity, `sql` is what is summed over the rows of a change."""

    kind: str
    argument: str
    type: Type
    sql: str


@dataclass(frozen=True)
class Band:
    """By which power of two an argument is scaled, half of its exponent: 0 for the numbers of an everyday size.

    It is a stored column that sums are told apart by, so numbers of very different size never meet in one sum.
    """

    kind: str
    argument: str
    sql: str


@dataclass(frozen=True)
class Across:
    """How the stored rows of a group, one per band, become one column; with `window`, a column of each of these rows.

    `{kind}` stands for the stored sums and the bands. In a window, `{by}` stands for the group.
    """

    kind: str
    argument: str
    spark: str
    duckdb: str
    window: bool = False


@dataclass(frozen=True)
class Value:
    """A measure's result: its type, and its formula in both dialects, with `{kind}` for each stored sum it reads."""

    type: Type
    spark: str
    duckdb: str
    partials: tuple[Partial, ...]
    bands: tuple[Band, ...] = ()
    across: tuple[Across, ...] = ()
