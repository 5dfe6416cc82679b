"""Logs as they are in life: segments that roll while nobody reads, three replicas, a silent one, and files copied away."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING

import pytest

from runnel.engine.duckdb import DuckDbEngine
from runnel.pipeline.captures import LakeCycles
from runnel.project.project import open_project
from tests.connectors.cassandra.conftest import Shop, wait_for_mark
from tests.servers.cassandra import ring, wait_until_joined

if TYPE_CHECKING:
    from pathlib import Path

    from tests.servers.cassandra import CassandraNode

pytestmark = pytest.mark.cassandra
ROWS = 300
MOST_SCANS = 100
WIDE = "x" * 10_000


def test_c_j_nothing_is_lost_while_segments_roll_and_nobody_reads(shop: Shop) -> None:
    shop.configure(tables=["t"])
    shop.cql("CREATE TABLE KS.t (k int PRIMARY KEY, v text) WITH cdc = true")
    assert shop.capture("log") == []
    shop.cql(*(f"INSERT INTO KS.t (k, v) VALUES ({n}, '{n}{WIDE}')" for n in range(ROWS)))
    segments = len(list(shop.node.cdc_raw.glob("*.log")))
    assert sorted(int(delta.key[0]) for delta in shop.capture("log")) == list(range(ROWS))
    assert segments > 2
    assert len(list(shop.node.cdc_raw.glob("*.log"))) < segments, "segments that were read are given back"
    assert shop.capture("log") == []


def test_a_log_is_told_from_a_position_or_a_time_on(shop: Shop) -> None:
    shop.configure(tables=["t"])
    shop.cql("CREATE TABLE KS.t (k int PRIMARY KEY, v int) WITH cdc = true", "INSERT INTO KS.t (k, v) VALUES (1, 1)")
    first = shop.capture("log-partial")
    shop.cql("UPDATE KS.t SET v = 2 WHERE k = 1")
    with open_project(shop.folder, engine=DuckDbEngine(), sync=False) as project:
        position = LakeCycles(project.runtime, "shop", "log-partial").state()
    assert position is not None
    for since in (json.dumps(position.upto), str(first[0].time)):
        assert shop.told("log-partial", "--since", since) == ["ups v:2"]
    assert "RUNNEL-CAPTURE-SINCE" in shop.run("capture", "shop", "--technique", "log", "--since", "0", exit_code=2)
    assert shop.told("log-partial") == ["ups v:2"]


def test_equal_clusterings_of_different_bytes_are_one_row(shop: Shop) -> None:
    shop.configure(tables=["t"])
    shop.cql("CREATE TABLE KS.t (k int, c decimal, v int, PRIMARY KEY (k, c)) WITH cdc = true")
    assert shop.capture("log") == []
    shop.cql(
        "INSERT INTO KS.t (k, c, v) VALUES (1, 1.0, 1)",
        "UPDATE KS.t SET v = 2 WHERE k = 1 AND c = 1.00",
        "DELETE v FROM KS.t WHERE k = 1 AND c = 1",
        "INSERT INTO KS.t (k, c, v) VALUES (1, 1.000, 3)",
        "DELETE FROM KS.t WHERE k = 1 AND c = 1.0",
    )
    expected = ["ins v:1", "upd v:2 (was 1)", "del v (was 2)", "ins v:3", "del v (was 3)"]
    assert shop.told("log", "--expand-deletes") == expected


def test_copied_log_files_are_captured_without_a_server(shop: Shop, tmp_path: Path) -> None:
    shop.cql(
        "CREATE TABLE KS.t (k int PRIMARY KEY, v int) WITH cdc = true",
        "INSERT INTO KS.t (k, v) VALUES (1, 1)",
        "UPDATE KS.t SET v = 2 WHERE k = 1",
        "DELETE FROM KS.t WHERE k = 1",
    )
    shop.wait_for_log()
    (tmp_path / "logs").mkdir()
    for path in shop.node.cdc_raw.glob("*.log"):
        shutil.copy(path, tmp_path / "logs")
    query = f"SELECT id FROM system_schema.tables WHERE keyspace_name = '{shop.keyspace}' AND table_name = 't'"
    table_id = shop.node.cql(query)[0].id
    (shop.folder / "schema.cql").write_text(f"CREATE TABLE t (k int PRIMARY KEY, v int) WITH ID = {table_id};")
    text = f'[sources.shop]\ntype = "cassandra"\nlogs = "logs/*"\nschema = "schema.cql"\nkeyspace = "{shop.keyspace}"\n'
    text += 'tables = ["t"]\n'
    (shop.folder / "runnel.toml").write_text(text)
    lines = shop.run("capture", "shop", "--format", "oplog").splitlines()
    assert [line.split("/")[-1] for line in lines] == ["ins:1", "upd:2", "del"]
    assert shop.run("capture", "shop") == ""
    lines = shop.run("capture", "shop", "--technique", "log-partial").splitlines()
    assert [line[:3] for line in lines] == ["ups", "ups", "del"]
    assert "RUNNEL-CAPTURE-TECHNIQUE" in shop.run("capture", "shop", "--technique", "scan", exit_code=2)


def test_c_j_three_replicas_are_told_once_and_a_silent_one_is_an_error_until_it_is_back(tmp_path: Path) -> None:
    with ring(further={"hinted_handoff_enabled": "false"}) as nodes:
        shop = Shop(tmp_path, nodes[0], replication=3)
        shop.configure(tables=["t"], cdc_raw=[str(node.cdc_raw) for node in nodes], timeout="10 seconds")
        shop.cql(
            "CREATE TABLE KS.t (k int PRIMARY KEY, v int) WITH cdc = true", "INSERT INTO KS.t (k, v) VALUES (1, 1)"
        )
        assert shop.told("scan") == ["ups v:1"]
        assert shop.told("log") == ["ins v:1"]
        before = shop.run("capture", "shop", "--technique", "scan", "--since", "0").strip().rpartition("-")[2]
        nodes[2].stop()
        nodes[0].cql(f"UPDATE {shop.keyspace}.t SET v = 2 WHERE k = 1", consistency="QUORUM")
        assert "RUNNEL-CASSANDRA-REPLICAS" in shop.run("capture", "shop", "--technique", "scan", exit_code=3)
        assert _scanned(shop, nodes, "ONE", before) == ["ups v:2"], "the nearest replica of those that are there"
        nodes[2].start()
        wait_until_joined(nodes)
        # Which replica is the nearest changes from request to request; that one is behind.
        assert any(_scanned(shop, nodes, "ONE", before) == [] for _ in range(MOST_SCANS))
        assert _scanned(shop, nodes, "ALL", before) == ["ups v:2"]
        assert shop.told("scan") == ["ups v:2"]
        assert all(_scanned(shop, nodes, "ONE", before) == ["ups v:2"] for _ in range(5)), "ALL mends what is behind"
        shop.configure(tables=["t"], cdc_raw=[str(node.cdc_raw) for node in nodes], timeout="10 seconds")
        shop.cql("CREATE TABLE KS.w (k int PRIMARY KEY, v text)")
        shop.cql(*(f"INSERT INTO KS.w (k, v) VALUES ({n}, '{WIDE}')" for n in range(ROWS)))  # segments roll meanwhile
        shop.cql("INSERT INTO KS.t (k, v) VALUES (2, 5)", "DELETE FROM KS.t WHERE k = 2")
        for number, node in enumerate(nodes, 1000):
            _mark(shop, node, number)
        assert shop.told("log") == ["upd v:2 (was 1)", "ins v:5", "del key"]
        assert shop.told("log") == []
        shop.configure(tables=["t"], cdc_raw=[str(nodes[0].cdc_raw)])
        nodes[0].cql(
            f"ALTER KEYSPACE {shop.keyspace} WITH replication = {{'class': 'SimpleStrategy', 'replication_factor': 2}}"
        )
        assert "RUNNEL-CASSANDRA-NODES" in shop.run("capture", "shop", "--technique", "log", exit_code=2)


def _scanned(shop: Shop, nodes: list[CassandraNode], level: str, since: str) -> list[str]:
    """Scan at a level for what was written after a time, and remember nothing."""
    settings = {"tables": ["t"], "cdc_raw": [str(node.cdc_raw) for node in nodes], "timeout": "10 seconds"}
    shop.configure(consistency=level, **settings)
    return shop.told("scan", "--since", since)


def _mark(shop: Shop, node: CassandraNode, number: int) -> None:
    """Write a mark and wait until it is in this node's log."""
    shop.cql(
        "CREATE TABLE IF NOT EXISTS KS.marks (n int PRIMARY KEY) WITH cdc = true",
        f"INSERT INTO KS.marks (n) VALUES ({number})",
    )
    wait_for_mark(node, shop.keyspace, number)


def test_two_projects_on_one_log_both_get_everything(shop: Shop, tmp_path: Path) -> None:
    shop.cql("CREATE TABLE KS.t (k int PRIMARY KEY, v text) WITH cdc = true")
    (tmp_path / "other").mkdir()
    other = Shop(tmp_path / "other", shop.node)
    other.keyspace = shop.keyspace
    for project in (shop, other):
        project.configure(tables=["t"])
        assert project.capture("log") == []
    shop.cql(*(f"INSERT INTO KS.t (k, v) VALUES ({n}, '{n}{WIDE}')" for n in range(ROWS)))
    assert len(shop.capture("log")) == ROWS
    kept = len(list(shop.node.cdc_raw.glob("*.log")))
    assert len(other.capture("log")) == ROWS
    assert len(list(shop.node.cdc_raw.glob("*.log"))) < kept, "now nobody needs it any more"
