"""Cycles of change data capture in the lake: `runnel capture` goes on where the state says, on whatever machine that is.

Where a technique has got to is a position of the state, `capture:SOURCE:TECHNIQUE`. What its last cycle found, and what it left for the next
one, are hidden relations, `SOURCE#capture:TECHNIQUE:NAME`. Both are published in one commit, on condition that nobody else has ended a
cycle meanwhile. Whether the deltas of the last cycle were told is a note beside it.
"""

from __future__ import annotations

import logging
import threading
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from runnel.connectors.deltas.cycles import State
from runnel.engine.duckdb import DuckDbEngine
from runnel.engine.inputs import stored
from runnel.errors import RunnelError, Transient
from runnel.lake import timeline
from runnel.lake.compaction import fold
from runnel.lake.entries import Commit
from runnel.lake.owner import this_process
from runnel.model import types
from runnel.model.relation import WEIGHT, Column, Kind, Relation
from runnel.pipeline.step import in_turn
from runnel.pipeline.upkeep import EXPIRE_EVERY, compact, expire

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from runnel.connectors.deltas.kept import Kept, Task
    from runnel.lake.entries import DataFile, NewFile
    from runnel.lake.snapshot import Snapshot
    from runnel.pipeline.runtime import Runtime

KIND = "capture"
LEASE_SECONDS = 30.0
"""How long a machine that is not heard of keeps others out; what it may still publish is refused when another one went on."""
_MARK, _STAYS = "#capture:", "#captured:"
log = logging.getLogger("runnel")


def is_captured(name: str) -> bool:
    """Say whether a relation is one that a capture keeps."""
    return _MARK in name or _STAYS in name


class LakeCycles:
    """The cycles of one technique of one source, in a state."""

    def __init__(self, runtime: Runtime, source: str, technique: str) -> None:
        """Look into the state when asked."""
        self._runtime, self._lake = runtime, runtime.lake
        self._key = f"capture:{source}:{technique}"
        self._prefix, self._stays = f"{source}{_MARK}{technique}:", f"{source}{_STAYS}{technique}:"

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Keep a second run of the same capture out, by a lease in the catalog."""
        owner, stop = this_process(), threading.Event()
        if not self._lake.acquire(self._key, owner, LEASE_SECONDS):
            raise Transient(
                "RUNNEL-CAPTURE-BUSY",
                f"this capture is running already ({self._lake.holder(self._key)})",
                hint="wait until it has ended",
            )
        heart = threading.Thread(target=self._renew, args=(owner, stop), name="runnel-capture", daemon=True)
        heart.start()
        try:
            yield
        finally:
            stop.set()
            heart.join()
            try:
                self._lake.release(self._key, owner)
            except RunnelError as error:
                log.debug("the lease of a capture runs out by itself: %s", error)

    def _renew(self, owner: str, stop: threading.Event) -> None:
        while not stop.wait(LEASE_SECONDS / 5):
            try:
                self._lake.renew(self._key, owner, LEASE_SECONDS)
            except RunnelError as error:
                log.warning("the lease of a capture could not be renewed just now: %s", error)

    def state(self) -> State | None:
        """Give the last cycle, or None before the first."""
        return self._state(self._lake.snapshot())

    def _state(self, head: Snapshot) -> State | None:
        told = head.positions.get(self._key)
        return State(**told) if told else None

    @contextmanager
    def kept(self, *, once: bool = False) -> Iterator[_Kept]:
        """Give what the last cycle left, and where a cycle leaves things; files that are not published at the end are deleted.

        A window that is read `once` finds nothing left, and what it leaves for a next one is not written at all.
        """
        kept = _Kept(self._runtime, self._prefix, self._stays, self._lake.snapshot(), once=once)
        try:
            yield kept
        finally:
            self._lake.discard(kept.unpublished)

    def commit(self, kept: Kept, before: State | None, done: State) -> None:
        """Publish a cycle with all that it left, if the one before still is `before`."""
        assert isinstance(kept, _Kept)

        def attempt() -> int:
            head = self._lake.snapshot()
            if self._state(head) != before:
                raise Transient(
                    "RUNNEL-CAPTURE-BUSY",
                    "another run of this capture has ended a cycle meanwhile",
                    hint="run it again",
                )
            commit = Commit(base=head.epoch, kind=KIND, positions={self._key: asdict(done)})
            commit.drop = [name for name in head.relations if name.startswith(self._prefix)]
            commit.create, commit.add = [*kept.made.values()], kept.unpublished
            return self._lake.publish(commit)

        epoch = in_turn(self._runtime, attempt)
        kept.unpublished = []
        self._tidy(epoch)

    def _tidy(self, epoch: int) -> None:
        """Fold what stays, and forget old epochs from time to time; what cannot be done now is done by a later cycle."""
        try:
            head = self._lake.snapshot()
            staying = [name for name in head.relations if name.startswith(self._stays)]
            if staying:
                compact(self._runtime, head, staying)
            if epoch % EXPIRE_EVERY == 0:
                expire(self._runtime)
        except RunnelError as error:
            log.warning("upkeep after epoch %s was put off: %s", epoch, error)

    def is_told(self, state: State) -> bool:
        """Say whether nothing is left to be done for a cycle."""
        return self._lake.noted(self._key).get("told") == state.id

    def told(self, state: State) -> None:
        """Note that a cycle's store is tidied up and its deltas are told."""
        self._lake.note(self._key, {"told": state.id})

    def forget(self) -> None:
        """Forget every cycle."""

        def attempt() -> None:
            head = self._lake.snapshot()
            if self._state(head) is not None:
                own = [name for name in head.relations if name.startswith((self._prefix, self._stays))]
                self._lake.publish(Commit(base=head.epoch, kind=KIND, drop=own, positions={self._key: {}}))

        in_turn(self._runtime, attempt)


class _Kept:
    """What the last cycle left, and what one that is not over yet leaves."""

    def __init__(self, runtime: Runtime, prefix: str, stays: str, head: Snapshot, *, once: bool) -> None:
        self._runtime, self._lake, self._head, self._once = runtime, runtime.lake, head, once
        self._published = {} if once else head.relations
        self._prefix, self._stays = prefix, stays
        self.made: dict[str, Relation] = {}
        self.unpublished: list[NewFile] = []

    def left(self, name: str) -> Iterator[pa.Table]:
        """Give what the last cycle left under a name, in the order of its first column."""
        relation = self._published.get(self._prefix + name)
        if relation is None:
            return
        first = relation.columns[0].name
        for files in _in_order(self._head.files(relation), first):
            yield self._lake.read(relation, files).drop_columns([WEIGHT]).sort_by(first)

    def leave(self, name: str, rows: pa.Table) -> None:
        """Leave rows under a name."""
        if rows.num_rows and not self._once:
            signed = rows.append_column(WEIGHT, pa.repeat(pa.scalar(1, pa.int64()), rows.num_rows))
            self.unpublished.append(self._lake.write(self._relation(name, rows.schema), signed, remembered=False))

    def by_tasks(self, rows: int) -> bool:
        """Say whether so many rows are better read by the engine's tasks."""
        return self._runtime.engine.reads(rows)

    def leave_read(self, name: str, tasks: Sequence[Task], schema: pa.Schema) -> None:
        """Leave the rows that tasks read; they write them."""
        relation = self._relation(name, schema)
        columns = (*relation.columns, Column(WEIGHT, types.BIGINT))
        weighted = [_Weighted(task) for task in tasks]
        written = self._runtime.engine.read(weighted, columns, self._lake.unpublished(relation.name))
        self.unpublished += self._lake.adopt(relation, written.paths, written.rows)

    def compare(self, name: str, sql: str, schema: pa.Schema) -> Iterator[pa.Table]:
        """Run a query over what this cycle (`new`) and the last one (`old`) left under a name, wherever there is room for that."""
        columns = _columns(schema)
        old = self._published.get(self._prefix + name)
        relation = self.made.get(self._prefix + name) or old
        if relation is None:
            return
        new = [file for file in self.unpublished if file.relation == relation.name]
        inputs = {"new": stored(relation, new), "old": stored(old or relation, self._head.files(old) if old else ())}
        engine = self._runtime.engine
        if not engine.reads(sum(each.rows for each in inputs.values())):
            small = DuckDbEngine()
            try:
                yield small.rows(sql, inputs, columns)
            finally:
                small.close()
            return
        made = Relation(f"{self._prefix}{name}:differences", Kind.STAGE, columns)
        weighted = f"SELECT *, CAST(1 AS BIGINT) AS `{WEIGHT}` FROM (\n{sql}\n) AS found"
        written = engine.write(weighted, inputs, self._lake.arrow_schema(made), self._lake.unpublished(made.name))
        files = self._lake.adopt(made, written.paths, written.rows)
        try:
            for file in files:
                yield self._lake.read(made, [file]).drop_columns([WEIGHT])
        finally:
            self._lake.discard(files)

    def change(self, name: str, signed: pa.Table) -> None:
        """Change rows that stay from cycle to cycle."""
        relation = self._staying(name)
        if relation is None:
            columns = _columns(signed.drop_columns([WEIGHT]).schema)
            relation = self.made[self._stays + name] = Relation(self._stays + name, Kind.STAGE, columns)
        self.unpublished.append(self._lake.write(relation, signed))

    def changed(self) -> list[str]:
        """Name what stays from cycle to cycle, as the last cycle left it."""
        return [name.removeprefix(self._stays) for name in self._published if name.startswith(self._stays)]

    def find(self, name: str, keys: pa.Table) -> pa.Table | None:
        """Look up rows that stay."""
        relation = self._staying(name)
        return None if relation is None else self._lake.lookup(relation, self._files(relation), keys)

    def whole(self, name: str) -> pa.Table | None:
        """Give all rows that stay."""
        relation = self._staying(name)
        return None if relation is None else fold(relation, self._lake.read(relation, self._files(relation)))

    def due(self, name: str, column: str, wanted: str, window: tuple[int, int]) -> np.ndarray:
        """Find rows that stay by a time."""
        relation = self._published.get(self._stays + name)
        return timeline.due(relation, self._head.files(relation), column, wanted, [window]) if relation else np.empty(0)

    def _staying(self, name: str) -> Relation | None:
        return self.made.get(self._stays + name) or self._published.get(self._stays + name)

    def _files(self, relation: Relation) -> list[DataFile | NewFile]:
        published = self._head.files(relation) if relation.name in self._published else ()
        return [*published, *(file for file in self.unpublished if file.relation == relation.name)]

    def _relation(self, name: str, schema: pa.Schema) -> Relation:
        full = self._prefix + name
        if full not in self.made:
            self.made[full] = Relation(full, Kind.STAGE, _columns(schema))
        return self.made[full]


class _Weighted:
    """A task whose rows get the weight that stored rows have."""

    def __init__(self, task: Task) -> None:
        self._task = task

    def __call__(self) -> Iterator[pa.RecordBatch]:
        """Give the task's rows."""
        for batch in self._task():
            weights = pa.repeat(pa.scalar(1, pa.int64()), batch.num_rows)
            yield pa.RecordBatch.from_arrays([*batch.columns, weights], names=[*batch.schema.names, WEIGHT])


def _columns(schema: pa.Schema) -> tuple[Column, ...]:
    return tuple(Column(field.name, types.from_arrow(field.type)) for field in schema)


def _in_order(files: Sequence[DataFile], column: str) -> Iterator[list[DataFile]]:
    """Give files by the numbers that they have in a column, together where these overlap: compaction may have folded some."""
    together: list[DataFile] = []
    upto = 0
    for low, high, _, file in sorted((*_range(file, column), file.id, file) for file in files):
        if together and low > upto:
            yield together
            together = []
        together, upto = [*together, file], max(high, upto)
    if together:
        yield together


def _range(file: DataFile, column: str) -> tuple[int, int]:
    known = file.stats.get(column)
    if known is None or not isinstance(known.minimum, int) or not isinstance(known.maximum, int):
        return 0, 1 << 62
    return known.minimum, known.maximum
