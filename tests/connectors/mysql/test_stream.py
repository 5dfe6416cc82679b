"""The log from a server: the same events as in its files, from any position between two transactions, and named errors."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from runnel.connectors.mysql.client import Client
from runnel.connectors.mysql.log.events import Kind
from runnel.connectors.mysql.log.files import read_file
from runnel.connectors.mysql.log.problems import Spot
from runnel.connectors.mysql.logs import ServerLog
from runnel.connectors.mysql.stream import LogStream
from runnel.errors import RunnelError
from tests.connectors.mysql.reading import settings_of, transactions

if TYPE_CHECKING:
    from runnel.connectors.mysql.log.events import Event
    from runnel.connectors.mysql.settings import Settings
    from tests.servers.mysql import SqlServer

NOT_COMPARED = {Kind.FORMAT_DESCRIPTION, Kind.ROTATE, Kind.ANNOTATE_ROWS, Kind.BINLOG_CHECKPOINT}
"""Kinds that the server makes up, leaves out, or writes when it has time (a checkpoint, some moment after a new file)."""
ENDS = {Kind.GTID, Kind.MARIADB_GTID, Kind.XID, Kind.QUERY}


def _end(settings: Settings) -> Spot:
    client = Client(settings)
    try:
        return client.end_of_log()
    finally:
        client.close()


def _streamed(settings: Settings, start: Spot, end: Spot) -> list[Event]:
    stream = LogStream(settings, start)
    try:
        return [event for event in stream.until(end, 20) if event.kind not in NOT_COMPARED]
    finally:
        stream.close()


def test_the_server_sends_what_its_files_hold(sql_server: SqlServer) -> None:
    database = sql_server.database()
    large = "x" * 3_000_000
    sql_server.sql("SET GLOBAL max_allowed_packet = 64 * 1024 * 1024", "FLUSH BINARY LOGS")
    before = len(sql_server.logs())
    sql_server.sql("CREATE TABLE t (k INT PRIMARY KEY, v LONGTEXT)", "INSERT INTO t VALUES (1, 'x')", database=database)
    sql_server.sql(f"INSERT INTO t VALUES (2, REPEAT('{large}', 6))", "FLUSH BINARY LOGS", database=database)
    sql_server.sql("INSERT INTO t VALUES (3, 'y')", "UPDATE t SET v = 'z'", database=database)
    settings = settings_of(sql_server, database)
    paths = sql_server.logs()[before - 1 :]
    kept = [event for path in paths for event in read_file(path) if event.kind not in NOT_COMPARED]
    sent = _streamed(settings, Spot(paths[0].name, 4), _end(settings))
    assert [(e.kind, e.body, e.file) for e in sent] == [(e.kind, e.body, e.file) for e in kept]
    ends = [(e.kind, e.end) for e in kept if e.kind in ENDS]
    assert [(e.kind, e.end) for e in sent if e.kind in ENDS] == ends
    assert len(ends) > 5
    assert max(len(event.body) for event in sent) > 1 << 24
    middle = transactions(paths[:1], database)[0].spot
    again = _streamed(settings, middle, _end(settings))
    assert [e.body for e in again] == [e.body for e in sent if (e.file, e.start) >= middle]


def test_events_come_as_they_are_committed(sql_server: SqlServer) -> None:
    database = sql_server.database()
    sql_server.sql("CREATE TABLE t (k INT PRIMARY KEY)", database=database)
    settings = settings_of(sql_server, database)
    stream = LogStream(settings, _end(settings))
    try:
        for number in range(3):
            sql_server.sql(f"INSERT INTO t VALUES ({number})", database=database)
            kinds = {event.kind for event in stream.until(_end(settings), 20)}
            assert kinds & {Kind.WRITE_ROWS, Kind.WRITE_ROWS_V1}
    finally:
        stream.close()


def test_a_position_that_the_server_no_longer_has_is_refused_by_name(sql_server: SqlServer) -> None:
    settings = settings_of(sql_server, sql_server.database())
    with pytest.raises(RunnelError, match="RUNNEL-BINLOG-PURGED"):
        _streamed(settings, Spot("binlog.999999", 4), Spot("binlog.999999", 5))


def test_a_user_without_the_privilege_is_told_what_to_grant(sql_server: SqlServer) -> None:
    sql_server.sql("CREATE USER IF NOT EXISTS weak@'127.0.0.1'")
    settings = settings_of(sql_server, sql_server.database(), user="weak")
    with pytest.raises(RunnelError, match=r"RUNNEL-MYSQL-DENIED.*GRANT .*REPLICATION SLAVE"):
        _streamed(settings, Spot("binlog.000001", 4), Spot("binlog.000001", 5))


def test_who_looks_into_the_log_does_not_end_the_stream_of_the_reader_with_a_number(sql_server: SqlServer) -> None:
    database = sql_server.database()
    sql_server.sql("CREATE TABLE t (k INT PRIMARY KEY)", database=database)
    settings = settings_of(sql_server, database, server_id=7_777_777)
    start = _end(settings)
    stream = LogStream(settings, start)
    try:
        for number in range(3):
            sql_server.sql(f"INSERT INTO t VALUES ({number})", database=database)
            end = _end(settings)
            assert list(ServerLog(settings).items(start, end, lambda *_: True))
            assert list(stream.until(end, 20))
    finally:
        stream.close()
