"""Brings views up to date: runs each affected view's delta program in dependency order, siblings side by side.

Nothing is published here. A view that fails keeps its frontier and its error; the views that read it wait with it, all
others go on.
"""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

from runnel.engine.inputs import Inputs, Pending, signed, standing, stored
from runnel.errors import RunnelError, Terminal, Unreachable
from runnel.failpoints import reach
from runnel.model.program import Strategy, quote
from runnel.model.program import name as input_name
from runnel.model.relation import WEIGHT

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from runnel.engine.base import Input
    from runnel.lake.entries import NewFile, ViewEntry
    from runnel.lake.snapshot import Snapshot
    from runnel.model.program import Program, Role, Step
    from runnel.model.relation import Relation
    from runnel.pipeline.runtime import Runtime


@dataclass(frozen=True)
class ViewResult:
    """What became of one view in one epoch. `strategy` is incremental, full, skipped, failed or held."""

    view: str
    strategy: str
    rows: int = 0
    milliseconds: float = 0.0
    error: str | None = None

    @property
    def advanced(self) -> bool:
        """Whether the view now equals its query as of the new epoch."""
        return self.error is None


def maintain(runtime: Runtime, head: Snapshot, pending: Pending, views: Iterable[ViewEntry]) -> list[ViewResult]:
    """Compute the change of these views for the range from each one's frontier to head + pending; add it to `pending`."""
    todo = {view.name: view for view in views}
    ranges: dict[str, Inputs] = {}
    shared: dict[int, Inputs] = {}
    results: dict[str, ViewResult] = {}
    for view in todo.values():
        try:
            old = standing(runtime.lake, head, view)
        except Terminal as error:
            results[view.name] = ViewResult(view.name, "failed", error=str(error))
            continue
        if old.epoch not in shared:
            shared[old.epoch] = Inputs(runtime.engine, old, head, pending)
        ranges[view.name] = shared[old.epoch]
    for level in levels(todo):
        work = [(view, _waits_for(view, head, results)) for view in level if view.name not in results]
        ready = [view for view, waits in work if not waits]
        for view, waits in work:
            if waits:
                results[view.name] = ViewResult(view.name, "held", error=f"waits for {waits}, which has failed")
        for result in _side_by_side(runtime, ready, ranges, pending):
            results[result.view] = result
    return list(results.values())


def _side_by_side(
    runtime: Runtime, views: list[ViewEntry], ranges: Mapping[str, Inputs], pending: Pending
) -> list[ViewResult]:
    if len(views) < 2 or runtime.threads < 2:
        return [_refresh(runtime, view, ranges[view.name], pending) for view in views]
    with ThreadPoolExecutor(min(runtime.threads, len(views)), thread_name_prefix="runnel-view") as pool:
        return list(pool.map(lambda view: _refresh(runtime, view, ranges[view.name], pending), views))


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


def _waits_for(view: ViewEntry, head: Snapshot, results: Mapping[str, ViewResult]) -> str | None:
    for upstream in view.inputs:
        result = results.get(upstream)
        if result is not None and not result.advanced:
            return upstream
        if result is None and upstream in head.views and head.views[upstream].error:
            return upstream
    return None


def _refresh(runtime: Runtime, view: ViewEntry, inputs: Inputs, pending: Pending) -> ViewResult:
    """Run one view's program; its files join `pending` only when all of its steps are done."""
    begun = time.perf_counter()
    program = runtime.program(view)
    mine = Pending()
    try:
        changed = frozenset(name for name in program.inputs if inputs.delta_rows(name))
        if not changed:
            return ViewResult(view.name, "skipped")
        rows = _run_steps(runtime, program, _Overlay(inputs, mine), changed, mine)
        reach("epoch:view-computed")
    except Unreachable:
        runtime.lake.discard(mine.all())
        raise
    except RunnelError as error:
        runtime.lake.discard(mine.all())
        return ViewResult(view.name, "failed", milliseconds=_since(begun), error=str(error))
    for relation, files in mine.files.items():
        pending.add(relation, files)
    strategy = "incremental" if program.incremental else "full"
    return ViewResult(view.name, strategy, rows, _since(begun))


class _Overlay:
    """Inputs of one view: what all share, plus what this view's own steps have made so far."""

    def __init__(self, shared: Inputs, mine: Pending) -> None:
        self.shared = shared
        self._own = shared.beside(mine)

    def roles(self, reads: Iterable[tuple[str, Role]], own: frozenset[str]) -> dict[str, Input]:
        reads = list(reads)
        outside = self.shared.roles([read for read in reads if read[0] not in own])
        return {**outside, **self._own.roles([read for read in reads if read[0] in own], own)}

    def delta_rows(self, relation: str, own: frozenset[str]) -> int:
        return self._own.delta_rows(relation, own)


def _run_steps(runtime: Runtime, program: Program, inputs: _Overlay, changed: frozenset[str], mine: Pending) -> int:
    own = frozenset(step.target.name for step in program.steps)
    rows = 0
    for number, step in enumerate(program.steps, 1):
        sql, reads = change_sql(step, program.strategy, changed)
        rows = 0
        if sql is None:
            continue
        size = sum(inputs.shared.delta_rows(name) for name in changed if name not in own)
        files = materialise(runtime, step.target, sql, inputs.roles(reads, own), large=size > runtime.large)
        mine.add(step.target.name, files)
        rows = sum(file.rows for file in files)
        if rows and number < len(program.steps) and inputs.delta_rows(step.target.name, own):
            changed = changed | {step.target.name}
    return rows


def change_sql(
    step: Step, strategy: Strategy, changed: frozenset[str]
) -> tuple[str | None, frozenset[tuple[str, Role]]]:
    """Give the SQL of a step's change when these relations changed, and what it reads."""
    if strategy is Strategy.FULL:
        return recompute_sql(step)
    return step.delta_sql(changed), step.delta_reads(changed)


def recompute_sql(step: Step) -> tuple[str, frozenset[tuple[str, Role]]]:
    """Give the SQL of a recomputed bag's change: its new contents minus what is stored."""
    target = step.target
    columns = ", ".join(quote(c.name) for c in target.columns)
    weight = quote(WEIGHT)
    sql = (
        f"SELECT {columns}, sum({weight}) AS {weight} FROM (\n{step.initial}\nUNION ALL\n"
        f"SELECT {columns}, -{weight} AS {weight} FROM {input_name(target.name, 'stored_old')}\n)"
        f" GROUP BY {columns} HAVING sum({weight}) <> 0"
    )
    return sql, step.initial_reads | {(target.name, "stored_old")}


def materialise(
    runtime: Runtime, target: Relation, sql: str, inputs: Mapping[str, Input], *, large: bool
) -> list[NewFile]:
    """Run a query and store its signed rows: large results by the engine's own writer, small ones by the driver."""
    lake = runtime.lake
    if large:
        order = target.key or tuple(c.name for c in target.columns[:1])
        paths = runtime.engine.write(sql, inputs, lake.arrow_schema(target), lake.folder(target.name), order)
        return lake.adopt(target, paths)
    table = runtime.engine.rows(sql, inputs, signed(target.columns))
    return [lake.write(target, table)] if table.num_rows else []


def hydrate(runtime: Runtime, head: Snapshot, program: Program) -> Pending:
    """Compute a new view's contents and those of its stages from scratch, as of `head`."""
    pending = Pending()
    targets = [step.target for step in program.steps]
    inputs = Inputs(runtime.engine, head, head, pending, targets)
    size = sum(stored(head.relations[name], head.files(name)).rows for name in program.inputs)
    for step in program.steps:
        own = frozenset(target.name for target in targets)
        roles = inputs.roles(step.initial_reads, own)
        pending.add(
            step.target.name, materialise(runtime, step.target, step.initial, roles, large=size > runtime.large)
        )
    reach("view:hydrated")
    return pending


def _since(begun: float) -> float:
    return round((time.perf_counter() - begun) * 1000, 3)
