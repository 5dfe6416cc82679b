"""A view that failed, and one that waits for it: whoever reads or writes is told, and `verify` does not call it fine."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

import runnel
from runnel.cli import app
from runnel.engine.duckdb import DuckDbEngine
from runnel.errors import RunnelError, RunnelWarning

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from runnel.project import Project


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    """Give a project in which the view `bad` has failed, and `above` waits for it; `good` goes on, `later` lags by design."""
    (tmp_path / "runnel.toml").write_text('[project]\nname = "x"\n')
    with runnel.open(tmp_path, engine=DuckDbEngine()) as made:
        made.create_table("t", "id BIGINT, word STRING", key=["id"])
        made.create_view("good", "SELECT id FROM t")
        made.create_view("bad", "SELECT id, CAST(word AS BIGINT) AS n FROM t")
        made.create_view("above", "SELECT count(*) AS n FROM bad")
        made.create_view("later", "SELECT count(*) AS n FROM t", refresh="manual")
        made.sql("INSERT INTO t VALUES (1, '1')")
        yield made


def fail(project: Project) -> int:
    with pytest.warns(RunnelWarning, match="could not be brought along"):
        return project.sql("INSERT INTO t VALUES (2, 'two')")


def test_a_transaction_says_which_views_it_could_not_bring_along(project: Project) -> None:
    with pytest.warns(RunnelWarning) as told, project.transaction() as tx:
        tx.insert("t", {"id": 2, "word": "two"})
    assert tx.failed.keys() == {"bad", "above"}
    assert "waits for bad" in tx.failed["above"]
    assert sum("the transaction stands" in str(w.message) for w in told) == 2
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with project.transaction() as mended:
            mended.delete("t", [2])
    assert mended.failed == {}


def test_reading_a_view_that_failed_gives_its_old_rows_and_says_so(project: Project) -> None:
    before = project.view("bad").frontier
    epoch = fail(project)
    assert (project.view("bad").frontier, project.view("good").frontier, project.table("t").frontier) == (
        before, epoch, epoch,
    )  # fmt: skip
    assert project.view("bad").error is not None
    for read in (
        project.view("bad").to_arrow,
        project.view("above").to_pylist,
        project.query("SELECT n FROM bad").to_arrow,
        project.table("bad").to_pandas,
    ):
        with pytest.warns(RunnelWarning, match=f"stands at epoch {before} of {epoch}, because it failed"):
            assert len(read()) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert project.view("good").to_arrow().num_rows == 2
        assert project.view("bad").to_arrow(at=before).num_rows == 1
        assert project.query("SELECT * FROM t").to_arrow().num_rows == 2


def test_a_strict_read_raises_for_a_view_that_failed_or_is_behind(project: Project) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert project.view("later").to_pylist() == [{"n": 0}]  # behind by design
        with pytest.raises(RunnelError) as told:
            project.view("later").to_arrow(strict=True)
        assert told.value.code == "RUNNEL-VIEW-BEHIND"
        project.refresh("later")
        assert project.view("later").to_arrow(strict=True).num_rows == 1
    fail(project)
    for read in (
        lambda: project.view("bad").to_arrow(strict=True),
        lambda: project.view("above").to_pylist(strict=True),
        lambda: project.query("SELECT * FROM bad", strict=True).to_arrow(),
    ):
        with pytest.raises(RunnelError) as told:
            read()
        assert told.value.code == "RUNNEL-VIEW-FAILED"
    assert project.view("good").to_arrow(strict=True).num_rows == 2


def test_a_view_that_failed_is_not_verified(project: Project) -> None:
    before = project.view("bad").frontier
    fail(project)
    report = project.verify("bad")
    assert (report.ok, report.same, report.epoch) == (False, True, before)
    assert report.failed
    assert f"right as of epoch {before} only" in str(report)
    assert not project.verify("above").ok
    assert project.verify("good").ok
    project.sql("DELETE FROM t WHERE id = 2")
    assert all(one.ok for one in project.verify_all())


def test_the_command_line_warns_of_a_view_that_failed(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RUNNEL_ENGINE", "duckdb")
    fail(project)
    with warnings.catch_warnings():
        shown = CliRunner().invoke(app, ["--project", str(project.folder), "show", "bad", "--format", "json"])
        strict = CliRunner().invoke(app, ["--project", str(project.folder), "show", "bad", "--strict"])
        verified = CliRunner().invoke(app, ["--project", str(project.folder), "verify", "bad"])
    assert shown.exit_code == 0
    assert "RUNNEL-VIEW-FAILED" in shown.stderr
    assert "RUNNEL-VIEW-FAILED" not in shown.stdout
    assert (strict.exit_code, verified.exit_code) == (1, 1)
    assert "RUNNEL-VIEW-FAILED" in strict.stderr
