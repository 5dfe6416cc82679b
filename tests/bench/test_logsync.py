"""The log sync benchmark at a tiny size, against real servers: whole figures, and every row on both sides."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from runnel.bench.logsync import measure
from runnel.bench.logsync.lag import Load
from runnel.bench.report import markdown
from runnel.errors import RunnelError
from tests.servers.mariadb import mariadb_server
from tests.servers.postgres import postgres_server

if TYPE_CHECKING:
    from pathlib import Path

    from tests.servers.mysql import SqlServer
    from tests.servers.postgres import PostgresServer

__all__ = ["mariadb_server", "postgres_server"]


@pytest.mark.mariadb
@pytest.mark.postgres
@pytest.mark.timeout(900)
def test_every_row_is_decoded_and_every_transaction_arrives(
    mariadb_server: SqlServer, postgres_server: PostgresServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))  # no other reader is installed there
    monkeypatch.setenv("RUNNEL_ENGINE", "duckdb")
    url = f"mysql://root@127.0.0.1:{mariadb_server.port}"
    load = Load(rate=20, seconds=2, warm=1)
    figures = json.loads(json.dumps(measure.measure([url], postgres_server.url(), 2_345, load)))
    assert figures["verified"]
    assert figures["logs"].keys() == {"mariadb", "postgres"}
    assert figures["logs"]["mariadb"]["readers"].keys() == {"file", "server"}
    assert all(one["rows"] == 2_345 for log in figures["logs"].values() for one in log["readers"].values())
    assert figures["lag"]["transactions"] == 40
    assert 0 < figures["lag"]["p50"] <= figures["lag"]["p95"] <= figures["lag"]["longest"]
    assert figures["missing"] == ["mysql_replication", "debezium"]
    shown = markdown(measure.sheet(figures))
    assert "Debezium is not installed" in shown
    assert "ROWS ARE MISSING" not in shown
    assert mariadb_server.sql("SHOW DATABASES LIKE 'runnel_bench%'") == ()


def test_a_server_that_is_away_and_a_url_of_another_kind_are_told() -> None:
    with pytest.raises(RunnelError, match="RUNNEL-BENCH-SERVER"):
        measure.measure(["mysql://root@127.0.0.1:1"], None, 1, Load(1, 1))
    with pytest.raises(RunnelError, match="mysql://USER@HOST:PORT"):
        measure.measure(["postgresql://root@127.0.0.1:1"], None, 1, Load(1, 1))
