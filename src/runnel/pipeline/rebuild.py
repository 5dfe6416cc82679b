"""Recomputes a view and its stages from scratch, and stores only the difference: what a repair and a full refresh do.

Other views that read the same stages follow that difference as they follow any change, in the same commit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from runnel.engine.inputs import Inputs, Pending
from runnel.lake.entries import Commit
from runnel.model.program import name as input_name
from runnel.model.program import quote
from runnel.model.relation import WEIGHT
from runnel.pipeline.maintain import ViewResult, is_stage, levels, maintain
from runnel.pipeline.materialise import materialise, recompute_sql
from runnel.pipeline.step import in_turn, note_results
from runnel.pipeline.update import immediate_readers

if TYPE_CHECKING:
    from runnel.lake.entries import ViewEntry
    from runnel.lake.snapshot import Snapshot
    from runnel.model.program import Role, Step
    from runnel.pipeline.runtime import Runtime


def rebuild(runtime: Runtime, name: str) -> int:
    """Compute a view and its stages from scratch and store the difference to what is there; give the epoch."""
    return in_turn(runtime, lambda: _attempt(runtime, name))


def _attempt(runtime: Runtime, name: str) -> int:
    head = runtime.lake.snapshot()
    view = head.views[name]
    mine = {n: head.entries[n] for n in (*view.stages, name)}
    pending = Pending()
    try:
        results = [_difference(runtime, head, entry, pending) for level in levels(mine) for entry in level]
        followers = immediate_readers(head, set(mine)) - mine.keys()
        results += maintain(runtime, head, pending, [e for n, e in head.entries.items() if n in followers])
        commit = Commit(base=head.epoch, add=pending.all(), kind="rebuild")
        note_results(commit, head, results)
        return runtime.lake.publish(commit)
    except BaseException:
        runtime.lake.discard(pending.all())
        raise


def _difference(runtime: Runtime, head: Snapshot, view: ViewEntry, pending: Pending) -> ViewResult:
    """Write the files that turn what is stored of a view into what its program gives as of `head`."""
    program = runtime.program(view)
    step = program.steps[-1]
    inputs = Inputs(runtime.engine, head, head, pending)
    large = sum(f.rows for name in program.inputs for f in head.files(name)) > runtime.large
    sql, reads = _difference_sql(step)
    roles = inputs.roles(reads, frozenset({view.name}), view.seen)
    files = materialise(runtime, step.target, sql, roles, large=large)
    pending.add(view.name, files)
    return ViewResult(view.name, "full", sum(file.rows for file in files), stage=is_stage(view))


def _difference_sql(step: Step) -> tuple[str, frozenset[tuple[str, Role]]]:
    """Bags differ row by row; partial sums are subtracted group by group."""
    target = step.target
    if target.final is None:
        return recompute_sql(step)
    names = [c.name for c in target.columns]
    added = {name: f"sum({quote(name)})" for name in [*target.partial_sums, WEIGHT]}
    listed = ", ".join(quote(name) for name in [*names, WEIGHT])
    negated = ", ".join(quote(n) if n in target.key else f"-{quote(n)} AS {quote(n)}" for n in [*names, WEIGHT])
    chosen = ", ".join(f"{added[n]} AS {quote(n)}" if n in added else quote(n) for n in [*names, WEIGHT])
    by = f" GROUP BY {', '.join(quote(name) for name in target.key)}" if target.key else ""
    sql = (
        f"SELECT {chosen} FROM (\nSELECT {listed} FROM (\n{step.initial}\n)\nUNION ALL\n"
        f"SELECT {negated} FROM {input_name(target.name, 'stored_old')}\n){by}"
        f" HAVING {' OR '.join(f'{text} <> 0' for text in added.values())}"
    )
    return sql, step.initial_reads | {(target.name, "stored_old")}
