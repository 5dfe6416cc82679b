"""Estimates, in rows, what it costs to follow a change and what it costs to compute a view anew, and chooses the cheaper.

The figures are rough on purpose: a row of a change is looked up, joined and written, a row of the state is only read. Below
`FLOOR` rows of change the fixed cost of a job outweighs all of it, and a view is always followed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from runnel.model.program import PARTS

if TYPE_CHECKING:
    from runnel.engine.inputs import Inputs
    from runnel.model.program import Program

CHANGED_ROW = 4.0
STATE_ROW = 0.3
COMPUTED_ROW = 1.0
MARGIN = 1.2
FLOOR = 20_000


@dataclass(frozen=True)
class Estimate:
    """Rows that would be worked on in each way; `full` says which way is taken."""

    incremental: float
    recompute: float
    changed: int

    def full(self, floor: int) -> bool:
        """Whether recomputing is clearly cheaper."""
        return self.changed > floor and self.recompute * MARGIN < self.incremental

    def to_dict(self) -> dict[str, int]:
        """Give both estimates, for an epoch's record."""
        return {"incremental": round(self.incremental), "full": round(self.recompute)}


def estimate(program: Program, inputs: Inputs, changed: frozenset[str]) -> Estimate:
    """Estimate both ways of bringing a program's relation up to date after a change of these relations."""
    step = program.steps[-1]
    delta = sum(inputs.delta_rows(name) for name in changed)
    kept = inputs.stored_rows(program.view)
    reads = step.delta_reads(changed, inputs.empty_of(step.parts))
    state = {name for name, role in reads if role not in ("delta", *PARTS) and name != program.view}
    looked_up = sum(inputs.stored_rows(name) for name in state)
    everything = sum(inputs.stored_rows(name) for name in program.inputs)
    return Estimate(CHANGED_ROW * delta + STATE_ROW * looked_up, COMPUTED_ROW * (everything + kept), delta)
