"""Names every role of every relation for one range of epochs (a, b]: what SQL calls `orders__delta` becomes a list of files.

b is the newest published epoch plus whatever is pending for the next one. Old is a view's frontier a, so the same program
serves an immediate view (b = a + 1) and one that was not refreshed for a thousand epochs.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa

from runnel.compiler import rows_delta_sql, rows_sql
from runnel.engine.base import Derived, Files, Rows
from runnel.lake import files
from runnel.lake.compaction import fold
from runnel.model import types
from runnel.model.program import name as role_name
from runnel.model.relation import WEIGHT, Column

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from runnel.engine.base import Engine, Input
    from runnel.lake.entries import DataFile, NewFile, ViewEntry
    from runnel.lake.lake import Lake
    from runnel.lake.snapshot import Snapshot
    from runnel.model.program import Role
    from runnel.model.relation import Relation

IN_MEMORY = 20_000
NETTED_BY_DRIVER = 200_000
SIGNED = Column(WEIGHT, types.BIGINT)


def signed(columns: tuple[Column, ...]) -> tuple[Column, ...]:
    """Give these columns with `_weight` behind them."""
    return (*columns, SIGNED)


def stored(relation: Relation, files: Sequence[DataFile | NewFile]) -> Files:
    """Give a relation's stored signed rows in these files as an engine's input."""
    return Files(
        tuple(file.path for file in files),
        signed(relation.columns),
        sum(file.rows for file in files),
        sum(file.bytes for file in files),
    )


@dataclass
class Pending:
    """Files written for an epoch that is not published yet, by relation."""

    files: dict[str, list[NewFile]] = field(default_factory=dict)

    def add(self, relation: str, files: list[NewFile]) -> None:
        """Take files that hold a change of this relation."""
        self.files.setdefault(relation, []).extend(files)

    def of(self, relation: str) -> list[NewFile]:
        """Give the files that hold this relation's change so far."""
        return self.files.get(relation, [])

    def all(self) -> list[NewFile]:
        """Give every file, to publish or to discard."""
        return [file for files in self.files.values() for file in files]


def standing(lake: Lake, head: Snapshot, view: ViewEntry) -> Snapshot:
    """Give the state a view stands at: `head` itself when nothing it reads changed since its frontier.

    Epochs that only tidy up (compaction) change no contents, so a view need not read the files they replaced.
    """
    if view.frontier >= head.epoch or not any(head.changes(name, view.frontier) for name in view.inputs):
        return head
    return lake.snapshot(view.frontier)


class Inputs:
    """The roles of all relations over the range (old.epoch, head + pending]; shared by the views that have that range.

    Relations in `own` belong to the view being computed (itself and its stages): their old state is what is stored now.
    """

    def __init__(
        self, engine: Engine, old: Snapshot, head: Snapshot, pending: Pending, created: Iterable[Relation] = ()
    ) -> None:
        """Keep where to look; nothing is read yet."""
        self._engine = engine
        self._old, self._head, self._pending = old, head, pending
        self._created = {relation.name: relation for relation in created}
        self._row_deltas: dict[str, Rows] = {}
        self._stored_deltas: dict[str, Rows] = {}
        self._locks: dict[str, threading.Lock] = {}
        self._lock = threading.Lock()

    def beside(self, pending: Pending) -> Inputs:
        """Give the inputs of a view's own relations: old is what is stored now, the change is what it has made so far."""
        return Inputs(self._engine, self._head, self._head, pending, self._created.values())

    def relation(self, relation: str) -> Relation:
        """Find a relation, whether published or about to be."""
        return self._created.get(relation) or self._head.relations[relation]

    def _live(self, relation: str, snapshot: Snapshot) -> list[DataFile | NewFile]:
        return list(snapshot.files(relation)) if relation in snapshot.relations else []

    def _new(self, relation: str) -> Files:
        return stored(self.relation(relation), [*self._live(relation, self._head), *self._pending.of(relation)])

    def _stored_old(self, relation: str, own: frozenset[str]) -> Files:
        return stored(self.relation(relation), self._live(relation, self._head if relation in own else self._old))

    def _stored_delta(self, relation: str, own: frozenset[str]) -> Files:
        since: list[DataFile | NewFile] = []
        if relation not in own and relation in self._head.relations:
            since = list(self._head.changes(relation, self._old.epoch))
        return stored(self.relation(relation), [*since, *self._pending.of(relation)])

    def delta_rows(self, relation: str, own: frozenset[str] = frozenset()) -> int:
        """Count the signed rows by which a relation changed; 0 means it did not."""
        source = self.delta(relation, own)
        return source.table.num_rows if isinstance(source, Rows) else source.rows

    def delta(self, relation: str, own: frozenset[str] = frozenset()) -> Files | Rows:
        """Give a relation's change as rows; sums of groups are looked up and finished once, however many views ask."""
        known = self.relation(relation)
        change = self._stored_delta(relation, own)
        if known.final is None:
            return self._in_memory(known, change)
        if change.rows == 0:
            return Rows(_empty(signed(known.rows)), signed(known.rows))
        with self._lock:
            lock = self._locks.setdefault(relation, threading.Lock())
        with lock:
            if relation not in self._row_deltas:
                inputs: dict[str, Input] = {
                    _key(relation, "stored_delta"): self._in_memory(known, change),
                    _key(relation, "stored_old"): self._stored_old(relation, own),
                }
                columns = signed(known.rows)
                table = self._engine.rows(rows_delta_sql(known), inputs, columns)
                self._row_deltas[relation] = Rows(table, columns)
            return self._row_deltas[relation]

    def _in_memory(self, relation: Relation, change: Files) -> Files | Rows:
        """Bring a small change to the driver: an engine plans better on rows it has, and starts no job to read them.

        A change of several epochs is added up on the way, so that a row that came and went is never seen.
        """
        if change.rows == 0 or change.rows > (IN_MEMORY if len(change.paths) == 1 else NETTED_BY_DRIVER):
            return change
        with self._lock:
            if relation.name not in self._stored_deltas:
                since = (
                    self._head.changes(relation.name, self._old.epoch) if relation.name in self._head.relations else ()
                )
                table = files.read(relation, [*since, *self._pending.of(relation.name)])
                netted = fold(relation, table) if len(change.paths) > 1 else table
                self._stored_deltas[relation.name] = Rows(netted, signed(relation.columns))
            return self._stored_deltas[relation.name]

    def roles(self, reads: Iterable[tuple[str, Role]], own: frozenset[str] = frozenset()) -> dict[str, Input]:
        """Give the engine's inputs for these (relation, role) pairs, and for what they are derived from."""
        found: dict[str, Input] = {}
        for relation, role in reads:
            self._put(found, relation, role, own)
        return found

    def _put(self, found: dict[str, Input], relation: str, role: Role, own: frozenset[str]) -> None:
        known = self.relation(relation)
        key = _key(relation, role)
        if role == "delta":
            found[key] = self.delta(relation, own)
        elif role == "stored_delta":
            found[key] = self._stored_delta(relation, own)
        elif role == "stored_old" or (role == "old" and known.final is None):
            found[key] = self._stored_old(relation, own)
        elif role == "new" and known.final is None:
            found[key] = self._new(relation)
        else:
            base = f"{relation}__stored_{'old' if role == 'old' else 'new'}"
            found[base] = self._stored_old(relation, own) if role == "old" else self._new(relation)
            found[key] = Derived(rows_sql(known, f"`{base}`", signed=role != "rows"), (base,))


def _key(relation: str, role: Role) -> str:
    return role_name(relation, role)[1:-1].replace("``", "`")


def _empty(columns: tuple[Column, ...]) -> pa.Table:
    return pa.schema([pa.field(c.name, types.to_arrow(c.type)) for c in columns]).empty_table()
