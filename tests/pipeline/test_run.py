"""The long-running job: intervals, new tables in the feed, waiting for a position, bad files, what is not there yet."""

from __future__ import annotations

import json
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner

import runnel
from runnel.cli import app
from runnel.engine.duckdb import DuckDbEngine
from runnel.errors import RunnelError
from runnel.lake.lake import Lake
from runnel.pipeline.runner import Runner

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    import pyarrow as pa

    from runnel.model.relation import Relation
    from runnel.project import Project

CONFIG = """
[project]
name = "feeding"

[run]
epoch = "20ms"

[sources.feed]
type = "files"
path = "feed"
schema = { orders = "id BIGINT, amount INT, PRIMARY KEY (id)" }
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Give a project with a feed of orders and one view."""
    made = tmp_path / "p"
    (made / "feed" / "orders").mkdir(parents=True)
    (made / "views").mkdir()
    (made / "runnel.toml").write_text(CONFIG)
    (made / "views" / "v.sql").write_text(
        "CREATE MATERIALIZED VIEW total AS SELECT sum(amount) AS s, count(*) AS n FROM orders"
    )
    return made


@pytest.fixture
def running(folder: Path) -> Iterator[Project]:
    """Give the project while it runs in another thread."""
    with runnel.open(folder, engine=DuckDbEngine()) as project:
        thread = threading.Thread(target=project.run)
        thread.start()
        yield project
        project.stop()
        thread.join(timeout=30)
        assert not thread.is_alive()


def feed(folder: Path, name: str, *rows: Mapping[str, object]) -> None:
    """Put a file of rows into the feed, whole at once."""
    hidden = folder / "feed" / f".{name}"
    hidden.write_text("".join(json.dumps(row) + "\n" for row in rows))
    hidden.rename(folder / "feed" / "orders" / name)


def test_a_k_waiting_for_a_position_gives_a_view_that_contains_it(running: Project, folder: Path) -> None:
    feed(folder, "0001.jsonl", {"id": 1, "amount": 5})
    feed(folder, "0002.jsonl", {"id": 2, "amount": 6})
    epoch = running.wait(source="feed", position={"orders": "0002.jsonl"}, timeout=20)
    assert running.view("total").to_pylist(at=epoch) == [{"s": 11, "n": 2}]
    with pytest.raises(RunnelError, match="RUNNEL-WAIT-TIMEOUT"):
        running.wait(source="feed", position={"orders": "0003.jsonl"}, timeout=0.1)


def test_a_bad_file_stops_the_source_where_it_is_and_loses_nothing(folder: Path) -> None:
    feed(folder, "0001.jsonl", {"id": 1, "amount": 5})
    feed(folder, "0002.jsonl", {"_weight": -1, "id": 9, "amount": 1})
    feed(folder, "0003.jsonl", {"id": 3, "amount": 7})
    (folder / "runnel.toml").write_text(CONFIG.replace('"20ms"', '"transaction"'))
    with runnel.open(folder, engine=DuckDbEngine()) as project:
        with pytest.raises(RunnelError, match="deleted that is not there"):
            project.run(once=True)
        source = project.status().sources[0]
        assert source.error is not None
        assert "0002.jsonl" in source.error
        assert project.view("total").to_pylist() == [{"s": 5, "n": 1}]
        (folder / "feed" / "orders" / "0002.jsonl").write_text('{"id": 2, "amount": 2}\n')
        project.run(once=True)
        assert project.view("total").to_pylist() == [{"s": 14, "n": 3}]
        assert project.status().sources[0].error is None
        assert all(report.ok for report in project.verify_all())


def test_files_of_one_epoch_see_each_other_and_their_old_rows_are_read_once(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    feed(folder, "0001.jsonl", *({"id": number, "amount": number} for number in range(5)))
    with runnel.open(folder, engine=DuckDbEngine()) as project:
        project.run(once=True)
        feed(folder, "0002.jsonl", {"_weight": -1, "id": 1, "amount": 1}, {"_weight": 1, "id": 1, "amount": 10})
        feed(folder, "0003.jsonl", {"op": "u", "after": {"id": 1, "amount": 20}}, {"op": "d", "before": {"id": 2}})
        feed(
            folder, "0004.jsonl", {"_weight": -1, "id": 1, "amount": 20}, {"id": 2, "amount": 7}, {"id": 9, "amount": 1}
        )
        asked: list[int] = []
        plain = Lake.lookup

        def lookup(lake: Lake, relation: Relation, files: Any, keys: pa.Table) -> pa.Table:
            asked.append(keys.num_rows)
            return plain(lake, relation, files, keys)

        monkeypatch.setattr(Lake, "lookup", lookup)
        project.run(once=True)
        assert project.view("total").to_pylist() == [{"s": 0 + 3 + 4 + 7 + 1, "n": 5}]
        assert len(asked) == 1
        feed(folder, "0005.jsonl", {"id": 10, "amount": 1})
        feed(folder, "0006.jsonl", {"_weight": -1, "id": 10, "amount": 2})
        with pytest.raises(RunnelError, match=r"id=10, amount=2.*0006\.jsonl"):
            project.run(once=True)
        assert project.view("total").to_pylist() == [{"s": 15, "n": 5}]


def test_a_g_views_of_every_interval_end_in_the_same_state(project: Project) -> None:
    project.create_table("t", "id INT, x INT", key=["id"])
    sql = "SELECT x % 3 AS g, sum(x) AS s FROM t GROUP BY x % 3"
    for name, refresh in (
        ("now", "immediate"),
        ("fast", "50ms"),
        ("slow", "500 ms"),
        ("own", "auto"),
        ("hand", "manual"),
    ):
        project.create_view(name, sql, refresh=refresh)
    stop = threading.Event()
    runner = Runner(project.runtime, {}, gather=0.02)
    thread = threading.Thread(target=lambda: runner.run(once=False, stop=stop))
    thread.start()
    for number in range(20):
        project.sql(f"INSERT INTO t VALUES ({number}, {number * 7 % 11}); DELETE FROM t WHERE id = {number - 9}")
        if number == 10:
            project.create_view("late", sql, refresh="100ms")
    wanted = {view.name for view in project.status().views} - {"hand"}
    deadline = time.monotonic() + 30
    while {view.name for view in project.status().views if view.behind == 0} < wanted:
        assert time.monotonic() < deadline
    stop.set()
    thread.join(timeout=30)
    project.refresh("hand")
    rows = {view.name: sorted(map(str, project.view(view.name).to_pylist())) for view in project.status().views}
    assert len(set(map(str, rows.values()))) == 1
    assert all(report.ok for report in project.verify_all())


def test_a_table_that_appears_in_the_feed_is_taken_up(running: Project, folder: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    (folder / "feed" / "people").mkdir()
    pq.write_table(pa.table({"id": [1, 2], "name": ["a", "b"]}), folder / "feed" / ".hidden")
    (folder / "feed" / ".hidden").rename(folder / "feed" / "people" / "0001.parquet")
    running.wait(source="feed", position={"people": "0001.parquet"}, timeout=20)
    assert len(running.table("people").to_pylist()) == 2


def test_what_is_not_there_yet_is_refused_rather_than_ignored(folder: Path) -> None:
    extra, code = (
        '[targets.front]\ntype = "hbase"\nviews = { total = "total" }',
        r"RUNNEL-TARGET-NOT-YET.*cassandra, mariadb, mysql, postgres",
    )
    (folder / "runnel.toml").write_text(f"{CONFIG}\n{extra}\n")
    with runnel.open(folder, engine=DuckDbEngine()) as project, pytest.raises(RunnelError, match=code):
        project.run(once=True)


def test_rebuilds_of_what_has_no_store_are_refused_and_stop_nothing(folder: Path) -> None:
    extra = '[rebuild.all]\ntables = ["feed.orders"]\nevery = "1 hour"'
    (folder / "runnel.toml").write_text(f"{CONFIG}\n{extra}\n")
    with runnel.open(folder, engine=DuckDbEngine()) as project:
        project.create_table("mine", "id INT", key=["id"])
        project.run(once=True)
        for name in ("feed.orders", "feed"):
            with pytest.raises(RunnelError, match=r"RUNNEL-REBUILD-SOURCE: sources.feed: .*cannot be read again"):
                project.rebuild(name)
        with pytest.raises(RunnelError, match=r"RUNNEL-SOURCE-UNKNOWN: there is no source 'mine'.*feed"):
            project.rebuild("mine")
        thread = threading.Thread(target=project.run)
        thread.start()
        deadline = time.monotonic() + 30
        while "RUNNEL-REBUILD-SOURCE" not in (project.status().rebuilds[0].error or ""):
            assert time.monotonic() < deadline
        project.stop()
        thread.join(30)
        assert project.status().error is None
    said = CliRunner(env={"RUNNEL_ENGINE": "duckdb"}).invoke(app, ["--project", str(folder), "check"])
    assert "RUNNEL-REBUILD-SOURCE" in said.stdout + said.stderr
    assert said.exit_code == 1


def test_a_managed_table_is_not_rebuilt_from_a_store(project: Project) -> None:
    project.create_table("mine", "id INT", key=["id"])
    with pytest.raises(RunnelError, match=r"RUNNEL-REBUILD-SOURCE: mine is not a table of an outside source"):
        project.rebuild("mine")


def test_a_view_that_failed_is_tried_again_only_when_something_changed(project: Project) -> None:
    project.create_table("t", "x STRING")
    project.create_view("bad", "SELECT CAST(x AS INT) AS y FROM t")
    with project.transaction() as tx:
        tx.insert("t", [{"x": "no number"}])
    runner = Runner(project.runtime, {}, gather=0.01)
    runner.run(once=True, stop=threading.Event())
    head = project.runtime.lake.snapshot()
    assert [view.name for view in runner._due(head)] == []
    project.sql("DELETE FROM t")
    runner.run(once=True, stop=threading.Event())
    assert project.status().views[0].error is None
