"""How a table differs from the rows it should have, as a server that has both counts and lists it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from runnel.connectors.base import Delivery

LISTED = 100
"""How many rows of each kind are listed."""
MISSING, DIFFERENT, UNEXPECTED = "missing", "different", "unexpected"


@dataclass
class Difference:
    """How many rows are missing in the table, hold other values, or should not exist; `rows` lists the first of each kind.

    What is listed are keys, and whole rows where there is no key.
    """

    checked: int = 0
    counts: dict[str, int] = field(default_factory=dict)
    rows: dict[str, list[dict[str, Any]]] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        """Whether the table has exactly the rows it should have."""
        return not any(self.counts.values())

    def add(self, kind: str, count: int, rows: list[dict[str, Any]]) -> None:
        """Add rows of a kind; of those that are listed, as many as there is room for."""
        self.counts[kind] = self.counts.get(kind, 0) + count
        listed = self.rows.setdefault(kind, [])
        listed += rows[: LISTED - len(listed)]


class ComparingTarget(Protocol):
    """A target whose server can compare a table with rows."""

    def compare(self, delivery: Delivery) -> Difference:
        """Compare the table with a whole delivery; nothing of it is changed. `Conflict` where its mark is not `since` any more."""
        ...
