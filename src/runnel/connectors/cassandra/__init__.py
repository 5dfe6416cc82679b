"""Apache Cassandra: tables followed by their commit log, six techniques of change data capture, and tables that follow views."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from runnel import config
    from runnel.connectors.cassandra.source import CassandraSource
    from runnel.connectors.cassandra.target.delivery import CassandraTarget
    from runnel.connectors.skips import SourceState


def open_source(source: config.Source, folder: Path, state: SourceState | None = None) -> CassandraSource:
    """Open the tables that `[sources.NAME]` names for a state; the driver is imported only then."""
    from runnel.connectors.cassandra import source as module

    return module.open_source(source, folder, state)


def open_target(target: config.Target, folder: Path) -> CassandraTarget:
    """Check what `[targets.NAME]` says; the driver is imported only then, and connected to when it is needed."""
    from runnel.connectors.cassandra.settings import read_target_settings
    from runnel.connectors.cassandra.target.delivery import CassandraTarget

    return CassandraTarget(read_target_settings(target, folder))
