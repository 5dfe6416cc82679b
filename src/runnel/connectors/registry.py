"""Opens a source or a target by its type.

A connector is the package `runnel.connectors.<type>` with a function `open_source` or `open_target`, or both. A type with a dot is the name of
any other module that has them (`docs/new-store.md`).
"""

from __future__ import annotations

import importlib
import importlib.util
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from runnel.connectors.guarded import GuardedSource, translate_errors
from runnel.errors import UsageError, nearest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from runnel import config
    from runnel.connectors.base import Capture, Source, Target
    from runnel.connectors.deltas.cycles import CaptureState
    from runnel.connectors.skips import SourceState

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


def open_source(source: config.Source, folder: Path, state: SourceState | None = None) -> Source:
    """Open the source that `[sources.NAME]` describes; `folder` is the project's, which relative paths start from.

    `state` is the one that it is read for: stores that keep their log for readers know them by it.
    """
    if source.type not in STORES and "." not in source.type:
        raise UsageError(
            "RUNNEL-SOURCE-TYPE",
            f"sources.{source.name}: {source.type!r} is no store with a log to read",
            place=source.at("type"),
            hint=nearest(source.type, STORES) or f"one of {', '.join(STORES)}",
        )
    opened: Source | None = _opened(source, folder, "open_source", state)
    if opened is None:
        raise UsageError(
            "RUNNEL-SOURCE-NOT-YET",
            f"sources.{source.name}: reading from {source.type} is not there yet",
            place=source.at("type"),
            hint=f"this version reads {_those_with('open_source')}",
        )
    return opened


def guarded_source(source: config.Source, folder: Path, state: SourceState | None = None) -> GuardedSource:
    """Give the source that `[sources.NAME]` describes, opened when it is first asked; it raises runnel's errors only."""
    return GuardedSource(source.label, lambda: open_source(source, folder, state))


def open_target(target: config.Target, folder: Path) -> Target:
    """Open the target that `[targets.NAME]` describes; its settings are checked, and nothing is connected to yet."""
    opened: Target | None = _opened(target, folder, "open_target")
    if opened is None:
        raise UsageError(
            "RUNNEL-TARGET-NOT-YET",
            f"targets.{target.name}: delivering to {target.type} is not there yet",
            place=target.at("type"),
            hint=f"this version delivers to {_those_with('open_target')}",
        )
    return opened


def _opened(section: config.Source | config.Target, folder: Path, function: str, *further: Any) -> Any:
    """Open what a section describes by this function of its connector; None where there is none."""
    if "." in section.type:
        return _opened_outside(section, folder, function)
    package, extra = STORES[section.type]
    name = f"runnel.connectors.{package}"
    if importlib.util.find_spec(name) is None:
        return None
    with _driver(section, extra):
        opens = getattr(importlib.import_module(name), function, None)
        return None if opens is None else opens(section, folder, *further)


def _opened_outside(section: config.Source | config.Target, folder: Path, function: str) -> Any:
    """Open a store that is not one of ours, by the name of its module."""
    try:
        module = importlib.import_module(section.type)
    except ModuleNotFoundError as error:
        raise UsageError(
            "RUNNEL-STORE-MODULE",
            f"{section.label}: there is no module {error.name!r}, which type = {section.type!r} needs",
            place=section.at("type"),
            hint="install it where runnel runs, or add its folder to PYTHONPATH",
        ) from error
    opens = getattr(module, function, None)
    return None if opens is None else opens(section, folder)


def _those_with(function: str) -> str:
    names = {type_: f"runnel.connectors.{package}" for type_, (package, _) in STORES.items()}
    there = {type_: name for type_, name in names.items() if importlib.util.find_spec(name)}
    return ", ".join(type_ for type_, name in there.items() if hasattr(importlib.import_module(name), function))


def open_capture(
    source: config.Source, folder: Path, state: CaptureState, technique: str | None, *, expand_deletes: bool = False
) -> Capture:
    """Open change data capture alone, which keeps its cycles in a state."""
    with _capturing(source) as module:
        opened: Capture = module.Capture(source, folder, state, technique, expand_deletes=expand_deletes)
        return opened


def build_triggers(source: config.Source, libraries: Path, target: Path) -> Path:
    """Build what capture has to have installed in the server, with the libraries of that; give the file."""
    with _capturing(source) as module:
        built: Path = module.build_triggers(libraries, target)
        return built


@contextmanager
def _capturing(source: config.Source) -> Iterator[Any]:
    """Give the module for capture alone of a source's connector, which has a class `Capture` and `build_triggers`."""
    package, extra = STORES.get(source.type, (source.type, None))
    name = f"runnel.connectors.{package}"
    if importlib.util.find_spec(name) is None or importlib.util.find_spec(f"{name}.capture") is None:
        raise UsageError(
            "RUNNEL-CAPTURE-STORE",
            f"sources.{source.name}: there is no capture alone for {source.type}",
            place=source.at("type"),
            hint="it is there for cassandra",
        )
    with _driver(source, extra):
        yield importlib.import_module(f"{name}.capture")


def prepare_source(source: config.Source, folder: Path, say: Callable[[str], None], *, undo: bool = False) -> None:
    """Make, or remove, what following a source needs in its store; a connector that needs something has this function too."""
    package, extra = STORES.get(source.type, (source.type, None))
    with _driver(source, extra):
        name = package if "." in source.type else f"runnel.connectors.{package}"
        module = importlib.import_module(name) if importlib.util.find_spec(name) else None
        prepares = getattr(module, "prepare_source", None)
        if prepares is None:
            raise UsageError(
                "RUNNEL-PREPARE-NOTHING",
                f"sources.{source.name}: following {source.type} needs nothing in the store",
                place=source.at("type"),
                hint="with --technique, what capture alone needs is made",
            )
        with translate_errors(source.label):
            prepares(source, folder, say, undo=undo)


@contextmanager
def _driver(section: config.Source | config.Target, extra: str | None) -> Iterator[None]:
    """Say which extra brings the driver, where it is not installed."""
    try:
        yield
    except ModuleNotFoundError as error:
        if extra is None or (error.name or "").startswith("runnel"):
            raise
        raise UsageError(
            "RUNNEL-SOURCE-DRIVER",
            f"{section.label}: the driver for {section.type} is not installed ({error.name})",
            place=section.at("type"),
            hint=f"install it: pip install 'runnel[{extra}]'",
        ) from error
