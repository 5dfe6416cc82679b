"""PostgreSQL: a target whose tables follow views, one transaction each time."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from runnel import config
    from runnel.connectors.postgres.target import PostgresTarget


def open_target(target: config.Target, folder: Path) -> PostgresTarget:
    """Check what `[targets.NAME]` says; the driver is imported only then, and connected to when it is needed."""
    from runnel.connectors.postgres.settings import read_settings
    from runnel.connectors.postgres.target import PostgresTarget

    return PostgresTarget(read_settings(target))
