"""MariaDB and MySQL: tables as a source, followed through the binary log of a server or of archived files, and tables that follow views."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from runnel import config
    from runnel.connectors.base import Source
    from runnel.connectors.mysql.target.writer import MysqlTarget
    from runnel.connectors.skips import SourceState


def open_source(source: config.Source, folder: Path, state: SourceState | None = None) -> Source:
    """Check what `[sources.NAME]` says; a server is connected to when it is needed."""
    from runnel.connectors.mysql.archive import ArchiveSource
    from runnel.connectors.mysql.settings import read_settings
    from runnel.connectors.mysql.source import ServerSource

    settings = read_settings(source, folder)
    return ArchiveSource(settings) if settings.logs else ServerSource(settings)


def open_target(target: config.Target, folder: Path) -> MysqlTarget:
    """Check what `[targets.NAME]` says; the server is connected to when it is needed."""
    from runnel.connectors.mysql.settings import read_target_settings
    from runnel.connectors.mysql.target.writer import MysqlTarget

    return MysqlTarget(read_target_settings(target, folder))
