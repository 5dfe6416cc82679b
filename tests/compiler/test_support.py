"""Every row of the support table keeps its promise: the strategy it names, and the right rows whatever happens to the tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from runnel.compiler import compile_view, partials, support
from runnel.compiler.parse import parse_query
from runnel.errors import Terminal
from runnel.model.program import Strategy
from runnel.model.relation import Column
from runnel.model.types import STRING
from tests.compiler.harness import Maintained, difference
from tests.compiler.support_cases import (
    CASES,
    CHANGE,
    NOT_FOLLOWED,
    ON_SPARK,
    OVER_VIEWS,
    REFUSED,
    STORY,
    TABLES,
    everything_back,
    inverse,
    merged,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa

    from runnel.engine.base import Engine
    from runnel.engine.duckdb import DuckDbEngine
    from runnel.engine.spark import SparkEngine
    from runnel.model.program import Program
    from tests.compiler.harness import Batch

    Views = tuple[tuple[str, str], ...]

EACH = [pytest.param(f, sql, id=f"{f}: {title}") for f, cases in CASES.items() for title, sql in cases.items()]
NO = [pytest.param(f, sql, id=f"{f}: {title}") for f, cases in REFUSED.items() for title, sql in cases.items()]
FORMS = [pytest.param(f, sql, id=f"{f}: {title}") for f, cases in NOT_FOLLOWED.items() for title, sql in cases.items()]
GUARDS = ("aggregate of this type", "type changed by rewriting")
"""Rows that no query reaches as long as the compiler is right; each has a test of its own."""
GROWING = ("event view",)
"""Rows whose views do not equal a query over the tables; their tests stand with the pipeline's."""


@pytest.mark.parametrize(("feature", "sql"), EACH)
def test_a_feature_is_kept_right_by_the_strategy_of_its_row(engine: DuckDbEngine, feature: str, sql: str) -> None:
    (program,) = live_through(engine, (("v", sql),), "full" if feature == "forced" else "auto")
    reported_as(program, feature, sql)


@pytest.mark.parametrize(("feature", "sql"), FORMS)
def test_a_form_that_is_not_followed_is_right_and_says_so(engine: DuckDbEngine, feature: str, sql: str) -> None:
    (program,) = live_through(engine, (("v", sql),))
    codes = {o.code for o in program.operators} - {""}
    assert codes == (set() if program.incremental else {support.BY_FEATURE[feature].code})


def test_a_sum_that_cannot_be_kept_is_not_kept(engine: DuckDbEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    """The compiler computes such sums group by group; should one reach the sums all the same, the view is recomputed."""
    monkeypatch.setattr(partials, "supported", lambda measure: False)
    (program,) = live_through(engine, (("v", "SELECT k, sum(v) AS t FROM sales GROUP BY k"),))
    reported_as(program, "aggregate of this type", "")


def test_a_program_that_would_give_another_type_is_not_used(engine: DuckDbEngine) -> None:
    def analyse(sql: str, tables: Mapping[str, tuple[Column, ...]]) -> tuple[Column, ...]:
        """Take the user's own text, which reads plain rows, for something else."""
        plain = any(name.endswith("__rows") for name in tables)
        return tuple(Column(c.name, STRING) if plain else c for c in engine.analyse(sql, tables))

    program = compile_view("v", "SELECT id FROM sales", {t.name: t for t in TABLES}, analyse)
    reported_as(program, "type changed by rewriting", "")


@pytest.mark.parametrize("views", OVER_VIEWS.values(), ids=OVER_VIEWS)
def test_views_over_views_are_kept_right(engine: DuckDbEngine, views: Views) -> None:
    live_through(engine, views)


@pytest.mark.parametrize(("feature", "sql"), NO)
def test_what_is_refused_says_why_and_what_to_write_instead(engine: DuckDbEngine, feature: str, sql: str) -> None:
    row = support.BY_FEATURE[feature]
    with pytest.raises(Terminal) as caught:
        compile_view("v", sql, {t.name: t for t in TABLES}, engine.analyse)
    assert (caught.value.code, caught.value.hint) == (row.code, row.hint)
    assert row.reason in caught.value.message


def test_every_row_of_the_table_has_cases() -> None:
    rows = {row.feature: row.strategy for row in support.SUPPORT}
    assert {f for f, strategy in rows.items() if strategy is not Strategy.REFUSED} == {*CASES, *GUARDS, *GROWING}
    assert {f for f, strategy in rows.items() if strategy is Strategy.REFUSED} == set(REFUSED)
    assert all(CASES.values())


@pytest.mark.spark
@pytest.mark.timeout(900)
def test_features_are_kept_right_on_spark_as_well(spark_engine: SparkEngine) -> None:
    state = Maintained(spark_engine, TABLES)
    state.define("sets", ON_SPARK["sets"])
    state.check("over empty tables")
    state.apply(next(iter(STORY.values())))
    for name, sql in ON_SPARK.items():
        if name != "sets":
            state.define(name, sql)
    state.apply(STORY[CHANGE])
    state.check(CHANGE)
    assert [name for name in ON_SPARK if not state.programs[name].incremental] == ["numbered"]


def live_through(engine: Engine, views: Views, mode: str = "auto") -> list[Program]:
    """Keep views through the story, step by step and in one big step, and compare them after each."""
    stepwise, at_once = Maintained(engine, TABLES), Maintained(engine, TABLES)
    programs = [stepwise.define(name, sql, mode) for name, sql in views]
    stepwise.check("over empty tables")
    empty = shown(stepwise)
    for title, batch in STORY.items():
        before = shown(stepwise) if title == CHANGE else {}
        stepwise.apply(batch)
        stepwise.check(title)
        if before:
            take_back(stepwise, batch, before)
    first, *rest = STORY.values()
    at_once.apply(first)
    for program, (_, sql) in zip(programs, views, strict=True):
        at_once.keep(sql, program)
    at_once.apply(merged(rest))
    same(at_once, shown(stepwise), "from filled tables, in one big step")
    stepwise.apply(everything_back())
    same(stepwise, empty, "everything deleted")
    return programs


def take_back(state: Maintained, batch: Batch, before: dict[str, pa.Table]) -> None:
    """Show that nothing, and a batch that takes itself back, change nothing; and that a batch can be taken back."""
    after = shown(state)
    state.apply({})
    state.apply(merged([batch, inverse(batch)]))
    same(state, after, "then nothing")
    state.apply(inverse(batch))
    same(state, before, "taken back")
    state.apply(batch)
    same(state, after, "once more")


def shown(state: Maintained) -> dict[str, pa.Table]:
    """Give the rows of every view."""
    return {name: state.rows(name) for name in state.sql}


def same(state: Maintained, rows: dict[str, pa.Table], what: str) -> None:
    """Compare every view with rows it had before."""
    for name, expected in rows.items():
        program = state.programs[name]
        problem = difference(state.rows(name), expected, program.columns, loose=True)
        assert not problem, f"{what}, view {name} ({program.strategy.value}): {problem}\n{state.sql[name]}"


def reported_as(program: Program, feature: str, sql: str) -> None:
    """Make sure that a view reports a feature as its row of the table says."""
    row = support.BY_FEATURE[feature]
    if row.strategy is Strategy.FULL:
        assert program.strategy is Strategy.FULL
        assert row.code in {o.code for o in program.operators}, program.operators
        return
    assert program.incremental, program.operators
    assert not any(o.code for o in program.operators)
    found = [f.operator for f in support.findings(parse_query(sql)) if f.support is row]
    named = [o for o in program.operators if o in found or o.name.split()[0] == feature]
    assert named, (feature, program.operators)
    assert {o.strategy for o in named} == {row.strategy}
