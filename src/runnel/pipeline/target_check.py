"""Compares the tables of a target with its views, each as of the epoch it is marked with; `repair` writes the rows that differ."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, cast

from runnel.errors import UsageError
from runnel.pipeline.deliver import deliver, known_in, shape_of, whole_delivery

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from runnel import config
    from runnel.connectors.base import Target
    from runnel.connectors.sqltarget.difference import ComparingTarget, Difference
    from runnel.pipeline.runtime import Runtime


@dataclass(frozen=True)
class Checked:
    """A view and its table, the epoch it was compared as of, and how it differs; None where it has no rows of this state yet.

    `repaired` is the comparison after the rows that differ were written.
    """

    view: str
    table: str
    epoch: int | None
    difference: Difference | None
    repaired: Checked | None = None

    @property
    def ok(self) -> bool:
        """Whether the table is the view, now."""
        return self.repaired.ok if self.repaired is not None else self.difference is not None and self.difference.ok

    def __str__(self) -> str:
        name = f"{self.view} as {self.table}"
        if self.difference is None:
            return f"{name}: has nothing of this state, or of an epoch that is no longer kept; deliver it first"
        found = ", ".join(f"{count} rows {kind}" for kind, count in self.difference.counts.items() if count)
        return f"{name}: {self.difference.checked} rows compared at epoch {self.epoch}: {found or 'equal'}"


def compare(runtime: Runtime, wanted: config.Target, target: Target, views: Sequence[str] = ()) -> Iterator[Checked]:
    """Compare these views of a target, or all; raise for a target whose server cannot compare, and for a view that is not its own."""
    if not hasattr(target, "compare"):
        raise UsageError(
            "RUNNEL-VERIFY-TARGET",
            f"{wanted.label}: tables of {wanted.type} cannot be compared yet",
            place=wanted.at("type"),
            hint="postgres, mariadb and mysql can; `runnel deliver --full` writes every row",
        )
    for view in views:
        if view not in wanted.views:
            hint = f"its views are {', '.join(wanted.views)}"
            raise UsageError(
                "RUNNEL-VERIFY-VIEW", f"{wanted.label} has no view {view!r}", place=wanted.at("views"), hint=hint
            )
    for view in views or wanted.views:
        yield _compared(runtime, wanted, target, view)


def _compared(runtime: Runtime, wanted: config.Target, target: Target, view: str) -> Checked:
    head = runtime.lake.snapshot()
    shape = shape_of(known_in(head), wanted, view, needs_key=target.NEEDS_KEY)
    mark = target.marks([shape]).get(view)
    delivery = None if mark is None else whole_delivery(runtime, head, shape, wanted, mark)
    if mark is None or delivery is None:
        return Checked(view, shape.table, None, None)
    try:
        return Checked(view, shape.table, mark.epoch, cast("ComparingTarget", target).compare(delivery))
    finally:
        delivery.close()


def repair(runtime: Runtime, wanted: config.Target, target: Target, views: Sequence[str]) -> int:
    """Bring these views' tables to the newest epoch by a whole load, which writes only rows that differ; give how many."""
    part = replace(wanted, views={view: wanted.views[view] for view in views})
    done = deliver(runtime, part, target, full=True)
    for problem in done.problems.values():
        raise problem
    return done.rows
