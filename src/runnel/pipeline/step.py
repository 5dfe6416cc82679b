"""One atomic step of the state: base changes, positions and every view that follows them, published together or not at all.

`take` is optimistic. The work is computed on the newest epoch and published on condition that this still is the newest;
whoever loses that race discards its files and does the work again, in turn, a bounded number of times.
"""

from __future__ import annotations

import logging
import random
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from runnel.engine.counts import counted_here, counting
from runnel.engine.inputs import Pending
from runnel.errors import Conflict, Transient
from runnel.failpoints import reach
from runnel.lake.entries import Commit
from runnel.lake.owner import this_process
from runnel.model.relation import Kind
from runnel.pipeline.foreign_keys import check as check_foreign_keys
from runnel.pipeline.maintain import maintain

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    import pyarrow as pa

    from runnel.lake.entries import NewFile, ViewEntry
    from runnel.lake.snapshot import Snapshot
    from runnel.pipeline.maintain import ViewResult
    from runnel.pipeline.runtime import Runtime

log = logging.getLogger("runnel")
TURN = "writer"
TURN_SECONDS = 30.0


T = TypeVar("T")


class Overtaken(Conflict):
    """While something was computed beside the state, what it reads was replaced or forgotten: it must be planned anew."""


@dataclass
class Change:
    """What a step does to base tables: signed rows per table, and the source positions they end at.

    `written` are signed rows that are in files already, of ranges too large for the driver. `record` is for the epoch's record.
    """

    signed: dict[str, pa.Table] = field(default_factory=dict)
    written: dict[str, list[NewFile]] = field(default_factory=dict)
    positions: dict[str, dict[str, Any]] = field(default_factory=dict)
    transactions: int = 1
    record: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Taken:
    """What a step did; `epoch` is the newest epoch after it, also when there was nothing to do."""

    epoch: int
    published: bool
    results: tuple[ViewResult, ...] = ()
    rows_in: int = 0

    @property
    def failed(self) -> dict[str, str]:
        """The views that could not be brought along, each with why."""
        return {result.view: result.error for result in self.results if result.shown and result.error}


def immediate(head: Snapshot) -> list[ViewEntry]:
    """Choose the views that follow every epoch, and the stages below them."""
    return with_stages(
        head, [v for v in head.views.values() if v.properties.get("refresh", "immediate") == "immediate"]
    )


def with_stages(head: Snapshot, views: Iterable[ViewEntry]) -> list[ViewEntry]:
    """Give these views and all stages below them: a stage follows the most eager of its readers."""
    wanted = {name for view in views for name in (view.name, *view.stages)}
    return [entry for name, entry in head.entries.items() if name in wanted]


def take(
    runtime: Runtime,
    build: Callable[[Snapshot], Change],
    choose: Callable[[Snapshot], Iterable[ViewEntry]] = immediate,
) -> Taken:
    """Build a change on the newest epoch, maintain the chosen views and publish all of it; on a lost race, again."""
    with runtime.working():
        return in_turn(runtime, lambda: _counted_attempt(runtime, build, choose))


def in_turn(runtime: Runtime, attempt: Callable[[], T]) -> T:
    """Try until no race is lost, a bounded number of times; after the first loss, with a turn of its own."""
    owner = this_process()
    held = False
    try:
        for number in range(runtime.attempts):
            if not held:
                _wait_turn(runtime, owner)
            try:
                return attempt()
            except Overtaken:
                raise
            except Conflict:
                if number + 1 == runtime.attempts:
                    raise
                held = held or _take_turn(runtime, owner)
    finally:
        if held:
            _end_turn(runtime, owner)
    raise AssertionError


def _counted_attempt(
    runtime: Runtime, build: Callable[[Snapshot], Change], choose: Callable[[Snapshot], Iterable[ViewEntry]]
) -> Taken:
    with counting():
        return _attempt(runtime, build, choose)


def _attempt(
    runtime: Runtime, build: Callable[[Snapshot], Change], choose: Callable[[Snapshot], Iterable[ViewEntry]]
) -> Taken:
    pending = Pending()
    try:
        begun = time.perf_counter()
        head = runtime.lake.snapshot()
        change = build(head)
        for name, files in change.written.items():
            pending.add(name, files)
        check_foreign_keys(runtime.lake, head, change.signed)
        reach("epoch:captured")
        captured = time.perf_counter()
        for name, table in change.signed.items():
            if table.num_rows:
                pending.add(name, [runtime.lake.write(head.relations[name], table)])
        reach("epoch:base-written")
        results = maintain(runtime, head, pending, choose(head))
        reach("epoch:views-written")
        maintained = time.perf_counter()
        rows_in = {name: table.num_rows for name, table in change.signed.items() if table.num_rows}
        rows_in |= {name: sum(file.rows for file in files) for name, files in change.written.items() if files}
        rows_in = {name: rows for name, rows in rows_in.items() if head.relations[name].kind is not Kind.STAGE}
        phases = {"capture": _ms(captured - begun), "maintain": _ms(maintained - captured)}
        commit = _commit(head, change, pending, results, rows_in, phases)
        commit.record |= counted_here()
        if not _worth_publishing(commit, results):
            return Taken(head.epoch, published=False, results=tuple(results))
        epoch = runtime.lake.publish(commit)
    except BaseException:
        runtime.lake.discard(pending.all())
        raise
    return Taken(epoch, published=True, results=tuple(results), rows_in=sum(rows_in.values()))


def _commit(
    head: Snapshot,
    change: Change,
    pending: Pending,
    results: list[ViewResult],
    rows_in: dict[str, int],
    phases: dict[str, float],
) -> Commit:
    commit = Commit(base=head.epoch)
    commit.add, commit.moment = pending.all(), pending.moment
    note_results(commit, head, results)
    commit.positions = {
        name: position for name, position in change.positions.items() if head.positions.get(name) != position
    }
    commit.record |= {"rows_in": rows_in, "transactions": change.transactions, "ms": phases} | change.record
    return commit


def note_results(commit: Commit, head: Snapshot, results: Iterable[ViewResult]) -> None:
    """Put into a commit how far each view and stage has come, its error, and what was done for it."""
    views: dict[str, Any] = {}
    stages: dict[str, Any] = {}
    joins: dict[str, Any] = {}
    for result in results:
        if result.views:
            joins[result.view] = {"rows": result.rows, "ms": result.milliseconds, "views": list(result.views)}
            continue
        if result.advanced:
            commit.frontiers[result.view] = None
        entry = head.entries.get(result.view)
        if entry is not None and result.error != entry.error:
            commit.errors[result.view] = result.error
        did: dict[str, Any] = {"strategy": result.strategy, "rows": result.rows, "ms": result.milliseconds}
        if result.estimate is not None:
            did["estimate"] = result.estimate.to_dict()
        (stages if result.stage else views)[result.view] = did | ({"error": result.error} if result.error else {})
    commit.record |= {"views": views} | ({"stages": stages} if stages else {}) | ({"joins": joins} if joins else {})


def _worth_publishing(commit: Commit, results: list[ViewResult]) -> bool:
    """Say whether anything moved; a view with nothing to do stays at its frontier without an epoch of its own."""
    moved = any(result.advanced and result.strategy != "skipped" for result in results)
    return bool(commit.add or commit.positions or commit.errors or moved)


def _wait_turn(runtime: Runtime, owner: str) -> None:
    """Let somebody who lost a race go first; never wait longer than a turn can last."""
    deadline = time.monotonic() + TURN_SECONDS
    while time.monotonic() < deadline and runtime.lake.holder(TURN) not in (None, owner):
        time.sleep(random.uniform(0.005, 0.02))


def _end_turn(runtime: Runtime, owner: str) -> None:
    try:
        runtime.lake.release(TURN, owner)
    except Transient as error:  # it ends by itself, and what was published must not look as if it had failed
        log.debug("a turn could not be given back: %s", error)


def _take_turn(runtime: Runtime, owner: str) -> bool:
    deadline = time.monotonic() + TURN_SECONDS
    while time.monotonic() < deadline:
        if runtime.lake.acquire(TURN, owner, TURN_SECONDS):
            return True
        time.sleep(random.uniform(0.005, 0.02))
    return False


def _ms(seconds: float) -> float:
    return round(seconds * 1000, 3)
