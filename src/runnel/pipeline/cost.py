"""Estimates what it costs to follow a change and what it costs to compute a view anew, and chooses the cheaper.

The first estimate is in rows: a row of a change is looked up, joined and written in each step, a row of the state is only
read. How long such a row takes is learned from what epochs took, for each view and each way by itself. To compute a view anew is
a job, whose fixed cost is that of following `FLOOR` rows of change: below that a view is always followed.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from runnel.model.program import PARTS

if TYPE_CHECKING:
    from runnel.engine.inputs import Inputs
    from runnel.model.program import Program

CHANGED_ROW, LIGHT_ROW = 4.0, 1.0
"""A row of a change in a job, and in a step that needs none."""
STATE_ROW = 0.3
COMPUTED_ROW = 1.0
MARGIN = 1.2
FLOOR = 20_000
WEIGHT_OF_NEWEST = 0.5

Way = Literal["incremental", "full"]


@dataclass
class Learned:
    """How long a unit of an estimate took so far, by view and way; what was not measured is taken to be as the other way."""

    _rates: dict[tuple[str, Way], float] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def note(self, view: str, way: Way, units: float, milliseconds: float) -> None:
        """Take what an epoch took for a view; newer epochs count more."""
        if units <= 0:
            return
        with self._lock:
            before = self._rates.get((view, way), milliseconds / units)
            now = WEIGHT_OF_NEWEST * milliseconds / units + (1 - WEIGHT_OF_NEWEST) * before
            self._rates[view, way] = now

    def rate(self, view: str, way: Way) -> float:
        """Give the time of a unit: as measured, else as measured the other way, else 1."""
        other: Way = "full" if way == "incremental" else "incremental"
        with self._lock:
            return self._rates.get((view, way)) or self._rates.get((view, other)) or 1.0


@dataclass(frozen=True)
class Estimate:
    """Rows that would be worked on in each way, and how long a row takes in each; `full` says which way is taken."""

    incremental: float
    recompute: float
    changed: int
    rates: tuple[float, float] = (1.0, 1.0)

    def full(self, floor: int) -> bool:
        """Whether recomputing is clearly cheaper."""
        follow, anew = self.incremental * self.rates[0], self.recompute * self.rates[1]
        return self.changed > floor and anew * MARGIN < follow

    def to_dict(self) -> dict[str, int]:
        """Give both estimates, for an epoch's record."""
        worth = self.rates[1] / self.rates[0]
        return {"incremental": round(self.incremental), "full": round(self.recompute * worth)}


def estimate(
    program: Program,
    inputs: Inputs,
    changed: frozenset[str],
    learned: Learned | None = None,
    floor: int = 0,
    light: int = 0,
) -> Estimate:
    """Estimate both ways of bringing a program's relation up to date after a change of these relations.

    `floor` rows of change cost as much as a job; a change of up to `light` rows is mostly followed without one.
    """
    found = changed | {step.target.name for step in program.steps[:-1]}
    own = {step.target.name for step in program.steps}
    reads = {read for step in program.steps for read in step.delta_reads(found, inputs.empty_of(step.parts))}
    delta = sum(inputs.delta_rows(name) for name in changed)
    state = {name for name, role in reads if role not in ("delta", *PARTS) and name not in own}
    if len(program.steps) > 1:  # what the extra terms of the last step read is read for few keys, if at all
        last = program.steps[-1]
        state -= {name for term in last.extra for name, _ in term.reads}
    looked_up = sum(inputs.stored_rows(name) for name in state)
    kept = inputs.stored_rows(program.view)
    everything = sum(inputs.stored_rows(name) for name in program.inputs)
    known = learned or Learned()
    rates = (known.rate(program.view, "incremental"), known.rate(program.view, "full"))
    anew = CHANGED_ROW * floor + COMPUTED_ROW * (everything + kept)
    row = LIGHT_ROW if delta <= light else CHANGED_ROW
    return Estimate(row * delta + STATE_ROW * looked_up, anew, delta, rates)
