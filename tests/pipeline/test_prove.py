"""A view that the compiler gets wrong is found by comparing it with the user's own text: before it is published, and later."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import runnel
from runnel.compiler import compile_view
from runnel.engine.duckdb import DuckDbEngine
from runnel.errors import Terminal
from runnel.lake.entries import Commit
from runnel.model.relation import WEIGHT
from runnel.pipeline import plan, proofs, prove

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from runnel.engine.spark import SparkEngine
    from runnel.model.program import Program
    from runnel.project import Project

TEXT = "SELECT g, x FROM t WHERE x > 0"
NEVER_ENDING = "SELECT count(*) AS n FROM range(100000000000) WHERE id % 7 = 3"


@pytest.fixture
def project() -> Iterator[Project]:
    """Give a project with a table of some rows."""
    with runnel.memory(engine=DuckDbEngine(threads=2)) as made:
        made.create_table("t", "id INT, g INT, x INT", key=["id"])
        fill(made, 0, 20)
        yield made


def fill(project: Project, first: int, last: int) -> None:
    """Insert rows."""
    with project.transaction() as tx:
        tx.insert("t", [{"id": n, "g": n % 3, "x": n - 5} for n in range(first, last)])


def expected(project: Project) -> Counter[tuple[int, int]]:
    """Compute the view by hand."""
    rows = project.table("t").to_arrow().to_pylist()
    return Counter((row["g"], row["x"]) for row in rows if row["x"] > 0)


def shown(project: Project, view: str = "v") -> Counter[tuple[int, int]]:
    """Read the view."""
    return Counter((row["g"], row["x"]) for row in project.view(view).to_arrow().to_pylist())


def break_compiler(monkeypatch: pytest.MonkeyPatch, *, contents: bool = False, changes: bool = False) -> None:
    """Compile programs that are wrong: their first contents, or the terms of their changes, have another condition."""
    right = compile_view

    def wrong(*arguments: Any) -> Program:
        program = right(*arguments)
        if not program.incremental:
            return program
        step = program.steps[-1]
        if contents:
            step = replace(step, initial=step.initial.replace("> 0", "> 3"), grown="")
        if changes:
            step = replace(step, terms=tuple(replace(t, sql=t.sql.replace("> 0", "> 3")) for t in step.terms))
        return replace(program, steps=(*program.steps[:-1], step))

    monkeypatch.setattr(plan, "compile_view", wrong)


def disturb(project: Project, view: str, *rows: tuple[int, ...]) -> None:
    """Add signed rows to a view behind its back."""
    lake = project.runtime.lake
    relation = lake.snapshot().relations[view]
    names = [*(c.name for c in relation.columns), WEIGHT]
    table = pa.Table.from_pylist([dict(zip(names, row, strict=True)) for row in rows], lake.arrow_schema(relation))
    lake.publish(Commit(base=lake.head(), add=[lake.write(relation, table)]))


def status_of(project: Project, view: str = "v") -> Any:
    """Give a view's status."""
    return next(v for v in project.status().views if v.name == view)


def until(done: Callable[[], bool], seconds: float = 60.0) -> bool:
    """Wait for something that another thread does."""
    end = time.monotonic() + seconds
    while not done() and time.monotonic() < end:
        threading.Event().wait(0.05)
    return done()


def test_a_new_view_is_proved_before_it_is_published_and_says_so(project: Project) -> None:
    project.create_view("v", TEXT)
    proof = status_of(project).proof
    assert (proof["how"], proof["ok"], proof["changes"]) == ("whole", True, False)
    assert "all rows" in str(project.explain("v"))
    assert project.explain("v").incremental


def test_a_view_whose_first_contents_are_wrong_is_recomputed_and_never_shown_wrong(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    break_compiler(monkeypatch, contents=True)
    project.create_view("v", TEXT)
    assert shown(project) == expected(project)
    explained = project.explain("v")
    assert not explained.incremental
    assert proofs.CODE in str(explained)
    fill(project, 20, 30)
    assert shown(project) == expected(project)
    epochs = [record for record in project.epochs() if "v" in record.get("defined", ())]
    assert len(epochs) == 1, "the wrong one was published first"


def test_a_difference_leaves_a_reproduction(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    break_compiler(monkeypatch, contents=True)
    project.create_view("v", TEXT)
    reports: Path = project.folder / ".runnel" / "reports"
    (case,) = [json.loads(path.read_text()) for path in reports.iterdir()]
    assert case["sql"] == TEXT
    assert case["inputs"] == {"t": ["id int", "g int", "x int"]}
    assert {(row["g"], row["x"]) for row in case["missing"]} == {(0, 1), (1, 2), (2, 3)}
    assert case["unexpected"] == []


def test_a_wrong_view_that_must_be_incremental_is_refused(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    break_compiler(monkeypatch, contents=True)
    with pytest.raises(Terminal) as caught:
        project.create_view("v", TEXT, mode="incremental")
    assert caught.value.code == proofs.CODE
    assert "v" not in project.runtime.lake.snapshot().views


def test_a_view_that_follows_changes_wrongly_is_found_after_the_first_ones(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    break_compiler(monkeypatch, changes=True)
    project.create_view("v", TEXT)
    assert project.explain("v").incremental
    with project.transaction() as tx:
        tx.insert("t", [{"id": 100, "g": 1, "x": 2}, {"id": 101, "g": 1, "x": 9}])
    assert shown(project) == expected(project)
    proof = project.explain("v").proof
    assert proof is not None
    assert proof.changes
    assert "RUNNEL-VIEW-UNPROVED" in proof.past[0]
    assert proof.ok


def test_a_program_that_is_wrong_again_after_a_rebuild_is_given_up(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prove, "WHOLE", 0)  # so large that birth compares only a few keys, here none of the wrong ones
    monkeypatch.setattr(prove, "_some_keys", lambda relation, made: "")
    monkeypatch.setattr(prove, "same_totals", lambda engine, asked: True)  # as if there had been no time for them
    break_compiler(monkeypatch, contents=True, changes=True)
    project.create_view("v", TEXT)
    assert shown(project) != expected(project)
    prover = prove.Prover(project.runtime)
    assert prover.prove_next() is not None
    assert shown(project) == expected(project)
    assert not project.explain("v").incremental
    fill(project, 20, 30)
    assert shown(project) == expected(project)
    assert status_of(project).proof["ok"]


def test_background_proof_takes_the_oldest_first_and_rebuilds_what_is_wrong(project: Project) -> None:
    project.create_view("v", TEXT)
    project.create_view("w", "SELECT g, count(*) AS n FROM t GROUP BY g")
    assert prove.next_due(project.runtime) is None, "both were proved, and nothing changed"
    fill(project, 20, 30)
    disturb(project, "v", (7, 7, 1))
    assert prove.next_due(project.runtime) == "v"
    proof = prove.Prover(project.runtime).prove_next()
    assert proof is not None
    assert proof.ok
    assert len(proof.past) == 1
    assert shown(project) == expected(project)
    assert project.explain("v").incremental


def test_a_run_proves_in_the_background_and_keeps_the_alarm_of_a_view_that_it_mended(project: Project) -> None:
    project.create_view("v", TEXT)
    disturb(project, "v", (7, 7, 1))
    assert shown(project) != expected(project)
    running = threading.Thread(target=project.run, daemon=True)
    running.start()
    try:
        assert until(lambda: bool(status_of(project).proof["past"]))
    finally:
        project.stop()
        running.join(timeout=60)
    assert not running.is_alive()
    assert "RUNNEL-VIEW-UNPROVED: v differs" in status_of(project).proof["past"][0]
    assert status_of(project).proof["ok"]
    assert shown(project) == expected(project)


def test_a_difference_that_is_only_reported_stays_in_status(project: Project) -> None:
    project.runtime.on_difference = "report"
    project.create_view("v", TEXT)
    disturb(project, "v", (7, 7, 1))
    prove.prove(project.runtime, "v")
    assert status_of(project).proved.startswith("RUNNEL-VIEW-UNPROVED: v differs")
    assert "RUNNEL-VIEW-UNPROVED" in str(project.status())
    project.refresh("v", full=True)
    prove.prove(project.runtime, "v")
    assert status_of(project).proved.startswith("proved")


def test_a_view_that_is_stopped_stays_where_it_is_until_it_is_rebuilt(project: Project) -> None:
    project.runtime.on_difference = "stop"
    project.create_view("v", TEXT)
    disturb(project, "v", (7, 7, 1))
    prove.prove(project.runtime, "v")
    before = status_of(project)
    assert before.error.startswith("RUNNEL-VIEW-STOPPED")
    fill(project, 20, 30)
    assert status_of(project).frontier == before.frontier
    assert status_of(project).error == before.error
    project.refresh("v", full=True)
    assert status_of(project).error is None
    assert shown(project) == expected(project)


@pytest.mark.spark
def test_a_view_made_wrong_is_caught_at_birth_on_spark(
    spark_engine: SparkEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    break_compiler(monkeypatch, contents=True)
    with runnel.memory(spark=spark_engine.session) as project:
        project.create_table("t", "id INT, g INT, x INT", key=["id"])
        fill(project, 0, 20)
        project.create_view("v", TEXT)
        assert shown(project) == expected(project)
        assert not project.explain("v").incremental


def test_a_large_view_is_proved_by_some_keys_and_by_totals(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prove, "WHOLE", 5)
    project.create_view("v", TEXT)
    assert "a sample of keys, and totals over all rows" in str(project.explain("v"))
    monkeypatch.setattr(prove, "_some_keys", lambda *_: "`g` = 77")  # keys that show nothing
    break_compiler(monkeypatch, contents=True)
    project.create_view("w", TEXT)
    assert not project.explain("w").incremental
    assert shown(project, "w") == expected(project)


@pytest.mark.spark
def test_the_proof_of_a_large_view_ends_when_its_time_is_over(
    spark_engine: SparkEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prove, "WHOLE", 5)
    monkeypatch.setattr(prove, "same_totals", lambda engine, _: engine.rows(NEVER_ENDING, {}))
    with runnel.memory(engine=spark_engine) as project:
        project.create_table("t", "id INT, g INT, x INT", key=["id"])
        fill(project, 0, 20)
        project.create_view("v", TEXT)
        proof = str(project.explain("v")).partition("\nproof\n")[2]
        assert "proved" in proof
        assert "totals" not in proof
        assert spark_engine.rows("SELECT 1 AS one", {}).to_pylist() == [{"one": 1}]  # nothing else is stopped
