"""What happened, epoch by epoch: the inputs of an event view's program, one set for each epoch in which its sources changed.

An event belongs to the epoch that made it. So a view that was not refreshed for a thousand epochs goes through them one by
one, each with the tables beside it as they were then, and finds what it would have found at the time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from runnel.compiler import events_sql
from runnel.engine.base import Derived
from runnel.engine.inputs import Inputs, Pending
from runnel.model.program import changes

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from runnel.engine.base import Engine, Input
    from runnel.lake.entries import ViewEntry
    from runnel.lake.lake import Lake
    from runnel.lake.snapshot import Snapshot
    from runnel.model.program import Role


@dataclass(frozen=True)
class Moment:
    """One epoch in which something happened: its number, its time, and the state before and after it."""

    epoch: int
    time: str
    inputs: Inputs

    def changed(self, sources: Iterable[str]) -> frozenset[str]:
        """Give the virtual relations of those sources that changed in it."""
        return frozenset(changes(source) for source in sources if self.inputs.delta_rows(source))

    def roles(self, view: ViewEntry, sources: Iterable[str], reads: Iterable[tuple[str, Role]]) -> dict[str, Input]:
        """Give the engine's inputs for what an event view's program reads in this epoch."""
        by_name = {changes(source): source for source in sources}
        reads = list(reads)
        found = self.inputs.roles([read for read in reads if read[0] not in by_name], seen=view.seen)
        for source in {by_name[name] for name, _ in reads if name in by_name}:
            below = self.inputs.roles([(source, "delta")])
            sql = events_sql(self.inputs.relation(source), view.seen.get(source), self.epoch, self.time)
            found |= {**below, f"{changes(source)}__delta": Derived(sql, tuple(below))}
        return found


def moments(lake: Lake, engine: Engine, sources: Iterable[str], old: Snapshot, head: Snapshot) -> Iterator[Moment]:
    """Give every epoch in (old, head] in which one of the sources changed, oldest first.

    Raise `RUNNEL-EPOCH-EXPIRED` when an epoch among them is no longer kept.
    """
    epochs = sorted({file.begin for source in sources for file in head.changes(source, old.epoch)})
    times = lake.times(epochs)
    for epoch in epochs:
        before, after = lake.snapshot(epoch - 1), lake.snapshot(epoch)
        yield Moment(epoch, times[epoch], Inputs(engine, before, after, Pending()))
