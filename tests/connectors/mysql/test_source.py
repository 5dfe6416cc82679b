"""Tables of a real server as a source: snapshot, log, definitions, and what is refused."""

from __future__ import annotations

import pickle
import threading
from typing import TYPE_CHECKING

import pytest

from runnel import config
from runnel.connectors.mysql import handover, open_source
from runnel.errors import Place, RunnelError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from runnel.connectors import ChangeSet
    from runnel.connectors.base import Offset
    from runnel.connectors.mysql.source import ServerSource
    from tests.connectors.mysql.conftest import Shop

ORDERS = "CREATE TABLE orders (id INT PRIMARY KEY, region VARCHAR(20), amount DECIMAL(12,2))"
TAKINGS = "SELECT region, sum(amount) AS total, count(*) AS n FROM orders GROUP BY region"


def source_of(shop: Shop, **settings: object) -> ServerSource:
    known = {"host": "127.0.0.1", "port": shop.server.port, "user": "root", "database": shop.database} | settings
    return open_source(config.Source("shop", shop.family, known, Place("runnel.toml", 1)), shop.folder)  # type: ignore[return-value]


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


def _rows_of(read: Iterable[ChangeSet]) -> list[dict[str, object]]:
    """Give the rows that upserts and deletes leave."""
    known: dict[int, dict[str, object]] = {}
    for changes in read:
        assert changes.keyed is not None
        for row in changes.keyed.to_pylist():
            if row.pop("_op") == "upsert":
                known[row["id"]] = row
            else:
                del known[row["id"]]
    return sorted(known.values(), key=repr)


def test_a_snapshot_under_writes_is_exactly_what_held_at_its_place(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handover, "PART_ROWS", 10)
    shop.sql(ORDERS, *(f"INSERT INTO orders VALUES ({n}, 'north', {n})" for n in range(50)), "ANALYZE TABLE orders")
    source = source_of(shop)
    source.tables()
    end = source.latest_offset({}, 1000)
    before = shop.there("orders")
    shop.sql("UPDATE orders SET amount = amount + 100 WHERE id < 10", "DELETE FROM orders WHERE id = 20")
    shop.sql("INSERT INTO orders VALUES (100, 'new', 1)", "UPDATE orders SET id = 200 WHERE id = 30")
    shop.sql("DELETE FROM orders WHERE id = 5", "INSERT INTO orders VALUES (5, 'again', 5)")
    for _ in range(2):
        assert _rows_of(source.read({}, end)) == before
    parts = source.partitions({}, end)
    assert parts is not None
    assert len(parts) > 2
    # Parts may be read in any order, each by another process.
    shuffled = list(reversed(pickle.loads(pickle.dumps(parts))))
    assert _rows_of(changes for part in shuffled for changes in part.read()) == before
    source.close()


def test_a_table_that_loses_its_key_stops_the_source_and_keeps_its_rows(shop: Shop) -> None:
    shop.sql(ORDERS, "INSERT INTO orders VALUES (1, 'north', 10)", "CREATE TABLE other (id INT PRIMARY KEY)")
    shop.catch_up()
    shop.sql("ALTER TABLE orders DROP PRIMARY KEY", "INSERT INTO orders VALUES (1, 'north', 10)")
    with pytest.raises(RunnelError, match="RUNNEL-MYSQL-KEY"):
        shop.catch_up()
    assert [row["id"] for row in shop.rows("shop.orders")] == [1]


def test_tables_changed_without_pause_are_followed_exactly(shop: Shop) -> None:
    shop.sql(ORDERS, "CREATE TABLE log (id INT AUTO_INCREMENT PRIMARY KEY, what VARCHAR(20))")
    begun = threading.Event()

    def write() -> None:
        with shop.server.connect(shop.database, autocommit=False) as connection, connection.cursor() as cursor:
            for n in range(150):
                cursor.execute(f"REPLACE INTO orders VALUES ({n % 40}, 'r{n % 3}', {n})")
                cursor.execute(f"INSERT INTO log (what) VALUES ('order {n}')")
                cursor.execute(f"DELETE FROM orders WHERE id = {(n * 7) % 40}")
                connection.commit() if n % 5 else connection.rollback()
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


DEFINITIONS = [
    "ADD COLUMN note VARCHAR(20) DEFAULT 'none'",
    "ADD COLUMN first INT NOT NULL DEFAULT 7 FIRST",
    "DROP COLUMN region",
    "CHANGE region area VARCHAR(30)",
    "MODIFY amount DECIMAL(14,2)",
    "ADD INDEX (region)",
]


@pytest.mark.parametrize("metadata", ["FULL", "MINIMAL"])
def test_definitions_in_mid_stream_are_followed(shop: Shop, metadata: str) -> None:
    """L.c, for all kinds of definitions: what was logged before one is read after it, by the old definition."""
    tables = {f"t{at}": f"ALTER TABLE t{at} {action}" for at, action in enumerate(DEFINITIONS)}
    tables["emptied"] = "TRUNCATE TABLE emptied"
    shop.sql(f"SET GLOBAL binlog_row_metadata = {metadata}")
    try:
        for name in tables:
            shop.sql(
                ORDERS.replace("orders", name), f"INSERT INTO {name} VALUES (1, 'north', 10), (2, 'n', 5), (3, 's', 1)"
            )
        shop.catch_up()
        for name, statement in tables.items():
            shop.sql(
                f"UPDATE {name} SET amount = 11 WHERE id = 1", statement, f"UPDATE {name} SET amount = 12 WHERE id = 2"
            )
            shop.sql(f"DELETE FROM {name} WHERE id = 3", f"INSERT INTO {name} (id, amount) VALUES (4, 4)")
        shop.catch_up()
        shop.compare(*tables)
        shop.sql(*(f"UPDATE {name} SET amount = amount + 1" for name in tables))
        shop.catch_up()
        shop.compare(*tables)
    finally:
        shop.sql("SET GLOBAL binlog_row_metadata = FULL")


def test_tables_that_come_go_and_change_names_are_followed(shop: Shop) -> None:
    shop.sql(ORDERS, "INSERT INTO orders VALUES (1, 'north', 10)")
    shop.catch_up()
    shop.sql("CREATE TABLE items (id INT PRIMARY KEY)", "INSERT INTO items VALUES (1), (2)")
    shop.catch_up()
    shop.compare("orders", "items")
    shop.sql("RENAME TABLE items TO things", "INSERT INTO things VALUES (3)")
    shop.catch_up()
    shop.compare("things")
    assert shop.rows("shop.items") == []
    shop.sql("DROP TABLE orders", ORDERS, "INSERT INTO orders VALUES (7, 'again', 1)")
    shop.catch_up()
    shop.compare("orders", "things")
    shop.sql("DROP TABLE orders")
    shop.catch_up()
    assert shop.rows("shop.orders") == []


def test_prepared_transactions_are_followed_across_epochs(shop: Shop) -> None:
    shop.sql(ORDERS)
    shop.catch_up()
    for name, key in (("a", 1), ("b", 2)):
        shop.sql(
            f"XA START '{name}'",
            f"INSERT INTO orders VALUES ({key}, 'x', 1)",
            f"XA END '{name}'",
            f"XA PREPARE '{name}'",
        )
    shop.sql("INSERT INTO orders VALUES (3, 'between', 1)")
    shop.catch_up()
    assert [row["id"] for row in shop.rows("shop.orders")] == [3]
    shop.sql("XA COMMIT 'a'", "XA ROLLBACK 'b'")
    shop.catch_up()
    shop.compare("orders")
    assert [row["id"] for row in shop.rows("shop.orders")] == [1, 3]


def test_a_table_that_cannot_be_followed_is_named_and_the_others_are_followed(shop: Shop) -> None:
    shop.sql(ORDERS, "INSERT INTO orders VALUES (1, 'north', 10)", "CREATE TABLE nokey (a INT)")
    shop.sql("CREATE TABLE child (id INT PRIMARY KEY, o INT, FOREIGN KEY (o) REFERENCES orders (id) ON DELETE CASCADE)")
    shop.sql("CREATE TABLE old (id INT PRIMARY KEY, t VARCHAR(9) CHARACTER SET sjis)")
    source = source_of(shop)
    assert [info.name for info in source.tables()] == ["orders"]
    codes = {problem.code for problem in source.problems()}
    assert codes == {"RUNNEL-MYSQL-KEY", "RUNNEL-MYSQL-CASCADE", "RUNNEL-MYSQL-CHARSET"}
    source.close()


def test_zero_dates_are_refused_or_null_as_the_settings_say(shop: Shop) -> None:
    shop.sql("CREATE TABLE d (id INT PRIMARY KEY, d DATE, t DATETIME)", "SET sql_mode = ''")
    shop.sql("SET sql_mode = ''", "INSERT INTO d VALUES (1, '0000-00-00', '2024-00-01 10:00:00')")
    with pytest.raises(RunnelError, match=r"RUNNEL-MYSQL-ZERO-DATE.*zero_dates"):
        shop.catch_up()
    shop.configure(zero_dates="null")
    shop.catch_up()
    shop.sql("SET sql_mode = ''", "UPDATE d SET d = '2024-02-30', t = '2024-02-28' WHERE id = 1")
    shop.catch_up()
    assert [row["d"] for row in shop.rows("shop.d")] == [None]


def test_old_rows_are_trusted_on_request_and_only_where_the_copy_is_as_the_log_has_it(shop: Shop) -> None:
    shop.sql(ORDERS, "INSERT INTO orders VALUES (1, 'north', 10), (2, 'north', 5.5)")
    source, checking = source_of(shop, before="trusted"), source_of(shop)
    at: Offset = {}

    def step(*statements: str, of: ServerSource = source) -> list[bool]:
        """Run statements and read what there is then; give which signed changes are trusted."""
        nonlocal at
        for statement in statements:
            shop.sql(statement)
        of.tables()
        before, at = at, of.latest_offset(at, 1000)
        return [changes.trusted for changes in of.read(before, at) if changes.signed is not None]

    assert step() == []  # the snapshot
    assert step("UPDATE orders SET amount = 11 WHERE id = 1") == [True]
    assert step("UPDATE orders SET amount = 12 WHERE id = 1", of=checking) == [False]
    assert step("ALTER TABLE orders ADD COLUMN n INT", "UPDATE orders SET n = 1") == []  # read again, after the update
    assert step("UPDATE orders SET n = 2 WHERE id = 1") == [False]
    assert step("UPDATE orders SET n = 3 WHERE id = 1") == [True]
    for opened in (source, checking):
        opened.close()
    with pytest.raises(RunnelError, match="'before' cannot be 'trusted' with start = 'latest'"):
        source_of(shop, before="trusted", start="latest")


MIXED = (
    "id INT PRIMARY KEY, place POINT, name CHAR(5), bytes BINARY(4), latin VARCHAR(9) CHARACTER SET latin1, "
    "kind ENUM('a', 'ü'), more {}, text TEXT, data BLOB, last VARBINARY(9)"
)


@pytest.mark.parametrize("metadata", ["FULL", "MINIMAL"])
def test_columns_of_all_kinds_beside_each_other_keep_their_character_sets(shop: Shop, metadata: str) -> None:
    """The log lists character sets by the places of texts; MariaDB counts spatial columns, UUID and INET6 among them."""
    more = "UUID, address INET6" if shop.family == "mariadb" else "BINARY(16)"
    shop.sql(f"SET GLOBAL binlog_row_metadata = {metadata}")
    try:
        shop.sql(f"CREATE TABLE mixed ({MIXED.format(more)})")
        shop.catch_up()
        other = "UUID()" if shop.family == "mariadb" else "X'6364'"
        shop.sql(
            "INSERT INTO mixed (id, place, name, bytes, latin, kind, text, data, last, more) VALUES "
            f"(1, POINT(1, 2), 'cü', 'b', 'latiñ', 'ü', 'text', X'00FF', X'FE', {other})"
        )
        shop.catch_up()
        shop.compare("mixed")
    finally:
        shop.sql("SET GLOBAL binlog_row_metadata = FULL")
