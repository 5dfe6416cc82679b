"""Views made, dropped and made anew while other things happen; what callers hand over is taken as it is at that moment."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from runnel.errors import RunnelError
from runnel.pipeline import maintain, swap

if TYPE_CHECKING:
    from collections.abc import Callable

    from runnel.project import Project


@pytest.fixture
def table(project: Project) -> Project:
    """Give a project with one small table."""
    project.create_table("t", "id BIGINT, a BIGINT", key=["id"])
    with project.transaction() as tx:
        tx.insert("t", [{"id": 1, "a": 1}, {"id": 2, "a": -5}])
    return project


def _during_hydration(monkeypatch: pytest.MonkeyPatch, act: Callable[[], Any]) -> None:
    """Do something once, right after the next view was computed and before it is published."""

    def hydrate(*arguments: Any) -> Any:
        pending = maintain.hydrate(*arguments)
        monkeypatch.setattr(swap, "hydrate", maintain.hydrate)
        act()
        return pending

    monkeypatch.setattr(swap, "hydrate", hydrate)


def test_a_view_whose_input_is_replaced_meanwhile_is_computed_again(
    table: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    table.create_view("v", "SELECT id, a FROM t WHERE a > 0")

    def replace() -> None:
        table.drop_view("v")
        table.create_view("v", "SELECT id, a FROM t WHERE a < 0")

    _during_hydration(monkeypatch, replace)
    table.create_view("w", "SELECT sum(a) AS s, count(*) AS n FROM v")
    assert table.view("w").to_pylist() == [{"s": -5, "n": 1}]


def test_a_view_whose_input_is_dropped_meanwhile_is_refused_and_writes_go_on(
    table: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    table.create_view("v", "SELECT id, a FROM t WHERE a > 0")
    _during_hydration(monkeypatch, lambda: table.drop_view("v"))
    with pytest.raises(RunnelError):
        table.create_view("w", "SELECT sum(a) AS s FROM v")
    table.sql("INSERT INTO t VALUES (3, 3)")
    assert [view.name for view in table.status().views] == []


def test_a_view_overtaken_by_expiry_is_computed_again(table: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    table.runtime.keep = 1

    def write() -> None:
        for number in range(10, 16):
            table.sql(f"INSERT INTO t VALUES ({number}, {number})")
        table.compact()

    _during_hydration(monkeypatch, write)
    table.create_view("w", "SELECT count(*) AS n FROM t")
    table.sql("INSERT INTO t VALUES (99, 99)")
    assert table.view("w").to_pylist() == [{"n": 9}]


def test_changes_across_a_view_made_anew_are_those_of_its_rows(table: Project) -> None:
    sql = "SELECT a, count(*) AS n FROM t GROUP BY a"
    table.create_view("v", sql)
    before = table.status().epoch
    table.drop_view("v")
    table.create_view("v", sql)
    assert table.changes("v", since=before).num_rows == 0
    table.sql("DELETE FROM t WHERE id = 2")
    assert table.changes("v", since=before).to_pylist() == [{"a": -5, "n": 1, "_weight": -1}]


def test_what_an_earlier_view_of_the_name_did_is_not_told_of_the_new_one(table: Project) -> None:
    table.create_view("v", "SELECT sum(a) AS s FROM t")
    table.sql("INSERT INTO t VALUES (3, 3)")
    table.drop_view("v")
    table.create_view("v", "SELECT max(a) AS s FROM t")
    assert "incremental" not in table.status().views[0].last
    assert table.explain("v").costs == ()


def test_immediate_views_follow_a_manual_one_when_it_is_refreshed(table: Project) -> None:
    table.create_view("m", "SELECT id, a FROM t", refresh="manual")
    table.create_view("i", "SELECT count(*) AS n FROM m")
    table.create_view("j", "SELECT n + 1 AS k FROM i")
    table.sql("INSERT INTO t VALUES (3, 3)")
    assert table.view("j").to_pylist() == [{"k": 3}]
    table.refresh("m")
    assert table.view("j").to_pylist() == [{"k": 4}]
    assert all(report.ok for report in table.verify_all())


def test_rows_are_taken_as_they_are_when_handed_over(table: Project) -> None:
    rows = [{"id": 7, "a": 7}]
    with table.transaction() as tx:
        tx.insert("t", rows)
        rows[0]["id"] = 8
        rows.append({"id": 9, "a": 9})
    assert sorted(row["id"] for row in table.table("t").to_pylist()) == [1, 2, 7]


def test_an_update_keeps_what_each_row_does_not_name(project: Project) -> None:
    project.create_table("u", "id INT, a INT, b STRING", key=["id"])
    with project.transaction() as tx:
        tx.insert("u", [{"id": 1, "a": 1, "b": "x"}, {"id": 2, "a": 2, "b": "y"}])
    with project.transaction() as tx:
        tx.update("u", [{"id": 1, "a": 10}, {"ID": 2, "B": "z"}])
    rows = sorted(tuple(row.values()) for row in project.table("u").to_pylist())
    assert rows == [(1, 10, "x"), (2, 2, "z")]


def test_a_subscriber_that_fails_does_not_look_like_a_failed_commit(table: Project) -> None:
    table.create_view("v", "SELECT a FROM t")
    heard: list[int] = []

    def fail(changes: object, epoch: int) -> None:
        heard.append(epoch)
        raise ValueError

    table.subscribe("v", fail)
    table.sql("INSERT INTO t VALUES (3, 3)")
    assert len(heard) == 1
    table.drop_view("v")
    table.sql("INSERT INTO t VALUES (4, 4)")
    assert len(table.table("t").to_pylist()) == 4
