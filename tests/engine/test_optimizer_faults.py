"""Queries that Spark's own optimizer fails on are planned in another way."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import runnel

if TYPE_CHECKING:
    from runnel.engine.spark import SparkEngine


@pytest.mark.spark
@pytest.mark.parametrize("quick", [True, False], ids=["few rows", "many rows"])
def test_a_view_of_a_correlated_subquery_that_is_recomputed_follows_its_tables(
    spark_engine: SparkEngine, monkeypatch: pytest.MonkeyPatch, quick: bool
) -> None:
    """Spark infers a constraint over a column that a union no longer has, and says `key not found`."""
    if not quick:
        monkeypatch.setattr("runnel.engine.spark.QUICK_ROWS", -1)
    with runnel.memory(engine=spark_engine) as project:
        project.create_table("a", "i INT, j INT")
        project.create_table("b", "i INT, k INT")
        project.create_view("v", "SELECT i, j, (SELECT k FROM b WHERE a.i = b.i) AS k FROM a")
        with project.transaction() as tx:
            tx.insert("a", [{"i": 2, "j": 0}, {"i": 0, "j": 1}])
            tx.insert("b", [{"i": 0, "k": 7}])
        assert not tx.failed
        found = {(row["i"], row["j"], row["k"]) for row in project.view("v").to_pylist()}
        assert found == {(2, 0, None), (0, 1, 7)}
        assert project.verify("v").ok
