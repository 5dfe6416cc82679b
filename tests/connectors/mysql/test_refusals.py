"""What cannot be followed is refused with the setting or command that mends it; never "0 changes, all well"."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from runnel.errors import RunnelError
from tests.connectors.mysql.conftest import FAMILIES, Shop
from tests.connectors.mysql.test_source import ORDERS
from tests.servers.mariadb import mariadb_program
from tests.servers.mysql import mysql_program, server

if TYPE_CHECKING:
    from pathlib import Path

    from tests.servers.mysql import Program


def _program(family: str) -> Program:
    return mariadb_program() if family == "mariadb" else mysql_program()


@pytest.mark.parametrize(
    ("setting", "value", "mended", "code"),
    [
        ("binlog_format", "'STATEMENT'", "'ROW'", "RUNNEL-BINLOG-FORMAT"),
        ("binlog_format", "'MIXED'", "'ROW'", "RUNNEL-BINLOG-FORMAT"),
        ("binlog_row_image", "'MINIMAL'", "'FULL'", "RUNNEL-BINLOG-IMAGE"),
    ],
)
def test_wrong_settings_of_the_log_are_found_by_check(
    shop: Shop, setting: str, value: str, mended: str, code: str
) -> None:
    """L.i, for both families; `tests/connectors/sync` has what `runnel run` says."""
    shop.sql(ORDERS, f"SET GLOBAL {setting} = {value}")
    try:
        said = shop.run("check", exit_code=1)
    finally:
        shop.sql(f"SET GLOBAL {setting} = {mended}")
    assert code in said
    assert f"SET GLOBAL {setting} = {mended.strip(chr(39))}" in said.replace("\n", " ")
    assert "RUNNEL" not in shop.run("check")


def test_sessions_that_log_otherwise_stop_the_source_with_the_position(shop: Shop) -> None:
    """L.i, in mid-stream."""
    shop.sql(ORDERS, "INSERT INTO orders VALUES (1, 'a', 1)")
    shop.catch_up()
    shop.sql("SET SESSION binlog_row_image = MINIMAL", "UPDATE orders SET amount = 2 WHERE id = 1")
    for _ in range(2):
        with pytest.raises(RunnelError, match=r"RUNNEL-BINLOG-IMAGE.*binlog\.\d+:\d+.*binlog_row_image = FULL"):
            shop.catch_up()
    assert [str(row["amount"]) for row in shop.rows("shop.orders")] == ["1.00"]


def test_wrong_credentials_rights_and_names_are_told_apart(shop: Shop) -> None:
    shop.sql(ORDERS, "CREATE USER IF NOT EXISTS reader@'127.0.0.1' IDENTIFIED BY 'secret'")
    shop.sql("GRANT SELECT ON *.* TO reader@'127.0.0.1'")
    shop.configure(user="reader", password="wrong")
    said = shop.run("check", exit_code=1)
    assert "RUNNEL-MYSQL-DENIED" in said
    shop.configure(user="reader", password="secret")
    said = shop.run("check", exit_code=1)
    assert "RUNNEL-MYSQL-DENIED" in said
    assert "REPLICATION SLAVE" in said
    shop.configure(tables=["ordres"])
    assert "'orders'" in shop.run("check", exit_code=1)
    shop.configure(port=1)
    assert "RUNNEL-MYSQL-UNREACHABLE" in shop.run("check", exit_code=1)


def _purge(shop: Shop) -> None:
    """Delete the logs that were read; MariaDB keeps one until InnoDB has written down what is in it."""
    first = shop.server.logs(shop.database)[0]
    for _ in range(1000):
        shop.sql("FLUSH BINARY LOGS")
        (last, *_), *_ = shop.sql("SHOW MASTER STATUS")
        shop.sql(f"PURGE BINARY LOGS TO '{last}'")
        if not first.exists():
            return
    pytest.fail(f"the server does not delete {first.name}")


@pytest.mark.parametrize("family", FAMILIES)
def test_a_purged_log_a_reset_log_and_another_server_are_refused_until_all_tables_are_read_again(
    family: str, tmp_path: Path
) -> None:
    with server(_program(family)) as one:
        shop = Shop(tmp_path, one)
        shop.sql(ORDERS, "INSERT INTO orders VALUES (1, 'a', 1)")
        shop.catch_up()
        shop.sql("INSERT INTO orders VALUES (2, 'b', 1)")
        _purge(shop)
        with pytest.raises(RunnelError, match=r"RUNNEL-BINLOG-PURGED.*runnel rebuild shop"):
            shop.catch_up()
        assert "RUNNEL-BINLOG-PURGED" in shop.run("rebuild", "shop.orders", exit_code=1)
        assert "shop.orders: 2 rows read, 1 differed" in shop.run("rebuild", "shop")
        _goes_on(shop, 10)
        shop.sql("RESET MASTER", *(f"INSERT INTO orders VALUES ({n}, 'c', 1)" for n in range(100, 140)))
        with pytest.raises(RunnelError, match=r"RUNNEL-BINLOG-(SERVER|PURGED).*runnel rebuild shop"):
            shop.catch_up()
        assert "shop.orders: 43 rows read, 40 differed" in shop.run("rebuild", "shop")
        _goes_on(shop, 20)
        with server(_program(family), "--server-id=77") as other:
            other.sql(f"CREATE DATABASE {shop.database}")
            other.sql(ORDERS, *(f"INSERT INTO orders VALUES ({n}, 'c', 1)" for n in range(40)), database=shop.database)
            shop.configure(port=other.port)
            with pytest.raises(RunnelError, match=r"RUNNEL-BINLOG-SERVER.*another server"):
                shop.catch_up()
            shop.server = other
            assert "shop.orders: 40 rows read" in shop.run("rebuild", "shop")
            _goes_on(shop, 50)


def _goes_on(shop: Shop, number: int) -> None:
    """Compare, and follow a change: the position must be one that the log can be read from."""
    shop.compare("orders")
    shop.sql(f"INSERT INTO orders VALUES ({number}, 'later', 1)", "UPDATE orders SET region = 'z' WHERE id = 1")
    shop.catch_up()
    shop.compare("orders")
