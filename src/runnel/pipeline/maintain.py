"""Brings views and stages up to date: runs each affected delta program in dependency order, siblings side by side.

Nothing is published here. A view that fails keeps its frontier and its error; the views that read it wait with it, all
others go on. A stage is computed once, however many views read it; when it fails, its error is the error of those views.
"""

from __future__ import annotations

import logging
import time
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

import pyarrow.compute as pc

from runnel.engine.base import Rows, TooLarge
from runnel.engine.functions import check_functions
from runnel.engine.inputs import Beside, Inputs, Pending, signed, standing, stored
from runnel.errors import RunnelError, Terminal, Unreachable
from runnel.failpoints import reach
from runnel.lake.entries import only_adds
from runnel.model import types
from runnel.model.program import Strategy
from runnel.model.relation import Column, Kind
from runnel.pipeline.cost import estimate
from runnel.pipeline.events import event_files
from runnel.pipeline.joins import hand_on
from runnel.pipeline.materialise import change_sql, materialise

FEW = 64
"""Changed rows up to which a program's steps are tried in one query."""
STOPPED = "RUNNEL-VIEW-STOPPED"
"""What the error of a view begins with that a proof found wrong, and that is not to go on."""

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from runnel.engine.base import Files, Input
    from runnel.lake.entries import NewFile, ViewEntry
    from runnel.lake.snapshot import Snapshot
    from runnel.model.program import Program, Role
    from runnel.model.relation import Relation
    from runnel.pipeline.cost import Estimate, Way
    from runnel.pipeline.joins import Joined
    from runnel.pipeline.runtime import Runtime

log = logging.getLogger("runnel")


@dataclass(frozen=True)
class ViewResult:
    """What became of one view or stage in one epoch. `strategy` is incremental, full, skipped, failed or held.

    It is `joined` for a join whose change was computed once for several `views`, and is kept nowhere.
    """

    view: str
    strategy: str
    rows: int = 0
    milliseconds: float = 0.0
    error: str | None = None
    stage: bool = False
    views: tuple[str, ...] = ()
    estimate: Estimate | None = None
    cause: RunnelError | None = field(default=None, compare=False)

    @property
    def advanced(self) -> bool:
        """Whether the view now equals its query as of the new epoch."""
        return self.error is None

    @property
    def shown(self) -> bool:
        """Whether users know of it."""
        return not self.stage and not self.views


def maintain(
    runtime: Runtime,
    head: Snapshot,
    pending: Pending,
    views: Iterable[ViewEntry],
    beside: Mapping[str, Beside] | None = None,
) -> list[ViewResult]:
    """Compute the change of these views for the range from each one's frontier to head + pending; add it to `pending`.

    Some of them, or of what they read, may stand `beside` what is published, computed as of their frontier.
    """
    todo = {view.name: view for view in views}
    ranges: dict[str, Inputs] = {}
    shared: dict[int, Inputs] = {}
    results: dict[str, ViewResult] = {}
    spilled: list[NewFile] = []
    spill = partial(_spilled, runtime, spilled)
    for view in todo.values():
        if is_stopped(view):
            results[view.name] = ViewResult(view.name, "held", error=view.error)
            continue
        try:
            old = standing(runtime.lake, head, view, beside or {})
        except Terminal as error:
            results[view.name] = _failed(view, error)
            continue
        if old.epoch not in shared:
            shared[old.epoch] = Inputs(runtime.engine, old, head, pending, beside, spill)
        ranges[view.name] = shared[old.epoch]
    joined: list[Joined] = []
    for level in levels(todo):
        work = [(view, _held(view, head, results)) for view in level if view.name not in results]
        ready = [view for view, held in work if held is None]
        results.update({view.name: held for view, held in work if held is not None})
        joined += hand_on(runtime, ready, ranges)
        for result in _side_by_side(runtime, ready, ranges, pending):
            results[result.view] = result
    runtime.lake.discard([*spilled, *(file for join in joined for file in join.files)])
    return [*results.values(), *(ViewResult(j.name, "joined", j.rows, j.milliseconds, views=j.views) for j in joined)]


def _spilled(runtime: Runtime, kept: list[NewFile], relation: Relation, sql: str, inputs: Mapping[str, Input]) -> Files:
    """Write a large change that is kept nowhere to files, for as long as the epoch is computed."""
    files = materialise(runtime, relation, sql, inputs, large=True)
    kept += files
    return replace(stored(relation, files), change=True)


def _side_by_side(
    runtime: Runtime, views: list[ViewEntry], ranges: Mapping[str, Inputs], pending: Pending
) -> list[ViewResult]:
    if len(views) < 2 or runtime.threads < 2:
        return [_refresh(runtime, view, ranges[view.name], pending) for view in views]
    with ThreadPoolExecutor(min(runtime.threads, len(views)), thread_name_prefix="runnel-view") as pool:
        # Each thread counts what it does for the same epoch.
        contexts = [copy_context() for _ in views]
        return list(
            pool.map(lambda c, view: c.run(_refresh, runtime, view, ranges[view.name], pending), contexts, views)
        )


def levels(views: Mapping[str, ViewEntry]) -> list[list[ViewEntry]]:
    """Order views so that each comes after those it reads; views of one level do not read each other."""
    depth: dict[str, int] = {}

    def of(name: str) -> int:
        if name not in depth:
            depth[name] = 1 + max((of(i) for i in views[name].inputs if i in views), default=0)
        return depth[name]

    for name in views:
        of(name)
    return [
        [v for n, v in views.items() if depth[n] == level] for level in range(1, max(depth.values(), default=0) + 1)
    ]


def is_stage(view: ViewEntry) -> bool:
    """Say whether an entry is a stage: it has no text of its own."""
    return not view.sql


def is_stopped(view: ViewEntry) -> bool:
    """Say whether a view is kept from going on because a proof found it wrong."""
    return view.error is not None and view.error.startswith(STOPPED)


def _failed(view: ViewEntry, error: RunnelError, milliseconds: float = 0.0) -> ViewResult:
    return ViewResult(view.name, "failed", 0, milliseconds, str(error), is_stage(view), cause=error)


def _held(view: ViewEntry, head: Snapshot, results: Mapping[str, ViewResult]) -> ViewResult | None:
    """Say why a view cannot be brought up to date now, if what it reads could not be.

    Users do not know the stages below their view: what a stage failed of, the view failed of.
    """
    for upstream in view.inputs:
        result, entry = results.get(upstream), head.entries.get(upstream)
        error = result.error if result is not None else entry.error if entry is not None else None
        if error is None:
            continue
        cause = result.cause if result is not None else None
        if upstream in head.relations and head.relations[upstream].kind is not Kind.STAGE:
            waits = f"waits for {upstream}, which has failed"
            return ViewResult(view.name, "held", error=waits, stage=is_stage(view), cause=cause)
        strategy = result.strategy if result is not None else "failed"
        return ViewResult(view.name, strategy, error=error, stage=is_stage(view), cause=cause)
    return None


def _refresh(runtime: Runtime, view: ViewEntry, inputs: Inputs, pending: Pending) -> ViewResult:
    """Run one view's program; its files join `pending` only when all of its steps are done."""
    begun = time.perf_counter()
    program = runtime.program(view)
    try:
        if program.events:
            return _gather(runtime, view, inputs, pending, begun)
        changed = frozenset(name for name in program.inputs if inputs.delta_rows(name))
        if not changed:
            return ViewResult(view.name, "skipped", stage=is_stage(view))
        check_functions(runtime.engine, view)
        guess = _guess(runtime, program, inputs, changed) if program.incremental else None
        anew = guess is not None and guess.full(runtime.floor) and view.properties.get("mode") != "incremental"
        strategy = Strategy.FULL if anew else program.strategy
        files = _run_steps(runtime, view, inputs, changed, strategy)
        reach("epoch:view-computed")
    except Unreachable:
        raise
    except RunnelError as error:
        return _failed(view, error, _since(begun))
    except Exception as error:  # a fault in one view must not stop the others
        log.debug("view %s", view.name, exc_info=error)
        said = next((line.strip() for line in str(error).splitlines() if line.strip()), "")[:200]
        fault = Terminal("RUNNEL-VIEW-FAULT", f"view {view.name}: unexpected {type(error).__name__}: {said}")
        return _failed(view, fault, _since(begun))
    pending.add(view.name, files)
    did: Way = "full" if strategy is Strategy.FULL else "incremental"
    if guess is not None and guess.changed > runtime.floor:
        runtime.learned.note(view.name, did, guess.recompute if anew else guess.incremental, _since(begun))
    rows = sum(file.rows for file in files)
    return ViewResult(view.name, did, rows, _since(begun), stage=is_stage(view), estimate=guess)


def _guess(runtime: Runtime, program: Program, inputs: Inputs, changed: frozenset[str]) -> Estimate:
    return estimate(program, inputs, changed, runtime.learned, runtime.floor, runtime.engine.light)


def _gather(runtime: Runtime, view: ViewEntry, inputs: Inputs, pending: Pending, begun: float) -> ViewResult:
    """Add what happened to an event view."""
    files = event_files(runtime, view, runtime.program(view), inputs)
    reach("epoch:view-computed")
    pending.add(view.name, files)
    rows = sum(file.rows for file in files)
    return ViewResult(view.name, "incremental" if files else "skipped", rows, _since(begun))


def _run_steps(
    runtime: Runtime, view: ViewEntry, inputs: Inputs, changed: frozenset[str], strategy: Strategy
) -> list[NewFile]:
    """Run a view's steps and give the files of its relation's change.

    What an earlier step finds out stays in memory. One that finds nothing has not changed: the terms that read it, and the
    old rows those terms need, are left out.
    """
    program = runtime.program(view)
    own = frozenset(step.target.name for step in program.steps)
    rows = sum(inputs.delta_rows(name) for name in changed)
    large = rows > runtime.large
    mine = inputs.for_own()
    if program.steps[0].brief and rows <= FEW and strategy is not Strategy.FULL:
        files = _at_once(runtime, view, inputs, changed, own)
        if files is not None:
            return files
    for step in program.steps[:-1] if strategy is not Strategy.FULL else ():
        sql, reads = change_sql(step, strategy, changed, inputs)
        if sql is None:
            continue
        roles = _roles(inputs, mine, reads, own, view.seen)
        found = inputs.computed(step.target, sql, roles, signed(step.target.columns))
        mine.hand_on(step.target, found)
        some = found.table.num_rows if isinstance(found, Rows) else found.rows
        changed = changed | {step.target.name} if some else changed
    step = program.steps[-1]
    sql, reads = change_sql(step, strategy, changed, inputs)
    if sql is None:
        return []
    return materialise(runtime, step.target, sql, _roles(inputs, mine, reads, own, view.seen), large=large)


def _at_once(
    runtime: Runtime, view: ViewEntry, inputs: Inputs, changed: frozenset[str], own: frozenset[str]
) -> list[NewFile] | None:
    """Try a view's steps in one query; None where that is not enough."""
    steps = runtime.program(view).steps
    target, unless = steps[-1].target, steps[0].unless
    sql, reads = change_sql(replace(steps[0], around=steps[0].brief), Strategy.KEYS, changed, inputs)
    if sql is None:
        return []
    columns = (*target.columns, Column(unless, types.parse("boolean")))
    try:
        found = runtime.engine.change(sql, _roles(inputs, inputs.for_own(), reads, own, view.seen), signed(columns))
    except TooLarge:
        return None
    if pc.any(found.column(unless)).as_py():
        return None
    return [runtime.lake.write(target, found.drop_columns([unless]))] if found.num_rows else []


def _roles(
    shared: Inputs,
    mine: Inputs,
    reads: Iterable[tuple[str, Role]],
    own: frozenset[str],
    seen: Mapping[str, tuple[str, ...]],
) -> dict[str, Input]:
    reads = list(reads)
    outside = shared.roles([read for read in reads if read[0] not in own], seen=seen)
    return {**outside, **mine.roles([read for read in reads if read[0] in own], own)}


def hydrate(
    runtime: Runtime, head: Snapshot, entries: Sequence[ViewEntry], given: Mapping[str, Beside] | None = None
) -> dict[str, Beside]:
    """Compute views and stages from scratch as of `head`, each after those it reads, beside what is published.

    `given` stands beside it already; what is computed is added to it.
    """
    beside = dict(given or {})
    made: list[NewFile] = []
    try:
        for entry in entries:
            program = runtime.program(entry)
            step = program.steps[-1]
            inputs = Inputs(runtime.engine, head, head, Pending(), beside)
            roles = inputs.roles(step.initial_reads, seen=entry.seen)
            size = sum(_stored_rows(head, beside, name) for name in program.inputs)
            grown = step.grown and all(_only_grew(head, beside, name) for name, _ in step.initial_reads)
            sql = step.grown if grown else step.initial
            files = materialise(runtime, step.target, sql, roles, large=size > runtime.large)
            made += files
            beside[program.view] = Beside(step.target, tuple(files))
    except BaseException:
        runtime.lake.discard(made)
        raise
    reach("view:hydrated")
    return beside


def _only_grew(head: Snapshot, beside: Mapping[str, Beside], name: str) -> bool:
    """Say whether no stored row of a relation takes another one away, as far as the catalog knows."""
    relation = beside[name].relation if name in beside else head.relations[name]
    return relation.final is not None or all(map(only_adds, beside[name].files if name in beside else head.files(name)))


def _stored_rows(head: Snapshot, beside: Mapping[str, Beside], name: str) -> int:
    return sum(file.rows for file in (beside[name].files if name in beside else head.files(name)))


def _since(begun: float) -> float:
    return round((time.perf_counter() - begun) * 1000, 3)
