"""Several processes on one project: writers lose no update, a second runner waits and takes over."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

import runnel
from runnel.engine.duckdb import DuckDbEngine
from tests.pipeline.test_crash import write_project

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = pytest.mark.slow
WRITERS, EACH = 4, 15


def spawn(module: str, *arguments: object) -> subprocess.Popen[str]:
    """Start a child process of these tests."""
    command = [sys.executable, "-m", f"tests.pipeline.{module}", *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def test_a_f_four_writers_at_once_lose_no_update(tmp_path: Path) -> None:
    """Every sum read meanwhile is a multiple of 7; the end is exact; conflicts leave no trace."""
    with runnel.create(tmp_path / "p", engine=DuckDbEngine()) as project:
        project.create_table("counter", "id INT, n BIGINT", key=["id"])
        project.create_table("log", "writer INT, number INT, v INT", key=["writer", "number"])
        project.sql("INSERT INTO counter VALUES (1, 0)")
        project.create_view("total", "SELECT sum(v) AS s, count(*) AS n FROM log")
        project.create_view("per_writer", "SELECT writer, sum(v) AS s FROM log GROUP BY writer")
        writers = [spawn("writer_child", tmp_path / "p", writer, EACH) for writer in range(WRITERS)]
        while any(writer.poll() is None for writer in writers):
            read = project.view("total").to_pylist()[0]
            assert (read["s"] or 0) == 7 * read["n"]
        for writer in writers:
            assert writer.returncode == 0, writer.communicate()[0][-2000:]
        assert project.table("counter").to_pylist() == [{"id": 1, "n": WRITERS * EACH}]
        assert project.view("total").to_pylist() == [{"s": 7 * WRITERS * EACH, "n": WRITERS * EACH}]
        assert all(report.ok for report in project.verify_all())


def test_a_second_runner_waits_and_takes_over(tmp_path: Path) -> None:
    """Kill the one that works: the other one goes on; nothing is lost or doubled."""
    folder = tmp_path / "p"
    expected = write_project(folder)
    held_back = [f.rename(folder / f"later-{f.name}") for f in sorted((folder / "feed" / "orders").iterdir())[1:]]
    first = spawn("run_child", folder)
    assert first.stdout is not None
    _read_until(first, "epoch")
    second = spawn("run_child", folder)
    _read_until(second, "waiting to take over")
    first.send_signal(signal.SIGKILL)
    first.wait()
    for file in held_back:
        file.rename(folder / "feed" / "orders" / file.name.removeprefix("later-"))
    _read_until(second, "epoch")
    with runnel.open(folder, engine=DuckDbEngine(), sync=False) as project:
        _until(lambda: len(project.table("feed.orders").to_pylist()) == len(expected))
        second.send_signal(signal.SIGTERM)
        assert second.wait(timeout=30) == 0
        assert {r["id"] for r in project.table("feed.orders").to_pylist()} == set(expected)
        assert all(report.ok for report in project.verify_all())


def _read_until(process: subprocess.Popen[str], text: str) -> None:
    assert process.stdout is not None
    seen = []
    for line in process.stdout:
        seen.append(line)
        if text in line:
            return
    raise AssertionError("".join(seen))


def _until(condition: Callable[[], bool], seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
