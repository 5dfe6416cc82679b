"""Every built-in function of the Spark in use is listed, and its views equal Spark's own answer after every batch of changes.

`make test` uses each function in one form; `make test-functions` in every form, with small steps in the driver and without.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from runnel.compiler import compile_view
from runnel.compiler.functions import AGGREGATES, NON_DETERMINISTIC
from runnel.engine.driver import Driver
from runnel.engine.spark import SparkEngine
from tests.compiler.function_cases import FORMS_OF_KINDS, THINGS, all_views, uses
from tests.compiler.function_views import TIME_TYPE, play
from tests.compiler.oracle import SparkOracle

if TYPE_CHECKING:
    from collections.abc import Callable

EVERY = os.environ.get("RUNNEL_FUNCTIONS") == "all"
KINDS = (*FORMS_OF_KINDS, "left_out")
STEADY = {use.function for kind in FORMS_OF_KINDS if kind != "unsteady" for use in uses(kind)}
UNNAMED = (
    *("explode(xs)", "explode(m)", "explode_outer(m)", "posexplode(xs)", "posexplode_outer(m)", "inline(array(o, o))"),
    *("inline_outer(array(o))", "json_tuple(j, 'a', 'b')", "stack(2, i, k, k)", "stack(1, i, k, k)"),
)
VIEWS = list(all_views(every_form=EVERY))


@pytest.mark.spark
def test_every_function_of_this_spark_is_listed(spark_engine: SparkEngine) -> None:
    there = {row[0] for row in spark_engine.session.sql("SHOW SYSTEM FUNCTIONS").collect()}
    listed = {use.function for kind in KINDS for use in uses(kind)}
    assert there - listed == set(), "new functions: add them to tests/fixtures/functions"
    assert listed - there == set(), "functions that this Spark does not have"


def test_every_aggregate_is_known_as_one() -> None:
    listed = {use.function for use in uses("aggregate")} | {"approx_top_k_combine"}
    assert listed - AGGREGATES == set(), "views that use them would be taken for views without groups"


def test_every_function_that_changes_by_itself_is_known_as_one() -> None:
    assert {use.function for use in uses("unsteady")} - NON_DETERMINISTIC == {"unix_timestamp"}, (
        "known by its arguments"
    )


def test_the_views_use_every_deterministic_function() -> None:
    assert {use.function for views in VIEWS for use in views.uses} == STEADY


@pytest.mark.spark
def test_generators_without_names_are_followed_under_sparks_names(spark_engine: SparkEngine) -> None:
    session = SparkOracle(spark_engine.session, [THINGS]).session
    for call in UNNAMED:
        sql = f"SELECT id, {call} FROM things"
        program = compile_view("v", sql, {"things": THINGS}, spark_engine.analyse)
        assert program.incremental, call
        assert [column.name for column in program.columns] == session.sql(sql).columns, call


@pytest.mark.spark
@pytest.mark.timeout(0)
def test_views_of_every_function_equal_sparks_answer_after_every_batch(
    spark_engine: SparkEngine, say: Callable[[str], None]
) -> None:
    before = spark_engine.counted.in_driver
    outcome = play(spark_engine, [views for views in VIEWS if not views.needs_time_type])
    say(f"{outcome}, {spark_engine.counted.in_driver - before} steps in the driver")
    assert not outcome.faults, "\n".join(map(str, outcome.faults))
    assert spark_engine.counted.in_driver > before


@pytest.mark.spark
@pytest.mark.timeout(0)
def test_views_of_the_type_time_equal_sparks_answer_where_a_setting_allows_that_type(
    spark_engine: SparkEngine, say: Callable[[str], None]
) -> None:
    engine = SparkEngine(spark_engine.session, conf=TIME_TYPE)
    outcome = play(engine, [views for views in VIEWS if views.needs_time_type], TIME_TYPE)
    say(str(outcome))
    assert not outcome.faults, "\n".join(map(str, outcome.faults))


@pytest.mark.spark
@pytest.mark.timeout(0)
def test_views_that_the_driver_may_run_are_the_same_with_every_step_on_spark(
    spark_engine: SparkEngine, say: Callable[[str], None]
) -> None:
    engine = SparkEngine(spark_engine.session, driver=Driver(changes=0))
    outcome = play(engine, [views for views in VIEWS if views.portable or (EVERY and not views.needs_time_type)])
    say(str(outcome))
    assert not outcome.faults, "\n".join(map(str, outcome.faults))
    assert engine.counted.in_driver == 0
