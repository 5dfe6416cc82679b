from __future__ import annotations

import datetime
from decimal import Decimal
from typing import TYPE_CHECKING

import pytest

from runnel.cli import answers, values
from runnel.errors import Unreachable

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from typer.testing import Result

    Command = Callable[..., Result]


@pytest.mark.parametrize("order", ["before", "after", "joined"])
def test_the_project_may_be_named_anywhere(command: Command, shop: Path, order: str) -> None:
    orders: dict[str, list[object]] = {
        "before": ["--project", shop, "status"],
        "after": ["status", "--project", shop],
        "joined": ["status", f"--project={shop}"],
    }
    assert command(*orders[order]).exit_code == 0


def test_an_error_is_a_sentence_a_hint_and_a_code(command: Command, shop: Path) -> None:
    told = command("show", "takinks", "--project", shop)
    assert told.exit_code == 1
    assert told.stderr.splitlines()[-3:] == [
        "error: there is no table or view 'takinks'",
        "  hint: did you mean 'takings'?",
        "  code: RUNNEL-RELATION-UNKNOWN",
    ]


def test_debug_adds_the_traceback_wherever_it_stands(command: Command, shop: Path) -> None:
    for args in (["--debug", "show", "takinks"], ["show", "takinks", "--debug"]):
        told = command(*args, "--project", shop)
        assert "Traceback" in told.stderr
        assert "RUNNEL-RELATION-UNKNOWN" in told.stderr


def test_an_unexpected_failure_is_no_traceback(command: Command, shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(answers, "opened", fail)
    told = command("status", "--project", shop)
    assert told.exit_code == 1
    assert "RUNNEL-INTERNAL" in told.stderr
    assert "run again with --debug" in told.stderr
    assert "Traceback" not in told.stderr
    assert "Traceback" in command("status", "--project", shop, "--debug").stderr


def test_exit_codes_tell_usage_from_unreachable(
    command: Command, shop: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert command("status", "--project", tmp_path / "nowhere").exit_code == 2
    assert command("stauts").exit_code == 2
    usage = command("status", "--jsno", "--project", shop)
    assert usage.exit_code == 2
    assert "RUNNEL-USAGE" in usage.stderr

    def away(*_: object, **__: object) -> None:
        raise Unreachable("RUNNEL-SPARK-UNREACHABLE", "Spark did not start")

    monkeypatch.setattr(answers, "opened", away)
    assert command("status", "--project", shop).exit_code == 3


def test_several_problems_stand_on_several_lines(command: Command, tmp_path: Path) -> None:
    (tmp_path / "runnel.toml").write_text('[project]\nnmae = "x"\n[run]\nepok = 1\n')
    told = command("status", "--project", tmp_path)
    assert told.exit_code == 2
    assert told.stderr.count("error: ") == 2


def test_values_are_written_without_losing_a_digit() -> None:
    row = {"d": Decimal("12345678901234567890.10"), "t": datetime.datetime(2026, 1, 2, 3, 4, 5), "f": float("nan")}
    text = '{"d": 12345678901234567890.10, "t": "2026-01-02 03:04:05", "f": "nan"}'
    assert values.json_text(row) == text
    assert values.cell_text([1, None]) == "[1, null]"
