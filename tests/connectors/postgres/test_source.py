"""Tables of a real server as a source: snapshot, log, large values, definitions, and the slot."""

from __future__ import annotations

import pickle
import threading
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from runnel.connectors import guarded_source
from runnel.connectors.postgres import snapshot
from runnel.errors import RunnelError
from runnel.model.relation import WEIGHT
from runnel.pipeline.change_sets import add_changes
from runnel.pipeline.draft import Draft
from tests.connectors.postgres.conftest import Shop
from tests.servers.postgres import postgres

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from runnel.connectors.base import ChangeSet

pytestmark = pytest.mark.postgres
ORDERS = "CREATE TABLE orders (id int PRIMARY KEY, region varchar(20), amount numeric(12,2))"
TAKINGS = "SELECT region, sum(amount) AS total, count(*) AS n FROM orders GROUP BY region"
FORMS = ("DEFAULT", "FULL")


def test_views_follow_a_snapshot_and_then_the_log(shop: Shop) -> None:
    shop.sql(ORDERS, "INSERT INTO orders VALUES (1, 'north', 10), (2, 'north', 5.5), (3, 'south', 1)")
    shop.view("takings", TAKINGS)
    shop.catch_up()
    shop.compare("orders")
    shop.sql("UPDATE orders SET amount = 7 WHERE id = 2", "DELETE FROM orders WHERE id = 3")
    shop.sql("INSERT INTO orders VALUES (4, 'west', NULL)", "UPDATE orders SET id = 40 WHERE id = 4")
    shop.catch_up()
    shop.compare("orders")
    assert [(row["region"], str(row["total"]), row["n"]) for row in shop.rows("takings")] == [
        ("north", "17.00", 2),
        ("west", "None", 1),
    ]
    with shop.open() as project:
        assert project.verify("takings").ok


def _ids(read: Iterable[ChangeSet]) -> list[int]:
    return sorted(id_ for one in read if one.signed is not None for id_ in one.signed.column("id").to_pylist())


def test_a_snapshot_under_writes_is_exactly_what_held_at_its_place(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshot, "PART_ROWS", 1000)
    shop.sql(ORDERS, "INSERT INTO orders SELECT n, 'north', n FROM generate_series(1, 5000) n", "ANALYZE orders")
    source = shop.source()
    source.tables()
    end = source.latest_offset({}, 1000)
    shop.sql("UPDATE orders SET amount = 0, id = id + 100000 WHERE id < 1000", "DELETE FROM orders WHERE id = 2000")
    shop.sql("INSERT INTO orders VALUES (9999, 'new', 1)")
    parts = source.partitions({}, end)
    assert parts is not None
    assert len(parts) > 2
    # Parts may be read in any order, each by another process.
    shuffled = list(reversed(pickle.loads(pickle.dumps(parts))))
    assert _ids(changes for part in shuffled for changes in part.read()) == list(range(1, 5001))
    assert _ids(source.read({}, end)) == list(range(1, 5001))


@pytest.mark.parametrize(
    "what", ["TRUNCATE orders", "ALTER TABLE orders ALTER amount TYPE numeric(14,4)", "DROP TABLE orders"]
)
def test_a_table_that_is_rewritten_after_the_place_of_its_snapshot_is_never_read_as_empty(
    shop: Shop, what: str
) -> None:
    shop.sql(ORDERS, "INSERT INTO orders VALUES (1, 'north', 10)")
    source = shop.source()
    source.tables()
    end = source.latest_offset({}, 1000)
    shop.sql(what)
    with pytest.raises(RunnelError, match="RUNNEL-POSTGRES-REDEFINED"):
        list(source.read({}, end))


def test_a_snapshot_that_is_not_open_any_more_is_taken_again(shop: Shop) -> None:
    shop.sql(ORDERS, "INSERT INTO orders VALUES (1, 'north', 10)")
    source = shop.source()
    source.tables()
    end = source.latest_offset({}, 1000)
    parts = source.partitions({}, end)
    source.close()
    assert parts is not None
    for read in (parts[0].read, lambda: source.read({}, end)):
        with pytest.raises(RunnelError, match="RUNNEL-POSTGRES-SNAPSHOT"):
            list(read())
    again = source.latest_offset({}, 1000)
    assert _ids(source.read({}, again)) == [1]


@pytest.mark.parametrize("identity", FORMS)
def test_tables_changed_without_pause_are_followed_exactly(shop: Shop, identity: str) -> None:
    shop.sql(ORDERS, "CREATE TABLE log (id serial PRIMARY KEY, what varchar(20))")
    shop.sql(*(f"ALTER TABLE {name} REPLICA IDENTITY {identity}" for name in ("orders", "log")))
    begun = threading.Event()

    def write() -> None:
        with psycopg.connect(shop.url) as db:
            for n in range(300):
                row = f"({n % 40}, 'r{n % 3}', {n})"
                db.execute(f"INSERT INTO orders VALUES {row} ON CONFLICT (id) DO UPDATE SET amount = excluded.amount")
                db.execute(f"INSERT INTO log (what) VALUES ('order {n}')")
                db.execute(f"DELETE FROM orders WHERE id = {(n * 7) % 40}")
                db.commit() if n % 5 else db.rollback()
                if n > 20:
                    begun.set()

    writer = threading.Thread(target=write)
    writer.start()
    begun.wait()
    shop.catch_up()  # the snapshot is taken while rows change, and epochs until they do not
    writer.join()
    shop.catch_up()
    shop.compare("orders", "log")


def test_an_epoch_can_be_one_transaction(shop: Shop) -> None:
    shop.sql(ORDERS)
    shop.configure('[run]\nepoch = "transaction"')
    shop.catch_up()
    with shop.open() as project:
        before = len(project.epochs())
    shop.sql("INSERT INTO orders VALUES (1, 'a', 1), (2, 'b', 2)", "UPDATE orders SET amount = 3", "DELETE FROM orders")
    shop.catch_up()
    with shop.open() as project:
        assert len(project.epochs()) == before + 3


def test_prepared_and_nested_transactions_count_when_they_are_committed(shop: Shop) -> None:
    shop.sql(ORDERS)
    shop.catch_up()
    for name, key in (("a", 1), ("b", 2)):
        with psycopg.connect(shop.url, autocommit=True) as db:
            db.execute("BEGIN")
            db.execute(f"INSERT INTO orders VALUES ({key}, 'x', 1)")
            db.execute(f"PREPARE TRANSACTION '{name}'")
    shop.together(
        "INSERT INTO orders VALUES (3, 'kept', 1)",
        "SAVEPOINT s",
        "INSERT INTO orders VALUES (4, 'gone', 1)",
        "ROLLBACK TO SAVEPOINT s",
        "SAVEPOINT s2",
        "UPDATE orders SET amount = 2 WHERE id = 3",
        "RELEASE SAVEPOINT s2",
    )
    shop.catch_up()
    assert [row["id"] for row in shop.rows("shop.orders")] == [3]
    shop.sql("COMMIT PREPARED 'a'", "ROLLBACK PREPARED 'b'")
    shop.catch_up()
    shop.compare("orders")
    assert [row["id"] for row in shop.rows("shop.orders")] == [1, 3]


BIG = "repeat(md5(random()::text), 400)"


def _with_large_values(shop: Shop, identity: str) -> None:
    shop.sql(
        "CREATE TABLE notes (id int PRIMARY KEY, n int, one text, two text)",
        "ALTER TABLE notes ALTER one SET STORAGE EXTERNAL, ALTER two SET STORAGE EXTERNAL",
        f"ALTER TABLE notes REPLICA IDENTITY {identity}",
        f"INSERT INTO notes SELECT g, g, {BIG}, {BIG} FROM generate_series(1, 6) g",
    )


@pytest.mark.parametrize("identity", FORMS)
def test_large_values_that_stay_as_they_are_keep_their_value(shop: Shop, identity: str) -> None:
    _with_large_values(shop, identity)
    shop.view("lengths", "SELECT sum(n) AS n, sum(length(one)) AS a, sum(length(two)) AS b FROM notes")
    shop.catch_up()
    shop.sql(
        "UPDATE notes SET n = n + 10",
        f"UPDATE notes SET one = {BIG} WHERE id < 3",
        "UPDATE notes SET one = NULL WHERE id = 3",
        "UPDATE notes SET n = 7 WHERE id = 3",
        "UPDATE notes SET id = id + 100, n = 0 WHERE id IN (4, 5)",
        "UPDATE notes SET id = 200 WHERE id = 104",
        f"INSERT INTO notes VALUES (7, 7, {BIG}, NULL)",
        "UPDATE notes SET n = 8 WHERE id = 7",
        "DELETE FROM notes WHERE id = 6",
    )
    shop.catch_up()
    shop.compare("notes")
    assert all(row["two"] for row in shop.rows("shop.notes") if row["id"] != 7)
    with shop.open() as project:
        assert project.verify("lengths").ok


def test_a_row_whose_key_changes_is_found_by_the_key_that_it_had(shop: Shop) -> None:
    _with_large_values(shop, "DEFAULT")
    source = shop.source()
    source.tables()
    start = source.latest_offset({}, 1000)
    list(source.read({}, start))
    source.commit(start)
    shop.sql("UPDATE notes SET id = 50 WHERE id = 1")
    (found,) = source.read(start, source.latest_offset(start, 1000))
    assert found.keyed is not None
    assert found.keyed.to_pylist() == [{"id": 50, "n": 1, "_op": "update"}]
    assert found.was is not None
    assert found.was.to_pylist() == [{"id": 1}]


def test_whole_old_rows_make_signed_changes_that_need_no_look_up(shop: Shop) -> None:
    shop.sql("CREATE TABLE plain (a int, b text)", "ALTER TABLE plain REPLICA IDENTITY FULL")
    source = shop.source()
    source.tables()
    start = source.latest_offset({}, 1000)
    source.commit(start)
    shop.sql("INSERT INTO plain VALUES (1, 'x'), (1, 'x')", "UPDATE plain SET a = 2 WHERE ctid = '(0,1)'")
    (found,) = source.read(start, source.latest_offset(start, 1000))
    assert found.trusted
    assert found.signed is not None
    assert [row["a"] * row[WEIGHT] for row in found.signed.to_pylist()] == [1, 1, -1, 2]


def test_rows_that_repeat_are_counted(shop: Shop) -> None:
    shop.sql("CREATE TABLE plain (a int, b text)", "ALTER TABLE plain REPLICA IDENTITY FULL")
    shop.sql("INSERT INTO plain VALUES (1, 'x'), (1, 'x'), (NULL, NULL), (NULL, NULL), (NULL, '')")
    shop.catch_up()
    shop.sql("DELETE FROM plain WHERE ctid = (SELECT min(ctid) FROM plain)", "INSERT INTO plain VALUES (NULL, NULL)")
    shop.catch_up()
    shop.compare("plain")
    assert len(shop.rows("shop.plain")) == 5


def test_a_table_that_is_emptied_is_empty_in_the_order_of_its_transactions(shop: Shop) -> None:
    shop.sql(ORDERS, "CREATE TABLE other (id int PRIMARY KEY)", "INSERT INTO orders VALUES (1, 'a', 1), (2, 'b', 2)")
    shop.configure('[run]\nepoch = "transaction"')
    shop.catch_up()
    shop.together(
        "INSERT INTO orders VALUES (3, 'c', 3)", "TRUNCATE orders, other", "INSERT INTO orders VALUES (1, 'd', 4)"
    )
    shop.sql("INSERT INTO orders VALUES (2, 'e', 5)")
    shop.catch_up()
    shop.compare("orders", "other")
    assert [row["region"] for row in shop.rows("shop.orders")] == ["d", "e"]


def test_a_partitioned_table_is_one_table(shop: Shop) -> None:
    shop.sql(
        "CREATE TABLE parts (id int, at date, x int, PRIMARY KEY (id, at)) PARTITION BY RANGE (at)",
        "CREATE TABLE old PARTITION OF parts FOR VALUES FROM (MINVALUE) TO ('2024-01-01')",
        "CREATE TABLE young (x int, at date NOT NULL, id int NOT NULL, PRIMARY KEY (id, at))",
        "ALTER TABLE parts ATTACH PARTITION young FOR VALUES FROM ('2024-01-01') TO (MAXVALUE)",
        "INSERT INTO parts VALUES (1, '2023-05-05', 1), (2, '2024-05-05', 2)",
    )
    shop.catch_up()
    shop.compare("parts")
    shop.sql("UPDATE parts SET at = '2024-06-06', x = 5 WHERE id = 1", "INSERT INTO parts VALUES (3, '2020-01-01', 3)")
    shop.catch_up()
    shop.compare("parts")
    shop.sql(
        "TRUNCATE old",
        "CREATE TABLE further (LIKE old INCLUDING ALL)",
        "INSERT INTO further VALUES (9, '1990-01-01', 9)",
    )
    shop.catch_up()
    shop.compare("parts")
    shop.sql("ALTER TABLE parts DETACH PARTITION young")
    shop.catch_up()
    shop.compare("parts", "young", "further")
    with shop.open() as project:
        assert {table.name for table in project.status().tables} == {"shop.parts", "shop.young", "shop.further"}


def test_domains_of_tables_in_other_schemas_are_left_alone(shop: Shop) -> None:
    shop.sql(
        "CREATE SCHEMA sales",
        ORDERS,
        ORDERS.replace("orders", "sales.orders"),
        "CREATE TABLE sales.items (id int PRIMARY KEY)",
    )
    shop.configure(schema="sales", tables=["orders"])
    shop.catch_up()
    shop.sql("INSERT INTO sales.orders VALUES (1, 'a', 1)", "INSERT INTO orders VALUES (2, 'b', 2)")
    shop.catch_up()
    assert [row["id"] for row in shop.rows("shop.orders")] == [1]


DEFINITIONS = {
    "added": "ADD COLUMN note varchar(20) DEFAULT 'none'",
    "dropped": "DROP COLUMN region",
    "renamed": "RENAME COLUMN region TO area",
    "wider": "ALTER amount TYPE numeric(14,2)",
    "reckoned": "ALTER amount TYPE numeric(12,2) USING amount * 2",
    "shifted": "DROP COLUMN region, ADD COLUMN region varchar(20) DEFAULT 'new'",
    "again": "DROP COLUMN amount, ADD COLUMN amount numeric(12,2) DEFAULT 3",
    "whole": "REPLICA IDENTITY FULL",
    "rewritten": "SET ACCESS METHOD heap, ADD CHECK (id > 0)",
}


@pytest.mark.parametrize("identity", FORMS)
def test_definitions_in_mid_stream_are_followed(shop: Shop, identity: str) -> None:
    for name in DEFINITIONS:
        shop.sql(
            ORDERS.replace("orders", name),
            f"ALTER TABLE {name} REPLICA IDENTITY {identity}",
            f"INSERT INTO {name} VALUES (1, 'north', 10), (2, 'n', 5), (3, 's', 1)",
        )
    shop.catch_up()
    for name, action in DEFINITIONS.items():
        shop.sql(f"UPDATE {name} SET amount = 11 WHERE id = 1")
        shop.sql(f"ALTER TABLE {name} {action}")
        shop.sql(f"UPDATE {name} SET amount = 12 WHERE id = 2")
        shop.sql(f"DELETE FROM {name} WHERE id = 3", f"INSERT INTO {name} (id, amount) VALUES (4, 4)")
    shop.catch_up()
    shop.compare(*DEFINITIONS)
    shop.sql(*(f"UPDATE {name} SET amount = amount + 1" for name in DEFINITIONS))
    shop.catch_up()
    shop.compare(*DEFINITIONS)


@pytest.mark.parametrize("statement", ["TRUNCATE orders", "VACUUM FULL orders", "CLUSTER orders USING orders_pkey"])
def test_files_that_change_without_rows_that_are_not_logged_are_no_reason_to_read_again(
    shop: Shop, statement: str
) -> None:
    shop.sql(ORDERS, "INSERT INTO orders VALUES (1, 'north', 10)")
    source = shop.source()
    source.tables()
    start = source.latest_offset({}, 1000)
    source.commit(start)
    shop.sql(statement, "INSERT INTO orders VALUES (2, 'b', 2)")
    end = source.latest_offset(start, 1000)
    assert "from" not in end["tables"]["orders"]
    assert [one.whole for one in source.read(start, end)] == ([True, False] if "TRUNCATE" in statement else [False])


def test_a_definition_without_any_change_after_it_is_followed_too(shop: Shop) -> None:
    shop.sql(ORDERS, "INSERT INTO orders VALUES (1, 'north', 10)")
    shop.catch_up()
    shop.sql("ALTER TABLE orders ADD COLUMN note text DEFAULT 'none'")
    shop.catch_up()
    shop.compare("orders")
    assert [row["note"] for row in shop.rows("shop.orders")] == ["none"]


def test_a_definition_between_the_changes_of_a_transaction_is_followed(shop: Shop) -> None:
    shop.sql(ORDERS, "CREATE TABLE other (id int PRIMARY KEY)", "INSERT INTO orders VALUES (1, 'north', 10)")
    shop.catch_up()
    shop.together(
        "UPDATE orders SET amount = 1",
        "ALTER TABLE orders ADD COLUMN first int DEFAULT 7",
        "INSERT INTO orders VALUES (2, 'b', 2, 8)",
        "INSERT INTO other VALUES (1)",
    )
    shop.catch_up()
    shop.compare("orders", "other")


def test_tables_that_come_go_and_change_names_are_followed(shop: Shop) -> None:
    shop.sql(ORDERS, "INSERT INTO orders VALUES (1, 'north', 10)")
    shop.catch_up()
    shop.sql("CREATE TABLE items (id int PRIMARY KEY)", "INSERT INTO items VALUES (1), (2)")
    shop.catch_up()
    shop.compare("orders", "items")
    shop.sql("INSERT INTO items VALUES (4)", "ALTER TABLE items RENAME TO things", "INSERT INTO things VALUES (3)")
    shop.catch_up()
    shop.compare("things")
    assert shop.rows("shop.items") == []
    shop.sql("DROP TABLE orders", ORDERS, "INSERT INTO orders VALUES (7, 'again', 1)")
    shop.catch_up()
    shop.compare("orders", "things")
    shop.sql("DROP TABLE orders")
    shop.catch_up()
    assert shop.rows("shop.orders") == []


def test_a_table_taken_out_of_the_publication_and_put_in_again_is_read_again(shop: Shop) -> None:
    shop.sql(ORDERS, "CREATE PUBLICATION mine FOR TABLE orders")
    shop.configure(publication="mine")
    shop.catch_up()
    shop.sql(
        "ALTER PUBLICATION mine SET (publish = 'insert')",
        "INSERT INTO orders VALUES (1, 'a', 1)",
        "UPDATE orders SET amount = 2",
    )
    shop.sql("ALTER PUBLICATION mine SET (publish = 'insert, update, delete, truncate')")
    shop.catch_up()
    shop.compare("orders")
    shop.sql("CREATE TABLE held (id int)", "ALTER PUBLICATION mine SET TABLE held", "UPDATE orders SET amount = 3")
    shop.sql("ALTER PUBLICATION mine SET TABLE orders")
    shop.catch_up()
    shop.compare("orders")


def _slot(shop: Shop) -> Any:
    return shop.sql("SELECT confirmed_flush_lsn::text FROM pg_replication_slots WHERE slot_name = 'runnel_front_shop'")[
        0
    ][0]


def test_the_slot_moves_after_an_epoch_is_committed_and_not_before(shop: Shop) -> None:
    shop.sql(ORDERS)
    source = shop.source()
    source.tables()
    start = source.latest_offset({}, 1000)
    source.commit(start)
    assert _slot(shop) == start["lsn"]
    shop.sql("INSERT INTO orders VALUES (1, 'a', 1)")
    end = source.latest_offset(start, 1000)
    list(source.read(start, end))
    assert _slot(shop) == start["lsn"]
    source.commit(end)
    source.close()
    assert _slot(shop) == end["lsn"] != start["lsn"]


def test_changes_of_others_are_passed_and_waited_for_without_an_epoch_each(shop: Shop) -> None:
    shop.sql(ORDERS, "CREATE TABLE elsewhere (x text)", "INSERT INTO orders VALUES (1, 'a', 1)")
    shop.configure(tables=["orders"])
    shop.catch_up()
    with shop.open() as project:
        before = project.status()
        shop.sql("INSERT INTO elsewhere VALUES ('x')")
        wanted = project.position("shop")
        assert wanted != before.sources[0].position
        project.run(once=True)
        assert project.status().epoch == before.epoch
        project.wait("shop", wanted, timeout=0)
        shop.sql("INSERT INTO elsewhere SELECT repeat('x', 1000) FROM generate_series(1, 2000)")
        project.run(once=True)
        assert project.status().epoch == before.epoch + 1
        shop.sql("INSERT INTO orders VALUES (2, 'a', 1)")
        with pytest.raises(RunnelError, match="RUNNEL-WAIT-TIMEOUT"):
            project.wait("shop", project.position("shop"), timeout=0)


def test_waiting_does_not_disturb_a_runner_that_reads_the_slot(shop: Shop) -> None:
    shop.sql(ORDERS, "CREATE TABLE elsewhere (x text)")
    runner, waiter = shop.source(tables=["orders"]), shop.source(tables=["orders"])
    runner.tables()
    start = runner.latest_offset({}, 1000)
    runner.commit(start)
    shop.sql("INSERT INTO elsewhere VALUES ('x')")
    assert runner.latest_offset(start, 1000) == start  # it holds the slot from now on
    assert waiter.covers(start, waiter.end_offset())
    shop.sql("INSERT INTO orders VALUES (2, 'a', 1)")
    wanted = waiter.end_offset()
    assert not waiter.covers(start, wanted)
    end = runner.latest_offset(start, 1000)
    runner.commit(end)
    assert waiter.covers(end, wanted)
    assert len(shop.sql("SELECT * FROM pg_replication_slots WHERE database = current_database()")) == 1


def test_a_server_that_is_followed_can_be_shut_down(tmp_path: Path) -> None:
    running = postgres()
    shop = Shop(tmp_path, running.__enter__())
    shop.sql(ORDERS)
    source = shop.source()
    source.tables()
    start = source.latest_offset({}, 1000)
    source.commit(start)
    shop.sql("INSERT INTO orders VALUES (1, 'a', 1)")
    source.commit(source.latest_offset(start, 1000))  # the log is open from here on
    stopping = threading.Thread(target=running.__exit__, args=(None, None, None))
    stopping.start()
    with pytest.raises(RunnelError, match="RUNNEL-POSTGRES-DOWN"):
        while True:
            source.tables()
    stopping.join(timeout=90)
    assert not stopping.is_alive()
    source.close()


def test_a_snapshot_waits_for_open_transactions_and_says_so(shop: Shop) -> None:
    shop.sql(ORDERS, "CREATE TABLE other (id int PRIMARY KEY)")
    shop.configure(timeout="2 seconds")
    with psycopg.connect(shop.url) as db:
        db.execute("INSERT INTO other VALUES (1)")
        with pytest.raises(RunnelError, match=r"RUNNEL-POSTGRES-BUSY.*still open"):
            shop.catch_up()
        db.commit()
    shop.catch_up()
    shop.compare("orders", "other")


def test_generated_columns_that_are_not_logged_are_left_out(shop: Shop) -> None:
    shop.sql(
        "CREATE TABLE made (id int PRIMARY KEY, a int, s int GENERATED ALWAYS AS (a + 1) STORED,"
        " v int GENERATED ALWAYS AS (a * 2) VIRTUAL)",
        "INSERT INTO made (id, a) VALUES (1, 1)",
    )
    shop.catch_up()
    shop.sql("UPDATE made SET a = 5", "INSERT INTO made (id, a) VALUES (2, 2)")
    shop.catch_up()
    shop.compare("made")
    assert shop.rows("shop.made")[0] == {"id": 1, "a": 5, "s": 6}
    assert "generated columns are not in the log and left out: v" in shop.run("check")


def test_a_table_without_a_key_is_rebuilt_as_a_bag(shop: Shop) -> None:
    shop.sql(
        "CREATE TABLE bag (a int, l int[])",
        "ALTER TABLE bag REPLICA IDENTITY FULL",
        "INSERT INTO bag VALUES (1, '{1}'), (1, '{1}'), (NULL, NULL), (2, '{2,NULL}')",
    )
    shop.catch_up()
    with shop.open() as project:
        project.sql("DELETE FROM shop.bag WHERE a = 1; INSERT INTO shop.bag VALUES (3, NULL), (2, NULL)")
        assert project.rebuild("shop.bag", where="a = 3").rows_changed == 1
        assert project.rebuild("shop.bag").rows_changed == 3
        assert project.rebuild("shop.bag").rows_changed == 0
    shop.compare("bag")
    shop.sql("DELETE FROM bag WHERE a = 1", "INSERT INTO bag VALUES (NULL, NULL)")
    shop.catch_up()
    shop.compare("bag")


def test_large_values_that_the_log_leaves_out_are_kept_by_a_rebuild_that_meets_their_updates(shop: Shop) -> None:
    """Rows that are read again are completed from what was read, not from the state, which may be wrong."""
    large = "string_agg(md5(n::text), '')"
    shop.sql(
        "CREATE TABLE doc (id int PRIMARY KEY, n int, body text)",
        f"INSERT INTO doc SELECT k, 0, {large} FROM generate_series(1, 2) k, generate_series(1, 2000) n GROUP BY k",
    )
    shop.catch_up()
    with shop.open() as project:
        project.sql("UPDATE shop.doc SET body = 'wrong' WHERE id = 1")
        source = guarded_source(project.config.sources[0], shop.folder)
        head = project.runtime.lake.snapshot()
        source.tables()
        reading = source.reread(head.positions["shop"], frozenset(["doc"]))
        draft = Draft(project.runtime.lake, head.relations["shop.doc"], [])
        for found in reading.rows():
            add_changes(draft, found)
        shop.sql("UPDATE doc SET n = 1", "UPDATE doc SET id = 3 WHERE id = 2")
        project.run(once=True)
        handed = reading.handover(project.runtime.lake.snapshot().positions["shop"])
        assert handed is not None
        assert next(one.keyed.column_names for one in handed.changes if one.keyed is not None) == ["id", "n", "_op"]
        for found in handed.changes:
            add_changes(draft, found)
        rows = {row["id"]: (row["n"], len(row["body"])) for row in draft.signed().to_pylist()}
        assert rows == {1: (1, 64000), 3: (1, 64000)}
        reading.close()
        source.close()
        assert project.rebuild("shop.doc").rows_changed == 1
    shop.compare("doc")
