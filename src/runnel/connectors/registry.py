"""Opens a source by its type. A connector is the package `runnel.connectors.<type>` with a function `open_source`."""

from __future__ import annotations

import importlib
import importlib.util
from typing import TYPE_CHECKING

from runnel.errors import UsageError, nearest

if TYPE_CHECKING:
    from pathlib import Path
    from types import ModuleType

    from runnel import config
    from runnel.connectors.base import Capture, Source

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
    opened: Source = _imported(name, source, extra).open_source(source, folder)
    return opened


def open_capture(
    source: config.Source, folder: Path, technique: str | None, *, expand_deletes: bool = False
) -> Capture:
    """Open change data capture alone; a connector that has it has a module `capture` with a class of that name."""
    package, extra = STORES.get(source.type, (source.type, None))
    name = f"runnel.connectors.{package}"
    if importlib.util.find_spec(name) is None or importlib.util.find_spec(f"{name}.capture") is None:
        raise UsageError(
            "RUNNEL-CAPTURE-STORE",
            f"sources.{source.name}: there is no capture alone for {source.type}",
            place=source.at("type"),
            hint="it is there for cassandra",
        )
    module = _imported(f"{name}.capture", source, extra)
    opened: Capture = module.Capture(source, folder, technique, expand_deletes=expand_deletes)
    return opened


def _imported(name: str, source: config.Source, extra: str | None) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if extra is None or (error.name or "").startswith("runnel"):
            raise
        raise UsageError(
            "RUNNEL-SOURCE-DRIVER",
            f"sources.{source.name}: the driver for {source.type} is not installed ({error.name})",
            place=source.at("type"),
            hint=f"install it: pip install 'runnel[{extra}]'",
        ) from error
