"""The user's own text of a view and where it stands: what every error of the compiler points into."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from runnel.compiler import parse

if TYPE_CHECKING:
    from sqlglot import exp

    from runnel.errors import Place


@dataclass(frozen=True)
class SourceText:
    """A query's text and the place of its first character."""

    sql: str
    place: Place | None = None

    def place_of(self, node: exp.Expr) -> Place | None:
        """Give the place of the leftmost name in a piece of it."""
        return parse.place_of(node, self.sql, self.place)
