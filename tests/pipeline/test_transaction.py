"""Transactions: one atomic step each, refused whole when anything in them is wrong."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from runnel.errors import RunnelError

if TYPE_CHECKING:
    from collections.abc import Callable

    from runnel.pipeline.transaction import Transaction
    from runnel.project import Project


def rows(project: Project, view: str) -> list[tuple[Any, ...]]:
    """Give a view's rows as sorted tuples."""
    return sorted(tuple(row.values()) for row in project.view(view).to_pylist())


def assert_right(project: Project) -> None:
    """Every view equals its query."""
    assert [str(report) for report in project.verify_all() if not report.ok] == []


def test_a_a_inserts_and_deletes_of_one_transaction_amount_to_one_change(shop: Project) -> None:
    with shop.transaction() as tx:
        tx.insert("sales", [{"id": "D", "cat": 2, "amount": 40}])
        tx.delete("sales", ["A", "C"])
    assert rows(shop, "by_cat") == [(1, Decimal("30.00"), 1), (2, Decimal("40.00"), 1)]
    assert tx.epoch is not None
    change = shop.changes("by_cat", since=tx.epoch - 1).to_pylist()
    net: dict[int, list[Decimal | int]] = {}
    for row in change:
        sums = net.setdefault(row["cat"], [Decimal(0), 0])
        sums[0] += row["_weight"] * row["total"]
        sums[1] += row["_weight"] * row["n"]
    assert net == {1: [Decimal("-20.00"), -1], 2: [Decimal("30.00"), 0]}
    assert_right(shop)


def test_a_b_a_group_goes_with_its_last_row_and_a_sum_of_zero_stays(project: Project) -> None:
    project.create_table("t", "id INT, g STRING, x INT", key=["id"])
    project.create_view("v", "SELECT g, sum(x) AS s, count(*) AS n FROM t GROUP BY g")
    with project.transaction() as tx:
        tx.insert("t", [{"id": 1, "g": "one", "x": 7}, {"id": 2, "g": "z", "x": 5}, {"id": 3, "g": "z", "x": -5}])
    assert rows(project, "v") == [("one", 7, 1), ("z", 0, 2)]
    project.sql("DELETE FROM t WHERE id = 1")
    assert rows(project, "v") == [("z", 0, 2)]
    project.sql("INSERT INTO t VALUES (1, 'one', 7)")
    assert rows(project, "v") == [("one", 7, 1), ("z", 0, 2)]


def test_a_c_an_update_of_some_columns_moves_whole_rows(shop: Project) -> None:
    with shop.transaction() as tx:
        tx.update("sales", [{"id": "A", "cat": 2}])
        tx.update("categories", [{"cat": 1, "name": "apples"}])
    assert rows(shop, "by_cat") == [(1, Decimal("30.00"), 1), (2, Decimal("30.00"), 2)]
    assert rows(shop, "named") == [
        ("A", "bread", Decimal("20.00")),
        ("B", "apples", Decimal("30.00")),
        ("C", "bread", Decimal("10.00")),
    ]
    assert_right(shop)


def test_statements_of_one_call_see_each_other(shop: Project) -> None:
    shop.sql(
        "INSERT INTO sales VALUES ('X', 1, 1.50); UPDATE sales SET amount = amount * 2 WHERE id = 'X';"
        "INSERT INTO sales SELECT concat(id, '2'), cat, amount FROM sales WHERE id = 'X'; DELETE FROM sales WHERE id = 'B'"
    )
    found = {row["id"]: row["amount"] for row in shop.table("sales").to_pylist()}
    assert found == {"A": Decimal("20.00"), "C": Decimal("10.00"), "X": Decimal("3.00"), "X2": Decimal("3.00")}
    assert_right(shop)


def test_signed_rows_make_bags(project: Project) -> None:
    project.create_table("b", "x INT")
    project.create_view("w", "SELECT x + 1 AS y FROM b WHERE x > 0")
    with project.transaction() as tx:
        tx.apply("b", [{"x": 1, "_weight": 3}, {"x": 2, "_weight": 1}, {"x": None, "_weight": 2}])
    assert rows(project, "w") == [(2,), (2,), (2,), (3,)]
    with project.transaction() as tx:
        tx.apply("b", [{"x": 1, "_weight": -2}])
    assert rows(project, "w") == [(2,), (3,)]
    assert_right(project)


def test_arrow_and_pandas_rows_are_taken(shop: Project) -> None:
    table = pa.table({"id": ["P"], "cat": [1], "amount": [Decimal("1.25")]})
    with shop.transaction() as tx:
        tx.insert("sales", table)
        tx.insert("sales", table.set_column(0, "id", pa.array(["Q"])).to_pandas())
    assert shop.query("SELECT count(*) AS n FROM sales WHERE amount = 1.25").to_pylist() == [{"n": 2}]


BAD: list[tuple[str, Callable[[Transaction], None]]] = [
    ("RUNNEL-KEY-DUPLICATE", lambda tx: tx.insert("sales", [{"id": "A", "cat": 1}])),
    ("RUNNEL-KEY-DUPLICATE", lambda tx: tx.insert("sales", [{"id": "Z", "cat": 1}, {"id": "Z", "cat": 2}])),
    ("RUNNEL-KEY-MISSING", lambda tx: tx.update("sales", [{"id": "Z", "cat": 1}])),
    ("RUNNEL-KEY-MISSING", lambda tx: tx.delete("sales", ["Z"])),
    ("RUNNEL-KEY-NULL", lambda tx: tx.insert("sales", [{"id": None, "cat": 1}])),
    ("RUNNEL-COLUMN-UNKNOWN", lambda tx: tx.insert("sales", [{"id": "Z", "amont": 1}])),
    ("RUNNEL-VALUE-TYPE", lambda tx: tx.insert("sales", [{"id": "Z", "cat": "many"}])),
    ("RUNNEL-VALUE-TYPE", lambda tx: tx.insert("sales", [{"id": "Z", "amount": "1.234567"}])),
    ("RUNNEL-ROW-MISSING", lambda tx: tx.apply("sales", [{"id": "Z", "cat": 1, "amount": 1, "_weight": -1}])),
    ("RUNNEL-ROW-MISSING", lambda tx: tx.apply("sales", [{"id": "A", "cat": 9, "amount": 20, "_weight": -1}])),
    ("RUNNEL-KEY-DUPLICATE", lambda tx: tx.apply("sales", [{"id": "A", "cat": 9, "amount": 20, "_weight": 1}])),
    ("RUNNEL-WEIGHT-MISSING", lambda tx: tx.apply("sales", [{"id": "A", "cat": 9}])),
    ("RUNNEL-WEIGHT-TYPE", lambda tx: tx.apply("sales", [{"id": "Z", "_weight": 2**53 + 1}])),
    ("RUNNEL-WEIGHT-TYPE", lambda tx: tx.apply("sales", [{"id": "Z", "_weight": -(2**63)}])),
    ("RUNNEL-WEIGHT-TYPE", lambda tx: tx.apply("sales", [{"id": "Z", "_weight": 2**62}] * 4)),
    ("RUNNEL-COLUMN-RESERVED", lambda tx: tx.insert("sales", [{"id": "Z", "_weight": 1}])),
    ("RUNNEL-TABLE-UNKNOWN", lambda tx: tx.insert("sale", [{"id": "Z"}])),
    ("RUNNEL-TABLE-IS-VIEW", lambda tx: tx.insert("by_cat", [{"cat": 1}])),
]


@pytest.mark.parametrize(("code", "act"), BAD, ids=[f"{code}-{at}" for at, (code, _) in enumerate(BAD)])
def test_what_is_wrong_is_refused_whole(shop: Project, code: str, act: Callable[[Transaction], None]) -> None:
    before = sorted(map(str, shop.table("sales").to_pylist()))
    with pytest.raises(RunnelError) as caught, shop.transaction() as tx:
        tx.insert("sales", [{"id": "fine", "cat": 1, "amount": 1}])
        act(tx)
    assert caught.value.code == code
    assert caught.value.hint
    assert sorted(map(str, shop.table("sales").to_pylist())) == before
    assert_right(shop)


def test_empty_lists_do_nothing(shop: Project) -> None:
    before = rows(shop, "by_cat")
    with shop.transaction() as tx:
        for operation in (tx.insert, tx.update, tx.upsert, tx.delete, tx.apply):
            operation("sales", [])
    assert rows(shop, "by_cat") == before


def test_an_update_keeps_what_each_row_leaves_out(shop: Project) -> None:
    with shop.transaction() as tx:
        tx.update("sales", [{"id": "A", "cat": 2}, {"ID": "B", "amount": 31}])
    found = {row["id"]: (row["cat"], row["amount"]) for row in shop.table("sales").to_pylist()}
    assert found == {"A": (2, Decimal("20.00")), "B": (1, Decimal("31.00")), "C": (2, Decimal("10.00"))}


def test_the_nearest_name_is_given(shop: Project) -> None:
    with pytest.raises(RunnelError, match="did you mean 'amount'"), shop.transaction() as tx:
        tx.insert("sales", [{"id": "Z", "amont": 1}])


def test_an_error_in_the_block_leaves_no_trace(shop: Project) -> None:
    before = shop.status().epoch
    with pytest.raises(ZeroDivisionError), shop.transaction() as tx:
        tx.insert("sales", [{"id": "Z"}])
        raise ZeroDivisionError
    assert shop.status().epoch == before


def test_earlier_epochs_stay_readable(shop: Project) -> None:
    before = shop.status().epoch
    shop.sql("DELETE FROM sales")
    assert rows(shop, "by_cat") == []
    assert sorted(r["cat"] for r in shop.view("by_cat").to_pylist(at=before)) == [1, 2]
    assert shop.query("SELECT count(*) AS n FROM sales", at=before).to_pylist() == [{"n": 3}]
