from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from typer.testing import Result


def test_a_benchmark_prints_its_result_first_and_keeps_its_figures(
    command: Callable[..., Result], tmp_path: Path
) -> None:
    kept = tmp_path / "new" / "growth.json"
    sizes = ("--bases", "1000,2000", "--changes", 10, "--epochs", 1, "--warm", 0)
    told = command("bench", "growth", *sizes, "--json", kept)
    assert told.exit_code == 0, told.stderr
    assert told.stdout.startswith("a table 2 times as large makes an epoch ")
    assert "verified after the run: equal" in told.stdout
    assert json.loads(kept.read_text())["load"]["bases"] == [1000, 2000]


def test_an_unknown_benchmark_is_refused(command: Callable[..., Result]) -> None:
    told = command("bench", "dashbord")
    assert told.exit_code == 2
    assert "RUNNEL-USAGE" in told.stderr
    assert "runnel bench --help" in told.stderr


def test_a_size_that_is_no_number_is_refused(command: Callable[..., Result]) -> None:
    told = command("bench", "growth", "--bases", "many")
    assert told.exit_code == 2
    assert "'many' is no number" in told.stderr
