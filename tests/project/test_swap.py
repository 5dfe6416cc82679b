"""Changed views are computed beside the old ones and swapped in one step: nobody sees them missing, nothing else is touched."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
import threading
from typing import TYPE_CHECKING, Any

import pytest
import sqlalchemy as sa

import runnel
from runnel.engine.duckdb import DuckDbEngine
from runnel.errors import Problems, RunnelError
from runnel.lake import tables
from runnel.pipeline import maintain, swap

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import pyarrow as pa

    from runnel.project import Project

SUMS = "SELECT region, count(*) AS n, sum(amount) AS s FROM orders GROUP BY region"
VIEWS = {
    "sums": SUMS,
    "large": "SELECT region, s FROM sums WHERE s > 10",
    "count": "SELECT count(*) AS k FROM large",
    "staged": f"SELECT region, n FROM ({SUMS}) WHERE n > 1",
    "ids": "SELECT id FROM orders WHERE amount > 3",
}


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Project]:
    """Give a project with orders and views over each other."""
    with runnel.create(tmp_path / "p", engine=DuckDbEngine()) as project:
        project.create_table("orders", "id BIGINT, region STRING, amount BIGINT", key=["id"])
        with project.transaction() as tx:
            tx.insert("orders", [{"id": i, "region": f"r{i % 4}", "amount": i} for i in range(12)])
        for name, sql in VIEWS.items():
            project.create_view(name, sql)
        yield project


def _right(project: Project) -> bool:
    assert [v.error for v in project.status().views if v.error] == []
    return all(report.ok for report in project.verify_all())


def _facts(project: Project) -> dict[str, tuple[Any, ...]]:
    head = project.runtime.lake.snapshot()
    return {name: (head.table_id(name), head.files(name), entry) for name, entry in head.entries.items()}


def test_a_new_definition_takes_its_readers_along_and_leaves_the_others_alone(shop: Project) -> None:
    before, epoch = _facts(shop), shop.status().epoch
    shop.create_view(
        "sums", "SELECT region, count(*) AS n, sum(2 * amount) AS s FROM orders GROUP BY region", replace=True
    )
    assert shop.status().epoch == epoch + 1
    after = _facts(shop)
    assert {name for name, facts in after.items() if before.get(name) != facts} == {"sums", "large", "count"}
    assert shop.epochs()[-1]["defined"] == ["sums", "large", "count"]
    assert _right(shop)
    shop.sql("INSERT INTO orders VALUES (100, 'r9', 50)")
    assert {"region": "r9", "s": 100} in shop.view("large").to_pylist()
    assert _right(shop)


def test_new_options_compute_nothing(shop: Project) -> None:
    before, epoch = _facts(shop), shop.status().epoch
    shop.create_view("sums", SUMS, refresh="manual", replace=True)
    after = _facts(shop)
    assert after["sums"][:2] == before["sums"][:2]
    assert {name for name, facts in after.items() if before[name] != facts} == {"sums"}
    assert shop.epochs()[-1]["computed"] == {}
    shop.sql("INSERT INTO orders VALUES (100, 'r9', 50)")
    assert {v.name: v.behind for v in shop.status().views if v.behind} != {}
    shop.create_view("sums", SUMS, refresh="immediate", replace=True)
    assert {v.behind for v in shop.status().views} == {0}
    assert after["sums"][0] == _facts(shop)["sums"][0]
    assert shop.status().epoch > epoch
    assert _right(shop)


def test_a_text_that_means_the_same_computes_nothing(shop: Project) -> None:
    before = _facts(shop)
    shop.create_view("ids", "SELECT  id\nFROM orders -- all of them\nWHERE amount > 3", replace=True)
    assert _facts(shop)["ids"][:2] == before["ids"][:2]
    shop.create_view("ids", "SELECT  id\nFROM orders -- all of them\nWHERE amount > 3", replace=True)
    assert _right(shop)


def test_a_definition_that_a_reader_cannot_live_with_is_refused_with_that_readers_reason(shop: Project) -> None:
    before, epoch = _facts(shop), shop.status().epoch
    with pytest.raises(RunnelError, match=r"view large stands against it.*s") as refused:
        shop.create_view("sums", "SELECT region, count(*) AS n FROM orders GROUP BY region", replace=True)
    assert refused.value.code == "RUNNEL-VIEW-COLUMN"
    assert (_facts(shop), shop.status().epoch) == (before, epoch)
    with pytest.raises(RunnelError, match="RUNNEL-VIEW-CYCLE"):
        shop.create_view("sums", "SELECT region, k AS n, k AS s FROM large, count", replace=True)
    with pytest.raises(RunnelError, match="there is a table"):
        shop.create_view("orders", "SELECT 1 AS a FROM ids", replace=True)
    with pytest.raises(RunnelError, match="RUNNEL-NAME-TAKEN"):
        shop.create_view("sums", SUMS)
    assert (_facts(shop), shop.status().epoch) == (before, epoch)


def test_a_new_definition_drops_the_stages_that_nobody_reads_any_more(shop: Project) -> None:
    shop.create_view("staged", "SELECT region FROM orders", replace=True)
    head = shop.runtime.lake.snapshot()
    assert set(head.entries) == set(head.views)
    shop.create_view("staged", VIEWS["staged"], replace=True)
    assert len(shop.runtime.lake.snapshot().entries) == len(VIEWS) + 1
    assert _right(shop)


def test_readers_never_see_a_view_missing_while_it_is_swapped_and_writes_go_on(shop: Project) -> None:
    stop, problems = threading.Event(), list[BaseException]()

    def write() -> None:
        try:
            with runnel.open(shop.folder, engine=DuckDbEngine(threads=2), sync=False) as mine:
                for number in itertools.takewhile(lambda _: not stop.is_set(), itertools.count(1000)):
                    mine.sql(f"INSERT INTO orders VALUES ({number}, 'r{number % 7}', {number})")
        except BaseException as error:
            problems.append(error)

    sql = "SELECT (SELECT count(*) FROM lake.sums), (SELECT max(k) FROM lake.count)"
    command = [sys.executable, "-m", "tests.project.reader_child", str(shop.config.state.catalog), sql]
    pipes: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    with subprocess.Popen(command, text=True, **pipes) as reader:
        writer = threading.Thread(target=write)
        writer.start()
        for factor in range(2, 8):
            sums = f"SELECT region, count(*) AS n, sum({factor} * amount) AS s FROM orders GROUP BY region"
            shop.create_view("sums", sums, replace=True)
            shop.create_view(f"late{factor}", f"SELECT region, n FROM ({SUMS}) WHERE n > {factor}")
        stop.set()
        writer.join()
        said, wrong = reader.communicate("enough\n", timeout=60)
    assert problems == []
    assert (reader.returncode, wrong) == (0, "")
    assert int(said) > 0
    assert _right(shop)


def test_what_reads_a_view_that_is_being_swapped_comes_along(shop: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    def hydrate(*arguments: Any) -> Any:
        made = maintain.hydrate(*arguments)
        monkeypatch.setattr(swap, "hydrate", maintain.hydrate)
        shop.create_view("newcomer", "SELECT sum(n) AS n FROM sums")
        return made

    monkeypatch.setattr(swap, "hydrate", hydrate)
    shop.create_view("sums", "SELECT region, 5 AS n, sum(amount) AS s FROM orders GROUP BY region", replace=True)
    assert shop.view("newcomer").to_pylist() == [{"n": 20}]
    assert _right(shop)


def test_subscribers_hear_the_difference_a_swap_makes(shop: Project) -> None:
    heard: list[list[dict[str, Any]]] = []

    def callback(changes: pa.Table, epoch: int) -> None:
        heard.append(sorted(changes.to_pylist(), key=str))

    shop.subscribe("ids", callback)
    shop.create_view("ids", "SELECT id FROM orders WHERE amount > 4", replace=True)
    assert heard == [[{"id": 4, "_weight": -1}]]
    shop.create_view("ids", "SELECT id FROM orders WHERE amount > 400", replace=True)
    assert len(heard[1]) == 7
    shop.sql("INSERT INTO orders VALUES (500, 'x', 500)")
    assert heard[2] == [{"id": 500, "_weight": 1}]


def test_views_that_another_version_compiled_are_made_anew_when_the_project_is_opened(shop: Project) -> None:
    v = tables.runnel_view
    with shop.runtime.lake.catalog.write() as connection:
        for row in connection.execute(sa.select(v)).all():
            facts = json.loads(row.definition)
            facts["program"] = json.dumps({"version": 1, "steps": []})
            connection.execute(v.update().where(v.c.name == row.name).values(definition=json.dumps(facts)))
        # A version that compiled otherwise left no digests either.
        connection.execute(tables.runnel_epoch.update().values(digest=None))
        connection.execute(tables.runnel_metadata.delete().where(tables.runnel_metadata.c.key == "digests"))
    with runnel.open(shop.folder, engine=DuckDbEngine(), sync=False) as project:
        with pytest.raises(RunnelError, match="RUNNEL-VIEW-OLDER"):
            project.status()
        assert len(project.sync()) == len(VIEWS)
        assert project.sync() == []
        assert _right(project)
        project.sql("INSERT INTO orders VALUES (500, 'x', 500)")
        assert _right(project)


def _files(folder: Path, **texts: str) -> None:
    (folder / "views").mkdir(exist_ok=True)
    for name, text in texts.items():
        (folder / "views" / f"{name}.sql").write_text(f"CREATE MATERIALIZED VIEW {name} {text}")


def test_files_that_changed_are_swapped_together_and_the_others_left_alone(shop: Project) -> None:
    folder = shop.folder
    _files(
        folder,
        **{name: f"TBLPROPERTIES ('refresh' = 'immediate', 'mode' = 'auto') AS {sql}" for name, sql in VIEWS.items()},
    )
    with runnel.open(folder, engine=DuckDbEngine()) as project:
        before = _facts(project)
        assert project.sync() == []
        # Neither new text goes with the old one of the other; together they do.
        _files(folder, sums="AS SELECT region, count(*) AS n FROM orders GROUP BY region")
        _files(folder, large="AS SELECT region, n FROM sums WHERE n > 1", fresh="AS SELECT n FROM large")
    with runnel.open(folder, engine=DuckDbEngine(), sync=False) as project:
        done = project.sync()
        assert done == [
            "view sums made anew (linear)",
            "view large made anew (linear)",
            "view count made anew (linear)",
            "view fresh created (linear)",
        ]
        after = _facts(project)
        assert {name for name in before if before[name] == after[name]} == {*before} - {"sums", "large", "count"}
        assert _right(project)
        assert project.sync() == []


def test_a_file_that_cannot_be_taken_leaves_its_view_as_it_was_and_the_others_are_swapped(shop: Project) -> None:
    folder = shop.folder
    _files(folder, sums="AS SELECT region FROM orders", ids="AS SELECT id + 1 AS id FROM orders", staged="AS SELEC 1")
    with runnel.open(folder, engine=DuckDbEngine(), sync=False) as project:
        before = _facts(project)
        with pytest.raises(Problems):
            project.sync()
        assert _facts(project) == before
    _files(folder, staged="AS SELECT wrong FROM orders")
    with runnel.open(folder, engine=DuckDbEngine(), sync=False) as project:
        with pytest.raises(Problems) as wrong:
            project.sync()
        assert sorted(p.code for p in wrong.value.problems) == ["RUNNEL-VIEW-COLUMN", "RUNNEL-VIEW-COLUMN"]
        after = _facts(project)
        assert {name for name in before if before[name] != after[name]} == {"ids"}
        assert _right(project)
