"""PostgreSQL: tables as a source, followed through logical decoding; and a target whose tables follow views."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from runnel import config
    from runnel.connectors.postgres.source import PostgresSource
    from runnel.connectors.postgres.target import PostgresTarget
    from runnel.connectors.skips import SourceState


def open_source(source: config.Source, folder: Path, state: SourceState | None = None) -> PostgresSource:
    """Check what `[sources.NAME]` says; the server is connected to when it is needed."""
    from runnel.connectors.postgres.settings import read_source_settings
    from runnel.connectors.postgres.source import PostgresSource

    return PostgresSource(read_source_settings(source))


def prepare_source(source: config.Source, folder: Path, say: Callable[[str], None], *, undo: bool = False) -> None:
    """Make, or remove, what a source needs in the server."""
    from runnel.connectors.postgres.prepare import prepare
    from runnel.connectors.postgres.settings import read_source_settings

    prepare(read_source_settings(source), say, undo=undo)


def open_target(target: config.Target, folder: Path) -> PostgresTarget:
    """Check what `[targets.NAME]` says; the driver is imported only then, and connected to when it is needed."""
    from runnel.connectors.postgres.settings import read_settings
    from runnel.connectors.postgres.target import PostgresTarget

    return PostgresTarget(read_settings(target))
