"""The SQL servers that other tests rely on: they write a row-based binary log, keep their data, and differ from each other."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.servers.mariadb import mariadb_program
from tests.servers.mysql import mysql_program, server

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.servers.mysql import Program


@pytest.mark.parametrize(
    "program",
    [pytest.param(mariadb_program, marks=pytest.mark.mariadb), pytest.param(mysql_program, marks=pytest.mark.mysql)],
    ids=["mariadb", "mysql"],
)
def test_a_server_logs_rows_and_keeps_its_data_through_a_crash(program: Callable[[], Program]) -> None:
    with server(program()) as running:
        name = running.database()
        running.sql("CREATE TABLE t (k INT PRIMARY KEY)", "INSERT INTO t VALUES (1)", database=name)
        assert running.sql("SELECT @@binlog_format") == (("ROW",),)
        running.kill()
        running.start()
        assert running.sql("SELECT k FROM t", database=name) == ((1,),)
        assert len(running.logs(name)) == 2
