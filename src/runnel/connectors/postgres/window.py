"""A window of the log: what lies between two positions, cut only between transactions, and around those that redefine a followed table."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from runnel.connectors.postgres.definitions import Definition
    from runnel.connectors.postgres.log.transactions import Change, Transaction
    from runnel.connectors.postgres.stream import LogStream


@dataclass(frozen=True)
class Window:
    """What was found after a position: changes in the order of their commits, and where it ends.

    `defined` are followed tables that the log has in another form than their definitions from some place in the last transaction on.
    """

    start: int
    end: int
    changes: tuple[Change, ...] = ()
    defined: frozenset[str] = frozenset()

    @property
    def empty(self) -> bool:
        """Whether nothing in it concerns followed tables."""
        return not self.changes and not self.defined


@dataclass(frozen=True)
class Wanted:
    """The tables that are followed, each from a place of the log on."""

    schema: str
    tables: Mapping[str, Definition]
    since: Mapping[str, int] = field(default_factory=dict)

    def has(self, schema: str, table: str) -> bool:
        """Say whether a table is followed."""
        return schema == self.schema and table in self.tables

    def of(self, transaction: Transaction) -> list[Change]:
        """Give the changes of a transaction that count."""
        return [
            one
            for one in transaction.changes
            if self.has(one.relation.schema, one.relation.name)
            and transaction.commit >= self.since.get(one.relation.name, 0)
        ]

    def redefined(self, changes: list[Change]) -> frozenset[str]:
        """Give the tables that some changes show in another form than their definitions."""
        return frozenset(one.relation.name for one in changes if not self.tables[one.relation.name].is_of(one.relation))


def take_window(stream: LogStream, wanted: Wanted, target: int, limit: int, *, single: bool = False) -> Window:
    """Read a stream until a window is large enough, or the stream is at `target`."""
    start = end = stream.at
    changes: list[Change] = []
    for transaction in stream.transactions(target):
        mine = wanted.of(transaction)
        redefined = wanted.redefined(mine)
        if redefined and changes:
            stream.put_back(transaction, end)
            return Window(start, end, tuple(changes))
        changes += [one for one in mine if one.relation.name not in redefined]
        end = transaction.end
        if redefined or len(changes) >= limit or (single and changes):
            return Window(start, end, tuple(changes), redefined)
    return Window(start, stream.at, tuple(changes))
