"""Every benchmark at a tiny size: its figures are whole, can be kept as JSON and shown, and every view was right."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from runnel.bench import choice, dashboard, growth, latency, minmax, star, sustained, tpch, tpch_data
from runnel.bench.machine import machine
from runnel.bench.recompute import copy_tables, recompute, recomputers, same_rows
from runnel.bench.report import markdown
from runnel.bench.workplace import Workplace, load

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from runnel.bench.report import Sheet
    from runnel.engine.spark import SparkEngine


@pytest.fixture
def workplace() -> Iterator[Workplace]:
    with Workplace("duckdb") as place:
        yield place


def checked(figures: Mapping[str, Any], sheet: Callable[[Mapping[str, Any]], Sheet]) -> dict[str, Any]:
    """Take figures through JSON and their sheet, as the published ones go; every view must have been equal."""
    kept: dict[str, Any] = json.loads(json.dumps(figures))
    shown = sheet(kept)
    assert all(len(row) == len(shown.columns) for row in shown.rows)
    assert "verified after the run: equal" in markdown(shown)
    assert kept["verified"] is True
    assert {"benchmark", "load", "engine", "machine", "peak_memory"} <= kept.keys()
    return kept


def test_the_dashboard_keeps_seven_views_incrementally_and_equals_the_recompute(workplace: Workplace) -> None:
    size = dashboard.Load(base=4_000, changes=100, epochs=3, warm=1, dimension=4, rounds=1)
    figures = checked(dashboard.measure(workplace, size), dashboard.sheet)
    assert len(figures["views"]) == 7
    done = {strategy for view in figures["views"].values() for strategy in view["strategies"]}
    assert done <= {"incremental", "skipped"}
    assert len(figures["epochs"]) == 3
    assert set(figures["phases"]) >= {"capture", "maintain"}
    assert figures["recompute"]["duckdb"]["same"] == dict.fromkeys(star.VIEWS, True)
    assert figures["recompute"]["duckdb"]["best"] > 0


def test_bytes_read_are_shown_where_the_records_have_them(workplace: Workplace) -> None:
    figures = dashboard.measure(workplace, dashboard.Load(1_000, 10, epochs=1, warm=0, rounds=0))
    text = " ".join(dashboard.sheet({**figures, "bytes_read": 5 << 20}).notes)
    assert "Bytes read per epoch: 5.0 MiB" in text


@pytest.mark.spark
def test_spark_recomputes_over_plain_copies_in_the_session_that_keeps_the_view(
    spark_engine: SparkEngine, tmp_path: Path
) -> None:
    workplace, rows = Workplace(spark=spark_engine.session), star.Star(500)
    views = {name: star.VIEWS[name] for name in ("takings_per_city", "expensive_events")}
    copy_tables(rows.tables(), tmp_path / "base")
    with workplace.project() as project:
        load(project, star.TABLES, rows.tables())
        for name, sql in views.items():
            project.create_view(name, sql)
        both = {who.name: recompute(who, project, views, rounds=1) for who in recomputers(workplace, tmp_path)}
    assert both.keys() == {"spark", "duckdb"}
    assert all(found["same_rows"] and found["best"] > 0 for found in both.values())
    assert machine(workplace.spark)["java"]


def test_growth_gives_a_median_per_base_and_the_ratio_of_the_ends(workplace: Workplace) -> None:
    size = dashboard.Load(0, changes=20, epochs=2, warm=0)
    figures = checked(growth.measure(workplace, [4_000, 1_000], size), growth.sheet)
    assert list(figures["bases"]) == ["1000", "4000"]
    assert figures["ratio"] == figures["bases"]["4000"]["epoch"] / figures["bases"]["1000"]["epoch"]


@pytest.mark.slow
def test_minmax_deletes_the_extremum_again_and_again(workplace: Workplace) -> None:
    figures = checked(minmax.measure(workplace, 2_000, epochs=2, warm=0), minmax.sheet)
    assert len(figures["inserts"]) == len(figures["deletes"]) == 2
    assert len(figures["streak"]) == minmax.STREAK


@pytest.mark.slow
def test_tpch_keeps_22_views_together_and_each_alone(workplace: Workplace) -> None:
    size = tpch.Load(scale=0.01, epochs=1, warm=0, rounds=1, each=True)
    figures = checked(tpch.measure(workplace, size), tpch.sheet)
    assert list(figures["views"]) == list(figures["alone"]) == [f"q{n}" for n in range(1, 23)]
    assert all(view["epoch"] > 0 for view in figures["alone"].values())
    assert figures["recompute"]["duckdb"]["same_rows"]


def test_a_refresh_set_replaces_orders_with_all_their_lines(tmp_path: Path) -> None:
    refreshes = tpch_data.Refreshes(tpch_data.generate(tmp_path / "base", 0.01), share=0.002)
    seen: set[int] = set()
    for _ in range(3):
        signed = refreshes.change()
        for weight in (-1, 1):
            orders, lines = (
                _keys(signed[t], k, weight) for t, k in (("orders", "o_orderkey"), ("lineitem", "l_orderkey"))
            )
            assert orders == lines
            assert len(orders) == refreshes.count == 30
            assert weight == -1 or not orders & seen
            seen |= orders


def _keys(signed: pa.Table, key: str, weight: int) -> set[int]:
    columns = (signed.column(name).to_pylist() for name in (key, "_weight"))
    return {number for number, sign in zip(*columns, strict=True) if sign == weight}


def test_a_sustained_load_is_sampled_after_every_epoch(workplace: Workplace) -> None:
    size = sustained.Load(base=2_000, rate=0, seconds=0.5, batch=100, warm=1)
    figures = checked(sustained.measure(workplace, size), sustained.sheet)
    assert [s["changes"] for s in figures["samples"]] == [100 * n for n in range(1, len(figures["samples"]) + 1)]
    assert all(sample["files"] > 0 and sample["memory"] > 0 for sample in figures["samples"])
    assert figures["changes_per_second"] > 0


def test_a_rate_is_kept_and_what_waits_is_the_lag(workplace: Workplace) -> None:
    size = sustained.Load(base=1_000, rate=400, seconds=1.0, batch=100, warm=0)
    figures = checked(sustained.measure(workplace, size), sustained.sheet)
    assert figures["samples"][-1]["changes"] == 400
    assert figures["samples"][-1]["lag"] == 0


def test_a_figure_that_grows_is_called_growing() -> None:
    steady = [{"memory": 100.0 + n % 3} for n in range(30)]
    growing = [{"memory": 100.0 * 1.1**n} for n in range(30)]
    assert sustained._bounded(steady, "memory") is True
    assert sustained._bounded(growing, "memory") is False
    assert sustained._bounded(steady[:5], "memory") is None


def test_latency_counts_every_change_that_was_written(workplace: Workplace) -> None:
    size = latency.Load(base=1_000, rate=100, seconds=0.5, warm=1)
    figures = checked(latency.measure(workplace, size), latency.sheet)
    assert figures["changes"] == 50
    assert 0 < figures["p50"] <= figures["p95"] <= figures["p99"] <= figures["longest"]


@pytest.mark.slow
def test_choice_judges_every_case_by_both_ways(workplace: Workplace) -> None:
    size = choice.Load(base=1_000, shares=(0.01, 1.0), rounds=1, warm=0)
    figures = checked(choice.measure(workplace, size), choice.sheet)
    assert len(figures["cases"]) == len(choice.VIEWS) * 3 * 2
    assert 0 <= figures["share_right"] <= 1
    assert all(case["incremental"] > 0 and case["full"] > 0 for case in figures["cases"])


def test_a_choice_is_right_when_it_costs_at_most_a_tenth_more() -> None:
    found = {"incremental": 100.0, "auto": 105.0, "chosen": "incremental"}
    assert choice._judged([{**found, "full": 95.0}])["right"]
    wrong = choice._judged([{**found, "full": 80.0}])
    assert not wrong["right"]
    assert wrong["regret"] == 20.0


def test_results_with_other_rows_are_told_apart() -> None:
    ours = pa.table({"a": [1, 2, 2], "b": ["x", "y", "y"]})
    assert same_rows(ours, pa.table({"A": pa.array([2, 1, 2], pa.int32()), "B": ["y", "x", "y"]}))
    assert not same_rows(ours, pa.table({"a": [1, 1, 2], "b": ["x", "x", "y"]}))
    assert not same_rows(ours, ours.slice(1))
