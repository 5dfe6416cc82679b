"""A project with one Cassandra source, whose commands run in this process against the real node."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner

from runnel.cli import app
from runnel.connectors.cassandra.delta_forms import from_json
from tests.servers.cassandra import cassandra_node, cassandra_ring

if TYPE_CHECKING:
    from pathlib import Path

    from runnel.connectors.cassandra.deltas import Delta
    from tests.servers.cassandra import CassandraNode

__all__ = ["cassandra_node", "cassandra_ring"]


class Shop:
    """A keyspace of its own and a project that captures it."""

    def __init__(self, folder: Path, node: CassandraNode, replication: int = 1) -> None:
        self.folder, self.node = folder, node
        self.keyspace = node.keyspace(replication)
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

    def run(self, *args: str, exit_code: int = 0) -> str:
        """Run a command and give what it printed."""
        done = CliRunner().invoke(app, ["--project", str(self.folder), *args])
        assert done.exit_code == exit_code, f"{done.output}\n{done.stderr}\n{done.exception!r}"
        return done.stdout if exit_code == 0 else done.stderr

    def capture(self, technique: str, *options: str) -> list[Delta]:
        """Run one cycle and give its deltas."""
        printed = self.run("capture", "shop", "--technique", technique, "--format", "json", *options)
        return [from_json(line) for line in printed.split("\n") if line]

    def told(self, technique: str, *options: str) -> list[str]:
        """Run one cycle and give its deltas shortly: `upd a:11 (was 1)`."""
        return [short(delta) for delta in self.capture(technique, *options)]


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
def shop(tmp_path: Path, cassandra_node: CassandraNode) -> Shop:
    """Give an empty keyspace of the shared node, and a project over it."""
    return Shop(tmp_path, cassandra_node)
