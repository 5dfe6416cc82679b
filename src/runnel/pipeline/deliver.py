"""Brings the tables of one target up to the newest epoch, by the net change since the epoch each of them is marked with.

A table that is new, that was filled from another incarnation of its view or from another state, or whose epoch is no longer
kept, gets all rows of the view, and loses those it should not have. Nothing is queued: what a target lacks is in the lake.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from runnel.compiler import unique_columns
from runnel.connectors.base import Delivery
from runnel.connectors.marks import Mark, Shape
from runnel.engine import contents
from runnel.engine.inputs import Inputs, Pending
from runnel.errors import RunnelError, Terminal
from runnel.lake.compaction import fold
from runnel.lake.lookup import hashable
from runnel.model.program import name as role_name
from runnel.model.program import quote
from runnel.model.relation import WEIGHT, find_relation

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from runnel import config
    from runnel.connectors.base import Target
    from runnel.lake.snapshot import Snapshot
    from runnel.model.relation import Relation
    from runnel.pipeline.runtime import Runtime

PART_ROWS = 2_000_000
"""How many rows are held in memory, about; a larger change is delivered as a whole load."""
_FORGOTTEN = ("RUNNEL-EPOCH-EXPIRED", "RUNNEL-EPOCH-UNKNOWN")


@dataclass(frozen=True)
class Round:
    """What one round did: the epoch it was for, rows written and removed, what could not be delivered, by view."""

    epoch: int
    rows: int = 0
    problems: dict[str, RunnelError] = field(default_factory=dict)


def note_name(target: str) -> str:
    """Name the note in the state that says how far a target is, so that every process can show it."""
    return f"target:{target}"


@dataclass(frozen=True)
class Known:
    """What can be delivered: tables and views, and the queries of the views."""

    relations: Mapping[str, Relation]
    texts: Mapping[str, str]


def known_in(head: Snapshot) -> Known:
    """Give what can be delivered of a state."""
    return Known(head.shown, {name: view.sql for name, view in head.views.items()})


def shape_of(known: Known, wanted: config.Target, view: str, *, needs_key: bool) -> Shape:
    """Say what a target is to hold of a view or table; raise where there is none of that name, or no key and it needs one."""
    try:
        relation = find_relation(known.relations.values(), view)
        given = [relation.column(part).name for part in wanted.keys.get(view, ())]
    except RunnelError as error:
        error.place = error.place or wanted.at("keys" if view in wanted.keys else "views")
        raise
    key = tuple(given) or unique_columns(relation, known.relations, known.texts)
    if needs_key and not key:
        raise Terminal(
            "RUNNEL-TARGET-KEY",
            f"{wanted.label}: no columns are known to be unique in {view}, and {wanted.type} needs a key",
            place=wanted.at("views"),
            hint=f'say which are: keys = {{ {view} = ["id"] }}',
        )
    return Shape(view, wanted.views[view], relation.rows, key)


def deliver(runtime: Runtime, wanted: config.Target, target: Target, *, full: bool = False) -> Round:
    """Bring every table of a target up to the newest epoch; `full` writes them whole. Raise what concerns the target itself."""
    head = runtime.lake.snapshot()
    done, finished = _deliver(runtime, head, wanted, target, full=full)
    if not finished:
        again, _ = _deliver(runtime, head, wanted, target)
        done = Round(head.epoch, done.rows + again.rows, again.problems)
    return done


def _deliver(
    runtime: Runtime, head: Snapshot, wanted: config.Target, target: Target, *, full: bool = False
) -> tuple[Round, bool]:
    """Do it, and say whether all tables are at the newest epoch now: what was begun for an older one is finished first."""
    shapes: list[Shape] = []
    deliveries: list[Delivery] = []
    problems: dict[str, RunnelError] = {}
    for view in wanted.views:
        try:
            shapes.append(shape_of(known_in(head), wanted, view, needs_key=target.NEEDS_KEY))
        except RunnelError as error:
            problems[view] = error
    marks = target.marks(shapes)
    for shape in shapes:
        try:
            planned = _Plan(runtime, head, shape, wanted, marks.get(shape.view)).delivery(full=full)
        except Terminal as error:
            problems[shape.view] = error
            continue
        deliveries += [planned] if planned is not None else []
    rows = 0
    if deliveries:
        try:
            done = target.apply(deliveries)
        finally:
            for delivery in deliveries:
                delivery.close()
        rows, problems = done.rows, problems | done.problems
    finished = all(delivery.mark.epoch == head.epoch for delivery in deliveries)
    return Round(head.epoch, rows, problems), finished


def whole_delivery(
    runtime: Runtime, head: Snapshot, shape: Shape, wanted: config.Target, mark: Mark
) -> Delivery | None:
    """Give all rows of a view as of the epoch of a mark; None where the mark is of another state or of an epoch that is not kept."""
    marked = _Plan(runtime, head, shape, wanted, mark).marked(mark)
    if marked is None or mark.begun is not None:
        return None
    shape = shape_of(known_in(marked), wanted, shape.view, needs_key=False)  # a table may have got columns since
    return _Plan(runtime, marked, shape, wanted, mark).whole()


class _Plan:
    """Works out what one table needs."""

    def __init__(
        self, runtime: Runtime, head: Snapshot, shape: Shape, wanted: config.Target, mark: Mark | None
    ) -> None:
        self._runtime, self._head, self._shape, self._wanted, self._mark = runtime, head, shape, wanted, mark
        self._relation = find_relation(head.shown.values(), shape.view)
        self._named = runtime.lake.incarnation(head, self._relation.name)

    def delivery(self, *, full: bool) -> Delivery | None:
        """Give what brings the table from its mark to the newest epoch; None where that can wait."""
        mark = self._mark
        old = None if full or mark is None else self.marked(mark)
        new = self._head if mark is None or mark.begun is None else self.marked(mark.begun)
        if old is None or new is None:
            return self.whole()
        try:
            files = new.changes(self._relation, old.epoch)
            if sum(file.rows for file in files) > PART_ROWS:
                return self.whole()  # which comes in parts
            changed = contents.changes(self._runtime.engine, old, new, self._relation) if files else None
        except Terminal as error:
            if error.code not in _FORGOTTEN:
                raise
            return self.whole()
        if changed is None or not changed.num_rows:
            # The mark need not follow every epoch, but must not fall out of those that are kept.
            late = new.epoch - old.epoch >= max(1, self._runtime.keep // 4)
            return self._made(new, ()) if late or new is not self._head else None
        return self._change(new, changed)

    def marked(self, mark: Mark) -> Snapshot | None:
        """Give the state of a mark's epoch, if it is kept and the mark is of this very view."""
        try:
            if mark.state != self._state(mark.epoch):
                return None
            return self._runtime.lake.snapshot(mark.epoch)
        except Terminal as error:
            if error.code not in _FORGOTTEN:
                raise
            return None

    def _state(self, epoch: int) -> str:
        # The epoch's time tells it from one of the same number in a state that was put back to an earlier copy.
        return f"{self._named} {self._runtime.lake.times([epoch])[epoch]}"

    def _made(
        self, new: Snapshot, rows: Iterable[pa.Table], gone: pa.Table | None = None, *, whole: bool = False
    ) -> Delivery:
        return Delivery(self._shape, self._mark, Mark(new.epoch, self._state(new.epoch)), rows, gone, whole)

    def whole(self) -> Delivery:
        """Give all rows of the view."""
        return self._made(self._head, self._all_rows(), whole=True)

    def _all_rows(self) -> Iterator[pa.Table]:
        """Read the view part by part while it is written, so that no more of it is in memory."""
        by = self._shape.key or tuple(column.name for column in self._shape.columns)
        engine, head, relation = self._runtime.engine, self._head, self._relation
        with self._runtime.lake.pinned(head.epoch):
            for rows in contents.rows_in_parts(engine, head, relation, by, PART_ROWS):
                if self._shape.key:
                    self._check_unique(rows)
                    yield rows
                else:
                    counted = rows.append_column(WEIGHT, pa.repeat(pa.scalar(1, pa.int64()), rows.num_rows))
                    yield fold(contents.plain(relation), counted)

    def _change(self, new: Snapshot, signed: pa.Table) -> Delivery:
        if not self._shape.key:
            return self._made(new, [signed])
        weights = signed.column(WEIGHT)
        more = signed.filter(pc.greater(weights, 0))
        if pc.any(pc.greater(more.column(WEIGHT), 1)).as_py():
            raise self._twice(more.filter(pc.greater(more.column(WEIGHT), 1)))
        rows = more.drop_columns([WEIGHT])
        there = self._check_unique(rows)
        if self._shape.view in self._wanted.keys:
            self._check_given_key(new, rows)
        less = signed.filter(pc.less(weights, 0)).select(list(self._shape.key))
        gone = less.filter(pa.array([key not in there for key in self._keys(less)], pa.bool_()))
        return self._made(new, [rows], gone)

    def _keys(self, rows: pa.Table) -> list[tuple[Any, ...]]:
        columns = [[hashable(value) for value in rows.column(part).to_pylist()] for part in self._shape.key]
        return list(zip(*columns, strict=True))

    def _check_unique(self, rows: pa.Table) -> set[tuple[Any, ...]]:
        """Give the keys of these rows; raise if two have the same."""
        seen: set[tuple[Any, ...]] = set()
        for at, key in enumerate(self._keys(rows)):
            if key in seen:
                raise self._twice(rows.slice(at, 1))
            seen.add(key)
        return seen

    def _check_given_key(self, new: Snapshot, rows: pa.Table) -> None:
        """Look whether keys that a user named, and nobody else vouches for, are those of other rows too."""
        if not rows.num_rows:
            return
        relation, lake = self._relation, self._runtime.lake
        keys = rows.select(list(self._shape.key))
        if relation.final is None:
            found = lake.lookup(relation, new.files(relation), keys)
            weights = found.column(WEIGHT)
            if pc.any(pc.greater(weights, 1)).as_py():
                raise self._twice(found.filter(pc.greater(weights, 1)))
            self._check_unique(found)
            return
        names = ", ".join(quote(part) for part in self._shape.key)
        sql = f"SELECT {names} FROM {role_name(relation.name, 'rows')} GROUP BY {names} HAVING count(*) > 1 LIMIT 1"
        inputs = Inputs(self._runtime.engine, new, new, Pending()).roles([(relation.name, "rows")])
        twice = self._runtime.engine.rows(sql, inputs)
        if twice.num_rows:
            raise self._twice(twice)

    def _twice(self, rows: pa.Table) -> Terminal:
        key = ", ".join(f"{part}={rows.column(part)[0].as_py()!r}" for part in self._shape.key)
        return Terminal(
            "RUNNEL-TARGET-KEY-TWICE",
            f"{self._wanted.label}: {self._shape.view} has more than one row with {key[:120]}",
            place=self._wanted.at("keys"),
            hint=f"name columns that are unique in it: keys = {{ {self._shape.view} = [...] }}",
        )
