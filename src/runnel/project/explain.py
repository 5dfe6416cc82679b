"""Says how a view is kept: the strategy of each operator and why, the delta program, what is read, what it cost lately."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from runnel.model.program import changes
from runnel.model.relation import Kind
from runnel.pipeline import proofs
from runnel.pipeline.definitions import find_view
from runnel.project.places import in_words

if TYPE_CHECKING:
    from runnel.lake.entries import ViewEntry
    from runnel.lake.snapshot import Snapshot
    from runnel.model.program import Program, Step
    from runnel.pipeline.proofs import Proof
    from runnel.pipeline.runtime import Runtime


@dataclass(frozen=True)
class Explanation:
    """A view's program beside what it costs; `str()` of it is what the command line prints.

    `shared` has for each stage below the view the other views that read it, `joins` for each join whose change is
    computed once for all that need it, the other views that do.
    """

    view: str
    program: Program
    sizes: dict[str, tuple[int, int]]
    costs: tuple[dict[str, Any], ...]
    shared: dict[str, tuple[str, ...]]
    joins: dict[str, tuple[str, ...]]
    proof: Proof | None = None
    driver_rows: int = 0
    """Rows of change up to which the driver does the work itself where it can."""

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
            "stages": [self._stage_dict(stage) for stage in self.program.stages],
            "joins": [{"join": name, "shared_with": list(others)} for name, others in self.joins.items()],
            "steps": [_step_dict(step, part) for part in self._parts() for step in part.steps],
            "sizes": {name: {"rows": rows, "bytes": size} for name, (rows, size) in self.sizes.items()},
            "last_epochs": list(self.costs),
            "driver_rows": self.driver_rows,
            "proof": self.proof.to_dict() if self.proof is not None else None,
        }

    def _parts(self) -> tuple[Program, ...]:
        return (*self.program.stages, self.program)

    def _stage_dict(self, stage: Program) -> dict[str, Any]:
        rows, size = self.sizes[stage.view]
        return {
            "stage": stage.view,
            "strategy": stage.strategy.value,
            "reason": stage.operators[0].reason if stage.operators else "",
            "inputs": list(stage.inputs),
            "rows": rows,
            "bytes": size,
            "shared_with": list(self.shared[stage.view]),
        }

    def _places(self) -> list[str]:
        """Say where epochs of this view ran: what counts is the epoch, all of its views together."""
        said = [f"the driver takes changes of up to {self.driver_rows:,} rows, Spark all others"]
        if not self.driver_rows:
            said = ["Spark does everything: driver_rows is 0"]
        for cost in self.costs:
            if cost.get("work"):
                said.append(f"epoch {cost['epoch']}: {in_words(cost['work'], cost['jobs'], cost['tasks'])}")
        return said

    def _stage_line(self, stage: Program) -> str:
        rows, size = self.sizes[stage.view]
        others = self.shared[stage.view]
        also = f"; also read by {', '.join(others)}" if others else ""
        return f"  {stage.view}: {stage.strategy.value}, {rows} stored rows, {size} bytes{also}"

    def __str__(self) -> str:
        lines = [f"{self.view}: {self.program.strategy.value}" + ("" if self.incremental else " (recomputed)"), ""]
        for o in self.program.operators:
            why = f"  {o.reason}" if o.reason else ""
            lines.append(f"  {o.name}: {o.strategy.value}{why}" + (f" [{o.code}]" if o.code else ""))
        if self.program.stages:
            lines += ["", "stages", *(self._stage_line(stage) for stage in self.program.stages)]
        if self.joins:
            lines += ["", "joins computed once for all"]
            lines += [f"  {name}: also read by {', '.join(others)}" for name, others in self.joins.items()]
        lines += ["", "reads"]
        stages = {stage.view for stage in self.program.stages}
        shown = {name: size for name, size in self.sizes.items() if name not in stages}
        lines += [f"  {name}: {rows} stored rows, {size} bytes" for name, (rows, size) in shown.items()]
        for part in self._parts():
            for step in part.steps:
                lines += ["", f"-- change of {step.target.name}", change_text(step, part)]
        lines += ["", "proof", f"  {self.proof or 'never proved'}"]
        if self.proof is not None:
            lines += [f"  earlier: {said}" for said in self.proof.past]
        if self.costs:
            lines += ["", "last epochs"]
            lines += [_cost_line(cost) for cost in self.costs]
        lines += ["", "places", *(f"  {said}" for said in self._places())]
        return "\n".join(lines)


def _cost_line(cost: dict[str, Any]) -> str:
    guess = cost.get("estimate")
    why = f" (estimated work: incremental {guess['incremental']}, full {guess['full']})" if guess else ""
    return f"  {cost['epoch']}: {cost['strategy']}, {cost['rows']} rows, {cost['ms']:.0f} ms{why}"


def change_text(step: Step, program: Program) -> str:
    """Give the SQL of a step's change when everything changed, or of its contents where it is recomputed."""
    happened = {changes(name) for name in program.events}
    everything = frozenset({*program.inputs, *happened, *(s.target.name for s in program.steps)})
    return step.delta_sql(everything) or step.initial


def _step_dict(step: Step, program: Program) -> dict[str, Any]:
    return {
        "target": step.target.name,
        "stage": step.target.kind is Kind.STAGE,
        "stored": step.stored,
        "form": "sums" if step.target.final else "rows",
        "sql": change_text(step, program),
    }


def explain(runtime: Runtime, name: str) -> Explanation:
    """Collect a view's explanation from the catalog; nothing is computed."""
    head = runtime.lake.snapshot()
    view = find_view(head, name)
    program = runtime.whole_program(head, view)
    parts = (*program.stages, program)
    names = dict.fromkeys(name for part in parts for name in (*part.inputs, part.view))
    shared = {s.view: _others(head, view, s.view) for s in program.stages}
    return Explanation(
        view.name,
        program,
        {n: _size(head, n) for n in names},
        tuple(_costs(runtime, view.name)),
        shared,
        _joins(runtime, head, view, program),
        proofs.known(runtime.lake, head).get(view.name),
        runtime.engine.light,
    )


def _joins(runtime: Runtime, head: Snapshot, view: ViewEntry, program: Program) -> dict[str, tuple[str, ...]]:
    """Give the joins of a view and its stages that others have too, with those others' views."""
    mine = {view.name, *view.stages}
    found: dict[str, set[str]] = {name: set() for part in (*program.stages, program) for name in _join_names(part)}
    for entry in head.entries.values():
        if entry.name in mine:
            continue
        for name in _join_names(runtime.program(entry)) & found.keys():
            found[name] |= {v.name for v in head.views.values() if entry.name in (v.name, *v.stages)} - {view.name}
    return {name: tuple(sorted(others)) for name, others in found.items() if others}


def _join_names(program: Program) -> set[str]:
    return {step.shared.relation.name for step in program.steps if step.shared is not None}


def _others(head: Snapshot, view: ViewEntry, stage: str) -> tuple[str, ...]:
    """Give the other views that read a stage."""
    return tuple(other.name for other in head.views.values() if stage in other.stages and other.name != view.name)


def _size(head: Snapshot, name: str) -> tuple[int, int]:
    files = head.files(name)
    return sum(f.rows for f in files), sum(f.bytes for f in files)


def _costs(runtime: Runtime, view: str, last: int = 5) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for record in runtime.lake.epochs(50):
        if view in record.get("defined", ()):
            found = []
        elif record.get("views", {}).get(view, {}).get("strategy", "skipped") != "skipped":
            did = {"epoch": record["epoch"], "ms": 0.0, **record["views"][view]}
            found.append(did | {name: record[name] for name in ("work", "jobs", "tasks") if name in record})
    return found[-last:]
