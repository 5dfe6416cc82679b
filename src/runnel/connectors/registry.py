"""Opens a source or a target by its type.

A connector is the package `runnel.connectors.<type>` with a function `open_source` or `open_target`, or both.
"""

from __future__ import annotations

import importlib
import importlib.util
from typing import TYPE_CHECKING

from runnel.errors import UsageError, nearest

if TYPE_CHECKING:
    from pathlib import Path
    from types import ModuleType

    from runnel import config
    from runnel.connectors.base import Capture, Source, Target

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
    module = _connector(source, "open_source")
    if module is None:
        raise UsageError(
            "RUNNEL-SOURCE-NOT-YET",
            f"sources.{source.name}: reading from {source.type} is not there yet",
            place=source.at("type"),
            hint=f"this version reads {_those_with('open_source')}",
        )
    opened: Source = module.open_source(source, folder)
    return opened


def open_target(target: config.Target, folder: Path) -> Target:
    """Open the target that `[targets.NAME]` describes; its settings are checked, and nothing is connected to yet."""
    module = _connector(target, "open_target")
    if module is None:
        raise UsageError(
            "RUNNEL-TARGET-NOT-YET",
            f"targets.{target.name}: delivering to {target.type} is not there yet",
            place=target.at("type"),
            hint=f"this version delivers to {_those_with('open_target')}",
        )
    opened: Target = module.open_target(target, folder)
    return opened


def _connector(section: config.Source | config.Target, function: str) -> ModuleType | None:
    """Import the connector of a section's store; None where there is none that has this function."""
    package, extra = STORES[section.type]
    name = f"runnel.connectors.{package}"
    if importlib.util.find_spec(name) is None:
        return None
    module = _imported(name, section, extra)
    return module if hasattr(module, function) else None


def _those_with(function: str) -> str:
    names = {type_: f"runnel.connectors.{package}" for type_, (package, _) in STORES.items()}
    there = {type_: name for type_, name in names.items() if importlib.util.find_spec(name)}
    return ", ".join(type_ for type_, name in there.items() if hasattr(importlib.import_module(name), function))


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


def _imported(name: str, section: config.Source | config.Target, extra: str | None) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if extra is None or (error.name or "").startswith("runnel"):
            raise
        raise UsageError(
            "RUNNEL-SOURCE-DRIVER",
            f"{section.label}: the driver for {section.type} is not installed ({error.name})",
            place=section.at("type"),
            hint=f"install it: pip install 'runnel[{extra}]'",
        ) from error
