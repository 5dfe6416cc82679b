"""Reads a project's folder into a `Config`, or tells everything that is wrong with it at once."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any, Literal, cast

from runnel.config.document import Document
from runnel.config.duration import parse_duration
from runnel.config.settings import (
    SOURCE_TYPES,
    TARGET_TYPES,
    Config,
    Project,
    Rebuild,
    Run,
    Source,
    Spark,
    SqlFile,
    State,
    Target,
)
from runnel.errors import Place, Problems, RunnelError, UsageError, nearest, places_named

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from runnel.config.secret import Secret

FILE = "runnel.toml"
ON_DIFFERENCE = ("rebuild", "stop", "report")
CATALOG = "sqlite:.runnel/catalog.sqlite"
DATA = ".runnel/data"
SECTIONS = ("project", "state", "spark", "run", "sources", "targets", "rebuild")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_MODULE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)+")
"""The type of a store that is not one of ours: the name of its module."""
_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]+:")


def load(folder: Path, environment: Mapping[str, str] | None = None) -> Config:
    """Read the project in `folder`; raise `Problems` with every one of them, or `RUNNEL-PROJECT-MISSING`.

    `environment` is what `${NAME}` is looked up in, the process's own by default.
    """
    problems: list[RunnelError] = []
    sql_files = _sql_files(folder, problems)
    document = _document(folder, os.environ if environment is None else environment, problems)
    if document is None:
        raise Problems(problems)
    document.section((), SECTIONS)
    project = _project(document, folder)
    config = Config(
        folder=folder,
        project=project,
        state=_state(document, folder),
        spark=_spark(document),
        run=_run(document),
        sources=_sources(document, project.name),
        targets=_targets(document),
        rebuilds=_rebuilds(document),
        sql_files=sql_files,
        warnings=tuple(document.warnings),
    )
    if problems or document.problems:
        raise Problems([*sorted(document.problems, key=_line), *problems])
    return config


def _document(folder: Path, environment: Mapping[str, str], problems: list[RunnelError]) -> Document | None:
    path = folder / FILE
    with places_named("the project cannot be read", path):
        there = path.is_file()
    if not there:
        raise UsageError(
            "RUNNEL-PROJECT-MISSING",
            f"there is no {FILE} in {folder}",
            hint=f"make a project with: runnel init {folder}",
        )
    text = _read(path, FILE, problems)
    try:
        return None if text is None else Document(FILE, text, environment)
    except UsageError as error:
        problems.append(error)
        return None


def _project(document: Document, folder: Path) -> Project:
    document.section(("project",), ("name",))
    return Project(document.get(("project", "name"), str, folder.resolve().name))


def _state(document: Document, folder: Path) -> State:
    document.section(("state",), ("catalog", "data", "keep"))
    data = document.get(("state", "data"), str, DATA)
    return State(
        catalog=_catalog(document, folder),
        data=data if _URI.match(data) else str(folder.resolve() / data),
        keep=_positive(document, ("state", "keep"), State.keep),
    )


def _catalog(document: Document, folder: Path) -> str | Secret:
    path = ("state", "catalog")
    catalog = document.secret(path, CATALOG)
    plain = document.get(path, str, CATALOG)
    scheme, _, rest = plain.partition(":")
    if scheme == "sqlite":
        # Both sqlite:PATH and the URL form sqlite:///PATH name a file of the project's folder unless PATH is absolute.
        return f"sqlite:{folder.resolve() / rest.removeprefix('///')}"
    if scheme.split("+")[0] not in ("postgresql", "postgres") and document.section(path[:-1]).get("catalog"):
        hint = 'write "sqlite:PATH" or "postgresql://user@host/db"'
        document.problem("CATALOG", "state.catalog names neither SQLite nor PostgreSQL", path, hint)
    return catalog


def _spark(document: Document) -> Spark:
    document.section(("spark",), ("master", "remote", "conf"))
    remote = document.secret(("spark", "remote"), "")
    conf = document.section(("spark", "conf"))
    return Spark(
        master=document.get(("spark", "master"), str, Spark.master),
        remote=remote or None,
        conf={key: _conf_value(value) for key, value in conf.items()},
    )


def _conf_value(value: Any) -> str | Secret:
    """Write a value as Spark reads it: true, not True."""
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, int | float) else value


def _run(document: Document) -> Run:
    said = document.section(("run",), ("epoch", "max_rows", "driver_rows", "prove", "on_difference"))
    return Run(
        epoch=_epoch(document),
        max_rows=_positive(document, ("run", "max_rows"), Run.max_rows),
        driver_rows=_positive(document, ("run", "driver_rows"), 0, least=0) if "driver_rows" in said else None,
        prove=_prove(document),
        on_difference=_on_difference(document),
    )


def _epoch(document: Document) -> float | Literal["transaction"]:
    value = document.section(("run",)).get("epoch", Run.epoch)
    return "transaction" if value == "transaction" else _duration(document, ("run", "epoch"), value)


def _prove(document: Document) -> float | Literal["auto", "off"]:
    value = document.section(("run",)).get("prove", Run.prove)
    return value if value in ("auto", "off") else _duration(document, ("run", "prove"), value)


def _on_difference(document: Document) -> Literal["rebuild", "stop", "report"]:
    value = document.get(("run", "on_difference"), str, Run.on_difference)
    if value not in ON_DIFFERENCE:
        hint = nearest(value, ON_DIFFERENCE) or f"one of {', '.join(ON_DIFFERENCE)}"
        document.problem("VALUE", f"run.on_difference is {value!r}", ("run", "on_difference"), hint)
        return "rebuild"
    return cast('Literal["rebuild", "stop", "report"]', value)


def _sources(document: Document, project: str) -> tuple[Source, ...]:
    sources: dict[str, Source] = {}
    for name, values in document.section(("sources",)).items():
        path = ("sources", name)
        type_ = _typed(document, path, values, SOURCE_TYPES)
        if type_ is None:
            continue
        if name.lower() in (other.lower() for other in sources):
            document.problem("NAME", f"two sources are named {name!r}", path, "names are compared without case")
        settings = {key: value for key, value in values.items() if key != "type"}
        places = _places(document, path, values)
        sources[name] = Source(name, type_, settings, document.place(path), places, project)
    return tuple(sources.values())


def _targets(document: Document) -> tuple[Target, ...]:
    targets: list[Target] = []
    for name, values in document.section(("targets",)).items():
        path = ("targets", name)
        type_ = _typed(document, path, values, TARGET_TYPES)
        if type_ is None:
            continue
        views = document.section((*path, "views"))
        if not all(isinstance(table, str) and table for table in views.values()):
            document.problem("TYPE", f"targets.{name}.views must map views to table names", (*path, "views"))
        elif len(set(views.values())) < len(views):
            document.problem("VALUE", f"targets.{name}.views gives one table to two views", (*path, "views"))
        settings = {key: value for key, value in values.items() if key not in ("type", "views", "keys")}
        places, keys = _places(document, path, values), _keys(document, name, views)
        targets.append(Target(name, type_, views, settings, document.place(path), places, keys))
    return tuple(targets)


def _keys(document: Document, target: str, views: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    """Read which columns a target's views are unique by, where that is said."""
    path = ("targets", target, "keys")
    keys: dict[str, tuple[str, ...]] = {}
    for view, columns in document.section(path).items():
        named = [columns] if isinstance(columns, str) else columns
        if view not in views:
            document.problem("VALUE", f"targets.{target}.keys names {view!r}, which is none of its views", path)
        elif not isinstance(named, list) or not named or not all(isinstance(name, str) for name in named):
            hint = f'write keys = {{ {view} = ["id"] }}'
            document.problem("TYPE", f"targets.{target}.keys must map views to lists of columns", path, hint)
        else:
            keys[view] = tuple(named)
    return keys


def _rebuilds(document: Document) -> tuple[Rebuild, ...]:
    rebuilds: list[Rebuild] = []
    sources = list(document.section(("sources",)))
    for name in document.section(("rebuild",)):
        path = ("rebuild", name)
        values = document.section(path, ("tables", "where", "every"))
        tables = document.get((*path, "tables"), list, [])
        for table in tables:
            source = str(table).split(".")[0]
            if source not in sources:
                message = f"rebuild.{name} names {table!r}, but there is no source {source!r}"
                document.problem("SOURCE", message, (*path, "tables"), nearest(source, sources))
        for key in ("tables", "every"):
            if key not in values:
                document.problem("MISSING", f"rebuild.{name} needs {key!r}", path)
        every = _duration(document, (*path, "every"), values.get("every", "1 day"))
        where = document.get((*path, "where"), str, "") or None
        rebuilds.append(Rebuild(name, tuple(map(str, tables)), every, document.place(path), where))
    return tuple(rebuilds)


def _typed(document: Document, path: tuple[str, ...], values: Any, types: tuple[str, ...]) -> str | None:
    """Check a source's or target's name and type; None when it cannot be used."""
    dotted = ".".join(path)
    if not _NAME.fullmatch(path[-1]):
        document.problem("NAME", f"{path[-1]!r} cannot name a source or target", path, "use letters, digits and _")
    if not isinstance(values, dict):
        document.section(path)
        return None
    if "type" not in values:
        document.problem("MISSING", f"{dotted} needs 'type'", path, f"one of {', '.join(types)}")
        return None
    type_ = document.get((*path, "type"), str, "")
    if type_ not in types and not _MODULE.fullmatch(type_):
        hint = nearest(type_, types) or f"one of {', '.join(types)}"
        document.problem("STORE", f"{dotted} has the unknown type {type_!r}", (*path, "type"), hint)
        return None
    return type_


def _places(document: Document, path: tuple[str, ...], values: Mapping[str, Any]) -> dict[str, Place]:
    return {key: document.place((*path, key)) for key in values}


def _positive(document: Document, path: tuple[str, ...], default: int, least: int = 1) -> int:
    value = document.get(path, int, default)
    if value < least:
        document.problem("TYPE", f"{'.'.join(path)} must be {least} or more, not {value}", path)
    return value


def _duration(document: Document, path: tuple[str, ...], value: Any) -> float:
    try:
        return parse_duration(value, place=document.place(path))
    except UsageError as error:
        document.problems.append(error)
        return 0.0


def _sql_files(folder: Path, problems: list[RunnelError]) -> tuple[SqlFile, ...]:
    """Read tables first: views are written over them."""
    paths = [path for room in ("tables", "views") for path in _sql_paths(folder / room)]
    named = [(path.relative_to(folder).as_posix(), path) for path in paths if path.is_file()]
    texts = [(name, _read(path, name, problems)) for name, path in named]
    return tuple(SqlFile(name, text) for name, text in texts if text is not None)


def _sql_paths(room: Path) -> list[Path]:
    """List a folder's SQL files. One that cannot be looked into is an error: what it defines is not gone."""
    with places_named("the project's SQL cannot be read", room):
        try:
            found = sorted(room.iterdir())
        except (FileNotFoundError, NotADirectoryError):
            return []
    return [path for path in found if path.name.endswith(".sql")]


def _read(path: Path, name: str, problems: list[RunnelError]) -> str | None:
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        line = path.read_bytes()[: error.start].count(b"\n") + 1
        place, what = Place(name, line), f"{name} is not UTF-8 text"
        problems.append(UsageError("RUNNEL-CONFIG-ENCODING", what, place=place, hint="save it as UTF-8"))
    except OSError as error:
        what = f"{name} cannot be read: {error.strerror}"
        problems.append(UsageError("RUNNEL-CONFIG-UNREADABLE", what, place=Place(name)))
    return None


def _line(problem: RunnelError) -> int:
    return (problem.place.line or 0) if problem.place else 0
