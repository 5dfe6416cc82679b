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
class Value:
    """A measure's result: its type, and its formula in both dialects, with `{kind}` for each stored sum it reads."""

    type: Type
    spark: str
    duckdb: str
    partials: tuple[Partial, ...]
