"""The crash matrix: killed at every labelled point, a project loses nothing, doubles nothing, and goes on by itself."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

import runnel
from runnel import failpoints
from runnel.engine.duckdb import DuckDbEngine
from runnel.failpoints import KILL_AT

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = pytest.mark.slow
FILES, ROWS = 3, 8
POINTS = [point for point in failpoints.POINTS if not point.startswith(("capture:", "deliver:"))]

CONFIG = """
[project]
name = "crash"

[run]
epoch = "transaction"

[sources.feed]
type = "files"
path = "feed"
schema = { orders = "id BIGINT, region STRING, amount DECIMAL(12,2)" }
key = { orders = ["id"] }
"""

VIEWS = """
CREATE MATERIALIZED VIEW big AS SELECT id, amount FROM orders WHERE amount > 3;
CREATE MATERIALIZED VIEW totals AS SELECT region, sum(amount) AS total, count(*) AS n FROM orders GROUP BY region;
CREATE MATERIALIZED VIEW best AS SELECT region, total FROM totals WHERE n > 2;
CREATE MATERIALIZED VIEW regions AS SELECT count(DISTINCT region) AS n FROM orders;
CREATE MATERIALIZED VIEW told AS SELECT _op AS op, count(*) AS n FROM CHANGES(orders) GROUP BY _op;
"""
EVENTS = {"insert": FILES * ROWS, "update": FILES - 1, "delete": FILES - 1}


def write_project(folder: Path) -> dict[int, tuple[str, str]]:
    """Write a project with a feed of inserts, updates and deletes; give the rows the table must end with."""
    (folder / "views").mkdir(parents=True)
    (folder / "tables").mkdir()
    (folder / "feed" / "orders").mkdir(parents=True)
    (folder / "runnel.toml").write_text(CONFIG)
    (folder / "views" / "all.sql").write_text(VIEWS)
    (folder / "tables" / "marks.sql").write_text("CREATE TABLE marks (id BIGINT, n BIGINT, PRIMARY KEY (id));")
    rows: dict[int, tuple[str, str]] = {}
    for number in range(FILES):
        changes = []
        for at in range(ROWS):
            key = number * ROWS + at
            rows[key] = (f"r{key % 3}", f"{key}.50")
            changes.append({"op": "c", "before": None, "after": _row(key, rows)})
        if number:
            gone, moved = number * ROWS - 1, number * ROWS - 2
            changes.append({"op": "d", "before": _row(gone, rows), "after": None})
            del rows[gone]
            before = _row(moved, rows)
            rows[moved] = ("moved", "100.25")
            changes.append({"op": "u", "before": before, "after": _row(moved, rows)})
        text = "".join(json.dumps(change) + "\n" for change in changes)
        (folder / "feed" / "orders" / f"{number:04}.jsonl").write_text(text)
    return rows


def _row(key: int, rows: dict[int, tuple[str, str]]) -> dict[str, object]:
    return {"id": key, "region": rows[key][0], "amount": rows[key][1]}


def child(folder: Path, kill_at: str | None = None) -> int:
    """Run the worker process; give its return code."""
    env = {key: value for key, value in os.environ.items() if key != KILL_AT}
    if kill_at:
        env[KILL_AT] = kill_at
    done = subprocess.run(
        [sys.executable, "-m", "tests.pipeline.crash_child", str(folder)],
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode not in (0, -signal.SIGKILL):
        pytest.fail(done.stderr[-2000:])
    return done.returncode


@pytest.mark.parametrize("point", POINTS)
def test_a_kill_at_any_point_loses_nothing_and_doubles_nothing(point: str, tmp_path: Path) -> None:
    """Kill, run again, compare the table with the feed and every view with its query."""
    expected = write_project(tmp_path / "p")
    assert child(tmp_path / "p", kill_at=point) == -signal.SIGKILL, f"{point} was never reached"
    assert child(tmp_path / "p") == 0
    with runnel.open(tmp_path / "p", engine=DuckDbEngine(), sync=False) as project:
        rows = project.table("feed.orders").to_pylist()
        assert {r["id"]: (r["region"], str(r["amount"])) for r in rows} == expected
        assert len(rows) == len(expected)
        assert project.table("marks").to_pylist() == [{"id": 1, "n": 1}]
        assert {row["op"]: row["n"] for row in project.view("told").to_pylist()} == EVENTS
        reports = project.verify_all()
        assert [str(report) for report in reports if not report.ok] == []
        assert len(reports) == 5


def test_the_points_are_counted(say: Callable[[str], None]) -> None:
    """Say how many points the matrix has, each of them visited above."""
    say(f"crash matrix: {len(POINTS)} points")
    assert len(set(POINTS)) == len(POINTS)
