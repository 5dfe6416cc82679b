"""DuckDB, through its own ducklake extension, reads every table and view in its final form, now and as of any epoch."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import duckdb
import pytest

from runnel.lake import expiry
from runnel.lake.entries import Commit
from runnel.model.relation import Kind, Relation
from tests.lake.duck import attached
from tests.lake.samples import BAG, NESTED, ORDERS, TAKINGS, TOTAL, change, columns, compact, create, signed
from tests.lake.test_files import EVERY, HIGH, LOW, NOTHING

if TYPE_CHECKING:
    from runnel.lake.lake import Lake
    from tests.lake.conftest import Where


def rows(where: Where, name: str, at: int | None = None) -> list[tuple[Any, ...]]:
    version = f" AT (VERSION => {at})" if at is not None else ""
    with attached(where.catalog) as connection:
        return sorted(connection.execute(f'SELECT * FROM lake."{name}"{version}').fetchall(), key=repr)


def test_a_bag_is_netted_and_repeated_by_weight(lake: Lake, where: Where) -> None:
    create(lake, BAG)
    first = change(lake, BAG, ("a", 1.0, 3), (None, None, 2), ("n", math.nan, 1))
    second = change(lake, BAG, ("a", 1.0, -1), (None, None, -2), ("n", math.nan, -1))
    assert rows(where, "shop.lines") == [("a", 1.0)] * 2
    assert rows(where, "shop.lines", second) == [("a", 1.0)] * 2
    assert repr(rows(where, "shop.lines", first)) == repr([("a", 1.0)] * 3 + [("n", math.nan)] + [(None, None)] * 2)
    assert rows(where, "shop.lines", 1) == []


def test_partials_become_rows(lake: Lake, where: Where) -> None:
    create(lake, TAKINGS)
    change(lake, TAKINGS, ("n", Decimal("5.50"), 2, 2), (None, 1, 1, 1))
    change(lake, TAKINGS, ("n", Decimal("-1.25"), -1, -1), (None, -1, -1, -1), ("s", 0, 1, 1))
    assert rows(where, "takings") == [("n", Decimal("4.25"), 1), ("s", Decimal(0), 1)]
    assert rows(where, "takings", 2) == [("n", Decimal("5.50"), 2), (None, Decimal(1), 1)]


def test_a_global_aggregate_has_one_row_over_nothing(lake: Lake, where: Where) -> None:
    create(lake, TOTAL)
    assert rows(where, "total") == [(None, 0)]
    change(lake, TOTAL, (7, 2, 2))
    change(lake, TOTAL, (-7, -2, -2))
    assert rows(where, "total", 2) == [(7, 2)]
    assert rows(where, "total") == [(None, 0)]


def test_every_type_is_read_with_its_type(lake: Lake, where: Where) -> None:
    create(lake, EVERY)
    change(lake, EVERY, LOW, HIGH, (*NOTHING[:-1], 1))
    with attached(where.catalog) as connection:
        read = connection.execute(f'SELECT * FROM lake."{EVERY.name}"')
        kinds = [str(part[1]) for part in read.description]
        found = read.fetchall()
    assert {repr(_naive(row)) for row in found} == {repr(_naive(row[:-1])) for row in (LOW, HIGH, NOTHING)}
    assert kinds == [
        "BOOLEAN", "TINYINT", "SMALLINT", "INTEGER", "BIGINT", "FLOAT", "DOUBLE", "VARCHAR", "BLOB", "DATE",
        "TIMESTAMP WITH TIME ZONE", "TIMESTAMP", "DECIMAL(38,10)",
    ]  # fmt: skip


def _naive(row: tuple[Any, ...]) -> list[Any]:
    return [v.astimezone(UTC).replace(tzinfo=None) if isinstance(v, datetime) and v.tzinfo else v for v in row]


def test_nested_values_are_read(lake: Lake, where: Where) -> None:
    create(lake, NESTED)
    change(lake, NESTED, (1, ["a"], {"x": 1, "y": {"z": 0.5}}, [("k", [1])], 2), (2, None, None, None, 1))
    assert rows(where, "nested") == [(1, ["a"], {"x": 1, "y": {"z": 0.5}}, {"k": [1]})] * 2 + [(2, None, None, None)]


@pytest.mark.parametrize(
    "condition",
    ["i8 > 0", "i8 = -9223372036854775808", "f8 > 1e300", "s = ''", "s > 'a'", "d >= DATE '9999-12-31'", "b", "i1 IS NULL",
     "t > TIMESTAMPTZ '2024-02-29 23:59:59+00'", "n = TIMESTAMP '2024-02-29 23:59:59.123456'", "c > 0", "c < 0", "x = '\\xFF'::BLOB"],
)  # fmt: skip
def test_pruning_by_our_statistics_loses_no_row(lake: Lake, where: Where, condition: str) -> None:
    create(lake, EVERY)
    for row in (LOW, HIGH, (*NOTHING[:-1], 1)):
        change(lake, EVERY, row)
    with attached(where.catalog) as connection:
        pruned = connection.execute(f'SELECT count(*) FROM lake.state."{EVERY.name}" WHERE {condition}').fetchone()
        connection.execute(f'CREATE TABLE everything AS SELECT * FROM lake.state."{EVERY.name}"')
        assert pruned == connection.execute(f"SELECT count(*) FROM everything WHERE {condition}").fetchone() == (1,)


def test_nan_is_not_pruned_away(lake: Lake, where: Where) -> None:
    create(lake, BAG)
    change(lake, BAG, ("a", math.nan, 1), ("b", 1.0, 1))
    with attached(where.catalog) as connection:
        assert connection.execute('SELECT item FROM lake."shop.lines" WHERE price > 5').fetchall() == [("a",)]


def test_compaction_and_expiry_change_nothing_that_duckdb_sees(lake: Lake, where: Where) -> None:
    create(lake, ORDERS)
    for number in range(5):
        change(lake, ORDERS, (number, "n", 1, 1), (number - 1, "n", 1, -1) if number else (99, "s", 2, 1))
    before = rows(where, "orders")
    assert before == [(4, "n", Decimal(1)), (99, "s", Decimal(2))]
    compact(lake, ORDERS)
    assert rows(where, "orders") == before
    assert rows(where, "orders", 2) == [(0, "n", Decimal(1)), (99, "s", Decimal(2))]
    expiry.expire(lake, 0, grace=0)
    assert rows(where, "orders") == before


def test_dropped_and_replaced_relations_follow_the_epoch(lake: Lake, where: Where) -> None:
    create(lake, ORDERS)
    change(lake, ORDERS, (1, "n", 1, 1))
    other = Relation("orders", Kind.TABLE, columns("only string"))
    lake.publish(Commit(2, drop=["orders"], create=[other], add=[lake.write(other, signed(other, ("x", 1)))]))
    lake.publish(Commit(3, drop=["orders"]))
    assert rows(where, "orders", 3) == [("x",)]
    assert rows(where, "orders", 2) == [(1, "n", Decimal(1))]
    with pytest.raises(duckdb.CatalogException):
        rows(where, "orders")


def test_stages_are_not_shown(lake: Lake, where: Where) -> None:
    stage = Relation("takings#1", Kind.STAGE, ORDERS.columns)
    create(lake, ORDERS, stage)
    with attached(where.catalog) as connection:
        shown = connection.execute(
            "SELECT table_name FROM information_schema.tables WHERE table_catalog = 'lake' AND table_schema = 'main'"
        ).fetchall()
    assert shown == [("orders",)]
