"""Expiry bounds the state, and takes nothing that a kept epoch, a late view or a reader still needs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import sqlalchemy as sa

from runnel.errors import Terminal
from runnel.lake import expiry, tables
from runnel.lake.entries import Commit
from tests.lake.samples import BAG, ORDERS, TAKINGS, as_rows, change, compact, contents, create, view

if TYPE_CHECKING:
    from runnel.lake.lake import Lake
    from tests.lake.conftest import Where


def on_disk(lake: Lake) -> int:
    return sum(1 for _ in Path(lake.data).rglob("*.parquet"))


def grow(lake: Lake, epochs: int, *, view_name: str | None = None) -> None:
    for number in range(epochs):
        change(lake, ORDERS, (number, "n", 1, 1), frontiers={view_name: None} if view_name else {})


def test_old_epochs_and_their_files_go_and_kept_ones_stay(lake: Lake, where: Where) -> None:
    create(lake, ORDERS)
    grow(lake, 6)
    compact(lake, ORDERS)
    kept = [contents(lake, ORDERS, n) for n in (6, 7, 8)]
    gone = expiry.expire(lake, 2, grace=0)
    assert (gone.snapshots, gone.files) == (6, 0)
    for reader in (lake, where.open()):
        assert [contents(reader, ORDERS, n) for n in (6, 7, 8)] == kept
        with pytest.raises(Terminal, match="RUNNEL-EPOCH-EXPIRED"):
            reader.snapshot(5)
    assert [record["epoch"] for record in lake.epochs()] == [6, 7, 8]
    gone = expiry.expire(lake, 0, grace=0)
    assert (gone.snapshots, gone.files) == (2, 6)
    assert gone.bytes > 0
    assert on_disk(lake) == 1
    assert contents(lake, ORDERS) == kept[-1]


def test_an_epoch_that_somebody_computes_at_is_kept_with_the_changes_since(lake: Lake, where: Where) -> None:
    create(lake, ORDERS)
    grow(lake, 3)
    with where.open().pinned(3):
        grow(lake, 3)
        compact(lake, ORDERS)
        expiry.expire(lake, 0, grace=0)
        assert len(contents(lake, ORDERS, 3)) == 2
        assert len(lake.snapshot().changes("orders", 3)) == 4
        with pytest.raises(Terminal, match="RUNNEL-EPOCH-EXPIRED"):
            lake.snapshot(2)
    expiry.expire(lake, 0, grace=0)
    with pytest.raises(Terminal, match="RUNNEL-EPOCH-EXPIRED"):
        lake.snapshot(3)


def test_a_late_view_keeps_its_epoch_and_the_changes_since(lake: Lake) -> None:
    create(lake, ORDERS, BAG)
    lake.publish(Commit(1, define=[view("late", "orders")], frontiers={"late": None}))
    grow(lake, 4)
    change(lake, BAG, ("a", 1.0, 1))
    change(lake, BAG, ("b", 1.0, 1))
    compact(lake, ORDERS)
    compact(lake, BAG)
    assert expiry.expire(lake, 0, grace=0).files == 2
    snapshot = lake.snapshot()
    assert len(snapshot.changes("orders", snapshot.views["late"].frontier)) == 4
    assert lake.read(ORDERS, snapshot.changes("orders", 2)).num_rows == 4
    assert contents(lake, ORDERS, 2) == []
    with pytest.raises(Terminal, match="RUNNEL-EPOCH-EXPIRED"):
        snapshot.changes(BAG.name, 2)
    lake.publish(Commit(lake.head(), frontiers={"late": None}))
    assert expiry.expire(lake, 0, grace=0).files == 4
    with pytest.raises(Terminal, match="RUNNEL-EPOCH-EXPIRED"):
        lake.snapshot().changes("orders", 2)
    assert lake.snapshot().changes("orders", 6) == ()


def test_an_up_to_date_view_holds_nothing_back(lake: Lake) -> None:
    create(lake, ORDERS)
    lake.publish(Commit(1, define=[view("fresh", "orders")], frontiers={"fresh": None}))
    grow(lake, 4, view_name="fresh")
    compact(lake, ORDERS)
    assert expiry.expire(lake, 0, grace=0).files == 4


def test_files_stay_for_the_grace_of_their_readers(lake: Lake) -> None:
    create(lake, ORDERS)
    grow(lake, 3)
    reader = lake.snapshot()
    compact(lake, ORDERS)
    assert expiry.expire(lake, 0, grace=60) == expiry.Expired(5, 0, 0)
    assert as_rows(lake.read(ORDERS, reader.files("orders"))) == contents(lake, ORDERS)
    assert expiry.expire(lake, 0, grace=0).files == 3
    with pytest.raises(Terminal, match="RUNNEL-EPOCH-EXPIRED"):
        lake.read(ORDERS, reader.files("orders"))


def test_dropped_relations_leave_no_trace(lake: Lake) -> None:
    create(lake, ORDERS, TAKINGS)
    lake.publish(Commit(1, define=[view("takings", "orders")], positions={"s": {"p": 1}}))
    grow(lake, 2)
    lake.publish(Commit(4, drop=["takings", "orders"], undefine=["takings"], positions={"s": {"p": 2}}))
    expiry.expire(lake, 0, grace=0)
    assert on_disk(lake) == 0
    left = [tables.table, tables.column, tables.view, tables.data_file, tables.file_column_stats, tables.table_stats]
    left += [tables.runnel_relation, tables.runnel_view, tables.runnel_file, tables.scheduled, tables.schema_versions]
    with lake.catalog.read() as connection:
        for table in left:
            assert connection.scalar(sa.select(sa.func.count()).select_from(table)) == 0, table.name
        assert connection.scalar(sa.select(sa.func.count()).select_from(tables.runnel_position)) == 1
    assert lake.snapshot().positions == {"s": {"p": 2}}


def test_the_catalog_stays_bounded_over_many_epochs(lake: Lake) -> None:
    create(lake, ORDERS)
    lake.publish(Commit(1, define=[view("v", "orders")], frontiers={"v": None}))
    sizes = []
    for number in range(100):
        change(lake, ORDERS, (number % 5, "n", 1, 1), frontiers={"v": None}, positions={"s": {"p": number}})
        if number % 10 == 9:
            compact(lake, ORDERS)
            expiry.expire(lake, 5, grace=0)
            with lake.catalog.read() as connection:
                count = sa.func.count()
                sizes.append(
                    sum(connection.scalar(sa.select(count).select_from(t)) or 0 for t in tables.metadata.sorted_tables)
                )
    assert max(sizes[2:]) <= sizes[1]
    assert on_disk(lake) < 20
