"""The driver's lane: what it takes on, what it leaves to Spark, and that it reads no more than it must."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from runnel.engine import driver as lane
from runnel.engine.base import Derived, Rows
from runnel.engine.driver import Driver
from runnel.engine.inputs import signed, stored
from runnel.lake import files, lookup
from runnel.model import types
from runnel.model.relation import Column, Kind, Relation

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from runnel.engine.base import Files, Input

EVENTS = Relation("events", Kind.TABLE, (Column("id", types.BIGINT), Column("v", types.BIGINT)), ("id",))
KEYS = (Column("id", types.BIGINT),)
JOIN = "SELECT e.`v` AS `v`, d.`_weight` FROM `d` AS d JOIN `events__old` AS e ON d.`id` = e.`id`"
OUT = signed((Column("v", types.BIGINT),))


@pytest.fixture
def driver() -> Iterator[Driver]:
    found = Driver(threads=1)
    yield found
    found.close()


@pytest.fixture
def events(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Files:
    monkeypatch.setattr(lookup, "SMALL_FILE", 0)
    ids = pa.array(range(100_000), pa.int64())
    table = pa.table({"id": ids, "v": ids, "_weight": pa.array([1] * len(ids), pa.int64())})
    return stored(EVENTS, [files.write(EVENTS, str(tmp_path / "events.parquet"), table)])


def change(*ids: int) -> Rows:
    columns = signed(KEYS)
    return Rows(pa.table({"id": pa.array(ids, pa.int64()), "_weight": pa.array([1] * len(ids), pa.int64())}), columns)


def test_a_small_change_reads_the_row_groups_of_its_keys_only(driver: Driver, events: Files) -> None:
    inputs: dict[str, Input] = {"d": change(7, 99_999, 200_000), "events__old": events}
    small = driver.small(JOIN, inputs)
    assert small is not None
    assert small.rows == 3 + 2
    found = driver.rows(small, OUT)
    assert found is not None
    assert sorted(found.column("v").to_pylist()) == [7, 99_999]
    assert 0 < driver.counted.bytes_read < events.bytes / 3
    assert driver.counted.in_driver == 1


def test_look_ups_that_would_read_too_much_are_left_to_spark(
    driver: Driver, events: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lane, "SCANNED", 10_000)
    assert driver.small(JOIN, {"d": change(1), "events__old": events}) is not None
    assert driver.small(JOIN, {"d": change(1, 50_000, 90_000), "events__old": events}) is None


def test_inputs_too_large_for_memory_are_left_to_spark(
    driver: Driver, events: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lane, "HELD", 20)
    assert driver.small(JOIN, {"d": change(1, 2, 3), "events__old": events}) is None


def test_a_query_that_needs_every_row_is_left_to_spark(driver: Driver, events: Files) -> None:
    assert driver.small("SELECT sum(`v`) AS `v`, 1 AS `_weight` FROM `events__old`", {"events__old": events}) is None


def test_a_change_beyond_the_bound_is_left_to_spark(events: Files) -> None:
    assert Driver(changes=2).small(JOIN, {"d": change(1, 2, 3), "events__old": events}) is None
    assert Driver(changes=0).small(JOIN, {"d": change(1), "events__old": events}) is None


def test_inputs_derived_from_files_are_looked_up_too(driver: Driver, events: Files) -> None:
    derived = Derived("SELECT `id`, sum(`v`) AS `v` FROM `stored` GROUP BY `id`", ("stored",))
    small = driver.small(JOIN, {"d": change(5), "events__old": derived, "stored": events})
    assert small is not None
    assert small.rows == 2


def test_what_spark_may_see_differently_and_what_fails_is_left_to_spark(driver: Driver) -> None:
    inputs: dict[str, Input] = {"d": change(1, 2)}
    for sql in (
        "SELECT `id` / 2 AS `v`, `_weight` FROM `d`",
        "SELECT 9223372036854775807 + `id` AS `v`, `_weight` FROM `d`",
    ):
        small = driver.small(sql, inputs)
        assert small is not None
        assert driver.rows(small, OUT) is None


def test_products_have_all_the_digits_spark_gives_them(driver: Driver) -> None:
    price = (Column("p", types.decimal(15, 2)), Column("q", types.decimal(15, 2)))
    big = [Decimal("9999999999999.99")]
    rows = Rows(pa.table({c.name: pa.array(big, types.to_arrow(c.type)) for c in price}), price)
    small = driver.small("SELECT `p` * (1 - `q`) AS `v` FROM `d`", {"d": rows})
    assert small is not None
    found = driver.rows(small, (Column("v", types.decimal(33, 4)),))
    assert found is not None
    assert found.column("v").to_pylist() == [Decimal("-99999999999989800000000000.0101")]


def test_decimals_of_other_scales_are_never_rounded(driver: Driver) -> None:
    columns = (
        Column("p", types.decimal(10, 2)),
        Column("q", types.decimal(12, 6)),
        Column("c", types.parse("boolean")),
    )
    values = [[Decimal("12345678.91"), Decimal("1.00")], [Decimal("0.500000"), Decimal("0.123456")], [True, False]]
    arrays = [pa.array(v, types.to_arrow(c.type)) for v, c in zip(values, columns, strict=True)]
    rows = Rows(pa.table(arrays, names=[c.name for c in columns]), columns)
    small = driver.small("SELECT `p` * `p` AS `z`, CASE WHEN `c` THEN `p` ELSE `q` END AS `r` FROM `d`", {"d": rows})
    assert small is not None
    found = driver.rows(small, (Column("z", types.decimal(21, 4)), Column("r", types.decimal(14, 6))))
    assert found is None or found.column("r").to_pylist()[1] == Decimal("0.123456")


def test_keys_that_do_not_fit_a_narrower_column_are_left_to_spark(
    driver: Driver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lookup, "SMALL_FILE", 0)
    narrow = Relation("n", Kind.TABLE, (Column("id", types.parse("int")), Column("v", types.BIGINT)), ("id",))
    table = pa.table({"id": pa.array(range(60_000), pa.int32()), "v": range(60_000), "_weight": [1] * 60_000})
    source = stored(narrow, [files.write(narrow, str(tmp_path / "narrow.parquet"), table)])
    assert driver.small(JOIN, {"d": change(2**40), "events__old": source}) is None
    assert driver.small(JOIN, {"d": change(7), "events__old": source}) is not None


def test_a_users_own_text_is_sparks_alone(driver: Driver) -> None:
    inputs: dict[str, Input] = {"t__rows": change(1, 2)}
    assert driver.small("SELECT `id`, row_number() OVER (ORDER BY `_weight`) AS `n` FROM `t__rows`", inputs) is None
