"""`project.wait`: a view covers a position when its own rows do, however it is refreshed and whatever it reads."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

import runnel
from runnel.cli import app
from runnel.engine.duckdb import DuckDbEngine
from runnel.errors import RunnelError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from runnel.project import Project

CONFIG = """
[project]
name = "waiting"
[sources.feed]
type = "files"
path = "feed"
schema = { orders = "id BIGINT, amount INT, PRIMARY KEY (id)", people = "id BIGINT, PRIMARY KEY (id)" }
"""
VIEWS = """
CREATE MATERIALIZED VIEW now AS SELECT sum(amount) AS s FROM orders;
CREATE MATERIALIZED VIEW later TBLPROPERTIES ('refresh' = 'manual') AS SELECT sum(amount) AS s FROM orders;
CREATE MATERIALIZED VIEW above AS SELECT s + 1 AS t FROM later;
"""


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    """Give a project with an immediate view, one that is refreshed by hand, and an immediate one that reads it."""
    for folder in ("feed/orders", "feed/people", "views"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "runnel.toml").write_text(CONFIG)
    (tmp_path / "views" / "v.sql").write_text(VIEWS)
    with runnel.open(tmp_path, engine=DuckDbEngine()) as made:
        yield made


def put(project: Project, name: str, amount: int) -> None:
    row = {"id": int(name[:4]), "amount": amount}
    (project.folder / "feed" / "orders" / name).write_text(json.dumps(row) + "\n")


def test_the_position_of_a_source_is_after_what_was_written_and_is_covered_once_it_is_captured(
    project: Project,
) -> None:
    put(project, "0001.jsonl", 5)
    position = project.position("feed")
    assert position == {"orders": "0001.jsonl"}
    with pytest.raises(RunnelError, match=r"RUNNEL-WAIT-TIMEOUT: feed has not reached"):
        project.wait("feed", position, view="now", timeout=0)
    project.run(once=True)
    epoch = project.wait("feed", position, view="now", timeout=0)
    assert project.view("now").to_pylist(at=epoch) == [{"s": 5}]


def test_a_view_that_is_refreshed_by_hand_covers_a_position_after_its_refresh(project: Project) -> None:
    put(project, "0001.jsonl", 5)
    project.run(once=True)
    with pytest.raises(RunnelError, match=r"view later is at epoch \d+ of \d+ .*refreshed by hand"):
        project.wait("feed", view="later", timeout=0)
    project.refresh("later")
    first = project.position("feed")
    assert project.view("later").to_pylist(at=project.wait("feed", first, view="later", timeout=0)) == [{"s": 5}]
    put(project, "0002.jsonl", 6)
    project.run(once=True)
    project.wait("feed", first, view="later", timeout=0)
    with pytest.raises(RunnelError, match="RUNNEL-WAIT-TIMEOUT"):
        project.wait("feed", view="later", timeout=0)


def test_a_view_over_one_that_lags_covers_only_what_that_one_covers(project: Project) -> None:
    put(project, "0001.jsonl", 5)
    project.run(once=True)
    with pytest.raises(RunnelError, match="view later, which view above reads, is at epoch"):
        project.wait("feed", view="above", timeout=0)
    project.refresh("later")
    epoch = project.wait("feed", view="above", timeout=0)
    assert project.view("above").to_pylist(at=epoch) == [{"t": 6}]


def test_a_view_without_changes_covers_positions_that_moved_without_it(project: Project) -> None:
    put(project, "0001.jsonl", 5)
    project.run(once=True)
    project.refresh("later")
    (project.folder / "feed" / "people" / "0009.jsonl").write_text('{"id": 1}\n')
    project.run(once=True)
    assert project.position("feed") == {"orders": "0001.jsonl", "people": "0009.jsonl"}
    assert project.wait("feed", view="later", timeout=0) == project.runtime.lake.head()


def test_waiting_without_a_view_is_for_all_immediate_ones_and_names_the_one_that_failed(project: Project) -> None:
    put(project, "0001.jsonl", 5)
    project.run(once=True)
    assert project.wait("feed", timeout=0) == project.runtime.lake.head()
    project.create_view("bad", "SELECT CAST(if(amount = 7, 'seven', '1') AS INT) AS n FROM orders")
    put(project, "0002.jsonl", 7)
    project.run(once=True)
    with pytest.raises(RunnelError, match=r"view bad .* because it failed"):
        project.wait("feed", timeout=0)


def test_an_unknown_source_or_view_and_a_position_of_another_kind_are_refused(project: Project) -> None:
    with pytest.raises(RunnelError, match="RUNNEL-SOURCE-UNKNOWN"):
        project.wait("shop")
    with pytest.raises(RunnelError, match="RUNNEL-VIEW-UNKNOWN"):
        project.wait("feed", view="nothing")
    with pytest.raises(RunnelError, match="RUNNEL-WAIT-POSITION"):
        project.wait("feed", position=["0001.jsonl"])  # type: ignore[arg-type]


def test_status_names_the_position_to_wait_for(project: Project) -> None:
    put(project, "0001.jsonl", 5)
    folder = str(project.folder)
    project.close()
    told = CliRunner(env={"RUNNEL_ENGINE": "duckdb"}).invoke(app, ["--project", folder, "status", "--json"])
    (source,) = json.loads(told.stdout)["sources"]
    assert source["end"] == {"orders": "0001.jsonl"}
