from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

import runnel
from runnel.bench import Load, dashboard
from runnel.bench.measure import Figures, set_up, take_epochs
from runnel.bench.report import write_json
from runnel.engine.duckdb import DuckDbEngine

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from typer.testing import Result


def test_changes_are_half_inserts_three_tenths_updates_and_the_rest_deletes() -> None:
    events = dashboard.Events(1_000)
    signed = events.change(100)
    assert pc.sum(pc.less(signed.column("_weight"), 0)).as_py() == 30 + 20
    assert pc.sum(pc.greater(signed.column("_weight"), 0)).as_py() == 30 + 50
    assert len(events) == 1_000 + 50 - 20


def test_events_follow_from_the_seed_and_hold_exact_decimals() -> None:
    first, second = (pa.concat_tables(dashboard.Events(500, seed=5).chunks()) for _ in range(2))
    assert first.equals(second)
    assert first.schema.field("cost").type == pa.decimal128(12, 2)
    assert 0 <= pc.min(first.column("cost")).as_py() < pc.max(first.column("cost")).as_py() < 1_000


def test_the_dashboard_views_follow_the_load_and_verify(tmp_path: Path) -> None:
    figures = Figures("dashboard", Load(2_000, 50, 2), {})
    events = dashboard.Events(2_000)
    with runnel.memory(engine=DuckDbEngine()) as project:
        set_up(project, events)
        take_epochs(project, events, figures)
        assert all(project.verify(view).ok for view in dashboard.VIEWS)
        assert project.table("events").to_arrow().num_rows == len(events)
    assert {tuple(view["strategies"]) for view in figures.views.values()} == {("incremental",)}
    figures.recompute_one_by_one, figures.recompute_side_by_side = 900.0, 800.0
    write_json(figures, tmp_path / "figures.json")
    kept = json.loads((tmp_path / "figures.json").read_text())
    assert kept["recompute"] == 800.0
    assert kept["ratio"] == 800.0 / kept["epoch"]


def test_an_unknown_benchmark_is_refused(command: Callable[..., Result]) -> None:
    told = command("bench", "dashbord")
    assert told.exit_code == 2
    assert "RUNNEL-BENCH-UNKNOWN" in told.stderr
