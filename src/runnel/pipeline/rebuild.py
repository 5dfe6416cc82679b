"""Recomputes a view and its stages from scratch, and stores only the difference: what a repair and a full refresh do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from runnel.engine.inputs import Inputs, Pending
from runnel.model.program import name as input_name
from runnel.model.program import quote
from runnel.model.relation import WEIGHT
from runnel.pipeline.maintain import materialise, recompute_sql

if TYPE_CHECKING:
    from runnel.lake.entries import ViewEntry
    from runnel.lake.snapshot import Snapshot
    from runnel.model.program import Role, Step
    from runnel.pipeline.runtime import Runtime


def difference(runtime: Runtime, head: Snapshot, view: ViewEntry) -> Pending:
    """Give the files that turn what is stored of a view into what its query gives as of `head`."""
    pending = Pending()
    program = runtime.program(view)
    inputs = Inputs(runtime.engine, head, head, pending)
    large = sum(f.rows for name in program.inputs for f in head.files(name)) > runtime.large
    for step in program.steps:
        sql, reads = _difference_sql(step)
        own = frozenset({step.target.name})
        pending.add(step.target.name, materialise(runtime, step.target, sql, inputs.roles(reads, own), large=large))
    return pending


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
