from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

import runnel
from runnel.cli import app
from runnel.demo.shop import VIEWS, Shop
from runnel.engine.duckdb import DuckDbEngine
from runnel.verify import Report

if TYPE_CHECKING:
    from pathlib import Path

    from runnel.project import Project


def test_the_demo_verifies_its_five_views(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RUNNEL_ENGINE", "duckdb")
    told = CliRunner().invoke(app, ["demo", "--seconds", "0"])
    assert told.exit_code == 0
    assert told.stdout.count("verified") == len(VIEWS) == 5
    assert "buyers: incremental" in told.stdout


def test_a_wrong_view_fails_the_demo(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(self: Project, name: str, sample: int | None = None) -> Report:
        return Report(name, 1, 1, missing=({"id": 1},))

    monkeypatch.setenv("RUNNEL_ENGINE", "duckdb")
    monkeypatch.setattr(runnel.Project, "verify", wrong)
    told = CliRunner().invoke(app, ["demo", "--seconds", "0"])
    assert told.exit_code == 1
    assert "WRONG" in told.stdout


def test_the_same_seed_makes_the_same_shop() -> None:
    def played() -> list[dict[str, object]]:
        with runnel.memory(engine=DuckDbEngine()) as project:
            shop = Shop(seed=3)
            shop.open(project)
            for _ in range(3):
                with project.transaction() as tx:
                    shop.trade(tx)
            return sorted(project.view("takings").to_pylist(), key=str)

    assert played() == played()


@pytest.mark.spark
def test_the_demo_runs_on_spark() -> None:
    told = CliRunner().invoke(app, ["demo", "--seconds", "3"])
    assert told.exit_code == 0, told.output
    assert told.stdout.count("verified") == 5


@pytest.mark.spark
def test_a_new_project_runs_and_answers_on_spark(tmp_path: Path) -> None:
    folder, runner = str(tmp_path / "new"), CliRunner()
    assert runner.invoke(app, ["init", folder]).exit_code == 0
    ran = runner.invoke(app, ["run", "--once", "--project", folder])
    assert ran.exit_code == 0, ran.output
    told = runner.invoke(app, ["query", "SELECT sum(n) AS n FROM per_product", "--format", "json", "--project", folder])
    assert told.stdout.strip() == '[\n{"n": 3}\n]'
