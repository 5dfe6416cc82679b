"""Changes definitions without anybody seeing it happen: computed beside the state at one pinned epoch, swapped in one commit.

Whatever was committed meanwhile is made up for before the swap, so that writers need not wait. When what the new views read
was itself replaced meanwhile, all is planned anew.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING

from runnel.engine.counts import counted_here, counting
from runnel.engine.inputs import Beside, Pending, standing
from runnel.errors import Conflict, Terminal
from runnel.lake.entries import Commit
from runnel.lake.publish import WRITER_LOST
from runnel.model.relation import Kind
from runnel.pipeline.captures import is_captured
from runnel.pipeline.cells import is_cells
from runnel.pipeline.maintain import hydrate, maintain
from runnel.pipeline.plan import make_plan, stages_in_use
from runnel.pipeline.prove import Unproved, at_birth, note_birth
from runnel.pipeline.reshape import rewrite
from runnel.pipeline.step import Overtaken, in_turn, note_results
from runnel.pipeline.update import moving_with, update
from runnel.pipeline.versions import is_versions

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from runnel.lake.entries import ViewEntry
    from runnel.lake.snapshot import Snapshot
    from runnel.model.program import Program
    from runnel.pipeline.maintain import ViewResult
    from runnel.pipeline.plan import Definition, Plan
    from runnel.pipeline.runtime import Runtime

ATTEMPTS = 5


def swap(runtime: Runtime, wanted: Sequence[Definition], allowed: Callable[[Snapshot], None] | None = None) -> Plan:
    """Make these views what their definitions say, with every view that reads them; give what was done.

    `allowed` may refuse the state it is planned on.
    """

    def at(head: Snapshot) -> Plan:
        if allowed:
            allowed(head)
        return make_plan(runtime, head, wanted)

    return swap_planned(runtime, at)


def swap_planned(runtime: Runtime, plan_at: Callable[[Snapshot], Plan]) -> Plan:
    """Plan on the newest epoch and carry the plan out; when it was overtaken, again."""
    attempt = 0
    while True:
        try:
            plan = _pinned(runtime, plan_at)
            with counting(), runtime.lake.pinned(plan.head.epoch):
                _carry_out(runtime, plan)
        except Unproved:
            continue  # planned again, that view is recomputed, and is right by that
        except Overtaken:
            attempt += 1
            if attempt == ATTEMPTS:
                raise
        else:
            return plan


def _pinned(runtime: Runtime, plan_at: Callable[[Snapshot], Plan]) -> Plan:
    """Plan on the newest epoch; stages that will be shared and are behind are brought up first."""
    plan = plan_at(runtime.lake.snapshot())
    behind = [name for name in plan.shared if is_behind(plan.head, name)]
    if not behind:
        return plan
    taken = update(runtime, behind)
    for result in taken.results:
        if result.view in behind and result.error:
            raise result.cause or Terminal("RUNNEL-VIEW-FAILED", result.error)
    plan = plan_at(runtime.lake.snapshot(taken.epoch))
    if any(is_behind(plan.head, name) for name in plan.shared):
        raise _overtaken("the stages it shares with other views moved on")
    return plan


def is_behind(head: Snapshot, name: str) -> bool:
    """Say whether a stage, or one below it, lacks changes of what it reads."""
    entry = head.entries.get(name)
    if entry is None:
        return False
    try:
        return any(head.changes(i, entry.frontier) or is_behind_stage(head, i) for i in entry.inputs)
    except Terminal:  # changes that are no longer kept were there
        return True


def is_behind_stage(head: Snapshot, name: str) -> bool:
    """Say the same of an input: a view is what it is, a stage has to be up to date."""
    return name in head.entries and name not in head.views and is_behind(head, name)


def _carry_out(runtime: Runtime, plan: Plan) -> None:
    if not plan.entries and not plan.tables:
        return
    beside: dict[str, Beside] = {}
    try:
        for name, shape in plan.tables.items():
            beside[name] = Beside(shape.relation, tuple(rewrite(runtime, shape, plan.head.files(name))))
        begun = time.perf_counter()
        beside = hydrate(runtime, plan.head, [plan.entries[program.view] for program in plan.fresh], beside)
        proved = at_birth(runtime, plan, beside, time.perf_counter() - begun)
        epoch = in_turn(runtime, lambda: _attempt(runtime, plan, beside))
    except BaseException:
        runtime.lake.discard([file for made in beside.values() for file in made.files])
        raise
    note_birth(runtime, proved, epoch)


def _attempt(runtime: Runtime, plan: Plan, beside: Mapping[str, Beside]) -> int:
    now = runtime.lake.snapshot()
    dropped = _unused_stages(plan, now)
    _refuse_overtaken(runtime, plan, now, dropped)
    pending = Pending()
    try:
        results = _move_readers(runtime, plan, now, pending, dropped)
        for name, shape in plan.tables.items():
            pending.add(name, rewrite(runtime, shape, now.changes(name, plan.head.epoch)))
        results += _catch_up(runtime, plan, now, pending, beside)
        commit = _commit(plan, now, dropped, beside)
        commit.add += pending.all()
        commit.moment = pending.moment
        note_results(commit, now, [r for r in results if r.view in now.entries and r.view not in plan.made])
        commit.record = _record(plan, beside) | counted_here()
        return runtime.lake.publish(commit)
    except BaseException as error:
        runtime.lake.discard(pending.all())
        if isinstance(error, Conflict) and error.code == WRITER_LOST:
            raise _overtaken("this process was not heard of for too long") from error
        raise


def _move_readers(
    runtime: Runtime, plan: Plan, now: Snapshot, pending: Pending, dropped: Sequence[str]
) -> list[ViewResult]:
    """Bring the views over a table that is swapped, and that stay, up to date: they cannot ask the new one what was before.

    Event views stay even where a view that they read is swapped.
    """
    swapped = plan.tables.keys()
    direct = [e.name for e in now.entries.values() if set(e.inputs) & (swapped | plan.made if e.events else swapped)]
    staying = [name for name in direct if name not in plan.made and name not in dropped]
    moving = [e for e in moving_with(now, staying) if e.name not in plan.made and e.name not in dropped]
    results = maintain(runtime, now, pending, moving)
    for result in results:
        if result.error and result.view in staying:
            raise result.cause or Terminal("RUNNEL-VIEW-FAILED", result.error)
    return results


def _unused_stages(plan: Plan, now: Snapshot) -> list[str]:
    used = stages_in_use({**now.entries, **plan.entries}.values())
    return [name for name in now.entries if name not in now.views and name not in used]


def _refuse_overtaken(runtime: Runtime, plan: Plan, now: Snapshot, dropped: Sequence[str]) -> None:
    """See that what was computed then can go on from there: everything is the same one, and its changes are still kept."""
    then = plan.head.definitions.ids
    for name in {*plan.entries, *plan.outside, *plan.shared, *plan.tables}:
        if then.get(name) != now.definitions.ids.get(name):
            raise _overtaken(f"{name if not name.startswith('#') else 'what it reads'} was replaced")
    for name, entry in plan.entries.items():
        before, after = plan.head.entries.get(name), now.entries.get(name)
        if before is not None and after is not None and _said(before) != _said(after):
            raise _overtaken(f"{entry.name} was changed")
    for entry in now.entries.values():
        if entry.events and entry.name in plan.head.entries:
            continue  # it stays, and goes on with what happens to the new one
        if entry.name not in plan.entries and entry.name not in dropped and set(entry.inputs) & plan.made:
            raise _overtaken(f"{entry.name} began to read it")
    for name in plan.made:
        try:
            standing(runtime.lake, now, plan.entries[name], {*plan.made, *plan.tables})
        except Terminal as error:
            raise _overtaken(
                "the epoch it was computed at is no longer kept", "keep more epochs: [state] keep"
            ) from error


def _said(entry: ViewEntry) -> tuple[str, dict[str, str], str]:
    return entry.sql, dict(entry.properties), entry.program


def _overtaken(why: str, hint: str = "try again") -> Overtaken:
    return Overtaken("RUNNEL-VIEW-OVERTAKEN", f"while the view was computed, {why}", hint=hint)


def _catch_up(
    runtime: Runtime, plan: Plan, now: Snapshot, pending: Pending, beside: Mapping[str, Beside]
) -> list[ViewResult]:
    """Bring what was computed at the pinned epoch up to the newest one."""
    if now.epoch == plan.head.epoch and not plan.tables:
        return []
    shared = [now.entries[name] for name in sorted(plan.shared)]
    results = maintain(runtime, now, pending, [*shared, *(plan.entries[p.view] for p in plan.fresh)], beside)
    for result in results:
        if result.error and (result.view in plan.made or result.view in plan.shared):
            raise result.cause or Terminal("RUNNEL-VIEW-FAILED", result.error)
    return results


def _commit(plan: Plan, now: Snapshot, dropped: Sequence[str], beside: Mapping[str, Beside]) -> Commit:
    replaced = [name for name in plan.made if name in now.entries]
    commit = Commit(base=now.epoch, undefine=[*dropped], kind="define")
    commit.drop = [*plan.tables, *replaced, *dropped, *_without_entry(now)]
    commit.create = [made.relation for made in beside.values()]
    commit.add = [file for made in beside.values() for file in made.files]
    for name, entry in plan.entries.items():
        if name in plan.made:
            commit.define.append(entry)
            commit.frontiers[name] = None
        else:
            commit.define.append(_moved(entry, now.entries[name]))
    return commit


def _without_entry(now: Snapshot) -> list[str]:
    """Find stages as earlier versions kept them, inside one view: nothing reads them any more."""
    stages = [r.name for r in now.relations.values() if r.kind is Kind.STAGE]
    return [
        name
        for name in stages
        if name not in now.entries and not (is_versions(name) or is_cells(name) or is_captured(name))
    ]


def _moved(entry: ViewEntry, now: ViewEntry) -> ViewEntry:
    """Keep how far a view has come of which only text or options change."""
    return replace(entry, frontier=now.frontier, error=now.error)


def _record(plan: Plan, beside: Mapping[str, Beside]) -> dict[str, object]:
    def did(program: Program) -> dict[str, object]:
        return {"strategy": program.strategy.value, "rows": sum(f.rows for f in beside[program.view].files)}

    views = {p.view: did(p) for p in plan.fresh if p.view in plan.programs}
    stages = {p.view: did(p) for p in plan.fresh if p.view not in plan.programs}
    redefined = [name for name in plan.entries if name not in plan.made]
    altered = {name: shape.words for name, shape in plan.tables.items()}
    record: dict[str, object] = {"defined": list(views), "computed": views}
    return record | {k: v for k, v in (("stages", stages), ("redefined", redefined), ("altered", altered)) if v}
