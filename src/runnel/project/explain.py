"""Says how a view is kept: the strategy of each operator and why, the delta program, what is read, what it cost lately."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from runnel.pipeline.definitions import find_view

if TYPE_CHECKING:
    from runnel.lake.snapshot import Snapshot
    from runnel.model.program import Program, Step
    from runnel.pipeline.runtime import Runtime


@dataclass(frozen=True)
class Explanation:
    """A view's program beside what it costs; `str()` of it is what the command line prints."""

    view: str
    program: Program
    sizes: dict[str, tuple[int, int]]
    costs: tuple[dict[str, Any], ...]

    @property
    def incremental(self) -> bool:
        """Whether a change costs by the change."""
        return self.program.incremental

    @property
    def strategies(self) -> dict[str, str]:
        """The strategy of each operator."""
        return {operator.name: operator.strategy.value for operator in self.program.operators}

    def to_dict(self) -> dict[str, Any]:
        """Give plain data, for `--json`."""
        return {
            "view": self.view,
            "strategy": self.program.strategy.value,
            "incremental": self.incremental,
            "inputs": list(self.program.inputs),
            "operators": [
                {"operator": o.name, "strategy": o.strategy.value, "reason": o.reason, "code": o.code}
                for o in self.program.operators
            ],
            "steps": [_step_dict(step, self.program) for step in self.program.steps],
            "sizes": {name: {"rows": rows, "bytes": size} for name, (rows, size) in self.sizes.items()},
            "last_epochs": list(self.costs),
        }

    def __str__(self) -> str:
        lines = [f"{self.view}: {self.program.strategy.value}" + ("" if self.incremental else " (recomputed)"), ""]
        for o in self.program.operators:
            why = f"  {o.reason}" if o.reason else ""
            lines.append(f"  {o.name}: {o.strategy.value}{why}" + (f" [{o.code}]" if o.code else ""))
        lines += ["", "reads"]
        lines += [f"  {name}: {rows} stored rows, {size} bytes" for name, (rows, size) in self.sizes.items()]
        for step in self.program.steps:
            lines += ["", f"-- change of {step.target.name}", change_text(step, self.program)]
        if self.costs:
            lines += ["", "last epochs"]
            lines += [f"  {c['epoch']}: {c['strategy']}, {c['rows']} rows, {c['ms']:.0f} ms" for c in self.costs]
        return "\n".join(lines)


def change_text(step: Step, program: Program) -> str:
    """Give the SQL of a step's change when everything changed, or of its contents where it is recomputed."""
    everything = frozenset({*program.inputs, *(s.target.name for s in program.steps)})
    return step.delta_sql(everything) or step.initial


def _step_dict(step: Step, program: Program) -> dict[str, Any]:
    return {
        "target": step.target.name,
        "stage": step is not program.steps[-1],
        "form": "sums" if step.target.final else "rows",
        "sql": change_text(step, program),
    }


def explain(runtime: Runtime, name: str) -> Explanation:
    """Collect a view's explanation from the catalog; nothing is computed."""
    head = runtime.lake.snapshot()
    view = find_view(head, name)
    program = runtime.program(view)
    names = [*program.inputs, *(step.target.name for step in program.steps)]
    return Explanation(view.name, program, {n: _size(head, n) for n in names}, tuple(_costs(runtime, view.name)))


def _size(head: Snapshot, name: str) -> tuple[int, int]:
    files = head.files(name)
    return sum(f.rows for f in files), sum(f.bytes for f in files)


def _costs(runtime: Runtime, view: str, last: int = 5) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for record in runtime.lake.epochs(50):
        if record.get("defined") == view:
            found = []
        elif record.get("views", {}).get(view, {}).get("strategy", "skipped") != "skipped":
            found.append({"epoch": record["epoch"], "ms": 0.0, **record["views"][view]})
    return found[-last:]
