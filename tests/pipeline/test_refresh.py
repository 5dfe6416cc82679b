"""Refresh policies, frontiers, isolation of failures, records, subscriptions, history."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from runnel.errors import RunnelError
from tests.support.rows import comparable

if TYPE_CHECKING:
    import pyarrow as pa

    from runnel.project import Project


def test_a_manual_view_stands_at_its_frontier_until_refreshed(shop: Project) -> None:
    shop.create_view("late", "SELECT cat, sum(amount) AS s FROM sales GROUP BY cat", refresh="manual")
    shop.create_view(
        "late_join", "SELECT s.id, c.name FROM sales s JOIN categories c ON s.cat = c.cat", refresh="manual"
    )
    before = comparable(shop.view("late").to_pylist())
    for number in range(5):
        with shop.transaction() as tx:
            tx.insert("sales", [{"id": f"n{number}", "cat": number % 3, "amount": number}])
            tx.upsert("categories", [{"cat": 0, "name": f"zero{number}"}])
    assert comparable(shop.view("late").to_pylist()) == before
    assert all(report.ok for report in shop.verify_all())
    shop.refresh("late")
    shop.refresh("late_join")
    assert all(report.ok for report in shop.verify_all())
    assert {v.name: v.behind for v in shop.status().views if v.name == "late_join"} == {"late_join": 0}
    assert len(shop.view("late").to_pylist()) == 3


def test_a_failing_view_stops_alone_and_goes_on_when_the_cause_is_gone(project: Project) -> None:
    project.create_table("t", "id INT, x INT", key=["id"])
    project.create_view("bad", "SELECT id, CAST(concat('1', CASE WHEN x = 0 THEN 'x' ELSE '' END) AS INT) AS y FROM t")
    project.create_view("above", "SELECT y FROM bad WHERE y > 0")
    project.create_view("good", "SELECT sum(x) AS s FROM t")
    project.sql("INSERT INTO t VALUES (1, 2)")
    project.sql("INSERT INTO t VALUES (2, 0)")
    status = {v.name: v for v in project.status().views}
    assert status["bad"].error is not None
    assert status["above"].error is not None
    assert "waits for bad" in status["above"].error
    assert status["good"].error is None
    assert project.view("good").to_pylist() == [{"s": 2}]
    assert project.epochs()[-1]["views"]["bad"]["strategy"] == "failed"
    project.sql("UPDATE t SET x = 5 WHERE id = 2")
    status = {v.name: v for v in project.status().views}
    assert (status["bad"].error, status["above"].error) == (None, None)
    assert len(project.view("bad").to_pylist()) == 2
    assert all(report.ok for report in project.verify_all())


def test_records_never_call_a_recompute_incremental(shop: Project) -> None:
    shop.create_view("kinds", "SELECT count(DISTINCT cat) AS n FROM sales", mode="full")
    shop.sql("INSERT INTO sales VALUES ('K', 7, 1)")
    views = shop.epochs()[-1]["views"]
    assert views["kinds"]["strategy"] == "full"
    assert views["by_cat"]["strategy"] == "incremental"
    assert shop.explain("kinds").incremental is False
    assert shop.explain("by_cat").incremental is True
    assert shop.view("kinds").to_pylist() == [{"n": 3}]


def test_a_change_that_meets_no_view_is_skipped(shop: Project) -> None:
    shop.create_table("other", "x INT")
    with shop.transaction() as tx:
        tx.insert("other", [{"x": 1}])
    assert {did["strategy"] for did in shop.epochs()[-1]["views"].values()} == {"skipped"}


def test_subscribers_hear_of_every_epoch_once_and_in_order(shop: Project) -> None:
    heard: list[tuple[int, list[dict[str, Any]]]] = []

    def callback(changes: pa.Table, epoch: int) -> None:
        heard.append((epoch, changes.to_pylist()))

    shop.subscribe("by_cat", callback, cursor="mine")
    shop.sql("INSERT INTO sales VALUES ('S', 1, 5)")
    shop.sql("DELETE FROM sales WHERE id = 'S'")
    assert len(heard) == 2
    assert heard[0][0] < heard[1][0]
    assert sorted(row["_weight"] for row in heard[0][1]) == [-1, 1]
    again: list[int] = []
    shop.subscribe("by_cat", lambda changes, epoch: again.append(epoch), cursor="mine").poll()
    assert again == []


def test_history_tells_every_change_of_a_row(shop: Project) -> None:
    shop.sql("UPDATE sales SET amount = 21 WHERE id = 'A'")
    shop.sql("DELETE FROM sales WHERE id = 'A'")
    told = shop.history("sales", {"id": "A"}, column="amount")
    assert [entry["op"] for entry in told] == ["insert", "update", "delete"]
    assert [str(entry["new"]) for entry in told] == ["20.00", "21.00", "None"]


def test_repair_mends_a_view_that_was_broken_by_hand(shop: Project) -> None:
    runtime = shop.runtime
    head = runtime.lake.snapshot()
    relation = head.relations["named"]
    from runnel.lake.entries import Commit

    broken = runtime.lake.read(relation, head.files("named")).slice(0, 1)
    commit = Commit(base=head.epoch)
    commit.add = [runtime.lake.write(relation, broken)]
    runtime.lake.publish(commit)
    report = shop.verify("named")
    assert not report.ok
    assert len(report.unexpected) == 1
    shop.refresh("named", full=True)
    assert shop.verify("named").ok


def test_dropping_a_view_that_is_read_is_refused(shop: Project) -> None:
    with pytest.raises(RunnelError, match="rich"):
        shop.drop_view("by_cat")
    shop.drop_view("rich")
    shop.drop_view("by_cat")
    assert {v.name for v in shop.status().views} == {"named"}
    shop.sql("INSERT INTO sales VALUES ('after', 1, 1)")
    shop.create_view("by_cat", "SELECT cat, count(*) AS n FROM sales GROUP BY cat")
    assert all(report.ok for report in shop.verify_all())


def test_compaction_and_expiry_change_no_answer(shop: Project) -> None:
    shop.runtime.keep, shop.runtime.grace = 3, 0.0
    for number in range(60):
        shop.sql(
            f"INSERT INTO sales VALUES ('x{number}', {number % 4}, {number}); DELETE FROM sales WHERE id = 'x{number - 5}'"
        )
    before = {v.name: sorted(map(str, shop.view(v.name).to_pylist())) for v in shop.status().views}
    shop.compact()
    assert {v.name: sorted(map(str, shop.view(v.name).to_pylist())) for v in shop.status().views} == before
    assert all(report.ok for report in shop.verify_all())
    assert all(t.files <= 1 for t in shop.status().tables)
