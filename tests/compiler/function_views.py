"""Keeps views that use many functions in a real project and compares them after every batch with Spark's own answer.

A view that fails, differs, or is kept in another way than is written down is split, and its halves are played again, until
the one expression that is at fault is found.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pyspark.errors import PySparkException

import runnel
from runnel.errors import RunnelError
from tests.compiler.function_cases import COLUMNS, FEW, THINGS, row, sketches, uses
from tests.compiler.oracle import Failed, SparkOracle
from tests.support.bags import bag_difference

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from runnel.engine.spark import SparkEngine
    from runnel.project import Project
    from tests.compiler.function_cases import Views

Rows = dict[int, dict[str, Any]]
NEVER_NULL = ("id", "k", "w")
TIME_TYPE = {"spark.sql.timeType.enabled": "true"}
OVER_NOTHING = "RUNNEL-FULL-SUBQUERY"
"""Of some aggregates it is not known what they give over no rows: a correlated subquery of them is recomputed."""


@dataclass(frozen=True)
class Fault:
    """One view that is not right: what it is made of, when it was seen, and what was seen."""

    views: Views
    when: str
    problem: str

    def __str__(self) -> str:
        """Name the functions first."""
        names = ", ".join(use.function for use in self.views.uses)
        return f"{names} ({self.views.form}), {self.when}: {self.problem[:800]}\n    {self.views.sql()}"


@dataclass
class Outcome:
    """What a play came to: views and comparisons, the functions that were compared, and what is wrong."""

    views: int = 0
    incremental: int = 0
    checks: int = 0
    compared: set[str] = field(default_factory=set)
    faults: list[Fault] = field(default_factory=list)

    def __str__(self) -> str:
        """Give one line for the summary of a run."""
        how = f"{self.views} views ({self.incremental} incremental)"
        return f"{len(self.compared)} functions in {how}, {self.checks} comparisons, {len(self.faults)} wrong"


def batches(made: Sequence[dict[str, bytes]]) -> list[Rows]:
    """Give the table as it is at the start and after each batch.

    The first batch changes, adds and deletes rows. After the second there are NULLs wherever there may be some, a group is gone
    and another one is new; after the third there is no row at all.
    """
    start = {number: row(number, made) for number in range(14)}
    first = {number: values for number, values in start.items() if number not in (0, 4, 9)}
    first |= {number: {**row(number + 20, made), "id": number} for number in (2, 7, 11)}
    first |= {number: row(number, made) for number in range(14, 20)}
    second = {number: values for number, values in first.items() if values["k"] != 1}
    for number in list(second)[:3]:
        second[number] = {name: value if name in NEVER_NULL else None for name, value in second[number].items()}
    second |= {number: {**row(number, made), "k": 4} for number in range(21, 24)}
    return [start, first, second, {}]


class Play:
    """A project with the two tables, and an oracle that knows nothing but their rows."""

    def __init__(self, engine: SparkEngine, settings: dict[str, str]) -> None:
        """Create the tables. Nothing proves views after their first changes here, for that would repair them."""
        self.project: Project = runnel.memory(engine=engine)
        assert self.project.runtime.keeper is not None
        self.project.runtime.keeper.close()
        self.oracle = SparkOracle(engine.session, [THINGS, FEW])
        for key, value in settings.items():
            self.oracle.session.conf.set(key, value)
        self.rows: Rows = {}
        self.recomputed = {use.function: use.text for use in uses("recomputed")}
        self.project.create_table("things", COLUMNS, key=["id"])
        self.project.create_table("few", "id INT", key=["id"])
        with self.project.transaction() as tx:
            tx.insert("few", [{"id": number} for number in (0, 1, 3, 4)])
        self.oracle.apply({"few": [((number,), 1) for number in (0, 1, 3, 4)]})

    def close(self) -> None:
        """Delete the project; the engine stays open."""
        self.project.runtime.lake.close()
        shutil.rmtree(self.project.folder)

    def become(self, rows: Rows) -> None:
        """Change the table, in one transaction, to these rows."""
        before, self.rows = self.rows, rows
        new = [values for number, values in rows.items() if number not in before]
        other = [values for number, values in rows.items() if number in before and before[number] != values]
        gone = [{"id": number} for number in before if number not in rows]
        with self.project.transaction() as tx:
            tx.insert("things", new)
            tx.update("things", other)
            tx.delete("things", gone)
        signed = [(tuple(values.values()), 1) for values in (*new, *other)]
        signed += [(tuple(before[values["id"]].values()), -1) for values in (*gone, *other)]
        self.oracle.apply({"things": signed})

    def define(self, name: str, views: Views) -> tuple[bool, str]:
        """Define a view; say whether it is incremental, and what is wrong with how it is kept."""
        try:
            self.project.create_view(name, views.sql())
        except RunnelError as error:
            return False, f"{type(error).__name__}: {error}"
        explained = self.project.explain(name)
        codes = {operator.code for operator in explained.program.operators if operator.code}
        wanted = {self.recomputed[use.function] for use in views.uses if use.function in self.recomputed}
        allowed = {OVER_NOTHING} if views.form == "correlated" else set()
        if wanted - codes or codes - wanted - allowed:
            return explained.incremental, f"kept as {sorted(codes) or 'incremental'}, not {sorted(wanted)}"
        problem = explained.proof.problem if explained.proof is not None else "never proved"
        return explained.incremental, problem

    def differences(self, going: Mapping[str, Views]) -> dict[str, str]:
        """Say of each view how it differs from the answer to its text, '' where it does not."""
        errors = {view.name: view.error for view in self.project.status().views}
        return {name: errors[name] or self._difference(name, views.sql()) for name, views in going.items()}

    def _difference(self, name: str, sql: str) -> str:
        try:
            return bag_difference(self.project.view(name).to_arrow(), self.oracle.answer(sql))
        except (Failed, RunnelError, PySparkException) as error:
            return f"{type(error).__name__}: {error}"


def play(engine: SparkEngine, several: Iterable[Views], settings: dict[str, str] | None = None) -> Outcome:
    """Keep these views through all batches; what is at fault is found by splitting views."""
    outcome = Outcome()
    waiting = list(several)
    while waiting:
        waiting = [half for fault in _play(engine, waiting, settings or {}, outcome) for half in _split(fault, outcome)]
    return outcome


def _split(fault: Fault, outcome: Outcome) -> tuple[Views, ...]:
    if len(fault.views.uses) > 1:
        return fault.views.halves()
    outcome.faults.append(fault)
    return ()


def _play(engine: SparkEngine, several: list[Views], settings: dict[str, str], outcome: Outcome) -> list[Fault]:
    """Keep views through all batches once; give those that were wrong, each as it was first seen."""
    begin, *later = batches(sketches(engine.session))
    faults: list[Fault] = []
    going: dict[str, Views] = {}
    played = Play(engine, settings)
    try:
        played.become(begin)
        for number, views in enumerate(several):
            incremental, problem = played.define(f"v{number}", views)
            if problem:
                faults.append(Fault(views, "when it is defined", problem))
            else:
                going[f"v{number}"] = views
                outcome.views, outcome.incremental = outcome.views + 1, outcome.incremental + incremental
        for number, rows in enumerate([begin, *later]):
            if number:
                played.become(rows)
            found = played.differences(going)
            outcome.checks += len(found)
            faults += [Fault(going.pop(name), f"after batch {number}", found[name]) for name in found if found[name]]
        outcome.compared |= {use.function for views in going.values() for use in views.uses}
    finally:
        played.close()
    return faults
