"""One publish makes everything visible together, or nothing; every kept epoch can be read as it was."""

from __future__ import annotations

import multiprocessing
import threading
from typing import TYPE_CHECKING

import pytest

from runnel.errors import Conflict, Terminal
from runnel.lake.entries import Commit
from runnel.model.relation import Kind, Relation
from tests.lake.samples import BAG, NESTED, ORDERS, TAKINGS, change, compact, contents, create, signed, view

if TYPE_CHECKING:
    from runnel.lake.lake import Lake
    from tests.lake.conftest import Where


def test_a_new_lake_is_empty_at_epoch_0(lake: Lake) -> None:
    snapshot = lake.snapshot()
    assert (snapshot.epoch, dict(snapshot.relations), dict(snapshot.views), dict(snapshot.positions)) == (0, {}, {}, {})


def test_everything_of_a_commit_is_seen_together(lake: Lake, where: Where) -> None:
    commit = Commit(
        0,
        create=[ORDERS, TAKINGS],
        add=[lake.write(ORDERS, signed(ORDERS, (1, "n", 2, 1)))],
        define=[view("takings", "orders")],
        frontiers={"takings": None},
        positions={"shop": {"at": 7}},
        record={"rows": 1},
    )
    assert lake.publish(commit) == 1
    for reader in (lake, where.open()):
        snapshot = reader.snapshot()
        assert dict(snapshot.relations) == {"orders": ORDERS, "takings": TAKINGS}
        assert snapshot.views["takings"] == view("takings", "orders", frontier=1)
        assert snapshot.positions == {"shop": {"at": 7}}
        (file,) = snapshot.files("orders")
        assert (file.rows, file.begin, file.end, file.change, file.relation) == (1, 1, None, True, "orders")
        assert snapshot.changes("orders", 0) == (file,)
        assert snapshot.changes("orders", 1) == ()
        assert snapshot.files("takings") == ()
        record = reader.epochs()[-1]
        assert (record["rows"], record["epoch"], record["kind"]) == (1, 1, "epoch")


def test_an_epoch_can_be_read_as_it_was(lake: Lake, where: Where) -> None:
    create(lake, ORDERS)
    lake.publish(Commit(1, define=[view("v", "orders", frontier=1)], positions={"s": {"p": 1}}))
    change(lake, ORDERS, (1, "n", 1, 1), frontiers={"v": None}, positions={"s": {"p": 2}})
    change(lake, ORDERS, (1, "n", 1, -1), (1, "s", 1, 1), errors={"v": "division by zero"})
    lake.publish(Commit(4, drop=["orders"], undefine=["v"]))
    for reader in (lake, where.open()):
        assert contents(reader, ORDERS, 2) == []
        assert contents(reader, ORDERS, 3) == [(1, "n", 1, 1)]
        assert contents(reader, ORDERS, 4) == [(1, "s", 1, 1)]
        assert [reader.snapshot(n).views["v"].frontier for n in (2, 3, 4)] == [1, 3, 3]
        assert [reader.snapshot(n).views["v"].error for n in (2, 3, 4)] == [None, None, "division by zero"]
        assert [reader.snapshot(n).positions["s"]["p"] for n in (2, 3, 4, 5)] == [1, 2, 2, 2]
        assert "orders" not in reader.snapshot().relations
        assert dict(reader.snapshot().views) == {}
        assert [len(reader.snapshot(4).changes("orders", n)) for n in (2, 3, 4)] == [2, 1, 0]


def test_epochs_that_are_not_there_are_refused(lake: Lake) -> None:
    for unknown in (1, -1):
        with pytest.raises(Terminal, match="RUNNEL-EPOCH-UNKNOWN"):
            lake.snapshot(unknown)


def test_a_commit_on_an_older_epoch_conflicts_and_leaves_nothing(lake: Lake) -> None:
    create(lake, ORDERS)
    change(lake, ORDERS, (1, "n", 1, 1))
    late = lake.write(ORDERS, signed(ORDERS, (2, "n", 1, 1)))
    with pytest.raises(Conflict, match="RUNNEL-EPOCH-CONFLICT"):
        lake.publish(Commit(1, create=[BAG], add=[late], positions={"s": {}}))
    assert lake.head() == 2
    assert contents(lake, ORDERS) == [(1, "n", 1, 1)]
    assert "shop.lines" not in lake.snapshot().relations


def test_compaction_in_between_is_no_conflict(lake: Lake) -> None:
    create(lake, ORDERS)
    base = change(lake, ORDERS, (1, "n", 1, 1))
    assert compact(lake, ORDERS) == base + 1
    assert lake.publish(Commit(base, add=[lake.write(ORDERS, signed(ORDERS, (2, "n", 1, 1)))])) == base + 2
    with pytest.raises(Conflict):
        lake.publish(Commit(base))
    assert contents(lake, ORDERS) == [(1, "n", 1, 1), (2, "n", 1, 1)]


def test_a_failing_commit_leaves_nothing(lake: Lake) -> None:
    create(lake, ORDERS)
    for bad in (
        Commit(1, create=[BAG], drop=["order"]),
        Commit(1, create=[BAG, ORDERS]),
        Commit(1, create=[BAG], frontiers={"nobody": 1}),
        Commit(1, add=[lake.write(BAG, signed(BAG, ("a", 1.0, 1)))]),
    ):
        with pytest.raises(Terminal, match=r"RUNNEL-(RELATION|VIEW)-(UNKNOWN|EXISTS)"):
            lake.publish(bad)
    assert lake.head() == 1
    assert set(lake.snapshot().relations) == {"orders"}


def test_a_relation_can_be_replaced_in_one_commit(lake: Lake) -> None:
    create(lake, ORDERS)
    change(lake, ORDERS, (1, "n", 1, 1))
    lake.snapshot()
    other = Relation("orders", Kind.TABLE, BAG.columns)
    lake.publish(Commit(2, drop=["orders"], create=[other], add=[lake.write(other, signed(other, ("x", 0.5, 2)))]))
    assert contents(lake, other) == [("x", 0.5, 2)]
    assert contents(lake, ORDERS, 2) == [(1, "n", 1, 1)]
    assert len(lake.snapshot().changes("orders", 0)) == 1


def test_an_unknown_relation_names_the_nearest(lake: Lake) -> None:
    create(lake, ORDERS)
    with pytest.raises(Terminal, match=r"RUNNEL-RELATION-UNKNOWN.*did you mean 'orders'"):
        lake.snapshot().files("ordres")


def test_definitions_survive_as_they_were(lake: Lake, where: Where) -> None:
    stage = Relation("takings#1", Kind.STAGE, TAKINGS.columns, TAKINGS.key, TAKINGS.final)
    create(lake, NESTED, TAKINGS, stage)
    assert dict(where.open().snapshot().relations) == {"nested": NESTED, "takings": TAKINGS, "takings#1": stage}


def test_what_another_opens_and_publishes_is_seen(lake: Lake, where: Where) -> None:
    other = where.open()
    create(lake, ORDERS)
    for number in range(1, 6):
        change((lake, other)[number % 2], ORDERS, (number, "n", 1, 1))
        expected = [(n, "n", 1, 1) for n in range(1, number + 1)]
        assert contents(lake, ORDERS) == contents(other, ORDERS) == expected
    compact(other, ORDERS)
    assert len(lake.snapshot().files("orders")) == 1
    assert [len(lake.snapshot(n).files("orders")) for n in range(1, 7)] == [0, 1, 2, 3, 4, 5]


def count_up(where: Where, times: int) -> None:
    mine = where.open()
    done = 0
    while done < times:
        snapshot = mine.snapshot()
        so_far = snapshot.positions.get("count", {"n": 0})["n"]
        file = mine.write(ORDERS, signed(ORDERS, (so_far, "n", 1, 1)))
        try:
            mine.publish(Commit(snapshot.epoch, add=[file], positions={"count": {"n": so_far + 1}}))
        except Conflict:
            mine.discard([file])
        else:
            done += 1
    mine.close()


@pytest.mark.slow
def test_of_several_processes_none_loses_an_update(lake: Lake, where: Where) -> None:
    create(lake, ORDERS)
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=count_up, args=(where, 5)) for _ in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0, 0, 0]
    assert lake.snapshot().positions["count"] == {"n": 15}
    assert [row[0] for row in contents(lake, ORDERS)] == sorted(range(15), key=repr)


def test_threads_may_share_a_lake(lake: Lake) -> None:
    create(lake, ORDERS)
    failed: list[BaseException] = []

    def work(number: int) -> None:
        try:
            for step in range(4):
                file = lake.write(ORDERS, signed(ORDERS, (number * 10 + step, "n", 1, 1)))
                while True:
                    snapshot = lake.snapshot()
                    assert sum(f.rows for f in snapshot.files("orders")) == snapshot.epoch - 1
                    try:
                        lake.publish(Commit(snapshot.epoch, add=[file]))
                        break
                    except Conflict:
                        continue
        except BaseException as error:
            failed.append(error)
            raise

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    assert len(contents(lake, ORDERS)) == 16


def test_deliveries_are_remembered(lake: Lake, where: Where) -> None:
    assert lake.delivered("front", "takings") is None
    for epoch in (3, 5):
        lake.deliver("front", "takings", epoch)
        assert where.open().delivered("front", "takings") == epoch
