"""`runnel check`: every problem of a project at once, in settings, SQL, sources, views and targets; the state is only read.

What cannot be judged because something it needs is wrong itself is not reported twice.
"""

from __future__ import annotations

import os
import re
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from runnel import config
from runnel.cli.opening import engine_of
from runnel.compiler import TableStatement, ViewStatement, compile_view, parse_statements
from runnel.config import Config, Project, Source, SqlFile, State, Target
from runnel.config.document import Document
from runnel.connectors import open_source, open_target
from runnel.connectors.guarded import cannot_reread
from runnel.errors import Problems, RunnelError, Terminal, Transient
from runnel.lake.lake import Lake
from runnel.model.foreign_keys import with_references
from runnel.model.relation import Kind, Relation, check_columns, find_relation
from runnel.pipeline.definitions import check_properties
from runnel.pipeline.deliver import Known, shape_of
from runnel.pipeline.reread import check_where
from runnel.pipeline.reshape import like
from runnel.pipeline.runtime import Runtime
from runnel.pipeline.source_state import StateOfSource
from runnel.project.rebuild import no_table
from runnel.project.sync import referenced_first, statements

if TYPE_CHECKING:
    from collections.abc import Iterator

    from runnel.compiler import Statement
    from runnel.engine.base import Engine

ANYTHING = "*"
FOLDERS = ("tables", "views")
_SEMICOLON = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|`[^`]*`|--[^\n]*|/\*.*?\*/|(;)", re.DOTALL)
_DEFINED = re.compile(
    r"\bCREATE\s+(?:OR\s+REPLACE\s+)?(?:MATERIALIZED\s+VIEW|VIEW|TABLE)\s+(?:IF\s+NOT\s+EXISTS\s+)?([\w.`]+)",
    re.IGNORECASE,
)


@dataclass
class Checkup:
    """What a check has found so far; `suspects` are names that are missing because of a problem already told."""

    problems: list[RunnelError] = field(default_factory=list)
    suspects: set[str] = field(default_factory=set)
    relations: dict[str, Relation] = field(default_factory=dict)
    stored_views: dict[str, Relation] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)
    strategies: dict[str, str] = field(default_factory=dict)
    unchecked: list[str] = field(default_factory=list)
    advice: list[str] = field(default_factory=list)
    sources: dict[str, list[str]] = field(default_factory=dict)
    not_rereadable: dict[str, RunnelError] = field(default_factory=dict)

    def note(self, error: RunnelError) -> None:
        """Take a problem, or each of several."""
        self.problems.extend(error.problems if isinstance(error, Problems) else (error,))


def check_project(folder: Path) -> Checkup:
    """Check everything that can be checked; raise only where there is no project at all."""
    found = Checkup()
    settings = _settings(folder, found)
    tables, views = _read_statements(settings, found)
    engine = engine_of(settings)
    try:
        with _stored(settings, found) as lake:
            _add_sources(settings, found, None if lake is None else Runtime(lake, engine))
        for table in referenced_first(tables):
            _add_table(table, found, settings.outside)
        _compile_all(engine, views, found)
        _check_rebuilds(settings, engine, found)
    finally:
        engine.close()
    for target in settings.targets:
        _check_target(target, settings.folder, found)
    return found


def _check_rebuilds(settings: Config, engine: Engine, found: Checkup) -> None:
    """Hold the tables and conditions of scheduled rebuilds against the sources that could be read."""
    for wanted in settings.rebuilds:
        for table in wanted.tables:
            source, _, name = table.partition(".")
            try:
                if source in found.not_rereadable:
                    raise found.not_rereadable[source]
                if source not in found.sources:
                    continue  # what is wrong with it is told already, or it is managed
                if name and name.lower() not in [one.lower() for one in found.sources[source]]:
                    raise no_table(source, name, found.sources[source])
                if name:
                    check_where(engine, find_relation(found.relations.values(), table), wanted.where)
            except RunnelError as error:
                error.place = error.place or wanted.place
                found.note(error)


def _check_target(wanted: Target, folder: Path, found: Checkup) -> None:
    """Connect to a target and hold its tables against what they are to follow."""
    known = Known(found.stored_views | found.relations, found.texts)
    told = {*found.suspects, *(name.lower() for name in found.unchecked)}
    try:
        target = open_target(wanted, folder)
    except RunnelError as error:
        found.note(error)
        return
    try:
        for view in wanted.views:
            try:
                target.check(shape_of(known, wanted, view, needs_key=target.NEEDS_KEY))
            except Transient as error:
                error.place = error.place or wanted.place
                found.note(error)
                return
            except RunnelError as error:
                if error.code == "RUNNEL-RELATION-UNKNOWN" and told & {view.lower(), ANYTHING}:
                    continue
                error.place = error.place or wanted.at("views")
                if str(error) not in map(str, found.problems):  # what is wrong with the store is told once
                    found.note(error)
    finally:
        target.close()


def _settings(folder: Path, found: Checkup) -> Config:
    """Load the settings; when they are wrong, still give the SQL files, so that those are checked as well."""
    try:
        return config.load(folder)
    except Problems as wrong:
        found.note(wrong)
    sources = _sound_sources(folder, found)
    return Config(folder, Project(folder.resolve().name), State("", ""), sources=sources, sql_files=_sql_files(folder))


def _sound_sources(folder: Path, found: Checkup) -> tuple[Source, ...]:
    """Give the sources that the problems of runnel.toml do not touch; tables of the others are unknown for now."""
    try:
        text = (folder / config.FILE).read_text(encoding="utf-8-sig")
        document = Document(config.FILE, text, os.environ)
    except (OSError, UnicodeDecodeError, RunnelError):
        found.suspects.add(ANYTHING)
        return ()
    wrong = {problem.place for problem in found.problems}
    sound = []
    for name, values in document.section(("sources",)).items():
        keys = values if isinstance(values, dict) else {}
        path = ("sources", name)
        places = {key: document.place((*path, key)) for key in keys}
        if keys.get("type") not in config.SOURCE_TYPES or wrong & {document.place(path), *places.values()}:
            found.suspects.add(ANYTHING)
            continue
        settings = {key: value for key, value in keys.items() if key != "type"}
        sound.append(Source(name, keys["type"], settings, document.place(path), places))
    return tuple(sound)


def _sql_files(folder: Path) -> tuple[SqlFile, ...]:
    files = []
    for path in (path for room in FOLDERS for path in sorted((folder / room).glob("*.sql"))):
        try:
            files.append(SqlFile(path.relative_to(folder).as_posix(), path.read_text(encoding="utf-8-sig")))
        except (OSError, UnicodeDecodeError):
            continue  # loading the settings has told it already
    return tuple(files)


def _read_statements(settings: Config, found: Checkup) -> tuple[list[TableStatement], list[ViewStatement]]:
    """Read every SQL file; of a statement with a mistake, remember which name it would have defined."""
    try:
        return statements(settings)
    except Problems as wrong:
        found.note(wrong)
    read: list[Statement] = []
    for file in settings.sql_files:
        for piece in _pieces(file.text):
            try:
                read.extend(parse_statements(piece, str(file.path)))
            except RunnelError:
                found.suspects.update(name.replace("`", "").lower() for name in _DEFINED.findall(piece))
    kept = _named_once(read, found)
    return [s for s in kept if isinstance(s, TableStatement)], [s for s in kept if isinstance(s, ViewStatement)]


def _named_once(read: list[Statement], found: Checkup) -> list[Statement]:
    """Keep the first statement of each name; tell the others unless that is done."""
    first: dict[str, Statement] = {}
    told = {problem.place for problem in found.problems}
    for statement in read:
        other = first.setdefault(statement.name.lower(), statement)
        place = statement.named or statement.place
        if other is not statement and place not in told:
            message = f"{statement.name!r} is defined twice, first at {other.named or other.place}"
            found.note(Terminal("RUNNEL-NAME-TWICE", message, place=place, hint="rename one of them"))
    return list(first.values())


def _pieces(text: str) -> list[str]:
    """Give each statement alone, moved by blank lines and spaces to where it stands, so that places stay right."""
    ends = [found.end() for found in _SEMICOLON.finditer(text) if found.group(1)]
    pieces = []
    for start, end in pairwise([0, *ends, len(text)]):
        before = text[:start]
        pieces.append("\n" * before.count("\n") + " " * (start - before.rfind("\n") - 1) + text[start:end])
    return pieces


@contextmanager
def _stored(settings: Config, found: Checkup) -> Iterator[Lake | None]:
    """Count in tables that the state holds already, and give it; a state that is not there yet is not made."""
    lake = _opened(settings, found)
    if lake is None:
        yield None
        return
    try:
        head = lake.snapshot()
        stored = head.relations.values()
        found.texts.update({name: view.sql for name, view in head.views.items()})
        found.relations.update({r.name: r for r in stored if r.kind is Kind.TABLE})
        found.stored_views.update({r.name: r for r in stored if r.kind is Kind.VIEW})
        yield lake
    finally:
        lake.close()


def _opened(settings: Config, found: Checkup) -> Lake | None:
    catalog = str(config.reveal(settings.state.catalog))
    if not catalog or (catalog.startswith("sqlite:") and not Path(catalog.removeprefix("sqlite:")).exists()):
        return None
    try:
        return Lake.open(catalog, settings.state.data)
    except RunnelError as error:
        if error.code != "RUNNEL-CATALOG-MISSING":
            found.note(error)
        return None


def _add_sources(settings: Config, found: Checkup, runtime: Runtime | None) -> None:
    for source in settings.sources:
        if source.type == "managed":
            continue
        try:
            state = None if runtime is None else StateOfSource(runtime, source.name)
            connector = open_source(source, settings.folder, state)
            try:
                told = {f"{source.name}.{info.name}": info for info in connector.tables()}
                found.sources[source.name] = [info.name for info in told.values()]
                if not hasattr(connector, "reread"):
                    found.not_rereadable[source.name] = cannot_reread(source.label)
                plain = {name: Relation(name, Kind.TABLE, info.columns, info.key) for name, info in told.items()}
                found.relations |= plain
                for name, info in told.items():
                    known = found.relations
                    known[name] = with_references(known[name], info.references, known, settings.outside)
                found.advice += connector.advice()
                for problem in connector.problems():
                    problem.place = problem.place or source.place
                    found.note(problem)
            finally:
                connector.close()
        except RunnelError as error:
            error.place = error.place or source.place
            found.note(error)
            found.suspects.add(ANYTHING)


def _add_table(table: TableStatement, found: Checkup, outside: frozenset[str]) -> None:
    try:
        check_columns(table.name, table.columns, table.key)
        if (stored := found.relations.get(table.name)) is not None:
            like(stored, table.columns, table.key)  # may it become so?
        plain = Relation(table.name, Kind.TABLE, table.columns, table.key)
        relation = with_references(plain, table.references, found.relations, outside)
    except RunnelError as error:
        error.place = error.place or table.place
        found.note(error)
        found.suspects.add(table.name.lower())
        return
    found.relations[table.name] = relation


def _compile_all(engine: Engine, views: list[ViewStatement], found: Checkup) -> None:
    """Compile views in rounds, whatever order the files have: one that reads another waits for it."""
    todo = list(views)
    while todo:
        failed: list[tuple[ViewStatement, RunnelError]] = []
        for view in todo:
            try:
                _compile(engine, view, found)
            except RunnelError as error:
                failed.append((view, error))
        if len(failed) == len(todo):
            _note_failed(failed, found)
            return
        todo = [view for view, _ in failed]


def _compile(engine: Engine, view: ViewStatement, found: Checkup) -> None:
    properties = check_properties(view.name, view.properties, view.place)
    mode = properties.get("mode", "auto")
    program = compile_view(view.name, view.sql, found.relations, engine.analyse, mode, view.place)
    check_columns(view.name, program.columns)
    found.relations[view.name] = program.relation
    found.texts[view.name] = view.sql
    found.strategies[view.name] = program.strategy.value


def _note_failed(failed: list[tuple[ViewStatement, RunnelError]], found: Checkup) -> None:
    """Tell each view's own problem; a view that only waits for something told already is left unchecked."""
    waiting = {view.name.lower(): (view, error) for view, error in failed}
    views = set(waiting)

    def excused(error: RunnelError) -> bool:
        missing = _missing(error)
        return missing is not None and (missing in told or (ANYTHING in told and missing not in views))

    told = set(found.suspects)
    for name, (view, error) in list(waiting.items()):
        if _missing(error) not in views and not excused(error):
            error.place = error.place or view.place
            found.note(error)
            told.add(name)
            found.suspects.add(name)
            del waiting[name]
    while free := [name for name, (_, error) in waiting.items() if excused(error)]:
        told.update(free)
        found.unchecked.extend(waiting.pop(name)[0].name for name in free)
    for view, error in waiting.values():
        read = _missing(error)
        itself = read == view.name.lower()
        message = f"view {view.name} reads " + ("itself" if itself else f"{read!r}, which in the end reads {view.name}")
        found.note(Terminal("RUNNEL-VIEW-CYCLE", message, place=error.place or view.place, hint="break the cycle"))


def _missing(error: RunnelError) -> str | None:
    """Give the name of the table that was not found, if that is the problem."""
    named = re.search(r"'([^']+)'", error.message) if error.code == "RUNNEL-VIEW-TABLE" else None
    return named.group(1).lower() if named else None
