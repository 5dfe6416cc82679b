"""The log of real servers, in all the ways they write it: compressed, partial, with and without checksums, rotated, XA."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from runnel.connectors.mysql.log.events import Kind
from runnel.connectors.mysql.log.files import read_file
from runnel.connectors.mysql.log.row_events import Rows
from runnel.connectors.mysql.log.transactions import Committed, Decided, Defined, inner_events
from runnel.errors import RunnelError
from tests.connectors.mysql.reading import definition_of, items, logged, selected, settings_of, state, transactions

if TYPE_CHECKING:
    from pathlib import Path

    from tests.servers.mysql import SqlServer

TABLE = "CREATE TABLE t (k INT PRIMARY KEY, v VARCHAR(4000), n INT)"
WORK = (
    "INSERT INTO t VALUES (1, REPEAT('a', 3000), 1), (2, 'b', NULL), (3, NULL, 3)",
    "UPDATE t SET n = 10 WHERE k <= 2",
    "UPDATE t SET k = k + 10",
    "DELETE FROM t WHERE k = 12",
)


def _kinds(paths: list[Path]) -> set[int]:
    """Give the kinds of events in logs, inside compressed transactions too."""
    found = set()
    for path in paths:
        for event in read_file(path):
            found.add(event.kind)
            if event.kind == Kind.TRANSACTION_PAYLOAD:
                found |= {inner.kind for inner in inner_events(event)}
    return found


def _same(server: SqlServer, database: str) -> None:
    settings = settings_of(server, database)
    definition = definition_of(settings, "t")
    assert state(logged(server, settings, definition)).equals(selected(settings, definition).sort_by("k"))


@pytest.mark.mysql
@pytest.mark.parametrize("rows", [1, 3000])
def test_compressed_transactions_are_read_as_if_they_were_not(mysql_server: SqlServer, rows: int) -> None:
    database = mysql_server.database()
    more = ", ".join(f"({at}, 'row {at}', {at})" for at in range(100, 100 + rows))
    session = "SET SESSION binlog_transaction_compression = ON"
    mysql_server.sql(TABLE, session, *WORK, f"INSERT INTO t VALUES {more}", database=database)
    assert Kind.TRANSACTION_PAYLOAD in _kinds(mysql_server.logs(database))
    _same(mysql_server, database)


@pytest.mark.mariadb
def test_compressed_events_are_read_as_if_they_were_not(mariadb_server: SqlServer) -> None:
    database = mariadb_server.database()
    mariadb_server.sql("SET GLOBAL log_bin_compress = ON")
    try:
        mariadb_server.sql(TABLE, *WORK, "UPDATE t SET v = REPEAT('c', 3500)", database=database)
        mariadb_server.sql("DELETE FROM t WHERE k = 11", f"ALTER TABLE t COMMENT '{'x' * 1000}'", database=database)
    finally:
        mariadb_server.sql("SET GLOBAL log_bin_compress = OFF")
    compressed = {Kind.WRITE_ROWS_COMPRESSED_V1, Kind.UPDATE_ROWS_COMPRESSED_V1, Kind.DELETE_ROWS_COMPRESSED_V1}
    assert _kinds(mariadb_server.logs(database)) >= compressed | {Kind.QUERY_COMPRESSED}
    _same(mariadb_server, database)
    texts = [
        item.statement.text for item in items(mariadb_server.logs(database), database) if isinstance(item, Defined)
    ]
    assert any("x" * 1000 in text for text in texts)


@pytest.mark.mysql
@pytest.mark.parametrize("compression", ["ON", "OFF"])
def test_partial_updates_of_json_give_the_whole_value(mysql_server: SqlServer, compression: str) -> None:
    database = mysql_server.database()
    document = '{"a": [1, 2, {"x y": 1}], "b": {"c": "d"}, "long": "' + "z" * 500 + '"}'
    changes = (
        "SET d = JSON_SET(d, '$.a[2].\"x y\"', 5), n = n + 1",
        "SET d = JSON_REPLACE(d, '$.b.c', CAST('2024-01-01' AS DATE)), e = JSON_SET(e, '$[0]', 'new')",
        "SET d = JSON_REMOVE(d, '$.a[0]', '$.long')",
        "SET d = JSON_SET(d, '$.a[9]', 1.5, '$.q', NULL), s = 'x'",
        "SET e = NULL, d = JSON_SET(d, '$.q', TRUE)",
    )
    mysql_server.sql(
        "CREATE TABLE t (k INT PRIMARY KEY, d JSON, n INT, e JSON, s VARCHAR(10))",
        f"INSERT INTO t VALUES (1, '{document}', 1, '[\"{'q' * 300}\", 2]', NULL), (2, '{document}', 1, NULL, NULL)",
        "SET SESSION binlog_row_value_options = PARTIAL_JSON",
        f"SET SESSION binlog_transaction_compression = {compression}",
        *(f"UPDATE t {change}" for change in changes),
        database=database,
    )
    assert Kind.PARTIAL_UPDATE_ROWS in _kinds(mysql_server.logs(database))
    _same(mysql_server, database)


def test_a_log_without_checksums_is_read(sql_server: SqlServer) -> None:
    database = sql_server.database()
    sql_server.sql("SET GLOBAL binlog_checksum = NONE")
    try:
        sql_server.sql(TABLE, *WORK, database=database)
    finally:
        sql_server.sql("SET GLOBAL binlog_checksum = CRC32")
    sql_server.sql("INSERT INTO t VALUES (50, 'with', 1)", database=database)
    _same(sql_server, database)


def test_transactions_end_where_the_server_says_and_have_its_gtids(sql_server: SqlServer) -> None:
    database = sql_server.database()
    sql_server.sql("FLUSH BINARY LOGS", TABLE, *WORK, database=database)
    with sql_server.connect(database) as connection:
        connection.begin()
        with connection.cursor() as cursor:
            cursor.execute("INSERT INTO t VALUES (90, 'x', 1)")
            cursor.execute("SAVEPOINT s")
            cursor.execute("INSERT INTO t VALUES (91, 'gone', 1)")
            cursor.execute("ROLLBACK TO SAVEPOINT s")
            cursor.execute("INSERT INTO t VALUES (92, 'y', 1)")
        connection.commit()
        connection.begin()
        with connection.cursor() as cursor:
            cursor.execute("INSERT INTO t VALUES (93, 'gone', 1)")
        connection.rollback()
    last = transactions(sql_server.logs()[-1:], database)
    (status,) = sql_server.sql("SHOW MASTER STATUS")
    assert (last[-1].spot.file, last[-1].spot.position) == (status[0], status[1])
    shown = sql_server.sql(
        "SELECT @@global.gtid_binlog_pos" if "maria" in sql_server.program.name else "SELECT @@gtid_executed"
    )
    own, _, number = last[-1].gtid.replace("-", "-").rpartition("-" if "maria" in sql_server.program.name else ":")
    assert own in shown[0][0]
    assert shown[0][0].endswith(number)
    assert len(last) == 1 + len(WORK) + 1
    assert [one.begin.position for one in last[1:]] == [one.spot.position for one in last[:-1]]
    _same(sql_server, database)


def test_prepared_transactions_count_when_they_are_committed(sql_server: SqlServer) -> None:
    database = sql_server.database()
    sql_server.sql(TABLE, database=database)
    for name, key, how in (("one", 1, "COMMIT"), ("two", 2, "ROLLBACK"), ("three", 3, "ONE PHASE")):
        ending = (
            (f"XA PREPARE '{name}'", f"XA {how} '{name}'") if how != "ONE PHASE" else (f"XA COMMIT '{name}' {how}",)
        )
        xa = (f"XA START '{name}'", f"INSERT INTO t VALUES ({key}, 'x', 1)", f"XA END '{name}'", *ending)
        sql_server.sql(*xa, database=database)
    held: dict[str, int] = {}
    rows = kept = 0
    for item in items(sql_server.logs(database), database):
        match item:
            case Rows():
                rows += 1
            case Committed(prepared=""):
                kept, rows = kept + rows, 0
            case Committed(prepared=xid):
                held[xid], rows = rows, 0
            case Decided(xid=xid, committed=committed):
                kept += held.pop(xid) * committed
    assert (kept, held) == (2, {})


def test_what_a_copy_cannot_be_made_of_is_refused_with_the_setting_that_mends_it(sql_server: SqlServer) -> None:
    database = sql_server.database()
    sql_server.sql(
        TABLE, "SET SESSION binlog_format = STATEMENT", "INSERT INTO t VALUES (1, 'x', 1)", database=database
    )
    with pytest.raises(RunnelError, match=r"RUNNEL-BINLOG-STATEMENT.*binlog\.\d+:\d+.*binlog_format = ROW"):
        list(items(sql_server.logs(database), database))
    sql_server.sql("RESET MASTER")  # else every other test of this server would meet the statement
