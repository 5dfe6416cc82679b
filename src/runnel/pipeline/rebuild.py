"""Recomputes a view and its stages from scratch, and stores only the difference: what a repair and a full refresh do.

Other views that read the same stages follow that difference as they follow any change, in the same commit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from runnel.engine.functions import check_functions
from runnel.engine.inputs import Inputs, Pending
from runnel.lake.entries import Commit
from runnel.pipeline.events import refuse_recomputing
from runnel.pipeline.maintain import ViewResult, is_stage, levels, maintain
from runnel.pipeline.materialise import difference_sql, materialise
from runnel.pipeline.step import in_turn, note_results
from runnel.pipeline.update import immediate_readers

if TYPE_CHECKING:
    from runnel.lake.entries import ViewEntry
    from runnel.lake.snapshot import Snapshot
    from runnel.pipeline.runtime import Runtime


def rebuild(runtime: Runtime, name: str) -> int:
    """Compute a view and its stages from scratch and store the difference to what is there; give the epoch."""
    return in_turn(runtime, lambda: _attempt(runtime, name))


def _attempt(runtime: Runtime, name: str) -> int:
    head = runtime.lake.snapshot()
    view = head.views[name]
    refuse_recomputing(view)
    mine = {n: head.entries[n] for n in (*view.stages, name)}
    pending = Pending()
    try:
        results = [_difference(runtime, head, entry, pending) for level in levels(mine) for entry in level]
        followers = immediate_readers(head, set(mine)) - mine.keys()
        results += maintain(runtime, head, pending, [e for n, e in head.entries.items() if n in followers])
        commit = Commit(base=head.epoch, add=pending.all(), kind="rebuild", moment=pending.moment)
        note_results(commit, head, results)
        return runtime.lake.publish(commit)
    except BaseException:
        runtime.lake.discard(pending.all())
        raise


def _difference(runtime: Runtime, head: Snapshot, view: ViewEntry, pending: Pending) -> ViewResult:
    """Write the files that turn what is stored of a view into what its program gives as of `head`."""
    check_functions(runtime.engine, view)
    program = runtime.program(view)
    step = program.steps[-1]
    inputs = Inputs(runtime.engine, head, head, pending)
    large = sum(f.rows for name in program.inputs for f in head.files(name)) > runtime.large
    sql, reads = difference_sql(step)
    roles = inputs.roles(reads, frozenset({view.name}), view.seen)
    files = materialise(runtime, step.target, sql, roles, large=large)
    pending.add(view.name, files)
    return ViewResult(view.name, "full", sum(file.rows for file in files), stage=is_stage(view))
