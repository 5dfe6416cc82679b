"""Peers: what they are given holds the same changes as ours, and one that is not installed is left out and named."""

from __future__ import annotations

import gzip
import json
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from runnel.bench import star
from runnel.bench.peers import measure
from runnel.bench.peers.feed import flink_columns, write_feed
from runnel.bench.recompute import same_rows
from runnel.bench.report import markdown
from runnel.bench.workplace import Workplace

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_envelopes_hold_every_change_in_the_order_it_happened(tmp_path: Path) -> None:
    rows = star.Star(50)
    feed = write_feed(tmp_path / "feed", rows, (rows.change(10) for _ in range(3)))
    whole = feed.envelopes(3, tmp_path / "events.json.gz")
    lines = [json.loads(line) for line in gzip.decompress(whole.read_bytes()).splitlines()]
    signed = [row for part in feed.parts[:3] for row in pq.read_table(part).to_pylist()]
    assert [(line["before"] or line["after"])["id"] for line in lines] == [row["id"] for row in signed]
    assert [line["op"] for line in lines] == ["d" if row["_weight"] < 0 else "c" for row in signed]
    assert all((line["before"] is None) == (line["op"] == "c") for line in lines)
    assert lines[7]["after"]["time"] == "2026-01-01 00:00:00.007000"
    assert lines[7]["after"]["cost"] == float(signed[7]["cost"])


def test_the_other_tables_are_written_as_they_are_before_the_changes(tmp_path: Path) -> None:
    rows = star.Star(50)
    feed = write_feed(tmp_path / "feed", rows, [])
    assert feed.tables.keys() == star.TABLES.keys() - {star.FACTS}
    told = [json.loads(line) for line in feed.tables["promotions"].read_text().splitlines()]
    assert told == pq.read_table(feed.tables["promotions"].with_suffix(".parquet")).to_pylist()


def test_columns_are_declared_as_flink_wants_them() -> None:
    assert flink_columns("events").startswith("`id` BIGINT, `time` TIMESTAMP(6), `prod` BIGINT")
    assert flink_columns("events").endswith("`cost` DECIMAL(12,2)")


def test_whole_cents_are_compared_as_the_decimals_they_stand_for() -> None:
    ours = pa.table({"shop": [1], "total": pa.array([12345], pa.int64()).cast(pa.decimal128(22, 2))})
    theirs = pa.table({"shop": [1], "total": [1_234_500]})
    assert same_rows(ours, measure._in_our_units(theirs, ours.schema))


def test_a_peer_that_is_not_installed_is_left_out_and_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    load = measure.Load(base=1_000, batches=(50,), count=2)
    with Workplace("duckdb") as place:
        figures = json.loads(json.dumps(measure.measure(place, load)))
    assert figures["verified"] is True
    assert figures["missing"] == ["flink", "pathway"]
    assert figures["batches"]["50"]["runnel"]["changes_per_second"] > 0
    assert "flink is not installed; `runnel bench peers --install` installs it." in markdown(measure.sheet(figures))


def test_a_peer_is_not_timed_where_a_run_would_take_too_long() -> None:
    load = measure.Load(1_000, (10_000, 1_000_000))
    before = [
        {
            measure.OURS: {"changes_per_second": 1.0},
            "quick": {"changes_per_second": 40_000.0},
            "slow": {"changes_per_second": 7_000.0},
            "unknown": {"changes_per_second": None},
        }
    ]
    assert measure._too_slow(load, 1_000_000, before) == {"slow"}
    assert measure._too_slow(load, 10_000, []) == set()
