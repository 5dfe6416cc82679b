"""What goes wrong with a server is told in one sentence with a code, and ends with the promised exit code."""

from __future__ import annotations

import itertools
import threading
import time
from typing import TYPE_CHECKING

import pytest
from cassandra.concurrent import execute_concurrent_with_args

from runnel.config import Secret
from runnel.connectors.cassandra.client import Client
from runnel.connectors.cassandra.settings import Settings
from runnel.connectors.cassandra.snapshot import Wanted, estimated_rows, read_arrow, read_table, token_ranges
from runnel.errors import Unreachable, UsageError
from tests.servers.cassandra import NodeOptions, cassandra, free_port

if TYPE_CHECKING:
    from tests.connectors.cassandra.conftest import Shop

pytestmark = pytest.mark.cassandra
GUARDED = {
    "authenticator": "PasswordAuthenticator",
    "authorizer": "CassandraAuthorizer",
    "role_manager": "CassandraRoleManager",
    "permissions_validity": "0ms",
}


def test_a_server_that_is_down_is_told_with_exit_code_3(shop: Shop) -> None:
    shop.configure(port=free_port("127.0.0.1"))
    assert "RUNNEL-CASSANDRA-DOWN" in shop.run("capture", "shop", "--technique", "scan", exit_code=3)


def test_a_server_that_is_back_is_found_soon_however_long_it_was_away(shop: Shop) -> None:
    with Client(Settings("back", shop.keyspace, (shop.node.host,), shop.node.port)) as client:
        waits = list(itertools.islice(client._cluster.reconnection_policy.new_schedule(), 3600))
    assert len(waits) == 3600
    assert max(waits) <= 1


def test_a_misspelt_keyspace_or_table_brings_the_nearest(shop: Shop) -> None:
    shop.cql("CREATE TABLE KS.orders (id int PRIMARY KEY, v int)")
    shop.configure(keyspace=shop.keyspace + "x")
    assert f"did you mean '{shop.keyspace}'" in shop.run("capture", "shop", "--technique", "scan", exit_code=1)
    shop.configure(tables=["order"])
    assert "did you mean 'orders'" in shop.run("capture", "shop", "--technique", "scan", exit_code=1)


def test_a_table_that_keeps_no_log_says_how_to_change_that(shop: Shop) -> None:
    shop.cql("CREATE TABLE KS.orders (id int PRIMARY KEY, v int)")
    for command in (("capture", "shop", "--technique", "log"), ("check",)):
        assert "WITH cdc = true" in shop.run(*command, exit_code=1)


def test_a_wrong_technique_or_source_is_told_with_exit_code_2(shop: Shop) -> None:
    assert "did you mean 'scan'" in shop.run("capture", "shop", "--technique", "scann", exit_code=2)
    assert "did you mean 'shop'" in shop.run("capture", "shob", exit_code=2)
    assert "RUNNEL-CAPTURE-POSITION" in shop.run("capture", "shop", "--since", "yesterday", exit_code=2)
    assert "RUNNEL-CAPTURE-EXPAND" in shop.run(
        "capture", "shop", "--technique", "log-partial", "--expand-deletes", exit_code=2
    )


def _once_known(login: Settings) -> Client:
    """Log in as the role that a new server makes for itself some seconds after it has started."""
    deadline = time.monotonic() + 90
    while True:
        try:
            return Client(login)
        except UsageError:
            if time.monotonic() > deadline:
                raise
            threading.Event().wait(0.5)


def test_logins_and_permissions_are_told_apart() -> None:
    with cassandra(NodeOptions(settings=GUARDED)) as node:
        login = Settings("shop", "system", (node.host,), node.port, user="cassandra", password=Secret("cassandra"))
        with _once_known(login) as client:
            client.execute("CREATE KEYSPACE k WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}")
            client.execute("CREATE TABLE k.t (id int PRIMARY KEY, v int)")
            client.execute("CREATE ROLE reader WITH PASSWORD = 'secret' AND LOGIN = true")
            for password, user in ((Secret("wrong"), "reader"), (None, None)):
                with pytest.raises(UsageError, match="RUNNEL-CASSANDRA-LOGIN"):
                    Client(Settings("shop", "k", (node.host,), node.port, user=user, password=password))
            reader = Settings("shop", "k", (node.host,), node.port, user="reader", password=Secret("secret"))
            with Client(reader) as poor:
                table = poor.tables()["t"]
                with pytest.raises(UsageError, match="RUNNEL-CASSANDRA-PERMISSION"):
                    list(read_table(poor, table, Wanted(table.regular)))
                client.execute("GRANT SELECT ON KEYSPACE k TO reader")
            with Client(reader) as enough:
                assert enough.server_settings() == {}, "which is not granted, and not needed"
                assert enough.replicas() == 1
                assert list(read_table(enough, table, Wanted(table.regular))) == []


def test_a_log_folder_that_is_not_to_be_seen_is_told(shop: Shop) -> None:
    shop.cql("CREATE TABLE KS.t (id int PRIMARY KEY, v int) WITH cdc = true")
    shop.configure(cdc_raw=["nowhere"])
    assert "RUNNEL-CASSANDRA-FOLDER" in shop.run("capture", "shop", "--technique", "log", exit_code=2)


def test_too_few_replicas_are_told_as_such(shop: Shop) -> None:
    shop.cql("ALTER KEYSPACE KS WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 3}")
    shop.cql("CREATE TABLE KS.t (id int PRIMARY KEY, v int)")
    settings = Settings("shop", shop.keyspace, (shop.node.host,), shop.node.port)
    with Client(settings) as client, pytest.raises(Unreachable, match=r"RUNNEL-CASSANDRA-REPLICAS.*ALL"):
        list(read_arrow(client, client.tables()["t"]))


def test_token_ranges_cover_the_ring_once() -> None:
    ranges = token_ranges([-(2**63), -5, 7, 2**63 - 1], 16)
    assert ranges[0][0] == -(2**63)
    assert ranges[-1][1] == 2**63 - 1
    assert all(before[1] == after[0] for before, after in itertools.pairwise(ranges))


def test_every_row_is_read_once_whatever_the_pages(shop: Shop) -> None:
    shop.cql("CREATE TABLE KS.t (id int PRIMARY KEY, v int, l list<int>)")
    shop.cql(*(f"INSERT INTO KS.t (id, v, l) VALUES ({n}, {n}, [{n}])" for n in range(300)))
    settings = Settings("shop", shop.keyspace, (shop.node.host,), shop.node.port, page=7)
    with Client(settings) as client:
        table = client.tables()["t"]
        found = [row for batch in read_arrow(client, table) for row in batch.to_pylist()]
        assert sorted(row["id"] for row in found) == list(range(300))
        assert all(row["l"] == [row["v"]] for row in found)
        assert len(list(read_table(client, table, Wanted(table.regular, ttls=True)))) == 300


@pytest.mark.parametrize("rows", [0, 10, 4_000])
def test_how_many_rows_a_table_has_is_known_as_soon_as_it_is_filled(shop: Shop, rows: int) -> None:
    shop.cql("CREATE TABLE KS.t (k int PRIMARY KEY)")
    execute_concurrent_with_args(
        shop.session(), f"INSERT INTO {shop.keyspace}.t (k) VALUES (%s)", [(k,) for k in range(rows)]
    )
    settings = Settings("shop", shop.keyspace, (shop.node.host,), shop.node.port)
    with Client(settings) as client:
        found = estimated_rows(client, client.tables()["t"])
    assert found == rows if rows < 1_000 else rows / 1.5 < found < rows * 1.5
