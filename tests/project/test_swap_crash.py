"""A swap that is killed has either happened or not; whatever it was, it can be done again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

import runnel
from runnel.engine.duckdb import DuckDbEngine
from runnel.failpoints import KILL_AT

if TYPE_CHECKING:
    from pathlib import Path

SUMS = "SELECT region, count(*) AS n, sum(amount) AS s FROM orders GROUP BY region"
POINTS = ("view:hydrated", "publish:before-commit", "publish:after-commit")


def _child(folder: Path, what: str, kill_at: str = "") -> int:
    command = [sys.executable, "-m", "tests.project.swap_child", str(folder), what]
    return subprocess.run(command, env={**os.environ, KILL_AT: kill_at}, check=False).returncode


@pytest.mark.parametrize("what", ["view", "table"])
@pytest.mark.parametrize("point", POINTS)
def test_a_swap_that_is_killed_has_happened_or_not(point: str, what: str, tmp_path: Path) -> None:
    folder = tmp_path / "p"
    with runnel.create(folder, engine=DuckDbEngine()) as project:
        project.create_table("orders", "id INT, region STRING, amount INT", key=["id"])
        project.sql("INSERT INTO orders VALUES (1, 'a', 5), (2, 'b', 6), (3, 'a', 7)")
        project.create_view("sums", SUMS)
        project.create_view("above", "SELECT s FROM sums WHERE s > 6")
        project.create_view("staged", f"SELECT n FROM ({SUMS}) WHERE n > 1")
        project.create_view("rows", "SELECT * FROM orders")
    assert _child(folder, what, point) == -signal.SIGKILL
    with runnel.open(folder, engine=DuckDbEngine(), sync=False) as project:
        assert all(report.ok for report in project.verify_all())
        project.sql("INSERT INTO orders VALUES (4, 'b', 8); DELETE FROM orders WHERE id = 1")
        assert all(report.ok for report in project.verify_all())
        swapped = "+ 1" in project.runtime.lake.snapshot().views["sums"].sql
        swapped |= str(project.table("orders").relation.column("amount").type) == "bigint"
        assert swapped == (point == "publish:after-commit")
    assert _child(folder, what) == 0
    with runnel.open(folder, engine=DuckDbEngine(), sync=False) as project:
        project.sql("INSERT INTO orders VALUES (5, 'b', 80)")
        assert len(project.runtime.lake.snapshot().entries) == 5
        assert all(report.ok for report in project.verify_all())
