"""Compaction changes no epoch's rows, rewrites each row a bounded number of times, and loses cleanly against others."""

from __future__ import annotations

import math
import random
from decimal import Context, Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pytest
import sqlglot

from runnel.errors import Terminal
from runnel.lake import compaction
from runnel.lake.entries import Commit
from runnel.model.relation import Kind, Relation
from tests.lake.samples import (
    BAG,
    NESTED,
    ORDERS,
    TAKINGS,
    TOTAL,
    as_rows,
    change,
    columns,
    compact,
    contents,
    create,
    signed,
    view,
)

if TYPE_CHECKING:
    from runnel.lake.lake import Lake
    from tests.lake.conftest import Where

SUMS = Relation("sums", Kind.VIEW, columns("k string; s double"), ("k",), TAKINGS.final)

CASES: list[tuple[Relation, list[tuple[Any, ...]], list[tuple[Any, ...]]]] = [
    (BAG, [("a", 1.0, 1), ("a", 1.0, 2), ("b", None, 1), ("b", None, -1), (None, 2.0, -1)], [("a", 1.0, 3), (None, 2.0, -1)]),
    (BAG, [("n", math.nan, 1), ("n", math.nan, -1)], []),
    (ORDERS, [(1, "n", 1, 1), (1, "n", 1, -1), (1, "n", 2, 1)], [(1, "n", Decimal(2), 1)]),
    (TAKINGS, [("n", 5, 1, 1), ("n", -5, 0, 0), (None, 1, 1, 1), ("z", 1, 1, 1), ("z", -1, -1, -1)],
     [("n", Decimal(0), 1, 1), (None, Decimal(1), 1, 1)]),
    (TAKINGS, [("n", 5, 0, 0)], [("n", Decimal(5), 0, 0)]),
    (TAKINGS, [("n", None, 1, 1)], [("n", Decimal(0), 1, 1)]),
    (TOTAL, [(5, 1, 1), (-5, -1, -1)], []),
    (TOTAL, [(5, 1, 1), (2, 1, 1)], [(7, 2, 2)]),
    (NESTED, [(1, ["a"], {"x": 1, "y": None}, [("k", [1])], 1)] * 2 + [(1, ["a"], {"x": 2, "y": None}, [], 1)],
     [(1, ["a"], {"x": 1, "y": None}, [("k", [1])], 2), (1, ["a"], {"x": 2, "y": None}, [], 1)]),
    (ORDERS, [], []),
]  # fmt: skip


@pytest.mark.parametrize(("relation", "rows", "expected"), CASES)
def test_folding_adds_up_and_drops_what_is_zero(
    relation: Relation, rows: list[tuple[Any, ...]], expected: list[tuple[Any, ...]]
) -> None:
    folded = compaction.fold(relation, signed(relation, *rows))
    assert as_rows(folded) == sorted(expected, key=repr)
    assert folded.schema == signed(relation).schema


@pytest.mark.parametrize(("relation", "rows", "expected"), CASES)
def test_folding_by_sql_is_the_same(
    relation: Relation, rows: list[tuple[Any, ...]], expected: list[tuple[Any, ...]]
) -> None:
    (sql,) = sqlglot.transpile(compaction.fold_sql(relation, "`some input`"), read="spark", write="duckdb")
    with duckdb.connect() as connection:
        connection.register("some input", signed(relation, *rows))
        found = connection.execute(sql).to_arrow_table().cast(signed(relation).schema)
    assert as_rows(found) == sorted(expected, key=repr)


def test_a_group_without_rows_goes_with_its_drift_when_all_is_folded() -> None:
    drifted = signed(SUMS, ("a", 0.1, 1), ("a", 0.2, 1), ("a", -0.3, -2))
    assert compaction.fold(SUMS, drifted).num_rows == 1
    assert compaction.fold(SUMS, drifted, from_start=True).num_rows == 0
    assert "WHERE" not in compaction.fold_sql(SUMS, "`t`", from_start=True)


WIDE = Relation("wide", Kind.VIEW, columns("k string; s decimal(38,2)"), ("k",), TAKINGS.final)
MOST = Decimal(10**38 - 1).scaleb(-2, Context(prec=38))
NARROW = Relation("narrow", Kind.VIEW, columns("k string; s int"), ("k",), TAKINGS.final)


@pytest.mark.parametrize(
    ("relation", "rows"),
    [
        (TOTAL, [(2**62, 1, 1), (2**62, 1, 1)]),
        (TOTAL, [(-(2**63), 1, 1), (-(2**63), 1, 1)]),
        (TOTAL, [(2**62, 1, 1)] * 4),
        (ORDERS, [(1, "n", 1, 2**63 - 1), (1, "n", 1, 1)]),
        (TAKINGS, [("n", Decimal(10**20 - 1), 1, 1)] * 2),
        (WIDE, [("n", MOST, 1)] * 2),
        (WIDE, [("n", MOST, 1)] * 4),
        (NARROW, [("n", 2**31 - 1, 1)] * 2),
    ],
)
def test_a_sum_that_does_not_fit_is_an_error_and_not_another_number(
    relation: Relation, rows: list[tuple[Any, ...]]
) -> None:
    with pytest.raises(Terminal) as caught:
        compaction.fold(relation, signed(relation, *rows))
    assert caught.value.code == "RUNNEL-SUM-OVERFLOW"


def test_large_numbers_that_cancel_out_are_folded() -> None:
    whole = [(2**62, 1, 1), (2**62, 1, 1), (-(2**63), 0, 0), (2**63 - 1, 1, 1)]
    assert as_rows(compaction.fold(TOTAL, signed(TOTAL, *whole))) == [(2**63 - 1, 3, 3)]
    decimals = [("n", MOST, 1), ("n", MOST, 1), ("n", MOST.copy_negate(), -1)]
    assert as_rows(compaction.fold(WIDE, signed(WIDE, *decimals))) == [("n", MOST, 1)]
    assert compaction.fold(TOTAL, signed(TOTAL, *whole)).schema == signed(TOTAL).schema


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("most", [1, 2, 4], ids=["alone", "in pairs", "more"])
def test_rows_in_pairs_are_folded_as_any_others(seed: int, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    chance = random.Random(seed)
    rows = [
        (n, chance.choice([None, "n", "s"]), chance.choice([None, 1, 2]), chance.choice([-2, -1, 1, 2]))
        for n in range(40)
        for _ in range(chance.randint(1, most))
    ]
    chance.shuffle(rows)
    table = signed(ORDERS, *rows)
    monkeypatch.setattr(compaction, "FEW", 0)
    folded = compaction.fold(ORDERS, table)
    assert folded["id"].to_pylist() == sorted(folded["id"].to_pylist())
    found = as_rows(folded)
    total: dict[tuple[Any, ...], int] = {}
    for *row, weight in rows:
        total[tuple(row)] = total.get(tuple(row), 0) + weight
    assert {tuple(row[:-1]): row[-1] for row in found} == {row: weight for row, weight in total.items() if weight}
    assert (compaction._paired(ORDERS, table) is not None) is (most < 4)


def test_folded_rows_are_sorted_by_key() -> None:
    folded = compaction.fold(ORDERS, signed(ORDERS, (3, "a", 1, 1), (1, "b", 1, 1), (2, None, 1, 1)))
    assert folded["id"].to_pylist() == [1, 2, 3]


def test_no_epoch_changes_by_compaction_and_changes_can_still_be_asked(lake: Lake, where: Where) -> None:
    create(lake, ORDERS)
    for number in range(6):
        change(lake, ORDERS, (number, "n", 1, 1), *([(number - 1, "n", 1, -1)] if number % 2 else []))
    before = [contents(lake, ORDERS, n) for n in range(1, 8)]
    changes = [f.path for f in lake.snapshot().changes("orders", 2)]
    assert compact(lake, ORDERS) == 8
    for reader in (lake, where.open()):
        assert [contents(reader, ORDERS, n) for n in range(1, 8)] == before
        assert contents(reader, ORDERS) == before[-1]
        assert len(reader.snapshot().files("orders")) == 1
        assert [f.path for f in reader.snapshot().changes("orders", 2)] == changes
        assert reader.epochs()[-1]["kind"] == "compaction"


def test_a_view_that_was_up_to_date_stays_so(lake: Lake) -> None:
    create(lake, ORDERS)
    defined = [view("fresh", "orders"), view("late", "orders")]
    lake.publish(Commit(1, define=defined, frontiers={"fresh": None, "late": 1}))
    change(lake, ORDERS, (1, "n", 1, 1), frontiers={"fresh": None})
    compact(lake, ORDERS)
    assert {name: entry.frontier for name, entry in lake.snapshot().views.items()} == {"fresh": 4, "late": 1}


def test_a_fold_of_files_that_are_gone_is_discarded(lake: Lake) -> None:
    create(lake, ORDERS)
    for number in range(3):
        change(lake, ORDERS, (number, "n", 1, 1))
    files = lake.snapshot().files("orders")
    new = lake.write(ORDERS, compaction.fold(ORDERS, lake.read(ORDERS, files)))
    compact(lake, ORDERS)
    head = lake.head()
    assert compaction.publish(lake, ORDERS, files, [new]) is None
    assert not Path(new.path).exists()
    assert lake.head() == head
    assert len(contents(lake, ORDERS)) == 3
    last = lake.snapshot().files("orders")
    lake.publish(Commit(head, drop=["orders"]))
    assert compaction.publish(lake, ORDERS, last, [lake.write(ORDERS, signed(ORDERS, (1, "n", 1, 1)))]) is None


def test_a_relation_may_fold_to_nothing(lake: Lake) -> None:
    create(lake, ORDERS)
    change(lake, ORDERS, (1, "n", 1, 1))
    change(lake, ORDERS, (1, "n", 1, -1))
    assert compaction.publish(lake, ORDERS, lake.snapshot().files("orders"), []) == 4
    assert lake.snapshot().files("orders") == ()
    assert contents(lake, ORDERS) == []


def test_small_files_are_folded_when_there_are_eight(lake: Lake) -> None:
    create(lake, ORDERS)
    for number in range(7):
        change(lake, ORDERS, (number, "n", 1, 1))
        assert compaction.plan(lake.snapshot(), "orders") is None
    change(lake, ORDERS, (7, "n", 1, 1))
    assert compaction.plan(lake.snapshot(), ORDERS) == lake.snapshot().files("orders")


def test_files_published_together_are_one_run(lake: Lake) -> None:
    create(lake, ORDERS)
    files = [lake.write(ORDERS, signed(ORDERS, (n, "n", 1, 1))) for n in range(20)]
    lake.publish(Commit(1, add=files))
    assert compaction.plan(lake.snapshot(), "orders") is None


def test_a_large_file_is_left_until_its_changes_reach_a_third(lake: Lake) -> None:
    create(lake, ORDERS)
    change(lake, ORDERS, *((n, "n", 1, 1) for n in range(90)))
    change(lake, ORDERS, *((n, "n", 1, 1) for n in range(100, 120)))
    assert compaction.plan(lake.snapshot(), "orders", small=50) is None
    change(lake, ORDERS, *((n, "n", 1, 1) for n in range(200, 210)))
    planned = compaction.plan(lake.snapshot(), "orders", small=50)
    assert planned is not None
    assert sum(file.rows for file in planned) == 120


def test_the_work_of_many_small_epochs_stays_logarithmic(lake: Lake) -> None:
    create(lake, ORDERS)
    rewritten = most = 0
    for number in range(80):
        change(lake, ORDERS, (number, "n", 1, 1))
        most = max(most, len(lake.snapshot().files("orders")))
        while (files := compaction.plan(lake.snapshot(), "orders")) is not None:
            rewritten += sum(file.rows for file in files)
            folded = compaction.fold(ORDERS, lake.read(ORDERS, files))
            compaction.publish(lake, ORDERS, files, [lake.write(ORDERS, folded)])
    assert len(contents(lake, ORDERS)) == 80
    assert most <= 24
    assert rewritten <= 80 * 5
