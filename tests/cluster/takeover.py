"""A runner killed in the middle of a load; a standby with a folder of its own, on the same catalog and data, goes on."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from cassandra import ConsistencyLevel
from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile

from runnel.errors import Transient
from tests.cluster.report import Report
from tests.connectors.cassandra.load import ARROW, VIEWS
from tests.connectors.cassandra.load_parts import PROBES, TABLES, Writer, reader
from tests.servers.cassandra import NodeOptions, cassandra
from tests.support.rows import comparable
from tests.support.runner import Runnel

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.cluster.workplace import Workplace

HOST = "127.0.0.64"
PATIENCE = 300.0
SHOWN = {
    name: sql.replace(" orders ", " shop.orders ").replace(" customers ", " shop.customers ")
    for name, sql in VIEWS.items()
}


def check(place: Workplace, seconds: float, rate: float) -> Report:
    """Write for so long, kill the first runner half-way, and compare what the second one has with `SELECT *`."""
    report = Report(f"takeover: {rate:g} statements/s for {seconds:g} s, the runner killed half-way")
    profiles = {EXEC_PROFILE_DEFAULT: ExecutionProfile(consistency_level=ConsistencyLevel.ALL, request_timeout=60)}
    with (
        cassandra(NodeOptions(), HOST) as node,
        Cluster([HOST], node.port, execution_profiles=profiles, protocol_version=5) as cluster,
    ):
        session, keyspace = cluster.connect(), node.keyspace()
        for name, columns in TABLES.items():
            session.execute(f"CREATE TABLE {keyspace}.{name} ({columns}) WITH cdc = true")
        session.execute(f"INSERT INTO {keyspace}.customers (id, name, region) VALUES ({PROBES}, 'probe', 'probes')")
        lines = ["[sources.shop]", 'type = "cassandra"', f'hosts = ["{HOST}"]', f"port = {node.port}"]
        source, state = "\n".join([*lines, f'keyspace = "{keyspace}"']), place.state("takeover")
        folders = [place.project(name, source, SHOWN, state=state) for name in ("first", "standby")]
        writer = Writer(session, keyspace, rate, 0)
        took = _taken_over(folders, writer, seconds, lambda: _differing(session, keyspace, folders[1]))
    report.say("written", f"{writer.written:,} statements")
    report.say("standby", f"first epoch {took[0]:.1f} s after the kill, with its start")
    report.say("caught up", f"{took[1]:.1f} s after the last statement")
    report.equal("tables, views", took[2])
    return report


def _taken_over(
    folders: list[Path], writer: Writer, seconds: float, differing: Callable[[], list[str]]
) -> tuple[float, float, list[str]]:
    first, standby = (Runnel(folder, "spark") for folder in folders)
    first.start()
    try:
        _wait(lambda: _published(folders[0]), first)
        writer.start()
        time.sleep(seconds / 2)
        first.kill()
        killed, head = time.monotonic(), _head(folders[1])
        standby.start()
        _wait(lambda: _head(folders[1]) > head, standby)
        fresh = time.monotonic() - killed
        time.sleep(max(0.0, killed + seconds / 2 - time.monotonic()))
        writer.stop()
        assert writer.error is None, writer.error
        stopped, wrong = time.monotonic(), differing()
        while wrong and time.monotonic() < stopped + PATIENCE:
            standby.check()
            wrong = differing()
        return fresh, time.monotonic() - stopped, wrong
    finally:
        first.kill()
        standby.kill()


def _published(folder: Path) -> bool:
    try:
        with reader(folder) as project:
            return set(SHOWN) <= set(project.runtime.lake.snapshot().views)
    except Transient:
        return False


def _head(folder: Path) -> int:
    with reader(folder) as project:
        return project.runtime.lake.head()


def _wait(holds: Callable[[], bool], runner: Runnel) -> None:
    deadline = time.monotonic() + PATIENCE
    while not holds():
        runner.check()
        assert time.monotonic() < deadline, "nothing is published"
        time.sleep(0.1)


def _differing(session: Any, keyspace: str, folder: Path) -> list[str]:
    """Compare both tables with `SELECT *`, and each view with its text on these rows."""
    import duckdb

    found = []
    with duckdb.connect() as recompute, reader(folder) as project:
        recompute.sql("CREATE SCHEMA shop")
        for name, schema in ARROW.items():
            rows = [dict(row._asdict()) for row in session.execute(f"SELECT * FROM {keyspace}.{name}")]
            recompute.register("given", pa.Table.from_pylist(rows, schema))
            recompute.sql(f"CREATE TABLE shop.{name} AS SELECT * FROM given")
            found += _unlike(name, rows, project.table(f"shop.{name}").to_pylist())
        for name, sql in SHOWN.items():
            found += _unlike(name, recompute.sql(sql).to_arrow_table().to_pylist(), project.view(name).to_pylist())
    return found


def _unlike(name: str, wanted: list[dict[str, Any]], kept: list[dict[str, Any]]) -> list[str]:
    same = comparable(wanted) == comparable(kept)
    return [] if same else [f"{name}: {len(wanted)} rows wanted, {len(kept)} kept"]
