"""Views over Cassandra tables: a snapshot, then the log, through inserts, updates, deletes of every kind, expiry and counters."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest

import runnel
from runnel.engine.duckdb import DuckDbEngine

if TYPE_CHECKING:
    from runnel.project import Project
    from tests.connectors.cassandra.conftest import Shop

pytestmark = pytest.mark.cassandra

ORDERS = "CREATE TABLE KS.orders (id int PRIMARY KEY, region text, amount int) WITH cdc = true"
TAKINGS = "CREATE MATERIALIZED VIEW takings AS SELECT region, sum(amount) AS total, count(*) AS n FROM orders GROUP BY region;"


def opened(shop: Shop) -> Project:
    return runnel.open(shop.folder, engine=DuckDbEngine())


def caught_up(shop: Shop) -> None:
    """Run until everything that was written so far is taken in."""
    shop.wait_for_log()
    with opened(shop) as project:
        project.run(once=True)


def rows_of(shop: Shop, name: str) -> list[dict[str, Any]]:
    with opened(shop) as project:
        return sorted(project.table(name).to_pylist(), key=str)


def told_by_server(shop: Shop, table: str) -> list[dict[str, Any]]:
    return sorted((dict(row._asdict()) for row in shop.cql(f"SELECT * FROM KS.{table}")), key=str)


def test_views_follow_a_snapshot_and_then_the_log(shop: Shop) -> None:
    shop.cql(ORDERS, *(f"INSERT INTO KS.orders (id, region, amount) VALUES ({n}, 'north', {n})" for n in range(5)))
    shop.configure(tables=["orders"])
    (shop.folder / "views").mkdir()
    (shop.folder / "views" / "takings.sql").write_text(TAKINGS)
    caught_up(shop)
    assert rows_of(shop, "takings") == [{"region": "north", "total": 10, "n": 5}]
    shop.cql(
        "INSERT INTO KS.orders (id, region, amount) VALUES (9, 'south', 7)",
        "UPDATE KS.orders SET amount = 100 WHERE id = 1",
        "UPDATE KS.orders SET region = 'south' WHERE id = 2",
        "DELETE FROM KS.orders WHERE id = 3",
        "DELETE amount FROM KS.orders WHERE id = 4",
    )
    caught_up(shop)
    assert rows_of(shop, "takings") == [
        {"region": "north", "total": 100, "n": 3},
        {"region": "south", "total": 9, "n": 2},
    ]
    assert rows_of(shop, "shop.orders") == told_by_server(shop, "orders")
    with opened(shop) as project:
        assert project.verify("takings").ok


def test_a_run_without_changes_makes_no_epoch(shop: Shop) -> None:
    shop.cql(ORDERS, "INSERT INTO KS.orders (id, region, amount) VALUES (1, 'north', 1)")
    shop.configure(tables=["orders"])
    caught_up(shop)
    with opened(shop) as project:
        before = project.runtime.lake.head()
        project.run(once=True)
        assert project.runtime.lake.head() == before


def test_rows_with_clusterings_statics_and_collections_are_those_of_the_server(shop: Shop) -> None:
    shop.cql(
        "CREATE TABLE KS.t (k int, c int, s text static, l list<int>, m map<text, int>, e set<text>, v int, "
        "PRIMARY KEY (k, c)) WITH cdc = true",
        "INSERT INTO KS.t (k, c, s, l, m, e, v) VALUES (1, 1, 'one', [1, 2, 3], {'a': 1, 'b': 2}, {'x', 'y'}, 1)",
        "INSERT INTO KS.t (k, c, v) VALUES (1, 2, 2)",
        "INSERT INTO KS.t (k, c, v) VALUES (1, 3, 3)",
        "INSERT INTO KS.t (k, c, v) VALUES (2, 1, 4)",
    )
    shop.configure(tables=["t"])
    caught_up(shop)
    assert len(rows_of(shop, "shop.t")) == 4
    shop.cql(
        "UPDATE KS.t SET l = l + [4], m['b'] = 5, e = e - {'x'} WHERE k = 1 AND c = 1",
        "UPDATE KS.t SET l[0] = 9 WHERE k = 1 AND c = 1",
        "UPDATE KS.t SET l = [7, 8], s = 'uno' WHERE k = 1 AND c = 2",
        "DELETE FROM KS.t WHERE k = 1 AND c > 2",
        "DELETE FROM KS.t WHERE k = 2",
        "INSERT INTO KS.t (k, c) VALUES (3, 1)",
    )
    caught_up(shop)
    found = rows_of(shop, "shop.t")
    expected = [
        {"k": 1, "c": 1, "s": "uno", "e": ["y"], "l": [9, 2, 3, 4], "m": [("a", 1), ("b", 5)], "v": 1},
        {"k": 1, "c": 2, "s": "uno", "e": None, "l": [7, 8], "m": None, "v": 2},
        {"k": 3, "c": 1, "s": None, "e": None, "l": None, "m": None, "v": None},
    ]
    assert found == expected


def test_what_expires_is_deleted_at_its_time_and_truncate_takes_all(shop: Shop) -> None:
    shop.cql(ORDERS)
    shop.configure(tables=["orders"])
    caught_up(shop)
    shop.cql(
        "INSERT INTO KS.orders (id, region, amount) VALUES (1, 'north', 1)",
        "INSERT INTO KS.orders (id, region, amount) VALUES (2, 'north', 2) USING TTL 1",
    )
    caught_up(shop)
    deadline = time.monotonic() + 30
    while rows_of(shop, "shop.orders") != [{"id": 1, "region": "north", "amount": 1}]:
        assert time.monotonic() < deadline
        caught_up(shop)
    shop.cql("TRUNCATE KS.orders")
    caught_up(shop)
    assert rows_of(shop, "shop.orders") == []


def test_counters_are_followed_before_and_after_the_snapshot(shop: Shop) -> None:
    shop.cql(
        "CREATE TABLE KS.hits (page text PRIMARY KEY, n counter) WITH cdc = true",
        "UPDATE KS.hits SET n = n + 5 WHERE page = 'old'",
    )
    shop.configure(tables=["hits"])
    caught_up(shop)
    shop.cql(
        "UPDATE KS.hits SET n = n + 2 WHERE page = 'old'",
        "UPDATE KS.hits SET n = n + 1 WHERE page = 'new'",
        "UPDATE KS.hits SET n = n + 1 WHERE page = 'new'",
    )
    caught_up(shop)
    assert rows_of(shop, "shop.hits") == [{"page": "new", "n": 2}, {"page": "old", "n": 7}]
