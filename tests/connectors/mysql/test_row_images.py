"""Rows that are logged without all of their columns: completed from the state on request, by the driver and by tasks; else refused."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from runnel.engine.driver import Driver
from runnel.engine.spark import SparkEngine
from runnel.errors import RunnelError
from tests.connectors.cassandra.by_tasks import ByTasks
from tests.connectors.mysql.conftest import Shop
from tests.connectors.mysql.test_source import ORDERS, TAKINGS, source_of
from tests.pipeline.test_large_reads import reads_of

if TYPE_CHECKING:
    from pathlib import Path

    from runnel.engine.base import Engine
    from tests.servers.mysql import SqlServer

pytestmark = pytest.mark.mysql
WIDE = (
    "CREATE TABLE wide (a INT, b VARCHAR(9), i INT DEFAULT 5, s VARCHAR(20) CHARACTER SET latin1 DEFAULT 'ü''', d DECIMAL(9,3) DEFAULT -1.5,"
    " t DATETIME(3) DEFAULT '2024-02-29 10:00:00', e ENUM('x', 'y') DEFAULT 'y', f FLOAT DEFAULT 0.1, y YEAR DEFAULT 2020,"
    " h TIME DEFAULT '-10:00:00', u BIGINT UNSIGNED DEFAULT 18446744073709551615, day DATE DEFAULT '2024-02-29', j JSON, n TEXT,"
    " now TIMESTAMP(6) DEFAULT CURRENT_TIMESTAMP(6) ON UPDATE CURRENT_TIMESTAMP(6), g INT AS (i + 1) STORED, v INT AS (i + 2) VIRTUAL,"
    " PRIMARY KEY (a, b))"
)
WORK = (
    "INSERT INTO wide (a, b) VALUES (1, 'x'), (2, 'x'), (3, 'x')",
    "INSERT INTO wide (a, b, i, n, j) VALUES (4, 'x', NULL, 'long', '{\"k\": 1}'), (5, 'x', 7, 'longer', '[1]')",
    "UPDATE wide SET i = i + 1 WHERE a < 3",
    "UPDATE wide SET s = 'one' WHERE a = 1",
    "UPDATE wide SET n = NULL, i = 9 WHERE a = 5",
    "DELETE FROM wide WHERE a = 3",
    "INSERT INTO wide (a, b, f) VALUES (3, 'x', 2.5)",
    "UPDATE wide SET d = 7 WHERE a = 3",
    "REPLACE INTO wide (a, b, s) VALUES (4, 'x', 'replaced')",
    "INSERT INTO wide (a, b) VALUES (5, 'x') ON DUPLICATE KEY UPDATE s = 'twice'",
)
MOVES = (
    "UPDATE wide SET a = a + 10 WHERE a < 3",
    "UPDATE wide SET a = a - 10, s = 'back' WHERE a = 11",
    "UPDATE wide SET a = a + 1 ORDER BY a DESC",
    "UPDATE wide SET d = 8",
    "DELETE FROM wide WHERE a = 4",
)


@pytest.fixture
def shop(tmp_path: Path, mysql_server: SqlServer) -> Shop:
    """Give a database and a project that takes images without all columns."""
    made = Shop(tmp_path, mysql_server)
    made.configure(row_image="minimal")
    return made


def compared(shop: Shop, engine: Engine, image: str, *statements: str) -> dict[str, int]:
    """Run statements that are logged so, take them in and compare; give where they were read."""
    with shop.open(engine) as project:
        known = reads_of(project)
        shop.sql(f"SET SESSION binlog_row_image = {image}", *statements)
        project.run(once=True)
        shop.compare_in(project, "wide")
        return {place: number - known.get(place, 0) for place, number in reads_of(project).items()}


@pytest.mark.parametrize("image", ["MINIMAL", "NOBLOB", "FULL"])
@pytest.mark.parametrize("by_tasks", [False, True])
def test_rows_are_completed_from_the_state_and_from_defaults(shop: Shop, image: str, by_tasks: bool) -> None:
    shop.sql(WIDE, "INSERT INTO wide (a, b, s) VALUES (9, 'ü', 'before')")
    shop.catch_up()
    engine = ByTasks() if by_tasks else None
    with shop.open(engine) as project:
        before = reads_of(project)
        shop.sql(f"SET SESSION binlog_row_image = {image}", *WORK)
        project.run(once=True)
        shop.compare_in(project, "wide")
        assert reads_of(project).get("spark", 0) - before.get("spark", 0) == by_tasks
        for statement in MOVES:
            shop.sql(f"SET SESSION binlog_row_image = {image}", statement)
            project.run(once=True)
            shop.compare_in(project, "wide")
        # A key that changes while columns are left out is followed in the order of the log.
        shop.sql(f"SET SESSION binlog_row_image = {image}", "DELETE FROM wide", *WORK, *MOVES)
        project.run(once=True)
        shop.compare_in(project, "wide")


def test_a_change_of_a_row_that_is_not_there_is_refused(shop: Shop) -> None:
    shop.sql(ORDERS)
    shop.catch_up()
    shop.sql("SET sql_log_bin = 0", "INSERT INTO orders VALUES (1, 'a', 1)")
    shop.sql("SET binlog_row_image = MINIMAL", "UPDATE orders SET amount = 2")
    for engine in (None, ByTasks()):
        with shop.open(engine) as project, pytest.raises(RunnelError, match="RUNNEL-KEY-MISSING"):
            project.run(once=True)


def test_rows_that_change_while_they_are_read_are_right_once_the_log_has_passed(shop: Shop) -> None:
    shop.sql(ORDERS, *(f"INSERT INTO orders VALUES ({n}, 'north', {n})" for n in range(9)))
    source = source_of(shop, row_image="minimal")
    source.tables()
    end = source.latest_offset({}, 1000)
    work = [
        "UPDATE orders SET amount = 100 WHERE id < 3",
        "DELETE FROM orders WHERE id = 1",
        "INSERT INTO orders VALUES (1, 'again', 5)",
    ]
    work += [
        "DELETE FROM orders WHERE id = 4",
        "INSERT INTO orders VALUES (20, 'new', 1)",
        "UPDATE orders SET region = 'x' WHERE id = 20",
    ]
    shop.sql("SET SESSION binlog_row_image = MINIMAL", *work)
    rows: dict[int, dict[str, object]] = {}

    def apply(read: object) -> None:
        for changes in read:  # type: ignore[attr-defined]
            for row in changes.keyed.to_pylist():
                operation = row.pop("_op")
                if operation == "upsert":
                    rows[row["id"]] = row
                elif operation == "update":
                    rows[row["id"]] |= row
                elif operation == "remove":
                    rows.pop(row["id"], None)
                else:
                    del rows[row["id"]]

    apply(source.read({}, end))
    assert 20 not in rows
    assert 4 in rows
    apply(source.read(end, source.latest_offset(end, 1000)))
    assert sorted(rows.values(), key=repr) == shop.there("orders")
    shop.sql("SET SESSION binlog_row_image = MINIMAL", "UPDATE orders SET id = 30 WHERE id = 20")
    with pytest.raises(RunnelError, match="RUNNEL-MYSQL-MOVED"):
        list(source.read({}, end))
    source.close()


def test_what_the_log_leaves_out_and_nobody_knows_is_refused(shop: Shop) -> None:
    shop.sql("CREATE TABLE t (id INT PRIMARY KEY, b BINARY(3) DEFAULT 'ab')")
    shop.catch_up()
    shop.sql("SET SESSION binlog_row_image = MINIMAL", "INSERT INTO t (id) VALUES (1)")
    with pytest.raises(RunnelError, match=r"RUNNEL-BINLOG-IMAGE.*without column b.*binlog\.\d+:\d+"):
        shop.catch_up()


def test_a_redefined_table_takes_its_new_defaults(shop: Shop) -> None:
    shop.sql(ORDERS, "ALTER TABLE orders ALTER region SET DEFAULT 'old'")
    shop.catch_up()
    minimal = "SET SESSION binlog_row_image = MINIMAL"
    shop.sql(minimal, "INSERT INTO orders (id) VALUES (1)", "ALTER TABLE orders ALTER region SET DEFAULT 'new'")
    shop.sql(minimal, "INSERT INTO orders (id) VALUES (2)", "UPDATE orders SET amount = 1")
    shop.catch_up()
    shop.compare("orders")


def test_check_says_that_rows_are_completed_and_takes_a_server_that_is_set_so(shop: Shop) -> None:
    shop.sql(ORDERS, "SET GLOBAL binlog_row_image = 'MINIMAL'")
    try:
        said = shop.run("check")
        assert "completed from the state by key" in said.replace("\n", " ")
        shop.configure()
        said = shop.run("check", exit_code=1).replace("\n", " ")
        assert 'row_image = "minimal"' in said
    finally:
        shop.sql("SET GLOBAL binlog_row_image = 'FULL'")


@pytest.mark.parametrize(
    ("family", "settings", "said"),
    [
        ("mariadb", {}, "MariaDB logs a REPLACE"),
        ("mysql", {"before": "trusted"}, "old rows are not in the log"),
        ("mysql", {"logs": "x/*"}, "'row_image' is of a server"),
    ],
)
def test_images_that_do_not_say_enough_are_not_taken(
    shop: Shop, family: str, settings: dict[str, str], said: str
) -> None:
    shop.family = family
    with pytest.raises(RunnelError, match=said):
        source_of(shop, row_image="minimal", **settings)


@pytest.mark.spark
def test_spark_completes_rows_where_the_driver_reads_nothing(shop: Shop, spark_engine: SparkEngine) -> None:
    shop.sql(WIDE, ORDERS, "INSERT INTO wide (a, b, s) VALUES (9, 'ü', 'before')")
    shop.view("takings", TAKINGS)
    shop.catch_up()
    shop.sql("SET SESSION binlog_row_image = MINIMAL", "INSERT INTO orders (id, region) VALUES (1, 'a')")
    shop.sql("SET SESSION binlog_row_image = MINIMAL", "UPDATE orders SET amount = 3")
    engine = SparkEngine(spark_engine.session, driver=Driver(changes=0))
    with shop.open() as project:
        before = reads_of(project)
    assert compared(shop, engine, "MINIMAL", *WORK)["spark"] >= 2
    with shop.open() as project:
        assert reads_of(project).get("driver", 0) == before.get("driver", 0)
        shop.compare_in(project, "orders")
        assert project.verify("takings").ok
