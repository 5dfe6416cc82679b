"""Stages below views: kept once however many views read them, as eager as the most eager of those, gone with the last."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

import runnel
from runnel.engine.duckdb import DuckDbEngine
from runnel.errors import RunnelError
from runnel.lake.entries import Commit
from runnel.pipeline import maintain, swap

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from runnel.project import Project

SUMS = "SELECT region, count(*) AS n, sum(amount) AS s FROM orders GROUP BY region"


@pytest.fixture
def orders(project: Project) -> Project:
    """Give a project with a table of orders."""
    project.create_table("orders", "id BIGINT, region STRING, amount BIGINT", key=["id"])
    with project.transaction() as tx:
        tx.insert("orders", [{"id": i, "region": f"r{i % 4}", "amount": i} for i in range(20)])
    return project


def _over(number: int) -> str:
    return f"SELECT region, n + {number} AS m, s FROM ({SUMS}) WHERE s > {number}"


def _stages(project: Project) -> dict[str, int]:
    head = project.runtime.lake.snapshot()
    return {name: head.table_id(name) for name in head.entries if name not in head.views}


def _right(project: Project) -> bool:
    assert [v.error for v in project.status().views if v.error] == []
    return all(report.ok for report in project.verify_all())


def _insert(project: Project, number: int) -> None:
    project.sql(f"INSERT INTO orders VALUES ({number}, 'r{number % 5}', {number})")


def test_twenty_siblings_over_one_stage_have_it_computed_once_an_epoch(orders: Project) -> None:
    for number in range(20):
        orders.create_view(f"v{number}", _over(number))
    stages = _stages(orders)
    assert len(stages) == 1
    _insert(orders, 100)
    record = orders.epochs()[-1]
    assert set(record["stages"]) == set(stages)
    (done,) = record["stages"].values()
    assert (done["strategy"], done["rows"]) == ("incremental", 1)
    assert set(record["views"]) == {f"v{number}" for number in range(20)}
    assert {did["strategy"] for did in record["views"].values()} == {"incremental"}
    assert _right(orders)
    shown = orders.explain("v3")
    (stage,) = shown.to_dict()["stages"]
    assert len(stage["shared_with"]) == 19
    assert "also read by v0, v1" in str(shown)


def test_twenty_siblings_over_one_join_have_its_change_computed_once_an_epoch(orders: Project) -> None:
    orders.create_table("regions", "region STRING, boss STRING", key=["region"])
    orders.sql("INSERT INTO regions VALUES ('r0', 'a'), ('r1', 'b'), ('r2', 'b')")
    join = "FROM orders o JOIN regions r ON o.region = r.region"
    for number in range(10):
        orders.create_view(f"rows{number}", f"SELECT o.id + {number} AS id, r.boss {join}")
        orders.create_view(f"sums{number}", f"SELECT r.boss, sum(o.amount + {number}) AS s {join} GROUP BY r.boss")
    orders.create_view("alone", "SELECT o.id FROM orders o JOIN regions r ON o.region = r.boss")
    orders.sql(
        "INSERT INTO orders VALUES (100, 'r1', 1), (101, 'r9', 1); UPDATE regions SET boss = 'c' WHERE region = 'r2'"
    )
    record = orders.epochs()[-1]
    ((name, done),) = record["joins"].items()
    assert name.startswith("#join-")
    assert done["rows"] == 11
    assert len(done["views"]) == 20
    assert {did["strategy"] for did in record["views"].values()} == {"incremental", "skipped"} - {"skipped"}
    assert _right(orders)
    orders.sql("DELETE FROM orders WHERE id % 2 = 0; DELETE FROM regions WHERE region = 'r1'")
    assert _right(orders)
    orders.runtime.large = 1
    orders.sql("INSERT INTO orders VALUES (300, 'r0', 1), (301, 'r2', 1), (302, 'r2', 5)")
    assert len(orders.epochs()[-1]["joins"][name]["views"]) == 20
    assert _right(orders)
    shown = orders.explain("rows3")
    assert len(shown.to_dict()["joins"][0]["shared_with"]) == 19
    assert "rows0" in str(shown)


def test_a_join_that_fails_for_one_view_does_not_fail_for_another(orders: Project) -> None:
    orders.create_table("words", "region STRING, word STRING")
    join = "FROM orders o JOIN words w ON o.region = w.region"
    orders.create_view("bad", f"SELECT CAST(w.word AS INT) AS n {join}")
    orders.create_view("good", f"SELECT w.word {join}")
    orders.sql("INSERT INTO words VALUES ('r1', '12')")
    orders.sql("INSERT INTO words VALUES ('r1', 'many')")
    assert {v.name: v.error is None for v in orders.status().views} == {"bad": False, "good": True}
    orders.sql("DELETE FROM words WHERE word = 'many'")
    assert _right(orders)


def test_stages_are_not_shown_to_users(orders: Project) -> None:
    orders.create_view("v", _over(1))
    (stage,) = _stages(orders)
    assert [view.name for view in orders.status().views] == ["v"]
    assert [table.name for table in orders.status().tables] == ["orders"]
    assert [report.view for report in orders.verify_all()] == ["v"]
    for use in (orders.view, orders.table, orders.verify, orders.explain, orders.drop_view):
        with pytest.raises(RunnelError):
            use(stage)
    with pytest.raises(RunnelError):
        orders.query(f"SELECT * FROM `{stage}`").to_arrow()
    with pytest.raises(RunnelError):
        orders.create_view("w", f"SELECT * FROM `{stage}`")


def test_a_stage_goes_with_the_last_view_that_reads_it(orders: Project) -> None:
    orders.create_view("a", _over(1))
    orders.create_view("b", _over(2))
    stages = _stages(orders)
    orders.drop_view("a")
    assert _stages(orders) == stages
    _insert(orders, 50)
    assert _right(orders)
    orders.drop_view("b")
    assert _stages(orders) == {}
    assert set(orders.runtime.lake.snapshot().relations) == {"orders"}


def test_dropping_and_making_one_of_twenty_views_leaves_the_others_alone(orders: Project) -> None:
    for number in range(20):
        orders.create_view(f"v{number}", _over(number) if number % 2 else f"SELECT id FROM orders WHERE id > {number}")
    lake = orders.runtime.lake
    before = lake.snapshot()
    orders.drop_view("v7")
    orders.create_view("v7", _over(7))
    after = lake.snapshot()
    for name, entry in before.entries.items():
        if name != "v7":
            assert after.table_id(name) == before.table_id(name)
            assert after.files(name) == before.files(name)
            assert after.entries[name] == entry
    assert all("views" not in r for r in orders.epochs() if r["epoch"] > before.epoch)
    _insert(orders, 60)
    assert _right(orders)


def test_a_stage_follows_the_most_eager_of_its_readers(orders: Project) -> None:
    orders.create_view("late", _over(1), refresh="manual")
    (stage,) = _stages(orders)
    _insert(orders, 30)
    lake = orders.runtime.lake
    behind = lake.snapshot().entries[stage].frontier
    _insert(orders, 31)
    assert lake.snapshot().entries[stage].frontier == behind
    orders.create_view("eager", _over(2))
    assert set(_stages(orders)) == {stage}
    _insert(orders, 32)
    head = lake.snapshot()
    assert head.entries[stage].frontier == head.epoch
    assert head.entries["late"].frontier < head.epoch
    assert _right(orders)
    orders.compact()
    _insert(orders, 33)
    assert _right(orders)
    orders.refresh("late")
    assert _right(orders)
    assert {v.behind for v in orders.status().views} == {0}


def test_a_late_view_is_proved_right_and_follows_when_its_stage_went_ahead_long_ago(orders: Project) -> None:
    orders.runtime.keep, orders.runtime.grace = 2, 0.0
    orders.create_view("late", _over(1), refresh="manual")
    orders.create_view("eager", _over(2))
    for number in range(30, 60):
        _insert(orders, number)
        if number % 10 == 0:
            orders.compact()
    orders.compact()
    assert _right(orders)
    orders.refresh("late")
    assert _right(orders)
    assert len(orders.view("late").to_pylist()) == 5


def test_a_late_view_follows_after_the_eager_one_is_gone(orders: Project) -> None:
    orders.create_view("late", _over(1), refresh="manual")
    orders.create_view("eager", _over(2))
    _insert(orders, 30)
    orders.drop_view("eager")
    _insert(orders, 31)
    assert _right(orders)
    orders.refresh("late")
    assert _right(orders)


def test_an_error_in_a_stage_is_told_as_the_error_of_the_view(project: Project) -> None:
    project.create_table("t", "id INT, x INT", key=["id"])
    broken = "CAST(concat('1', CASE WHEN x = 0 THEN 'x' ELSE '' END) AS INT)"
    sums = f"SELECT id, sum({broken}) AS s FROM t GROUP BY id"
    project.create_view("bad", f"SELECT s FROM ({sums}) WHERE s > 0")
    project.create_view("above", "SELECT s + 1 AS s FROM bad")
    project.create_view("good", "SELECT sum(x) AS s FROM t")
    assert len(_stages(project)) == 1
    project.sql("INSERT INTO t VALUES (1, 2)")
    project.sql("INSERT INTO t VALUES (2, 0)")
    status = {v.name: v for v in project.status().views}
    error = status["bad"].error or ""
    assert "#" not in error.partition(";")[0]
    assert error.startswith("RUNNEL-ENGINE-SQL")
    assert "waits for bad" in (status["above"].error or "")
    assert status["good"].error is None
    assert project.epochs()[-1]["views"]["bad"]["strategy"] == "failed"
    with pytest.raises(RunnelError, match="RUNNEL-ENGINE-SQL"):
        project.create_view("sibling", f"SELECT s + 1 AS s FROM ({sums})")
    project.sql("UPDATE t SET x = 5 WHERE id = 2")
    assert _right(project)


def test_repairing_a_view_mends_its_stages_and_their_other_readers(orders: Project) -> None:
    for number, refresh in enumerate(("immediate", "immediate", "manual")):
        orders.create_view(f"v{number}", _over(number), refresh=refresh)
    orders.create_view("top", "SELECT count(s) AS n FROM v1")
    lake = orders.runtime.lake
    head = lake.snapshot()
    (stage,) = head.views["v0"].stages
    relation = head.relations[stage]
    commit = Commit(base=head.epoch)
    commit.add = [lake.write(relation, lake.read(relation, head.files(stage)).slice(0, 2))]
    lake.publish(commit)
    orders.refresh("v1")
    assert not orders.verify("v1").ok
    orders.refresh("v0", full=True)
    assert orders.verify("v0").ok
    assert orders.verify("v1").ok
    assert orders.verify("top").ok
    orders.refresh("v2")
    _insert(orders, 70)
    assert _right(orders)


def _during_hydration(monkeypatch: pytest.MonkeyPatch, act: Callable[[], Any]) -> None:
    """Do something once, right after the next view was computed and before it is published."""

    def hydrate(*arguments: Any) -> Any:
        made = maintain.hydrate(*arguments)
        monkeypatch.setattr(swap, "hydrate", maintain.hydrate)
        act()
        return made

    monkeypatch.setattr(swap, "hydrate", hydrate)


def test_two_views_that_bring_the_same_stage_at_once_share_it(orders: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    _during_hydration(monkeypatch, lambda: orders.create_view("first", _over(1)))
    orders.create_view("second", _over(2))
    assert len(_stages(orders)) == 1
    _insert(orders, 80)
    assert _right(orders)


def test_a_stage_that_is_dropped_while_a_new_reader_is_computed_is_made_again(
    orders: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    orders.create_view("first", _over(1))
    _during_hydration(monkeypatch, lambda: orders.drop_view("first"))
    orders.create_view("second", _over(2))
    assert len(_stages(orders)) == 1
    _insert(orders, 80)
    assert _right(orders)


@pytest.mark.parametrize("refresh", ["immediate", "manual"])
def test_what_is_written_while_a_view_with_stages_is_computed_is_not_lost(
    orders: Project, monkeypatch: pytest.MonkeyPatch, refresh: str
) -> None:
    orders.create_view("old", _over(1), refresh="manual")

    def write() -> None:
        for number in range(40, 45):
            _insert(orders, number)
        orders.sql("DELETE FROM orders WHERE id < 5")

    _during_hydration(monkeypatch, write)
    orders.create_view("v", f"SELECT a.region, a.n, b.c FROM ({SUMS}) a JOIN (SELECT region, count(amount) AS c FROM "
                            "orders WHERE id > 7 GROUP BY region) b ON a.region = b.region", refresh=refresh)  # fmt: skip
    assert len(_stages(orders)) == 2
    assert _right(orders)
    for number in range(50, 53):
        _insert(orders, number)
    assert _right(orders)
    orders.refresh()
    assert _right(orders)


def test_views_made_and_dropped_by_several_processes_share_their_stages(tmp_path: Path) -> None:
    with runnel.create(tmp_path / "p", engine=DuckDbEngine(threads=2)) as first:
        first.create_table("orders", "id BIGINT, region STRING, amount BIGINT", key=["id"])

        def work(who: int) -> None:
            with runnel.open(tmp_path / "p", engine=DuckDbEngine(threads=2)) as mine:
                for number in range(4):
                    mine.sql(f"INSERT INTO orders VALUES ({who * 100 + number}, 'r{number % 2}', {number})")
                    mine.create_view(f"v{who}_{number}", _over(number))
                    if number % 2:
                        mine.drop_view(f"v{who}_{number}")

        with ThreadPoolExecutor(3) as pool:
            list(pool.map(work, range(3)))
        assert len(_stages(first)) == 1
        assert len(first.status().views) == 6
        assert _right(first)
