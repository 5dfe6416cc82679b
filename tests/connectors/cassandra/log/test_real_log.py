"""Logs of real servers: the rows rebuilt from them are the rows the server gives.

`RUNNEL_CASSANDRA_STATEMENTS` says how many random statements a server gets (2000); `RUNNEL_SEED` where they begin (0).
"""

from __future__ import annotations

import os
import random
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from runnel.connectors.cassandra.cells.reconcile import PartitionState, changes, merge
from runnel.connectors.cassandra.log.catalog import Catalog
from runnel.connectors.cassandra.log.positions import START, Position
from runnel.connectors.cassandra.log.reader import LogReader
from runnel.connectors.cassandra.log.segment import segment_files
from runnel.connectors.cassandra.log.tail import LogFolder
from runnel.connectors.cassandra.schema.tables import build_tables
from tests.connectors.cassandra.compare import States, rebuild, rebuilt_rows, schema_rows, selected_rows, truncated
from tests.connectors.cassandra.workload import KEYSPACE, Workload, definitions
from tests.servers.cassandra import NodeOptions, cassandra, ring, wait_until_joined

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from runnel.connectors.cassandra.cells import Mutation
    from runnel.connectors.cassandra.schema.tables import TableSchema
    from tests.servers.cassandra import CassandraNode

pytestmark = [pytest.mark.cassandra, pytest.mark.timeout(1800)]

STATEMENTS = int(os.environ.get("RUNNEL_CASSANDRA_STATEMENTS", "2000"))
SEED = int(os.environ.get("RUNNEL_SEED", "0"))
HOST = "127.0.0.21"
WAIT_SECONDS = 60


@contextmanager
def connected(node: CassandraNode) -> Iterator[Any]:
    from cassandra import ConsistencyLevel
    from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile
    from cassandra.policies import WhiteListRoundRobinPolicy

    policy = WhiteListRoundRobinPolicy([node.host])
    profile = ExecutionProfile(policy, consistency_level=ConsistencyLevel.ALL, request_timeout=60)
    profiles = {EXEC_PROFILE_DEFAULT: profile}
    with Cluster([node.host], node.port, execution_profiles=profiles, protocol_version=5) as cluster:
        yield cluster.connect()


class Follower:
    """Reads a node's log on from where it was, with what the log itself says of tables and nothing else."""

    def __init__(self, node: CassandraNode, session: Any, replication: int = 1) -> None:
        self.log = LogFolder(node.cdc_raw)
        self.session = session
        self.reader = LogReader(Catalog())
        self.position = START
        self.mutations: list[Mutation] = []
        how = f"{{'class': 'SimpleStrategy', 'replication_factor': {replication}}}"
        session.execute(f"CREATE KEYSPACE IF NOT EXISTS sign WITH replication = {how}")
        session.execute("CREATE TABLE IF NOT EXISTS sign.here (id int PRIMARY KEY) WITH cdc = true")

    def catch_up(self) -> None:
        """Read until the log holds what was written last."""
        sign = random.randrange(1 << 31)
        self.session.execute(f"INSERT INTO sign.here (id) VALUES ({sign})")
        end = time.monotonic() + WAIT_SECONDS
        while time.monotonic() < end:
            for mutation in self.log.read(self.reader, self.position):
                self.mutations.append(mutation)
                self.position = Position(mutation.segment, mutation.position)
                if mutation.changes[0][2] == sign.to_bytes(4, "big") and mutation.changes[0][1].keyspace == "sign":
                    return
        pytest.fail("the log does not show what was written")

    def tables(self) -> list[TableSchema]:
        return build_tables(schema_rows(self.session, KEYSPACE))

    def differences(self, states: States | None = None) -> dict[str, tuple[list[str], list[str]]]:
        """Give what only the server has, and what only the log has, or these states, by table."""
        states = rebuild(self.mutations) if states is None else states
        found = {}
        for table in self.tables():
            assert self.reader.catalog.table(table.id) == table
            theirs, now = selected_rows(self.session, table)
            ours = rebuilt_rows(states, table, now)
            if ours != theirs:
                found[table.name] = ([r for r in theirs if r not in ours], [r for r in ours if r not in theirs])
        return found


@pytest.mark.parametrize(
    ("compatibility", "compression"),
    [("CASSANDRA_4", None), ("NONE", None), ("CASSANDRA_4", "LZ4Compressor"), ("NONE", "ZstdCompressor")],
)
def test_rows_rebuilt_from_the_log_are_the_rows_of_the_server(
    compatibility: str, compression: str | None, say: Callable[[str], None]
) -> None:
    say(f"seed {SEED}, {STATEMENTS} statements")
    with cassandra(NodeOptions(compatibility, compression), HOST) as node, connected(node) as session:
        follower = Follower(node, session)
        for definition in definitions():
            session.execute(definition)
        workload = Workload(SEED)
        for _ in range(4):
            for _ in range(STATEMENTS // 4):
                session.execute(workload.next())
            follower.catch_up()
            assert follower.differences() == {}
        _any_order_gives_the_same(follower)
        changed = {change[1].name for mutation in follower.mutations for change in mutation.changes}
        assert changed >= {table.name for table in follower.tables()}


def _merged(states: States, rest: States, tables: dict[Any, TableSchema]) -> States:
    for at, state in rest.items():
        if at[0] in tables:
            merge(states.setdefault(at, PartitionState(at[1])), changes(state, tables[at[0]]))
    return states


FULL = "RUNNEL_CASSANDRA_STATEMENTS" in os.environ
ON_RINGS = STATEMENTS if FULL else 600
RINGS = [("NONE", "LZ4Compressor"), ("CASSANDRA_4", None), ("NONE", None)]
"""Log versions 8 and 7; the first is run always, all of them with `make test-cassandra`."""


@pytest.mark.parametrize(("compatibility", "compression"), RINGS if FULL else RINGS[:1])
def test_the_logs_of_three_replicas_are_one_table_also_when_nodes_crash(
    compatibility: str, compression: str | None, say: Callable[[str], None]
) -> None:
    """First each log alone is the table; then a node is killed under statements, comes back, and another one is."""
    say(f"seed {SEED}, {ON_RINGS} statements")
    hosts, options = ("127.0.0.24", "127.0.0.25", "127.0.0.26"), NodeOptions(compatibility, compression)
    with ring(hosts, options=options) as nodes, connected(nodes[0]) as session:
        followers = [Follower(node, session, replication=3) for node in nodes]
        for definition in definitions(replication=3):
            session.execute(definition)
        workload, part = Workload(SEED), ON_RINGS // 6
        _some_of(session, workload, part, "ALL")
        assert [_caught_up(follower) for follower in followers] == [{}, {}, {}]
        for killed in (nodes[2], nodes[1]):
            _some_of(session, workload, part, "ALL")
            killed.kill()  # what it had not written down yet, the others have
            workload.steady = True
            _some_of(session, workload, part, "QUORUM")
            killed.start()
            wait_until_joined(nodes)
            workload.steady = False
            assert _together(followers) == {}
        _some_of(session, workload, part, "ALL")
        assert _together(followers) == {}
        changed = {change[1].name for mutation in followers[0].mutations for change in mutation.changes}
        assert changed >= {table.name for table in followers[0].tables()}  # by name: one may just have been made anew


def _some_of(session: Any, workload: Workload, count: int, level: str) -> None:
    """Run statements; while a node goes, the server may give one up, which its logs know as well as its tables."""
    from cassandra import ConsistencyLevel, OperationTimedOut, WriteFailure, WriteTimeout
    from cassandra.query import SimpleStatement

    done = 0
    while done < count or workload.waiting:
        statement = SimpleStatement(workload.next(), consistency_level=ConsistencyLevel.name_to_value[level])
        try:
            session.execute(statement)
        except (OperationTimedOut, WriteTimeout, WriteFailure):
            assert level != "ALL"
        done += 1


def _caught_up(follower: Follower) -> dict[str, tuple[list[str], list[str]]]:
    follower.catch_up()
    return follower.differences()


def _together(followers: list[Follower]) -> dict[str, tuple[list[str], list[str]]]:
    """Compare what every replica together gives with what all logs together give."""
    tables = {table.id: table for table in followers[0].tables()}
    together: States = {}
    for follower in followers:
        follower.catch_up()
        _merged(together, rebuild(follower.mutations), tables)
    return followers[0].differences(together)


def _any_order_gives_the_same(follower: Follower) -> None:
    """Check the same log given three times, shuffled, and in two parts that are merged as states."""
    mutations, tables = follower.mutations, {table.id: table for table in follower.tables()}
    now = int(time.time())

    def shown(states: States) -> dict[str, list[str]]:
        return {table.name: rebuilt_rows(states, table, now) for table in tables.values()}

    whole = shown(rebuild(mutations))
    generator = random.Random(SEED)
    assert shown(rebuild(mutations * 3)) == whole
    assert shown(rebuild(generator.sample(mutations, len(mutations)))) == whole
    cut, taken = generator.randrange(len(mutations)), truncated(mutations)
    states, rest = rebuild(mutations[:cut], taken), rebuild(mutations[cut:], taken)
    assert shown(_merged(states, rest, tables)) == whole


def test_the_rows_of_a_servers_own_view_are_rebuilt_too() -> None:
    with cassandra(NodeOptions(), HOST) as node, connected(node) as session:
        follower = Follower(node, session)
        session.execute(
            f"CREATE KEYSPACE {KEYSPACE} WITH replication = {{'class': 'SimpleStrategy', 'replication_factor': 1}}"
        )
        session.execute(f"CREATE TABLE {KEYSPACE}.t (k int, c int, v int, x text, PRIMARY KEY (k, c)) WITH cdc = true")
        session.execute(
            f"CREATE MATERIALIZED VIEW {KEYSPACE}.by_v AS SELECT * FROM {KEYSPACE}.t "
            "WHERE v IS NOT NULL AND k IS NOT NULL AND c IS NOT NULL PRIMARY KEY (v, k, c)"
        )
        made = random.Random(SEED)
        for n in range(400):
            where = f"WHERE k = {made.randrange(3)} AND c = {made.randrange(3)}"
            session.execute(
                made.choice(
                    [
                        f"UPDATE {KEYSPACE}.t SET v = {made.randrange(4)} {where}",
                        f"UPDATE {KEYSPACE}.t USING TTL 1000 SET v = {made.randrange(4)} {where}",
                        f"UPDATE {KEYSPACE}.t SET x = 'x{n}' {where}",
                        f"DELETE v FROM {KEYSPACE}.t {where}",
                        f"DELETE FROM {KEYSPACE}.t {where}",
                        f"INSERT INTO {KEYSPACE}.t (k, c, v, x) VALUES (1, {made.randrange(3)}, {made.randrange(4)}, 'i{n}')",
                    ]
                )
            )
        # The server writes its views a little after their table.
        end = time.monotonic() + WAIT_SECONDS
        follower.catch_up()
        while follower.differences() and time.monotonic() < end:
            follower.catch_up()
        assert follower.differences() == {}


def test_counters_that_are_deleted_and_counted_up_again_are_as_the_server_has_them() -> None:
    deletes = [
        "DELETE FROM w.counters WHERE p = {p} AND c = 1",
        "DELETE hits FROM w.counters WHERE p = {p} AND c = 1",
        "DELETE FROM w.counters WHERE p = {p}",
        "DELETE FROM w.counters WHERE p = {p} AND c > 0",
        "DELETE total FROM w.counters WHERE p = {p}",
    ]
    with cassandra(NodeOptions(), HOST) as node, connected(node) as session:
        follower = Follower(node, session)
        for definition in definitions():
            session.execute(definition)
        for p, delete in enumerate(deletes):
            counted = [
                f"UPDATE w.counters SET hits = hits + 5, misses = misses - 1 WHERE p = {p} AND c = 1",
                f"UPDATE w.counters SET total = total + 2 WHERE p = {p}",
            ]
            for statement in [*counted * 2, delete.format(p=p), *counted]:
                session.execute(statement)
                follower.catch_up()
                assert follower.differences() == {}


def test_after_a_crash_the_log_gives_what_the_server_kept() -> None:
    with cassandra(NodeOptions(sync_period="1000ms"), HOST) as node:
        with connected(node) as session:
            follower = Follower(node, session)
            session.execute(
                f"CREATE KEYSPACE {KEYSPACE} WITH replication = {{'class': 'SimpleStrategy', 'replication_factor': 1}}"
            )
            session.execute(f"CREATE TABLE {KEYSPACE}.t (id int PRIMARY KEY, v text) WITH cdc = true")
            for n in range(200):
                session.execute(f"INSERT INTO {KEYSPACE}.t (id, v) VALUES ({n}, 'x')")
        node.kill()
        before = list(follower.log.read(LogReader(Catalog()), START))
        node.start()
        with connected(node) as session:
            follower.session = session
            for mutation in follower.log.read(follower.reader, START):
                follower.mutations.append(mutation)
            assert follower.differences() == {}
            assert follower.mutations[: len(before)] == before


def test_what_the_reader_is_done_with_is_deleted_and_the_rest_is_still_there() -> None:
    with cassandra(NodeOptions(), HOST) as node, connected(node) as session:
        follower = Follower(node, session)
        for definition in definitions():
            session.execute(definition)
        blob = "0x" + "ab" * 100_000
        for n in range(30):
            session.execute(f"INSERT INTO {KEYSPACE}.natives (id, blob_) VALUES ({n}, {blob})")
        follower.catch_up()
        kept = follower.log.kept()
        released = follower.log.release(follower.position)
        assert released
        assert follower.log.kept() < kept
        assert min(segment.id for segment in segment_files(node.cdc_raw)) <= follower.position.segment
        session.execute(f"INSERT INTO {KEYSPACE}.plain (id, a) VALUES (1, 1)")
        follower.catch_up()
        assert follower.differences() == {}
