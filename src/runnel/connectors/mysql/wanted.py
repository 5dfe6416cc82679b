"""What is looked for in a log: rows of the followed tables, and definitions."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from runnel.connectors.mysql.ddl import ALL, touched

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from runnel.connectors.mysql.log.problems import Spot
    from runnel.connectors.mysql.log.statements import Statement

Stretch = tuple[str, int, int]
"""A file, and where a transaction begins and ends in it."""


@dataclass(frozen=True)
class Wanted:
    """What is looked for: rows of the followed tables, each from a place of the log on, and definitions of those that may be.

    Without `candidates`, every table of the database may be followed.
    """

    database: str
    tables: Collection[str]
    candidates: Collection[str] = ()
    since: Mapping[str, Spot] = field(default_factory=dict)

    def rows(self, schema: str, table: str) -> bool:
        """Say whether rows of a table are followed."""
        return schema == self.database and table in self.tables

    def defined(self, statement: Statement, spot: Spot) -> frozenset[str]:
        """Give the tables that a statement is about, as far as they may be followed."""
        found: set[str] = set()
        # Some servers do not tell apart names by their case, and log definitions as they were written.
        spelled = {name.lower(): name for name in (*self.tables, *self.candidates)}
        for table in touched(statement):
            if table.database == self.database and table.rows:
                found |= set(self.tables) if table.table == ALL else {spelled.get(table.table.lower(), table.table)}
        return frozenset(
            name for name in found if (not self.candidates or name in self.candidates) and self.is_after(name, spot)
        )

    def is_after(self, table: str, spot: Spot) -> bool:
        """Say whether a place is one from which a table is followed."""
        since = self.since.get(table)
        return since is None or spot.order >= since.order
