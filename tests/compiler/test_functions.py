"""Every built-in function of the Spark in use is listed with a use of it, or with the reason why not."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.compiler.function_cases import uses

if TYPE_CHECKING:
    from runnel.engine.spark import SparkEngine

KINDS = ("scalar", "aggregate", "window", "rows", "unsteady", "left_out")


@pytest.mark.spark
def test_every_function_of_this_spark_is_listed(spark_engine: SparkEngine) -> None:
    there = {row[0] for row in spark_engine.session.sql("SHOW SYSTEM FUNCTIONS").collect()}
    listed = {use.function for kind in KINDS for use in uses(kind)}
    assert there - listed == set(), "new functions: add them to tests/fixtures/functions"
    assert listed - there == set(), "functions that this Spark does not have"
