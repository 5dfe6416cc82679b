"""From messages to transactions: those of followed tables, whole and in the order of their commits."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from runnel.connectors.postgres.log.messages import (
    Begin,
    Commit,
    Delete,
    Insert,
    Relation,
    Truncate,
    Update,
    decode,
)
from runnel.connectors.postgres.log.problems import damaged

if TYPE_CHECKING:
    from collections.abc import Callable

Row = Insert | Update | Delete
_ROWS = (ord("I"), ord("U"), ord("D"))


@dataclass(frozen=True)
class Change:
    """A change of one table; `truncated` says that it was emptied, else `row` is what happened to a row."""

    relation: Relation
    lsn: int
    row: Row | None = None

    @property
    def truncated(self) -> bool:
        """Whether the table was emptied."""
        return self.row is None


@dataclass(frozen=True)
class Transaction:
    """A committed transaction: where its commit is in the log, where the log goes on after it, and what it did to followed tables."""

    commit: int
    end: int
    changes: tuple[Change, ...]


@dataclass
class Assembler:
    """Takes the messages of one stream in turn; it knows the tables that the server has described in this stream."""

    wanted: Callable[[str, str], bool]
    _relations: dict[int, Relation] = field(default_factory=dict)
    _begin: Begin | None = None
    _changes: list[Change] = field(default_factory=list)

    @property
    def begun(self) -> int | None:
        """Where the commit will be of the transaction that has begun; None between two."""
        return None if self._begin is None else self._begin.final

    def add(self, lsn: int, data: bytes) -> Transaction | None:
        """Take a message; give the transaction that it ends."""
        if data[:1] and data[0] in _ROWS and not self._is_followed(int.from_bytes(data[1:5], "big")):
            return None
        match decode(lsn, data):
            case Begin() as begin:
                self._begin, self._changes = begin, []
            case Commit() as commit:
                return self._committed(lsn, commit)
            case Relation() as relation:
                self._relations[relation.number] = relation
            case Insert() | Update() | Delete() as row:
                self._changes.append(Change(self._of(lsn, row.relation), lsn, row))
            case Truncate() as emptied:
                for number in emptied.relations:
                    if self._is_followed(number):
                        self._changes.append(Change(self._of(lsn, number), lsn))
        return None

    def _is_followed(self, number: int) -> bool:
        relation = self._relations.get(number)
        return relation is None or self.wanted(relation.schema, relation.name)

    def _of(self, lsn: int, number: int) -> Relation:
        if number not in self._relations:
            raise damaged(lsn, f"the table {number} was not described before its rows")
        return self._relations[number]

    def _committed(self, lsn: int, commit: Commit) -> Transaction:
        if self._begin is None:
            raise damaged(lsn, "a transaction ends that did not begin")
        changes, self._begin, self._changes = tuple(self._changes), None, []
        return Transaction(commit.commit, commit.end, changes)
