"""Keeps event views: adds what happened in each epoch of the range, with the tables beside it as of that same epoch."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from runnel.engine.base import TooLarge
from runnel.engine.events import Moment, moments
from runnel.engine.functions import check_functions
from runnel.engine.inputs import Inputs, signed
from runnel.errors import Terminal
from runnel.pipeline.materialise import materialise

if TYPE_CHECKING:
    from collections.abc import Iterator

    from runnel.lake.entries import NewFile, ViewEntry
    from runnel.model.program import Program
    from runnel.pipeline.runtime import Runtime


def event_files(runtime: Runtime, view: ViewEntry, program: Program, inputs: Inputs) -> list[NewFile]:
    """Write what happened since the view's frontier, and what is happening in the epoch that is being made."""
    step = program.steps[-1]
    small: list[pa.Table] = []
    files: list[NewFile] = []
    try:
        for moment in _range(runtime, program, inputs):
            changed = moment.changed(program.events)
            sql = step.delta_sql(changed)
            if sql is None:
                continue
            check_functions(runtime.engine, view)
            roles = moment.roles(view, program.events, step.delta_reads(changed))
            if sum(moment.inputs.delta_rows(source) for source in program.events) > runtime.large:
                files += materialise(runtime, step.target, sql, roles, large=True)
            else:
                try:
                    small.append(runtime.engine.change(sql, roles, signed(step.target.columns)))
                except TooLarge:
                    files += materialise(runtime, step.target, sql, roles, large=True)
        rows = pa.concat_tables(small) if small else None
        if rows is not None and rows.num_rows:
            files.append(runtime.lake.write(step.target, rows))
    except BaseException as error:
        runtime.lake.discard(files)
        if isinstance(error, Terminal) and error.code == "RUNNEL-EPOCH-EXPIRED":
            raise _lost(view) from error
        raise
    return files


def _range(runtime: Runtime, program: Program, inputs: Inputs) -> Iterator[Moment]:
    old, head, pending, beside = inputs.range
    if any(name in beside for name in program.inputs):
        return  # what it reads is itself made anew in this commit: what happens to that begins with it
    yield from moments(runtime.lake, runtime.engine, program.events, old, head)
    if any(pending.of(source) for source in program.events):
        now = Inputs(runtime.engine, head, head, pending)
        yield Moment(head.epoch + 1, pending.at(), now)


def _lost(view: ViewEntry) -> Terminal:
    return Terminal(
        "RUNNEL-VIEW-EVENTS-LOST",
        f"what happened after epoch {view.frontier} is no longer kept, so the event view {view.name} cannot go on",
        hint="define it anew: it begins empty",
    )


def refuse_recomputing(view: ViewEntry) -> None:
    """Refuse to compute an event view from scratch: that would empty it."""
    if view.events:
        raise Terminal(
            "RUNNEL-VIEW-EVENTS-MODE",
            f"the event view {view.name} cannot be recomputed: what happened is in no table",
            hint="refresh it without full; to begin anew, drop it and define it again",
        )
