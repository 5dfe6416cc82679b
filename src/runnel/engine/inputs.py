"""Names every role of every relation for one range of epochs (a, b]: what SQL calls `orders__delta` becomes a list of files.

b is the newest published epoch plus whatever is pending for the next one. Old is a view's frontier a, so the same program
serves an immediate view (b = a + 1) and one that was not refreshed for a thousand epochs.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import pyarrow as pa

from runnel.compiler import part_sql, rows_delta_sql, rows_sql
from runnel.engine.base import Derived, Files, Rows, TooLarge
from runnel.engine.parts import part_of
from runnel.errors import Terminal
from runnel.lake import lookup
from runnel.lake.catalog import now
from runnel.lake.compaction import fold
from runnel.lake.entries import only_adds
from runnel.model import types
from runnel.model.program import PARTS, quote
from runnel.model.program import name as role_name
from runnel.model.relation import WEIGHT, Column

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Mapping, Sequence

    from runnel.engine.base import Engine, Input
    from runnel.lake.entries import DataFile, NewFile, ViewEntry
    from runnel.lake.lake import Lake
    from runnel.lake.snapshot import Snapshot
    from runnel.model.program import Role
    from runnel.model.relation import Relation

IN_MEMORY = 20_000
NETTED_BY_DRIVER = 200_000
SPILLED = 500_000
# Where one row in so many may take another away, rows of untouched keys are told apart instead of adding up all rows.
TAKEN_FROM_FEW = 8
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
        relation,
        tuple(files),
    )


@dataclass
class Pending:
    """Files written for an epoch that is not published yet, by relation."""

    files: dict[str, list[NewFile]] = field(default_factory=dict)
    moment: str | None = None
    """The time of the epoch, once something that is written into it names its time; its number is then fixed too."""
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False, compare=False)

    def at(self) -> str:
        """Give the time of this epoch; the same for all who ask."""
        with self._lock:
            self.moment = self.moment or now()
            return self.moment

    def add(self, relation: str, files: list[NewFile]) -> None:
        """Take files that hold a change of this relation."""
        self.files.setdefault(relation, []).extend(files)

    def of(self, relation: str) -> list[NewFile]:
        """Give the files that hold this relation's change so far."""
        return self.files.get(relation, [])

    def all(self) -> list[NewFile]:
        """Give every file, to publish or to discard."""
        return [file for files in self.files.values() for file in files]


@dataclass(frozen=True)
class Beside:
    """A relation that is not published yet, and the files that hold it as of the epoch it was computed at.

    It may have the name of a published one, which it will replace.
    """

    relation: Relation
    files: tuple[NewFile, ...] = ()


def standing(lake: Lake, head: Snapshot, view: ViewEntry, beside: Container[str] = ()) -> Snapshot:
    """Give the state a view stands at: `head` itself when nothing it reads changed since its frontier.

    Epochs that only tidy up (compaction) change no contents, so a view need not read the files they replaced. What is
    computed `beside` what is published has no changes there.
    """
    inputs = [name for name in view.inputs if name not in beside]
    if view.frontier >= head.epoch or not any(head.changes(name, view.frontier) for name in inputs):
        return head
    return lake.snapshot(view.frontier)


def follows(head: Snapshot, view: ViewEntry) -> frozenset[str]:
    """Give the tables and views that a view follows, through the stages below it."""
    found: set[str] = set()
    todo = list(view.inputs)
    while todo:
        name = todo.pop()
        stage = head.entries.get(name) if name not in head.views else None
        if stage is None:
            found.add(name)
        else:
            todo.extend(stage.inputs)
    return frozenset(found)


def shows(lake: Lake, head: Snapshot, view: ViewEntry) -> Snapshot:
    """Give the state whose tables and views a view shows: `head` where none of them changed since its frontier."""
    try:
        return standing(lake, head, replace(view, inputs=tuple(follows(head, view))))
    except Terminal:  # changes were forgotten when all stages had passed them, so there were some
        return lake.snapshot(view.frontier)


class Inputs:
    """The roles of all relations over the range (old.epoch, head + pending]; shared by the views that have that range.

    A relation in `own` is the one being computed: its old state is what is stored now. Relations `beside` are not published
    yet: their old state is what they were computed as, their change what is pending.
    """

    def __init__(
        self,
        engine: Engine,
        old: Snapshot,
        head: Snapshot,
        pending: Pending,
        beside: Mapping[str, Beside] | None = None,
        spill: Callable[[Relation, str, Mapping[str, Input]], Files] | None = None,
    ) -> None:
        """Keep where to look; nothing is read yet. `spill` writes a change that is too large for the driver to files."""
        self._engine, self._spill = engine, spill
        self._old, self._head, self._pending = old, head, pending
        self._beside = dict(beside or {})
        self._row_deltas: dict[str, Files | Rows] = {}
        self._stored_deltas: dict[str, Files | Rows] = {}
        self._locks: dict[str, threading.Lock] = {}
        self._lock = threading.Lock()

    @property
    def range(self) -> tuple[Snapshot, Snapshot, Pending, Mapping[str, Beside]]:
        """The state before, the newest one, what is pending for the next, and what stands beside it."""
        return self._old, self._head, self._pending, self._beside

    def for_own(self) -> Inputs:
        """Give the inputs of what a program itself makes: old is what is stored now, and nothing has changed yet."""
        return Inputs(self._engine, self._head, self._head, Pending(), self._beside)

    def hand_on(self, relation: Relation, change: Files | Rows) -> None:
        """Take the change of something that is kept nowhere: what a step found out for the next one, a join of several views."""
        self._beside[relation.name] = Beside(relation)
        self._stored_deltas[relation.name] = change

    def handed_on(self, relation: str) -> bool:
        """Say whether the change of something that is kept nowhere is at hand."""
        return relation in self._beside and relation in self._stored_deltas

    def computed(
        self, relation: Relation, sql: str, inputs: Mapping[str, Input], columns: tuple[Column, ...]
    ) -> Files | Rows:
        """Compute a change that is kept nowhere: rows in the driver, or files for as long as the epoch is computed."""
        try:
            return Rows(self._engine.change(sql, inputs, columns), columns)
        except TooLarge:
            if self._spill is None:
                return Rows(self._engine.rows(sql, inputs, columns), columns)
            return self._spill(relation, sql, inputs)

    def relation(self, relation: str) -> Relation:
        """Find a relation, whether published or about to be."""
        return self._beside[relation].relation if relation in self._beside else self._head.relations[relation]

    def _live(self, relation: str, snapshot: Snapshot) -> list[DataFile | NewFile]:
        if relation in self._beside:
            return list(self._beside[relation].files)
        return list(snapshot.files(relation)) if relation in snapshot.relations else []

    def _since(self, relation: str) -> list[DataFile | NewFile]:
        published = relation not in self._beside and relation in self._head.relations
        return list(self._head.changes(relation, self._old.epoch)) if published else []

    def _new(self, relation: str) -> Files:
        return stored(self.relation(relation), [*self._live(relation, self._head), *self._pending.of(relation)])

    def _stored_old(self, relation: str, own: frozenset[str]) -> Files:
        return stored(self.relation(relation), self._live(relation, self._head if relation in own else self._old))

    def _stored_delta(self, relation: str, own: frozenset[str]) -> Files:
        since = [] if relation in own else self._since(relation)
        return replace(stored(self.relation(relation), [*since, *self._pending.of(relation)]), change=True)

    def stored_rows(self, relation: str) -> int:
        """Count the signed rows stored of a relation, before the change."""
        return self._stored_old(relation, frozenset({relation})).rows

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
        if change.rows == 0 and relation not in self._stored_deltas:
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
                rows = replace(known, columns=known.rows, final=None, key=())
                if self._spill is not None and change.rows > SPILLED:
                    self._row_deltas[relation] = self._spill(rows, rows_delta_sql(known), inputs)
                else:
                    self._row_deltas[relation] = self.computed(rows, rows_delta_sql(known), inputs, columns)
            return self._row_deltas[relation]

    def _in_memory(self, relation: Relation, change: Files) -> Files | Rows:
        """Bring a small change to the driver: an engine plans better on rows it has, and starts no job to read them.

        A change of several epochs is added up on the way, so that a row that came and went is never seen.
        """
        if relation.name in self._stored_deltas:
            return self._stored_deltas[relation.name]
        if change.rows == 0 or change.rows > (IN_MEMORY if len(change.paths) == 1 else NETTED_BY_DRIVER):
            return change
        with self._lock:
            if relation.name not in self._stored_deltas:
                parts = [*self._since(relation.name), *self._pending.of(relation.name)]
                table = pa.concat_tables([lookup.whole(relation, part) for part in parts])
                netted = fold(relation, table) if len(change.paths) > 1 else table
                self._stored_deltas[relation.name] = Rows(netted, signed(relation.columns))
            return self._stored_deltas[relation.name]

    def roles(
        self,
        reads: Iterable[tuple[str, Role]],
        own: frozenset[str] = frozenset(),
        seen: Mapping[str, tuple[str, ...]] | None = None,
    ) -> dict[str, Input]:
        """Give the engine's inputs for these (relation, role) pairs, and for what they are derived from.

        `rows` are read by a user's own text, in which `*` may stand: they have the columns that this text has `seen`.
        """
        found: dict[str, Input] = {}
        for relation, role in reads:
            self._put(found, relation, role, own)
            if role == "rows" and relation in (seen or {}):
                self._narrow(found, relation, (seen or {})[relation])
        return found

    def empty_of(self, parts: Iterable[tuple[str, Role]]) -> frozenset[tuple[str, Role]]:
        """Give those parts of changes that are known to have no rows; of a large change nothing is known."""
        found = {(name, role): self._part(name, role) for name, role in parts}
        return frozenset(at for at, rows in found.items() if isinstance(rows, Rows) and not rows.table.num_rows)

    def _part(self, relation: str, role: Role) -> Rows | Derived:
        change = self.delta(relation)
        if isinstance(change, Rows):
            return Rows(part_of(self.relation(relation), change.table, role), change.columns)
        return Derived(part_sql(self.relation(relation), role), (_key(relation, "delta"),))

    def _narrow(self, found: dict[str, Input], relation: str, seen: tuple[str, ...]) -> None:
        names = [column.name for column in self.relation(relation).rows]
        whole = found[_key(relation, "rows")]
        if isinstance(whole, Derived) and not set(names) <= set(seen):
            columns = ", ".join(quote(name) for name in names if name in seen)
            found[_key(relation, "rows")] = Derived(f"SELECT {columns} FROM (\n{whole.sql}\n) AS whole", whole.reads)

    def _put(self, found: dict[str, Input], relation: str, role: Role, own: frozenset[str]) -> None:
        known = self.relation(relation)
        key = _key(relation, role)
        if role == "delta":
            found[key] = self.delta(relation, own)
        elif role in PARTS:
            found[key] = self._part(relation, role)
            found[_key(relation, "delta")] = self.delta(relation, own)
        elif role == "stored_delta":
            found[key] = self._stored_delta(relation, own)
        elif role == "stored_old" or (role == "old" and known.final is None):
            found[key] = self._stored_old(relation, own)
        elif role == "new" and known.final is None:
            found[key] = self._new(relation)
        else:
            base, minus = f"{relation}__stored_{'old' if role == 'old' else 'new'}", f"{relation}__stored_minus"
            files = self._stored_old(relation, own) if role == "old" else self._new(relation)
            taking = _taking(files) if role == "rows" else files
            found[base] = files
            if taking is files:
                found[key] = Derived(rows_sql(known, quote(base), signed=role != "rows"), (base,))
            elif taking.rows:
                found[minus] = taking
                found[key] = Derived(rows_sql(known, quote(base), signed=False, minus=quote(minus)), (base, minus))
            else:
                found[key] = Derived(rows_sql(known, quote(base), signed=False, minus=""), (base,))


def _taking(files: Files) -> Files:
    """Give those files that may hold rows that take others away; all of them where adding up only some would not pay."""
    assert files.relation is not None
    parts = [part for part in files.parts if not only_adds(part)]
    found = stored(files.relation, parts)
    pays = files.relation.key and TAKEN_FROM_FEW * found.rows <= files.rows
    return found if files.relation.final is None and (pays or not parts) else files


def _key(relation: str, role: Role) -> str:
    return role_name(relation, role)[1:-1].replace("``", "`")


def _empty(columns: tuple[Column, ...]) -> pa.Table:
    return pa.schema([pa.field(c.name, types.to_arrow(c.type)) for c in columns]).empty_table()
