"""The nodes that other tests rely on: they keep their data, write the log version asked for, and make a ring."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.servers.cassandra import NodeOptions, cassandra, cassandra_ring

if TYPE_CHECKING:
    from tests.servers.cassandra import CassandraNode

__all__ = ["cassandra_ring"]
pytestmark = pytest.mark.cassandra


def _fill(node: CassandraNode, replication: int = 1) -> str:
    keyspace = node.keyspace(replication)
    node.cql(
        f"CREATE TABLE {keyspace}.t (k int PRIMARY KEY, v text) WITH cdc = true",
        f"INSERT INTO {keyspace}.t (k, v) VALUES (1, 'one')",
    )
    return keyspace


@pytest.mark.parametrize(("compatibility", "version"), [("CASSANDRA_4", 7), ("NONE", 8)])
def test_a_node_writes_the_log_version_it_is_asked_for_and_keeps_its_data(compatibility: str, version: int) -> None:
    with cassandra(NodeOptions(compatibility, "LZ4Compressor")) as node:
        keyspace = _fill(node)
        node.stop()
        names = [path.name for path in node.cdc_raw.glob("*.log")]
        assert names
        assert all(name.startswith(f"CommitLog-{version}-") for name in names)
        node.start()
        assert node.cql(f"SELECT v FROM {keyspace}.t WHERE k = 1")[0].v == "one"


def test_a_ring_holds_every_row_on_every_node(cassandra_ring: list[CassandraNode]) -> None:
    keyspace = _fill(cassandra_ring[0], replication=3)
    assert [node.cql(f"SELECT v FROM {keyspace}.t")[0].v for node in cassandra_ring] == ["one"] * 3
