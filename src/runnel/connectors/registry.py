"""Opens a source by its type. A connector is the package `runnel.connectors.<type>` with a function `open_source`."""

from __future__ import annotations

import importlib
import importlib.util
from typing import TYPE_CHECKING

from runnel.errors import UsageError, nearest

if TYPE_CHECKING:
    from pathlib import Path

    from runnel import config
    from runnel.connectors.base import Source

# type -> (package below runnel.connectors, extra of the distribution that brings its driver)
STORES: dict[str, tuple[str, str | None]] = {
    "cassandra": ("cassandra", "cassandra"),
    "delta": ("delta", "delta"),
    "files": ("files", None),
    "hbase": ("hbase", "hbase"),
    "mariadb": ("mysql", "mysql"),
    "mysql": ("mysql", "mysql"),
    "postgres": ("postgres", "postgres"),
}


def open_source(source: config.Source, folder: Path) -> Source:
    """Open the source that `[sources.NAME]` describes; `folder` is the project's, which relative paths start from."""
    if source.type not in STORES:
        raise UsageError(
            "RUNNEL-SOURCE-TYPE",
            f"sources.{source.name}: {source.type!r} is no store with a log to read",
            place=source.at("type"),
            hint=nearest(source.type, STORES) or f"one of {', '.join(STORES)}",
        )
    package, extra = STORES[source.type]
    name = f"runnel.connectors.{package}"
    if importlib.util.find_spec(name) is None:
        ready = [
            type_ for type_, (there, _) in STORES.items() if importlib.util.find_spec(f"runnel.connectors.{there}")
        ]
        raise UsageError(
            "RUNNEL-SOURCE-NOT-YET",
            f"sources.{source.name}: reading from {source.type} is not there yet",
            place=source.at("type"),
            hint=f"this version reads {', '.join(ready)}",
        )
    try:
        opened: Source = importlib.import_module(name).open_source(source, folder)
    except ModuleNotFoundError as error:
        if extra is None or (error.name or "").startswith("runnel"):
            raise
        raise UsageError(
            "RUNNEL-SOURCE-DRIVER",
            f"sources.{source.name}: the driver for {source.type} is not installed ({error.name})",
            place=source.at("type"),
            hint=f"install it: pip install 'runnel[{extra}]'",
        ) from error
    return opened
