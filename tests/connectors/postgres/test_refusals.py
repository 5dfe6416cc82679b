"""What cannot be followed is refused with the setting or command that mends it; never "0 changes, all well"."""

from __future__ import annotations

from typing import TYPE_CHECKING

import psycopg
import pytest

from runnel.errors import RunnelError
from tests.connectors.postgres.conftest import Shop
from tests.connectors.postgres.test_source import ORDERS
from tests.servers.postgres import postgres

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.postgres
SLOT = "runnel_front_shop"


def one_line(said: str) -> str:
    """Give what was printed without its line breaks."""
    return " ".join(said.split())


def _role(shop: Shop, *rights: str) -> str:
    """Make a role for this database, with these rights; give its URL."""
    name = shop.url.rpartition("/")[2]
    shop.sql(f"CREATE ROLE {name} LOGIN PASSWORD 'secret'", *(right.replace("ITS", name) for right in rights))
    return shop.url.replace("postgres@", f"{name}:secret@")


@pytest.fixture
def roles(shop: Shop) -> Iterator[Shop]:
    """Remove the role of a test after it."""
    yield shop
    name = shop.url.rpartition("/")[2]
    shop.configure()
    shop.sql(f"DROP OWNED BY {name}", f"DROP ROLE {name}")


def test_wrong_names_and_servers_that_do_not_answer_are_told_apart(shop: Shop) -> None:
    shop.sql(ORDERS)
    shop.configure(url=shop.url.replace("postgres@", "nobody@"))
    said = shop.run("check", exit_code=1)
    assert "RUNNEL-POSTGRES-LOGIN" in said
    shop.configure(url="postgresql://postgres:geheim@127.0.0.1:1/x")
    said = shop.run("check", exit_code=1)
    assert "RUNNEL-POSTGRES-DOWN" in said
    assert "geheim" not in said
    shop.configure(tls="on")
    assert "RUNNEL-POSTGRES-TLS" in shop.run("check", exit_code=1)
    shop.configure(tables=["ordres"])
    assert "did you mean 'orders'?" in one_line(shop.run("check", exit_code=1))
    shop.configure(schema="nowhere")
    assert "RUNNEL-POSTGRES-TABLE" in shop.run("check", exit_code=1)


def test_wrong_settings_are_all_reported(shop: Shop) -> None:
    shop.configure(url=None, host="h", tls="maybe", slot="A b", colour="red")
    said = one_line(shop.run("check", exit_code=1))
    for part in (
        "'database' is missing",
        "'user' is missing",
        "'tls' cannot be 'maybe'",
        "'slot' may have",
        "'colour'",
    ):
        assert part in said


def test_a_user_without_the_right_to_read_the_log_is_refused(roles: Shop) -> None:
    roles.sql(ORDERS)
    roles.configure(url=_role(roles, "GRANT SELECT ON orders TO ITS"))
    said = one_line(roles.run("check", exit_code=1))
    assert "RUNNEL-POSTGRES-REPLICATION" in said
    assert "ALTER ROLE ... REPLICATION" in said


def test_least_rights_are_enough_and_what_is_missing_is_named(roles: Shop) -> None:
    roles.sql(ORDERS, ORDERS.replace("orders", "hidden"), "INSERT INTO orders VALUES (1, 'a', 1)")
    url = _role(roles, "ALTER ROLE ITS REPLICATION", "GRANT SELECT ON orders TO ITS")
    roles.configure(url=url, tables=["orders", "hidden"])
    said = one_line(roles.run("check", exit_code=1))
    assert 'GRANT SELECT ON "public"."hidden"' in said
    assert 'CREATE PUBLICATION "runnel_front_shop" FOR TABLE ONLY "public"."orders"' in said
    roles.sql(f"CREATE PUBLICATION {SLOT} FOR TABLE orders WITH (publish_via_partition_root)")
    roles.configure(url=url, tables=["orders"])
    assert "RUNNEL" not in roles.run("check")
    roles.catch_up()
    roles.sql("UPDATE orders SET amount = 2")
    roles.catch_up()
    assert [str(row["amount"]) for row in roles.rows("shop.orders")] == ["2.00"]


def test_partitions_are_read_through_their_root_where_only_that_may_be_read(roles: Shop) -> None:
    roles.sql("CREATE TABLE parts (id int PRIMARY KEY, x int) PARTITION BY HASH (id)")
    roles.sql(*(f"CREATE TABLE p{n} PARTITION OF parts FOR VALUES WITH (MODULUS 2, REMAINDER {n})" for n in (0, 1)))
    roles.sql("INSERT INTO parts SELECT n, n FROM generate_series(1, 9) n")
    roles.sql(f"CREATE PUBLICATION {SLOT} FOR TABLE parts WITH (publish_via_partition_root)")
    roles.configure(url=_role(roles, "ALTER ROLE ITS REPLICATION", "GRANT SELECT ON parts TO ITS"))
    roles.catch_up()
    roles.sql("UPDATE parts SET x = 0 WHERE id < 3")
    roles.catch_up()
    assert [row["x"] for row in roles.rows("shop.parts")] == [0, 0, 3, 4, 5, 6, 7, 8, 9]


def test_rows_hidden_by_policies_are_never_left_out(roles: Shop) -> None:
    roles.sql(ORDERS, "INSERT INTO orders VALUES (1, 'a', 1)", "ALTER TABLE orders ENABLE ROW LEVEL SECURITY")
    roles.sql(f"CREATE PUBLICATION {SLOT} FOR TABLE orders WITH (publish_via_partition_root)")
    roles.configure(url=_role(roles, "ALTER ROLE ITS REPLICATION", "GRANT SELECT ON orders TO ITS"))
    with pytest.raises(RunnelError, match=r"RUNNEL-POSTGRES-PERMISSION.*row-level security"):
        roles.catch_up()


TABLES = {
    "CREATE UNLOGGED TABLE odd (id int PRIMARY KEY)": ("UNLOGGED", 'ALTER TABLE "public"."odd" SET LOGGED'),
    "CREATE TABLE odd (id int)": ("IDENTITY", 'ALTER TABLE "public"."odd" REPLICA IDENTITY FULL'),
    "CREATE TABLE odd (id int PRIMARY KEY); ALTER TABLE odd REPLICA IDENTITY NOTHING": ("IDENTITY", "NOTHING"),
    "CREATE TABLE odd ()": ("IDENTITY", "no primary key"),
    "CREATE TABLE odd (id int PRIMARY KEY DEFERRABLE)": ("IDENTITY", "no primary key"),
}


@pytest.mark.parametrize("statement", TABLES)
def test_a_table_that_cannot_be_followed_is_named_and_the_others_are_followed(shop: Shop, statement: str) -> None:
    code, said = TABLES[statement]
    shop.sql(ORDERS, "INSERT INTO orders VALUES (1, 'a', 1)", statement)
    source = shop.source()
    assert [info.name for info in source.tables()] == ["orders"]
    (problem,) = source.problems()
    assert problem.code == f"RUNNEL-POSTGRES-{code}"
    assert said in str(problem)
    with shop.open() as project, pytest.raises(RunnelError, match=problem.code):
        project.run(once=True)
    assert [row["id"] for row in shop.rows("shop.orders")] == [1]
    # The application's own statements must not fail because of the publication.
    assert shop.sql("SELECT tablename FROM pg_publication_tables") == [("orders",)]


def test_a_table_that_loses_its_key_stops_the_source_and_keeps_its_rows(shop: Shop) -> None:
    shop.sql(ORDERS, "INSERT INTO orders VALUES (1, 'a', 1)")
    shop.catch_up()
    shop.sql("ALTER TABLE orders DROP CONSTRAINT orders_pkey", "INSERT INTO orders VALUES (1, 'b', 2)")
    for _ in range(2):
        with pytest.raises(RunnelError, match=r"RUNNEL-POSTGRES-IDENTITY.*REPLICA IDENTITY FULL"):
            shop.catch_up()
    assert [row["region"] for row in shop.rows("shop.orders")] == ["a"]


PUBLICATIONS = {
    "FOR TABLE orders WITH (publish = 'insert')": "does not publish all kinds of changes",
    "FOR TABLE orders (id, amount)": "without some of its rows or columns",
    "FOR TABLE orders WHERE (id > 1)": "without some of its rows or columns",
    "FOR TABLE other": "is not in the publication mine",
    "FOR TABLE parts, orders": "publishes its partitions instead",
}


@pytest.mark.parametrize("published", PUBLICATIONS)
def test_a_publication_that_leaves_something_out_is_refused(shop: Shop, published: str) -> None:
    shop.sql(ORDERS, "CREATE TABLE other (id int PRIMARY KEY)")
    shop.sql("CREATE TABLE parts (id int PRIMARY KEY) PARTITION BY HASH (id)")
    shop.sql("CREATE TABLE part PARTITION OF parts FOR VALUES WITH (MODULUS 1, REMAINDER 0)")
    shop.configure(publication="mine", tables=["orders", "parts"] if "parts" in published else ["orders"])
    said = one_line(shop.run("check", exit_code=1))
    assert "RUNNEL-POSTGRES-PUBLICATION" in said
    assert "CREATE PUBLICATION" in said
    shop.sql(f"CREATE PUBLICATION mine {published}")
    said = one_line(shop.run("check", exit_code=1))
    assert "RUNNEL-POSTGRES-PUBLICATION" in said
    assert PUBLICATIONS[published] in said


@pytest.mark.parametrize(
    "statement", [f"DROP PUBLICATION {SLOT}", f"ALTER PUBLICATION {SLOT} SET (publish = 'insert')"]
)
def test_a_publication_that_is_dropped_or_changed_in_mid_stream_is_refused(shop: Shop, statement: str) -> None:
    shop.sql(ORDERS)
    shop.catch_up()
    shop.sql(statement, "INSERT INTO orders VALUES (1, 'a', 1)")
    for _ in range(2):
        with pytest.raises(RunnelError, match="RUNNEL-POSTGRES-PUBLICATION"):
            shop.catch_up()
    if statement.startswith("DROP"):
        assert "shop.orders: 1 rows read, 1 differed" in shop.run("rebuild", "shop")
        _goes_on(shop, 10)
    else:
        assert "RUNNEL-POSTGRES-PUBLICATION" in shop.run("rebuild", "shop", exit_code=1)


def _goes_on(shop: Shop, number: int) -> None:
    """Compare, and follow a change: the position must be one that the log can be read from."""
    shop.compare("orders")
    shop.sql(f"INSERT INTO orders VALUES ({number}, 'later', 1)", "UPDATE orders SET region = 'z' WHERE id = 1")
    shop.catch_up()
    shop.compare("orders")


def test_a_slot_that_is_dropped_or_made_again_or_moved_is_refused_until_all_tables_are_read_again(shop: Shop) -> None:
    shop.sql(ORDERS)
    shop.catch_up()
    shop.sql("INSERT INTO orders VALUES (1, 'a', 1)", f"SELECT pg_drop_replication_slot('{SLOT}')")
    with pytest.raises(RunnelError, match=r"RUNNEL-POSTGRES-SLOT: .*does not exist any more.*runnel rebuild shop"):
        shop.catch_up()
    assert "RUNNEL-POSTGRES-SLOT" in shop.run("rebuild", "shop.orders", exit_code=1)
    assert "shop.orders: 1 rows read, 1 differed" in shop.run("rebuild", "shop")
    _goes_on(shop, 10)
    shop.sql(f"SELECT pg_drop_replication_slot('{SLOT}')", "INSERT INTO orders VALUES (2, 'b', 1)")
    shop.sql(f"SELECT pg_create_logical_replication_slot('{SLOT}', 'pgoutput')")
    for _ in range(2):
        with pytest.raises(RunnelError, match=r"RUNNEL-POSTGRES-SLOT: .*moved .*by somebody else.*runnel rebuild shop"):
            shop.catch_up()
    assert "shop.orders: 3 rows read, 1 differed" in shop.run("rebuild", "shop")
    _goes_on(shop, 20)
    shop.sql(f"SELECT pg_drop_replication_slot('{SLOT}')")
    shop.sql(f"SELECT pg_create_logical_replication_slot('{SLOT}', 'test_decoding')")
    with pytest.raises(RunnelError, match=r"RUNNEL-POSTGRES-SLOT: .*of another kind"):
        shop.catch_up()


def test_a_slot_that_another_process_reads_is_tried_again(shop: Shop) -> None:
    shop.sql(ORDERS)
    one, two = shop.source(), shop.source()
    one.tables()
    start = one.latest_offset({}, 1000)
    one.commit(start)
    shop.sql("INSERT INTO orders VALUES (1, 'a', 1)")
    end = one.latest_offset(start, 1000)
    two.tables()
    with pytest.raises(RunnelError, match=r"RUNNEL-POSTGRES-SLOT-BUSY.*is active for PID"):
        two.latest_offset(start, 1000)
    one.close()
    assert two.latest_offset(start, 1000) == end


def test_a_lost_slot_is_refused(tmp_path: Path) -> None:
    with postgres("max_slot_wal_keep_size=1MB", "min_wal_size=32MB", "max_wal_size=32MB") as server:
        shop = Shop(tmp_path, server)
        shop.sql(ORDERS)
        shop.catch_up()
        shop.sql("INSERT INTO orders VALUES (1, 'a', 1)")
        for _ in range(3):
            shop.sql(
                "CREATE TABLE filler AS SELECT repeat('x', 1000) FROM generate_series(1, 20000)", "DROP TABLE filler"
            )
            shop.sql("SELECT pg_switch_wal()", "CHECKPOINT")
        ((status,),) = shop.sql("SELECT wal_status FROM pg_replication_slots")
        assert status == "lost"
        with pytest.raises(RunnelError, match=r"RUNNEL-POSTGRES-SLOT: .*wal_status is lost.*max_slot_wal_keep_size"):
            shop.catch_up()
        said = shop.run("status")
        assert "'wal_status': 'lost'" in said
        assert "shop.orders: 1 rows read, 1 differed" in shop.run("rebuild", "shop")
        _goes_on(shop, 10)
        shop.close()


def test_another_server_and_one_without_rows_in_its_log_are_refused(shop: Shop, tmp_path: Path) -> None:
    shop.sql(ORDERS)
    shop.catch_up()
    with postgres("wal_level=replica") as other:
        there = other.database()
        with psycopg.connect(there, autocommit=True) as db:
            db.execute(ORDERS)
        shop.configure(url=there)
        said = one_line(shop.run("check", exit_code=1))
        assert "RUNNEL-POSTGRES-WAL-LEVEL" in said
        assert "wal_level = logical" in said
    with postgres() as other:
        there = other.database()
        with psycopg.connect(there, autocommit=True) as db:
            db.execute(ORDERS)
            db.execute(f"CREATE PUBLICATION {SLOT} FOR TABLE orders")
            db.execute(f"SELECT pg_create_logical_replication_slot('{SLOT}', 'pgoutput')")
        shop.configure(url=there)
        with pytest.raises(RunnelError, match=r"RUNNEL-POSTGRES-SERVER: .*another server.*runnel rebuild shop"):
            shop.catch_up()
        with psycopg.connect(there, autocommit=True) as db:
            db.execute("INSERT INTO orders VALUES (1, 'there', 1)")
        assert "shop.orders: 1 rows read, 1 differed" in shop.run("rebuild", "shop")
        assert [row["id"] for row in shop.rows("shop.orders")] == [1]
    shop.configure(url=shop.server.database())
    shop.sql("SELECT 1")
    with psycopg.connect(shop.server.url(), autocommit=True) as db:
        assert db.execute("SELECT count(*) FROM pg_replication_slots WHERE slot_name LIKE '%snapshot%'").fetchone() == (
            0,
        )


def test_prepare_makes_slot_and_publication_and_removes_them(shop: Shop) -> None:
    shop.sql(ORDERS, "INSERT INTO orders VALUES (1, 'a', 1)")
    for _ in range(2):
        said = shop.run("prepare", "shop")
        assert f"slot {SLOT}" in said
    assert shop.sql("SELECT pubname, tablename FROM pg_publication_tables") == [(SLOT, "orders")]
    shop.catch_up()
    shop.compare("orders")
    said = shop.run("prepare", "shop", "--undo")
    assert f"slot {SLOT}: dropped" in said
    assert f"publication {SLOT}: dropped" in said
    assert shop.run("prepare", "shop", "--undo") == ""
    assert shop.sql("SELECT count(*) FROM pg_publication") == [(0,)]
    assert shop.sql("SELECT count(*) FROM pg_replication_slots WHERE database = current_database()") == [(0,)]


def test_a_publication_that_somebody_named_is_left_alone(shop: Shop) -> None:
    shop.sql(ORDERS, "CREATE PUBLICATION mine FOR TABLE orders", "CREATE TABLE other (id int PRIMARY KEY)")
    shop.configure(publication="mine")
    shop.catch_up()
    assert [table.name for table in shop.source(publication="mine").tables()] == ["orders"]
    shop.run("prepare", "shop", "--undo")
    assert shop.sql("SELECT pubname FROM pg_publication") == [("mine",)]
