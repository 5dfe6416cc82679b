"""Rebuilds what `fsck` found damaged from what is not: a compacted run from the files it was made of, a view from its tables.

What holds the only copy of something cannot be rebuilt, and that is said: managed tables, what event views gathered, earlier epochs.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from runnel.engine.inputs import follows
from runnel.errors import RunnelError, Terminal
from runnel.lake import compaction
from runnel.lake.entries import Commit
from runnel.model.relation import Kind
from runnel.pipeline.captures import is_captured
from runnel.pipeline.cells import is_cells
from runnel.pipeline.plan import Definition, make_plan
from runnel.pipeline.step import in_turn
from runnel.pipeline.swap import swap_planned
from runnel.pipeline.upkeep import fold_files

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from runnel.lake.entries import DataFile
    from runnel.lake.fsck import Damage
    from runnel.lake.snapshot import Snapshot
    from runnel.pipeline.plan import Plan
    from runnel.pipeline.runtime import Runtime


@dataclass
class Repair:
    """What was rebuilt, and what was not and why; one sentence each."""

    done: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)


def repair(
    runtime: Runtime,
    damages: Sequence[Damage],
    sources: Collection[str],
    progress: Callable[[str], None] = lambda _: None,
) -> Repair:
    """Rebuild what can be rebuilt; `sources` are the names of outside sources, whose tables can be captured again."""
    said = Repair()
    try:
        head = runtime.lake.snapshot()
    except RunnelError as error:
        said.left.append(f"nothing was rebuilt, for the catalog says what there is: {error.message}")
        return said
    broken = {damage.file.id: damage.file for damage in damages if damage.file is not None}
    for file in [file for file in broken.values() if file.end is None and not file.change]:
        progress(f"folding {file.relation} again")
        if _folded_again(runtime, file, broken):
            said.done.append(f"{file.relation}: a compacted file was written again from the files it was made of")
    head = runtime.lake.snapshot()
    still = {file.relation: file for file in broken.values() if _is_live(head, file)}
    for name in [name for name in still if is_cells(name)]:
        _read_again(runtime, name)
        del still[name]
        said.done.append(f"{name}: dropped; the next run reads its source again from the start")
    for name in sorted(name for name in still if is_captured(name)):
        said.left.append(
            f"{name}: not rebuilt: what a capture keeps is nowhere else; bring {still.pop(name).path} back from a copy"
        )
    lost = {name for name in still if head.relations[name].kind is Kind.TABLE}
    said.left += [_of_table(name, still[name], sources) for name in sorted(lost)]
    _rebuild_views(runtime, head, {*(still.keys() - lost), *_behind(head, broken.values())}, lost, said, progress)
    said.left += _of_earlier_epochs(damages)
    said.left += ["the catalog is not repaired: restore it from a copy"] if any(d.file is None for d in damages) else []
    return said


def _is_live(head: Snapshot, file: DataFile) -> bool:
    return file.relation in head.relations and any(file.id == live.id for live in head.files(file.relation))


def _folded_again(runtime: Runtime, file: DataFile, broken: Collection[int]) -> bool:
    """Write a compacted run again, where all files that it was made of are still kept and are not damaged."""
    snapshot = runtime.lake.snapshot()
    if not _is_live(snapshot, file):
        return False
    run = [live for live in snapshot.files(file.relation) if live.begin == file.begin]
    try:
        before = runtime.lake.snapshot(file.begin - 1)
    except RunnelError:
        return False
    now = {live.id for live in runtime.lake.snapshot(file.begin).files(file.relation)}
    folded = [old for old in before.files(file.relation) if old.id not in now]
    if not folded or any(old.id in broken for old in folded):
        return False
    relation = snapshot.relations[file.relation]
    from_start = len(folded) == len(before.files(file.relation))
    new = fold_files(runtime, relation, tuple(folded), from_start=from_start)
    return new is not None and compaction.publish(runtime.lake, relation, run, new) is not None


def _read_again(runtime: Runtime, name: str) -> None:
    """Drop the cells of a table: whoever runs next makes the relation, and reads its source from the start."""

    def attempt() -> int:
        head = runtime.lake.snapshot()
        return runtime.lake.publish(Commit(base=head.epoch, drop=[name], kind="define"))

    in_turn(runtime, attempt)


def _of_table(name: str, file: DataFile, sources: Collection[str]) -> str:
    source = name.partition(".")[0]
    if source in sources:
        why = f"its rows came from the source {source}, and this version cannot capture a table again"
        return f"{name}: not rebuilt: {why}; bring {file.path} back from a copy"
    return f"{name}: not rebuilt: a managed table is nowhere else; bring {file.path} back from a copy"


def _behind(head: Snapshot, broken: Collection[DataFile]) -> set[str]:
    """Find the views that still have to go through a change that is damaged."""
    changes = [(file.relation, file.begin) for file in broken if file.change]
    return {
        entry.name
        for entry in head.entries.values()
        if any(relation in entry.inputs and begin > entry.frontier for relation, begin in changes)
    }


def _rebuild_views(
    runtime: Runtime,
    head: Snapshot,
    damaged: set[str],
    lost: set[str],
    said: Repair,
    progress: Callable[[str], None],
) -> None:
    """Compute damaged views, the views over damaged stages, and those stages again, in one commit each."""
    over = {name for name, view in head.views.items() if name in damaged or damaged & {*view.stages}}
    for name in [name for name in head.views if name in over]:
        view = head.views[name]
        if view.events:
            said.left.append(f"{name}: not rebuilt: what an event view gathered is nowhere else; restore its files")
            continue
        bases = sorted(lost & {*follows(head, view)})
        if bases:
            said.left.append(f"{name}: not rebuilt: it reads {', '.join(bases)}, which is damaged itself")
            continue
        if not (damaged & {name, *view.stages}):
            continue
        progress(f"rebuilding {name}")
        again = damaged & {name, *view.stages} | {name}
        again |= {n for n, other in head.views.items() if n in over and again & {*other.stages} and not other.events}
        try:
            plan = swap_planned(runtime, partial(_plan, runtime, again))
        except RunnelError as error:
            said.left.append(f"{name}: not rebuilt: {error}")
            continue
        damaged -= plan.made
        rebuilt = sorted(made for made in plan.made if made in head.views)
        said.done += [f"{made}: rebuilt from what it reads" for made in rebuilt]


def _plan(runtime: Runtime, again: set[str], now: Snapshot) -> Plan:
    views = [now.views[name] for name in sorted(again) if name in now.views]
    if not views:
        raise Terminal("RUNNEL-VIEW-OVERTAKEN", "the view was dropped meanwhile")
    wanted = [Definition(view.name, view.sql, dict(view.properties)) for view in views]
    return make_plan(runtime, now, wanted, again=frozenset(again))


def _of_earlier_epochs(damages: Sequence[Damage]) -> list[str]:
    return [
        f"{damage.relation}: not rebuilt: only epochs {damage.file.begin} to {damage.file.end - 1} show it; it is forgotten with them"
        for damage in damages
        if damage.file is not None and damage.file.end is not None
    ]
