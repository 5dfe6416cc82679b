"""TPC-H as views: every query is incremental and equals itself recomputed after every batch of changes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from runnel.bench.tpch_data import queries
from tests.tpc import tpch
from tests.tpc.changing import merged
from tests.tpc.keeping import keep

if TYPE_CHECKING:
    from runnel.engine.duckdb import DuckDbEngine
    from runnel.engine.spark import SparkEngine
    from tests.tpc.changing import Dataset

VIEWS = tpch.views()


def test_there_are_22_queries() -> None:
    assert list(queries()) == [f"Q{number}" for number in range(1, 23)]


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in VIEWS if "top" not in name])
def test_a_query_is_incremental_and_right_after_each_of_ten_batches(
    engine: DuckDbEngine, tpch_data: Dataset, name: str
) -> None:
    outcome = keep(engine, tpch_data, name, VIEWS[name])
    assert not outcome.problem
    assert outcome.incremental, outcome.reason
    assert outcome.checks == 11


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in VIEWS if "top" in name])
def test_the_first_three_rows_are_right_after_batches_and_after_several_in_one(
    engine: DuckDbEngine, tpch_data: Dataset, name: str
) -> None:
    outcome = keep(engine, merged(tpch_data, 3), name, VIEWS[name])
    assert not outcome.problem
    assert outcome.incremental, outcome.reason
    assert outcome.checks == 5


@pytest.mark.spark
@pytest.mark.parametrize("name", ["Q1", "Q4", "Q15", "Q18 top 3"])
def test_a_query_is_incremental_and_right_on_spark(spark_engine: SparkEngine, tpch_data: Dataset, name: str) -> None:
    outcome = keep(spark_engine, tpch_data, name, VIEWS[name], batches=2)
    assert not outcome.problem
    assert outcome.incremental, outcome.reason
