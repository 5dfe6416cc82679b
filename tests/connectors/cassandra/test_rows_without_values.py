"""Rows of nothing but their key: a snapshot cannot tell when they go, and they go all the same."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from runnel.connectors.cassandra.cells import expired_rows
from tests.connectors.cassandra.following import caught_up, rows_of, told_by_server

if TYPE_CHECKING:
    from tests.connectors.cassandra.conftest import Shop

pytestmark = pytest.mark.cassandra

KEYS = "CREATE TABLE KS.t (k int, c int, v int, PRIMARY KEY (k, c)) WITH cdc = true"
WAIT_SECONDS = 60


def until_equal(shop: Shop) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while rows_of(shop, "shop.t") != told_by_server(shop, "t"):
        assert time.monotonic() < deadline
        caught_up(shop)


@pytest.mark.parametrize("many", [0, 1_000])
def test_a_row_without_values_goes_at_its_time_after_a_snapshot(
    shop: Shop, many: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(expired_rows, "MANY", many)
    shop.configure(tables=["t"], recheck="1 second")
    shop.cql(
        KEYS,
        "INSERT INTO KS.t (k, c) VALUES (1, 1) USING TTL 12",
        "INSERT INTO KS.t (k, c) VALUES (1, 2)",
        "INSERT INTO KS.t (k, c, v) VALUES (1, 3, 3) USING TTL 12",
        "INSERT INTO KS.t (k, c) VALUES (2, 1) USING TTL 12",
        "UPDATE KS.t SET v = 1 WHERE k = 2 AND c = 1",
    )
    caught_up(shop)
    assert len(rows_of(shop, "shop.t")) == 4
    deadline = time.monotonic() + WAIT_SECONDS
    while len(told_by_server(shop, "t")) != 2:
        assert time.monotonic() < deadline
    until_equal(shop)
    shop.cql("DELETE v FROM KS.t WHERE k = 2 AND c = 1", "DELETE FROM KS.t WHERE k = 1 AND c = 2")
    until_equal(shop)
    assert rows_of(shop, "shop.t") == []


def test_a_deletion_dated_before_a_row_was_seen_is_left_to_the_server(shop: Shop) -> None:
    shop.configure(tables=["t"])
    shop.cql(
        KEYS,
        "INSERT INTO KS.t (k, c) VALUES (1, 1) USING TIMESTAMP 1000",
        "INSERT INTO KS.t (k, c) VALUES (1, 2) USING TIMESTAMP 1000",
    )
    caught_up(shop)
    shop.cql(
        "DELETE FROM KS.t USING TIMESTAMP 10 WHERE k = 1 AND c = 1",
        "DELETE FROM KS.t USING TIMESTAMP 2000 WHERE k = 1 AND c = 2",
    )
    caught_up(shop)
    assert rows_of(shop, "shop.t") == [{"k": 1, "c": 1, "v": None}]
    shop.cql("DELETE FROM KS.t USING TIMESTAMP 3000 WHERE k = 1 AND c = 1")
    caught_up(shop)
    assert rows_of(shop, "shop.t") == []


def test_the_full_log_tells_the_end_of_rows_without_values(shop: Shop) -> None:
    shop.configure(tables=["t"], recheck="1 second")
    shop.cql(KEYS, "INSERT INTO KS.t (k, c) VALUES (1, 1) USING TTL 15")
    assert shop.told("log") == ["ins :"]
    shop.cql("INSERT INTO KS.t (k, c) VALUES (1, 2) USING TTL 1")
    found: list[str] = []
    deadline = time.monotonic() + WAIT_SECONDS
    while len(found) < 3:
        assert time.monotonic() < deadline, found
        found += shop.told("log")
    assert sorted(found) == ["del row ('1',)", "del row ('2',)", "ins :"]
