"""A project with one Cassandra source, whose commands run in this process against the real node."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any

import pytest
from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile
from typer.testing import CliRunner

from runnel.cli import app
from runnel.connectors.cassandra.client import Client
from runnel.connectors.cassandra.log.catalog import Catalog
from runnel.connectors.cassandra.log.positions import Position
from runnel.connectors.cassandra.log.reader import LogReader
from runnel.connectors.cassandra.log.tail import LogFolder
from runnel.connectors.cassandra.settings import Settings
from runnel.connectors.deltas.forms import from_json
from tests.servers.cassandra import cassandra_node, cassandra_ring

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from runnel.connectors.deltas.model import Delta
    from tests.servers.cassandra import CassandraNode

__all__ = ["cassandra_node", "cassandra_ring"]
MOST_LOOKS = 5000


class Shop:
    """A keyspace of its own and a project that captures it."""

    def __init__(self, folder: Path, node: CassandraNode, replication: int = 1) -> None:
        self.folder, self.node = folder, node
        self.keyspace = node.keyspace(replication)
        self._marks = 0
        self._session: Any = None
        self.configure()

    def configure(self, **settings: Any) -> None:
        """Write runnel.toml anew with these settings of the source."""
        known = {"hosts": [self.node.host], "port": self.node.port, "keyspace": self.keyspace} | settings
        lines = ["[project]", 'name = "shop"', "[sources.shop]", 'type = "cassandra"']
        lines += [f"{name} = {_toml(value)}" for name, value in known.items()]
        (self.folder / "runnel.toml").write_text("\n".join(lines) + "\n")

    def cql(self, *statements: str) -> list[Any]:
        """Run statements in which `KS` stands for the keyspace."""
        return self.node.cql(*(statement.replace("KS", self.keyspace) for statement in statements))

    def session(self) -> Any:
        """Give a session of the driver, the same one for all statements of a test."""
        if self._session is None:
            profiles = {EXEC_PROFILE_DEFAULT: ExecutionProfile(request_timeout=60)}
            cluster = Cluster([self.node.host], self.node.port, execution_profiles=profiles, protocol_version=5)
            self._session = cluster.connect()
        return self._session

    def close(self) -> None:
        """Close the session."""
        if self._session is not None:
            self._session.cluster.shutdown()

    def run(self, *args: str, exit_code: int = 0) -> str:
        """Run a command and give what it printed."""
        done = CliRunner(env={"RUNNEL_ENGINE": "duckdb"}).invoke(app, ["--project", str(self.folder), *args])
        assert done.exit_code == exit_code, f"{done.output}\n{done.stderr}\n{done.exception!r}"
        return done.stdout if exit_code == 0 else done.stderr

    def capture(self, technique: str, *options: str) -> list[Delta]:
        """Run one cycle and give its deltas; of a log, after everything written so far is in it."""
        if technique in ("log", "log-partial"):
            self.wait_for_log()
        printed = self.run("capture", "shop", "--technique", technique, "--format", "json", *options)
        return [from_json(line) for line in printed.split("\n") if line]

    def wait_for_log(self) -> None:
        """Wait until what was written so far can be read from the log: a mark written last is there."""
        self._marks += 1
        self.cql(
            "CREATE TABLE IF NOT EXISTS KS.marks (n int PRIMARY KEY) WITH cdc = true",
            f"INSERT INTO KS.marks (n) VALUES ({self._marks})",
        )
        wait_for_mark(self.node, self.keyspace, self._marks)

    def told(self, technique: str, *options: str) -> list[str]:
        """Run one cycle and give its deltas shortly: `upd a:11 (was 1)`."""
        return [short(delta) for delta in self.capture(technique, *options)]


def wait_for_mark(node: CassandraNode, keyspace: str, number: int) -> None:
    """Read the log until the mark is in it; the server writes it down every few milliseconds."""
    with Client(Settings("wait", keyspace, (node.host,), node.port)) as client:
        definitions = client.all_definitions()
    folder = LogFolder(node.cdc_raw)
    start = Position(0, 0)
    for _ in range(MOST_LOOKS):
        reader = LogReader(Catalog(definitions, wanted=[(keyspace, "marks")]))
        found = [change[2] for mutation in folder.read(reader, start) for change in mutation.changes]
        if number.to_bytes(4, "big") in found:
            return
    pytest.fail(f"mark {number} did not come into the log")


def short(delta: Delta) -> str:
    """Write a delta as the tables of the requirements do."""
    what = {"column": delta.column, "row": f"row {delta.cluster}", "key": "key"}.get(delta.level, delta.level)
    value = "" if delta.value is None else f":{delta.value}"
    was = "" if delta.previous is None else f" (was {delta.previous})"
    return f"{delta.operation} {what}{value}{was}"


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{name} = {json.dumps(item)}" for name, item in value.items()) + " }"
    return json.dumps(value)


@pytest.fixture
def shop(tmp_path: Path, cassandra_node: CassandraNode) -> Iterator[Shop]:
    """Give an empty keyspace of the shared node, and a project over it."""
    made = Shop(tmp_path, cassandra_node)
    yield made
    made.close()
    # The projects of other tests must not hold this node's log for ever.
    shutil.rmtree(cassandra_node.cdc_raw / "runnel-readers", ignore_errors=True)
