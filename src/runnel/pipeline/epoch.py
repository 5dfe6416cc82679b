"""An epoch of the outside sources, step by step: plan, capture, maintain, commit, deliver, release.

1. plan: per source, the range from the committed position to what is there now, bounded by rows;
2. capture: read the range and turn it into signed rows, old rows completed from the state as of n-1;
3. maintain: the change of every view;
4. commit: one catalog transaction publishes rows, views and positions (steps 3 and 4 stand in `step.take`);
5. deliver: subscribers and targets are told, from the commit;
6. release: the source may forget what is committed. Never earlier.

A source that fails is left where it is and reported; the others go on.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from runnel.connectors.guarded import translate_errors
from runnel.engine.counts import DRIVER
from runnel.errors import RunnelError
from runnel.failpoints import reach
from runnel.pipeline.cells import due_offset
from runnel.pipeline.change_sets import add_changes, located
from runnel.pipeline.large_reads import partitions_of, read_partitions
from runnel.pipeline.reconcile import capture_cells
from runnel.pipeline.rows_in import to_table
from runnel.pipeline.step import Change, take
from runnel.pipeline.transaction import Drafts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from runnel.connectors.base import ChangeSet, Source
    from runnel.lake.entries import ViewEntry
    from runnel.lake.snapshot import Snapshot
    from runnel.pipeline.runtime import Runtime
    from runnel.pipeline.step import Taken


@dataclass
class Captured:
    """What an epoch took from the sources: the ends of the ranges, and the errors of sources that could not be read.

    `partial` are errors of some tables of sources whose other tables were read.
    """

    ends: dict[str, dict[str, Any]] = field(default_factory=dict)
    errors: dict[str, RunnelError] = field(default_factory=dict)
    partial: dict[str, RunnelError] = field(default_factory=dict)


def error_note(source: str) -> str:
    """Name the position entry under which a source's error is kept, so that every process can show it."""
    return f"{source}#error"


def run_epoch(
    runtime: Runtime,
    sources: Mapping[str, Source],
    max_rows: int,
    choose: Callable[[Snapshot], Iterable[ViewEntry]],
    deliver: Callable[[Taken], None] | None = None,
    failed: Mapping[str, RunnelError] | None = None,
    *,
    single: bool = False,
) -> tuple[Taken, Captured]:
    """Take everything that waits, up to `max_rows` or one transaction (`single`) per source, through the six steps.

    `failed` are sources that are not asked, with their errors: these are noted in the state like those met here.
    """
    captured = Captured()

    def build(head: Snapshot) -> Change:
        captured.ends, captured.errors, captured.partial = {}, dict(failed or {}), {}
        ranges = plan(runtime, head, sources, max_rows, captured, single=single)
        reach("epoch:planned")
        return capture(runtime, head, sources, ranges, captured)

    taken = take(runtime, build, choose)
    if taken.published and deliver:
        deliver(taken)
    release(sources, captured)
    return taken, captured


def plan(
    runtime: Runtime,
    head: Snapshot,
    sources: Mapping[str, Source],
    max_rows: int,
    captured: Captured,
    *,
    single: bool = False,
) -> dict[str, tuple[dict[str, Any], dict[str, Any]]]:
    """Choose each source's range; one with nothing new is left out, but for the first time: where it starts is kept."""
    ranges = {}
    for name, source in sources.items():
        try:
            with translate_errors(f"sources.{name}"):
                start = head.positions.get(name) or source.initial_offset()
                end = source.latest_offset(start, max_rows, single=single)
                cells = source.cells() if end == start and start else None
                if cells is not None:
                    end = due_offset(runtime.lake, head, name, cells, start)
                if problems := source.problems():
                    captured.partial[name] = problems[0]
        except RunnelError as error:
            captured.errors[name] = error
            continue
        if end != start or name not in head.positions:
            ranges[name] = (start, end)
    return ranges


def capture(
    runtime: Runtime,
    head: Snapshot,
    sources: Mapping[str, Source],
    ranges: Mapping[str, tuple[dict[str, Any], dict[str, Any]]],
    captured: Captured,
) -> Change:
    """Read the ranges into signed rows; each source has drafts of its own, so one that fails takes nothing with it."""
    whole = Change(transactions=0)
    for name, (start, end) in ranges.items():
        try:
            with translate_errors(f"sources.{name}"):
                kept = _read(runtime, head, sources, name, start, end, whole)
        except RunnelError as error:
            captured.errors[name] = error
            continue
        except BaseException:
            runtime.lake.discard([file for files in whole.written.values() for file in files])
            raise
        if not kept:
            continue
        whole.positions[name] = end
        if end != start:
            captured.ends[name] = end
    for name in {**sources, **captured.errors}:
        known = head.positions.get(error_note(name), {}).get("error")
        now = captured.errors.get(name, captured.partial.get(name))
        said = None if now is None else str(now)
        if known != said:
            whole.positions[error_note(name)] = {"error": said}
    return whole


def _read(
    runtime: Runtime,
    head: Snapshot,
    sources: Mapping[str, Source],
    name: str,
    start: dict[str, Any],
    end: dict[str, Any],
    whole: Change,
) -> bool:
    """Add one range to the change: by tasks of the engine where it is large, else here; say whether its end has to be kept."""
    if sources[name].cells() is not None:
        return capture_cells(runtime, head, name, sources[name], (start, end), whole)
    partitions = partitions_of(runtime, sources[name], start, end)
    if partitions is not None:
        written = read_partitions(runtime, head, name, partitions)
        if written is not None:
            whole.written.update(written)
            whole.transactions += len(partitions)
            return True
    drafts = Drafts(runtime, head)
    read = list(sources[name].read(start, end)) if end != start else []
    _look_ahead(drafts, name, read)
    for changes in read:
        with located(changes):
            add_changes(drafts.of(f"{name}.{changes.table}"), changes)
    whole.signed.update(drafts.change().signed)
    whole.transactions += len(read)
    if read:
        runtime.engine.counted.work("read", DRIVER)
    return True


def _look_ahead(drafts: Drafts, source: str, read: list[ChangeSet]) -> None:
    """Read the old rows of all changes of a table together: each change set by itself would go through the same row groups.

    What is wrong with a change set is told when it is drafted, with the place that it comes from.
    """
    by_table: dict[str, list[pa.Table]] = {}
    for changes in read:
        looked_up = (changes.keyed,) if changes.trusted else (changes.signed, changes.keyed)
        by_table.setdefault(changes.table, []).extend(t for t in looked_up if t is not None)
    for table, rows in by_table.items():
        if len(rows) < 2:
            continue
        with suppress(RunnelError, pa.ArrowException, KeyError):
            draft = drafts.of(f"{source}.{table}")
            key = draft.relation.key
            if key:
                draft.look_ahead(pa.concat_tables([to_table(draft.relation, part.select(key)) for part in rows]))


def release(sources: Mapping[str, Source], captured: Captured) -> None:
    """Let the sources forget what is committed."""
    reach("epoch:before-release")
    for name, end in captured.ends.items():
        try:
            with translate_errors(f"sources.{name}"):
                sources[name].commit(end)
        except RunnelError as error:
            # The state holds the changes: the store only keeps its log for longer.
            captured.errors[name] = error
    reach("epoch:released")
