"""Apache Cassandra: tables followed by their commit log, and six techniques of change data capture."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from runnel import config
    from runnel.connectors.cassandra.source import CassandraSource


def open_source(source: config.Source, folder: Path) -> CassandraSource:
    """Open the tables that `[sources.NAME]` names; the driver is imported only then."""
    from runnel.connectors.cassandra import source as module

    return module.open_source(source, folder)
