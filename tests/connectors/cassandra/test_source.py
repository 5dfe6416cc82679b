"""Views over Cassandra tables: a snapshot, then the log, through inserts, updates, deletes of every kind, expiry and counters."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest
from cassandra import InvalidRequest

import runnel
from runnel import config
from runnel.connectors.cassandra import open_source
from runnel.engine.driver import Driver
from runnel.engine.spark import SparkEngine
from runnel.failpoints import KILL_AT
from runnel.lake.entries import Commit
from tests.connectors.cassandra.by_tasks import ByTasks
from tests.connectors.cassandra.following import Followed, caught_up, opened, rows_of, told_by_server
from tests.connectors.cassandra.workload import Workload, definitions
from tests.support.places import places_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.connectors.cassandra.conftest import Shop

pytestmark = pytest.mark.cassandra

ORDERS = "CREATE TABLE KS.orders (id int PRIMARY KEY, region text, amount int) WITH cdc = true"
TAKINGS = "CREATE MATERIALIZED VIEW takings AS SELECT region, sum(amount) AS total, count(*) AS n FROM orders GROUP BY region;"


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


def test_c_g_every_change_of_one_column_is_in_the_history(shop: Shop) -> None:
    shop.cql("CREATE TABLE KS.grades (name text PRIMARY KEY, math int, physics int) WITH cdc = true")
    shop.configure(tables=["grades"])
    caught_up(shop)
    epochs = []
    for change in [
        *(f"UPDATE KS.grades SET math = {n} WHERE name = 'Tom'" for n in range(5)),
        "DELETE math FROM KS.grades WHERE name = 'Tom'",
    ]:
        shop.cql(change, "UPDATE KS.grades SET physics = 1 WHERE name = 'Tom'")
        caught_up(shop)
        with opened(shop) as project:
            epochs.append(project.runtime.lake.head())
    window = ("--since", str(epochs[2]), "--until", str(epochs[4]))
    printed = shop.run("history", "shop.grades", "--key", "Tom", "--column", "math", "--json", *window)
    found = [json.loads(line) for line in printed.splitlines()]
    assert [(entry["old"], entry["new"]) for entry in found] == [(1, 2), (2, 3), (3, 4)]
    assert all(entry["time"] for entry in found)


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


def test_equal_clusterings_of_different_bytes_are_one_row(shop: Shop) -> None:
    shop.cql(
        "CREATE TABLE KS.t (k int, c decimal, l list<int>, v int, PRIMARY KEY (k, c)) WITH cdc = true",
        "INSERT INTO KS.t (k, c, l, v) VALUES (1, 1.00, [1, 2], 1)",
    )
    shop.configure(tables=["t"])
    caught_up(shop)
    shop.cql(
        "UPDATE KS.t SET v = 2, l[0] = 9 WHERE k = 1 AND c = 1.0",
        "INSERT INTO KS.t (k, c, v) VALUES (2, 5.0, 5)",
        "UPDATE KS.t SET v = 6 WHERE k = 2 AND c = 5.00",
    )
    caught_up(shop)
    assert [(row["k"], row["l"], row["v"]) for row in rows_of(shop, "shop.t")] == [(1, [9, 2], 2), (2, None, 6)]
    shop.cql("DELETE FROM KS.t WHERE k = 1 AND c = 1", "DELETE FROM KS.t WHERE k = 2 AND c = 5.000")
    caught_up(shop)
    assert rows_of(shop, "shop.t") == []


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
    shop.cql("UPDATE KS.orders SET amount = 5 WHERE id = 1", "TRUNCATE KS.orders")
    caught_up(shop)
    assert rows_of(shop, "shop.orders") == []
    with opened(shop) as project:
        first, second = (project.history("shop.orders", {"id": id_}) for id_ in (1, 2))
    assert [entry["op"] for entry in first] == ["insert", "update", "delete"]
    assert [entry["op"] for entry in second] == ["insert", "delete"]
    assert first[0]["time"] < second[0]["time"] < second[1]["time"] < first[1]["time"] < first[2]["time"]


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


FOLLOWED = ["plain", "rows", "collections", "frozen_", "counters", "keys_only", "wide", "ranges", "expiring"]


@pytest.mark.parametrize("seed", [1, 2])
def test_rows_are_those_of_the_server_after_any_statements(shop: Shop, seed: int, say: Callable[[str], None]) -> None:
    """The snapshot is empty; everything comes from the log, in windows that are each read twice."""
    say(f"seed {seed}, {STATEMENTS} statements")
    assert _followed(shop, Workload(seed), FOLLOWED, before=0) == []


@pytest.mark.parametrize("seed", [3, 4])
def test_rows_are_those_of_the_server_when_a_snapshot_comes_first(
    shop: Shop, seed: int, say: Callable[[str], None]
) -> None:
    """Without what a snapshot cannot tell: deletions that a write dated back loses to."""
    say(f"seed {seed}, {STATEMENTS} statements")
    assert _followed(shop, Workload(seed), FOLLOWED, before=STATEMENTS // 2) == []


def test_rows_are_those_of_the_server_when_tasks_read_and_reconcile(shop: Shop, say: Callable[[str], None]) -> None:
    """Both the snapshot and the log, with tables that are emptied and made anew in between."""
    seed = 5
    say(f"seed {seed}, {STATEMENTS} statements")
    workload = Workload(seed)
    shop.cql(*(_at(shop, text) for text in definitions()[1:]))
    shop.configure(tables=FOLLOWED, recheck="1 second")
    source = open_source(config.load(shop.folder).sources[0], shop.folder)
    followed = Followed(source, ByTasks())
    for part in range(4):
        for _ in range(STATEMENTS // 4):
            _execute(shop, workload, FOLLOWED, dated=False)
        if part == 2:
            shop.cql("TRUNCATE KS.rows", _at(shop, "DROP TABLE w.plain"))
            shop.cql(*(_at(shop, text) for text in definitions() if "TABLE w.plain " in text))
        followed.take_once(shop)
    deadline = time.monotonic() + 30
    while (differing := followed.differing()) and time.monotonic() < deadline:
        followed.take_once(shop)
    assert differing == []
    assert followed.places() == {"spark"}
    followed.close()
    source.close()


@pytest.mark.spark
def test_spark_reads_the_snapshot_and_the_log_of_a_server(shop: Shop, spark_engine: SparkEngine) -> None:
    """In processes of their own, which connect to the server for themselves: also to ask what the log cannot tell."""
    shop.cql(
        "CREATE TABLE KS.t (k int, c int, l list<int>, v text, PRIMARY KEY (k, c)) WITH cdc = true",
        *(f"INSERT INTO KS.t (k, c, l, v) VALUES ({n % 7}, {n}, [1, 2, 3], 'v{n}')" for n in range(50)),
    )
    shop.configure(tables=["t"])
    engine = SparkEngine(spark_engine.session, driver=Driver(changes=0))
    with runnel.open(shop.folder, engine=engine) as project:
        project.run(once=True)
        assert sorted(project.table("shop.t").to_pylist(), key=str) == told_by_server(shop, "t")
        shop.cql(
            "UPDATE KS.t SET l[1] = 9 WHERE k = 1 AND c = 1",
            "DELETE FROM KS.t WHERE k = 2",
            "UPDATE KS.t SET v = 'new' WHERE k = 3 AND c = 3",
            "DELETE v, l FROM KS.t WHERE k = 4 AND c = 4",
        )
        shop.wait_for_log()
        project.run(once=True)
        assert sorted(project.table("shop.t").to_pylist(), key=str) == told_by_server(shop, "t")
        done = [epoch for epoch in project.epochs() if places_of(epoch, "keyed")]
        assert [(places_of(epoch, "read"), places_of(epoch, "keyed")) for epoch in done] == [({"spark"}, {"spark"})] * 2


def _followed(shop: Shop, workload: Workload, tables: list[str], before: int) -> list[str]:
    """Follow tables through random statements, `before` of them before the snapshot; give the tables that differ."""
    shop.cql(*(_at(shop, text) for text in definitions()[1:]))
    shop.configure(tables=tables, recheck="1 second")
    for _ in range(before):
        _execute(shop, workload, tables, dated=False)
    source = open_source(config.load(shop.folder).sources[0], shop.folder)
    followed = Followed(source)
    followed.take(shop)
    for part in range(STATEMENTS - before):
        _execute(shop, workload, tables, dated=before == 0)
        if part % 70 == 69:
            followed.take(shop)
    deadline = time.monotonic() + 30
    followed.take(shop)
    while (differing := followed.differing()) and time.monotonic() < deadline:
        followed.take(shop)  # something may be just expiring
    followed.close()
    source.close()
    return differing


STATEMENTS = 400
DEFINING = ("ALTER", "CREATE", "DROP")
"""What changes the tables themselves, for which a source has to be opened anew."""


def _at(shop: Shop, text: str) -> str:
    return re.sub(r"\bw\.", f"{shop.keyspace}.", text)


def _execute(shop: Shop, workload: Workload, tables: list[str], *, dated: bool) -> None:
    statement = workload.next()
    while statement.startswith(DEFINING) or not any(f"w.{name}" in statement for name in tables):
        statement = workload.next()
    if not dated:
        statement = re.sub(r" USING TIMESTAMP \d+( AND)?", lambda match: " USING" if match[1] else "", statement)
    with contextlib.suppress(InvalidRequest):  # a timestamp on a conditional statement, and the like
        shop.session().execute(_at(shop, statement))


@pytest.mark.parametrize("point", ["epoch:captured", "publish:after-commit", "epoch:before-release"])
def test_a_killed_run_loses_nothing_and_doubles_nothing(shop: Shop, point: str) -> None:
    shop.cql(ORDERS, "INSERT INTO KS.orders (id, region, amount) VALUES (1, 'north', 1)")
    shop.configure(tables=["orders"])
    (shop.folder / "views").mkdir()
    (shop.folder / "views" / "takings.sql").write_text(TAKINGS)
    for amount in (2, 3):  # once in the snapshot, once in the log
        shop.wait_for_log()
        command = [sys.executable, "-c", "from runnel.cli import main; main()", "--project", str(shop.folder)]
        environment = os.environ | {KILL_AT: point, "RUNNEL_ENGINE": "duckdb"}
        done = subprocess.run([*command, "run", "--once"], env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == -signal.SIGKILL, done.stderr
        shop.cql(f"UPDATE KS.orders SET amount = {amount} WHERE id = 1", f"DELETE FROM KS.orders WHERE id = {amount}")
        caught_up(shop)
        assert rows_of(shop, "takings") == [{"region": "north", "total": amount, "n": 1}]
        shop.cql(f"INSERT INTO KS.orders (id, region, amount) VALUES ({amount + 1}, 'east', 1)")
        shop.cql("UPDATE KS.orders SET amount = 50 WHERE id = 1")


def test_a_state_without_cells_takes_the_snapshot_again(shop: Shop) -> None:
    """So an earlier version left it: rows and a position, and the cells elsewhere."""
    shop.cql(ORDERS, *(f"INSERT INTO KS.orders (id, region, amount) VALUES ({n}, 'north', {n})" for n in range(4)))
    shop.configure(tables=["orders"])
    (shop.folder / "views").mkdir()
    (shop.folder / "views" / "takings.sql").write_text(TAKINGS)
    caught_up(shop)
    with opened(shop) as project:
        lake = project.runtime.lake
        lake.publish(Commit(base=lake.head(), drop=["shop.orders#cells"]))
    shop.cql("UPDATE KS.orders SET amount = 10 WHERE id = 1", "DELETE FROM KS.orders WHERE id = 2")
    caught_up(shop)
    assert rows_of(shop, "shop.orders") == told_by_server(shop, "orders")
    assert rows_of(shop, "takings") == [{"region": "north", "total": 13, "n": 3}]
    shop.cql("UPDATE KS.orders USING TIMESTAMP 1 SET amount = 99 WHERE id = 1", "DELETE FROM KS.orders WHERE id = 3")
    caught_up(shop)
    assert rows_of(shop, "takings") == [{"region": "north", "total": 10, "n": 2}]


def test_state_and_settings_can_be_looked_at_while_a_run_is_going_on(shop: Shop) -> None:
    shop.cql(ORDERS, "INSERT INTO KS.orders (id, region, amount) VALUES (1, 'north', 1)")
    shop.configure(tables=["orders"])
    caught_up(shop)
    source = open_source(config.load(shop.folder).sources[0], shop.folder)
    with opened(shop) as project:
        position = project.status().sources[0].position
        list(source.read(dict(position), dict(position)))
        assert project.status().sources[0].error is None
    source.close()
    assert "no problems" in shop.run("check")


def test_only_the_log_with_a_snapshot_keeps_views(shop: Shop) -> None:
    shop.cql(ORDERS)
    for settings, code in (({"capture": "scan"}, "CAPTURE"), ({"start": "latest"}, "START")):
        shop.configure(tables=["orders"], **settings)
        assert f"RUNNEL-CASSANDRA-{code}" in shop.run("check", exit_code=1)
