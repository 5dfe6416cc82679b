"""The first read of a large Cassandra table: rows written by several processes, then read, reconciled and aggregated by the cluster."""

from __future__ import annotations

import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from typing import TYPE_CHECKING, Any

from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile
from cassandra.concurrent import execute_concurrent
from cassandra.query import BatchStatement, BatchType

from tests.cluster.compare import differing
from tests.cluster.driver import Driver
from tests.cluster.report import Report
from tests.servers.cassandra import NodeOptions, cassandra

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.cluster.workplace import Workplace
    from tests.servers.cassandra import CassandraNode

HOST = "127.0.0.63"
LOADERS = 2
BATCH, CONCURRENCY = 50, 8
SETTINGS = {"batch_size_warn_threshold": "256KiB", "batch_size_fail_threshold": "1MiB", "cdc_total_space": "4096MiB"}
SETTINGS |= {f"{kind}_request_timeout": "120s" for kind in ("read", "range", "write")}
"""A server that has a share of a busy machine may take long; nothing here is about its speed."""
TABLE = """CREATE TABLE {keyspace}.orders (id bigint PRIMARY KEY, active boolean, amount double, customer bigint,
    placed bigint, product bigint, quantity bigint, remark text, shipment bigint)"""
NAMES = "id, active, amount, customer, placed, product, quantity, remark, shipment"
ROWS = (
    "SELECT i AS id, i % 2 = 1 AS active, i / 8 AS amount, i * 31 AS customer, i + 1750000000 AS placed, i % 1000 AS product,"
    " i * 7919 % 10007 AS quantity, 'remark ' || i AS remark, -i AS shipment FROM (SELECT range AS i FROM range({rows}))"
)
VIEWS = {
    "by_product": "SELECT product, count(*) AS n, sum(quantity) AS total, sum(id) AS ids FROM shop.orders GROUP BY product",
    "active": "SELECT active, sum(customer) AS customers, sum(shipment) AS shipments FROM shop.orders GROUP BY active",
    "largest": "SELECT product, max(quantity) AS most, max(remark) AS last FROM shop.orders GROUP BY product",
}


@dataclass(frozen=True)
class Part:
    """The rows that one process loads, and where to."""

    port: int
    keyspace: str
    rows: range


def check(place: Workplace, rows: int) -> Report:
    """Load the table, read it by the cluster, and compare with what was written."""
    report = Report(f"snapshot: {rows:,} rows of eight columns beside the key")
    with cassandra(NodeOptions(heap="1g", settings=SETTINGS), HOST) as node:
        keyspace = node.keyspace()
        begun = time.perf_counter()
        fill(node, keyspace, rows)
        report.say("loaded", f"in {time.perf_counter() - begun:.0f} s by {LOADERS} processes")
        lines = ["[sources.shop]", 'type = "cassandra"', f'hosts = ["{HOST}"]', f"port = {node.port}"]
        source = "\n".join([*lines, f'keyspace = "{keyspace}"', 'tables = ["orders"]'])
        folder = place.project("snapshot", source, VIEWS)
        with Driver(folder) as driver:
            report.run("snapshot", driver.run(), workers=2)
        report.equal("views", differing(folder, {"shop.orders": ROWS.format(rows=rows)}, VIEWS))
    return report


def fill(node: CassandraNode, keyspace: str, rows: int) -> None:
    """Make the table and its rows; its changes are kept for readers from here on, not those that made it."""
    node.cql(TABLE.format(keyspace=keyspace))
    each = -(-rows // LOADERS)
    parts = [Part(node.port, keyspace, range(first, min(first + each, rows))) for first in range(0, rows, each)]
    with ProcessPoolExecutor(LOADERS, get_context("spawn")) as pool:
        list(pool.map(load, parts))
    node.cql(f"ALTER TABLE {keyspace}.orders WITH cdc = true")


def load(part: Part) -> None:
    """Write rows in batches of prepared statements."""
    profiles = {EXEC_PROFILE_DEFAULT: ExecutionProfile(request_timeout=120)}
    with Cluster([HOST], part.port, execution_profiles=profiles, protocol_version=5) as cluster:
        session = cluster.connect(part.keyspace)
        marks = ", ".join("?" for _ in NAMES.split(","))
        insert = session.prepare(f"INSERT INTO orders ({NAMES}) VALUES ({marks})")
        sent = ((batch, ()) for batch in _batches(insert, part.rows))
        for done in execute_concurrent(session, sent, concurrency=CONCURRENCY, results_generator=True):
            assert done.success, done.result_or_exc


def _batches(insert: Any, rows: range) -> Iterator[BatchStatement]:
    for first in range(rows.start, rows.stop, BATCH):
        batch = BatchStatement(BatchType.UNLOGGED)
        for i in range(first, min(first + BATCH, rows.stop)):
            at, quantity = i + 1_750_000_000, i * 7919 % 10007
            batch.add(insert, (i, i % 2 == 1, i / 8, i * 31, at, i % 1000, quantity, f"remark {i}", -i))
        yield batch
