"""TPC-DS as views: nearly every query is incremental and all equal themselves recomputed after batches of changes.

Here a slice is kept; `python -m tests.tpc.report --suite tpcds` keeps all of them over every batch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.tpc import tpcds_queries
from tests.tpc.changing import merged
from tests.tpc.keeping import keep

if TYPE_CHECKING:
    from runnel.engine.duckdb import DuckDbEngine
    from runnel.engine.spark import SparkEngine
    from tests.tpc.changing import Dataset

SLICE = (
    *("Q1", "Q3", "Q6", "Q8", "Q12", "Q22", "Q28", "Q36", "Q38 relaxed", "Q39", "Q41 relaxed", "Q44", "Q50"),
    *("Q51", "Q65", "Q76", "Q81 relaxed", "Q82", "Q87", "Q89", "Q93", "Q94 relaxed", "Q97", "Q98"),
)
"""Cheap queries that together have every feature: subqueries, windows, set operations, outer joins, rollups."""


def test_every_query_can_be_written_as_a_view() -> None:
    texts = [tpcds_queries.view(name) for name in tpcds_queries.originals()]
    assert len(texts) == 99
    assert not any("LIMIT" in text.splitlines()[-1] for text in texts)


@pytest.mark.slow
@pytest.mark.parametrize("name", SLICE)
def test_a_query_is_incremental_and_right_after_a_batch_and_after_several_in_one(
    engine: DuckDbEngine, tpcds_data: Dataset, name: str
) -> None:
    outcome = keep(engine, merged(tpcds_data, 1), name, tpcds_queries.view(name))
    assert not outcome.problem
    assert outcome.incremental, outcome.reason
    assert outcome.checks == 3


@pytest.mark.spark
@pytest.mark.parametrize("name", ["Q1", "Q97"])
def test_a_query_is_incremental_and_right_on_spark(spark_engine: SparkEngine, tpcds_data: Dataset, name: str) -> None:
    outcome = keep(spark_engine, tpcds_data, name, tpcds_queries.view(name), batches=1)
    assert not outcome.problem
    assert outcome.incremental, outcome.reason
