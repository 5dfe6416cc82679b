"""Keeps one query as a view over changing tables and compares it with itself recomputed after every batch."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from runnel.errors import RunnelError
from runnel.model.program import Strategy
from tests.compiler.harness import Maintained

if TYPE_CHECKING:
    from runnel.engine.base import Engine
    from runnel.model.program import Program
    from tests.tpc.changing import Dataset


@dataclass(frozen=True)
class Outcome:
    """What became of a view: how it is kept and why, how often it was compared, and what went wrong.

    `rows` is the most it had, `moved` how many batches changed it.
    """

    name: str
    strategy: Strategy
    reason: str
    checks: int
    rows: int
    moved: int
    seconds: float
    problem: str

    @property
    def accepted(self) -> bool:
        return self.strategy is not Strategy.REFUSED

    @property
    def stopped(self) -> bool:
        """Whether it took longer than it may."""
        return "TimeoutError" in self.problem or "interrupted" in self.problem

    @property
    def wrong(self) -> bool:
        return self.accepted and bool(self.problem) and not self.stopped

    @property
    def incremental(self) -> bool:
        return self.strategy in (Strategy.LINEAR, Strategy.KEYS)


def begin(engine: Engine, data: Dataset) -> Maintained:
    """Give the tables as they are before the first batch; all views of a test run share the same rows."""
    maintained = Maintained(engine, data.tables, rows_unknown=True)
    maintained.stored.update(data.start)
    return maintained


def keep(engine: Engine, data: Dataset, name: str, sql: str, batches: int | None = None) -> Outcome:
    """Keep a view over some batches (all, unless told) and say what became of it; nothing is raised."""
    begun = time.perf_counter()
    maintained = begin(engine, data)
    view = name.replace(" ", "_").lower()
    try:
        program = maintained.define(view, sql)
    except RunnelError as error:
        return Outcome(name, Strategy.REFUSED, "", 0, 0, 0, time.perf_counter() - begun, str(error))
    except Exception as error:  # a crash of the compiler is a finding too
        return Outcome(name, Strategy.REFUSED, "crash", 0, 0, 0, time.perf_counter() - begun, repr(error))
    checks = rows = moved = 0
    problem = ""
    try:
        for number, batch in enumerate([{}, *data.batches[:batches]]):
            before = maintained.stored[view].num_rows
            maintained.apply(batch)
            moved += maintained.stored[view].num_rows > before
            checks += maintained.check(f"batch {number}")
            rows = max(rows, maintained.rows(view).num_rows)
    except Exception as error:
        problem = f"{type(error).__name__}: {error}"
    seconds = time.perf_counter() - begun
    return Outcome(name, program.strategy, reason(program), checks, rows, moved, seconds, problem)


def reason(program: Program) -> str:
    """Say why a view is recomputed."""
    return "; ".join(dict.fromkeys(f"{o.name} [{o.code}]" for o in program.operators if o.strategy is Strategy.FULL))
