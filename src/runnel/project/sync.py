"""Brings tables and views in line with the project's SQL files: new ones are made, changed views made anew, others left alone."""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING

from runnel.compiler import TableStatement, ViewStatement, parse_statements
from runnel.compiler.serialize import is_current
from runnel.engine.meaning import difference
from runnel.errors import Problems, RunnelError, Terminal
from runnel.model.foreign_keys import with_references
from runnel.model.relation import Kind, Relation
from runnel.pipeline import definitions
from runnel.pipeline.alter import alter_table
from runnel.pipeline.plan import Definition, Refused
from runnel.pipeline.reshape import like
from runnel.pipeline.update import with_inputs

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from runnel.config import Config
    from runnel.lake.entries import ViewEntry
    from runnel.lake.snapshot import Snapshot
    from runnel.pipeline.runtime import Runtime


log = logging.getLogger("runnel")


def statements(settings: Config) -> tuple[list[TableStatement], list[ViewStatement]]:
    """Read every SQL file of the project; all problems at once."""
    problems: list[RunnelError] = []
    tables: list[TableStatement] = []
    views: list[ViewStatement] = []
    for file in settings.sql_files:
        try:
            for statement in parse_statements(file.text, str(file.path)):
                if isinstance(statement, TableStatement):
                    tables.append(statement)
                else:
                    views.append(statement)
        except Problems as found:
            problems.extend(found.problems)
        except RunnelError as error:
            problems.append(error)
    problems.extend(_named_twice([*tables, *views]))
    if problems:
        raise Problems(problems)
    return tables, views


def _named_twice(all_statements: list[TableStatement | ViewStatement]) -> list[RunnelError]:
    first: dict[str, TableStatement | ViewStatement] = {}
    problems: list[RunnelError] = []
    for statement in all_statements:
        other = first.setdefault(statement.name.lower(), statement)
        if other is not statement:
            problems.append(
                Terminal(
                    "RUNNEL-NAME-TWICE",
                    f"{statement.name!r} is defined twice, first at {other.named or other.place}",
                    place=statement.named or statement.place,
                    hint="rename one of them",
                )
            )
    return problems


def sync(runtime: Runtime, settings: Config, progress: Callable[[str], None] | None = None) -> list[str]:
    """Create and replace what the files say; every problem at once, what is fine is kept."""
    tables, views = statements(settings)
    done: list[str] = []

    def say(text: str) -> None:
        done.append(text)
        (progress or log.info)(text)

    _renew_older(runtime, say)
    _renew_others(runtime, say)
    problems = _tables(runtime, tables, settings.outside, say)
    while True:
        before = len(done)
        wrong = _replace_changed(runtime, views, say)
        wrong += _create_views(runtime, views, say)
        # A changed view may read one that was new: what failed is tried again as long as something else is made.
        if not wrong or len(done) == before:
            break
    problems += wrong
    if problems:
        raise Problems(problems)
    return done


def _renew_older(runtime: Runtime, say: Callable[[str], None]) -> None:
    """Make anew the views that another version of runnel compiled, all in one step."""
    older = [v for v in runtime.lake.snapshot().views.values() if not is_current(v.program)]
    if older:
        definitions.replace_views(runtime, [Definition(v.name, v.sql, dict(v.properties)) for v in older])
        for view in older:
            say(f"view {view.name} made anew, because another version of runnel had made it")


def _renew_others(runtime: Runtime, say: Callable[[str], None]) -> None:
    """Make anew the views that were computed under other settings that decide what their texts mean, all in one step.

    One that calls a function which is not registered yet waits for it; it is not followed meanwhile.
    """
    here, known = runtime.engine.meaning, runtime.functions
    others = [v for v in runtime.lake.snapshot().views.values() if dict(v.settings) != here]
    ready = [v for v in others if v.functions.keys() <= known.keys()]
    if not ready:
        return
    definitions.replace_views(runtime, [Definition(v.name, v.sql, dict(v.properties)) for v in ready])
    for view in ready:
        how = "goes on under other settings" if view.events else "made anew under other settings"
        say(f"view {view.name} {how}: {difference(view.settings, here)}")


def referenced_first(tables: list[TableStatement]) -> list[TableStatement]:
    """Put each table behind those it refers to, whatever order the files have; a circle stays as it is."""
    order: list[TableStatement] = []
    rest = list(tables)
    while rest:
        names = {table.name.lower() for table in rest}
        free = [t for t in rest if not ({r.table.lower() for r in t.references} & names - {t.name.lower()})]
        order += free or rest
        rest = [table for table in rest if table not in order]
    return order


def _tables(
    runtime: Runtime, tables: list[TableStatement], outside: frozenset[str], say: Callable[[str], None]
) -> list[RunnelError]:
    """Create tables that are new, and change the columns of those whose text has changed."""
    problems: list[RunnelError] = []
    for table in referenced_first(tables):

        def declared(relation: Relation, head: Snapshot, table: TableStatement = table) -> Relation:
            return with_references(relation, table.references, head.relations, outside)

        try:
            head = runtime.lake.snapshot()
            there = head.relations.get(table.name)
            if there is None or there.kind is not Kind.TABLE:
                definitions.create_table(runtime, table.name, table.columns, table.key, table.references, outside)
                say(f"table {table.name} created")
            elif there != declared(Relation(table.name, Kind.TABLE, table.columns, table.key), head):
                shape = partial(like, columns=table.columns, key=table.key)
                for text in alter_table(runtime, table.name, shape, declared):
                    say(text)
        except RunnelError as error:
            error.place = error.place or table.place
            problems.append(error)
    return problems


def _replace_changed(runtime: Runtime, views: list[ViewStatement], say: Callable[[str], None]) -> list[RunnelError]:
    """Swap views whose text or options changed, all in one step; one that cannot be is left as it is, and said."""
    there = runtime.lake.snapshot().views
    wanted = {v.name: v for v in views if v.name in there and not _same(there[v.name], v)}
    problems: list[RunnelError] = []
    while wanted:
        said = [Definition(v.name, v.sql, dict(v.properties), v.place) for v in wanted.values()]
        try:
            plan = definitions.replace_views(runtime, said)
        except RunnelError as error:
            refused = _to_blame(runtime, error, wanted)
            problems.append(error)
            wanted = {name: view for name, view in wanted.items() if name not in refused}
            continue
        for name in plan.programs:
            if name in plan.made:
                say(f"view {name} made anew ({plan.programs[name].strategy.value})")
            elif name in plan.entries:
                say(f"view {name}: text or options changed, nothing to compute")
        break
    return problems


def _same(entry: ViewEntry, statement: ViewStatement) -> bool:
    return entry.sql == statement.sql and entry.properties == dict(statement.properties)


def _to_blame(runtime: Runtime, error: RunnelError, wanted: Mapping[str, ViewStatement]) -> set[str]:
    """Find the changed views that an error is about: the one it names, or those below the reader it names, or all."""
    if not isinstance(error, Refused):
        return set(wanted)
    head = runtime.lake.snapshot()
    below = with_inputs(head, [error.view]) & wanted.keys()
    return {error.view} & wanted.keys() or below or set(wanted)


def _create_views(runtime: Runtime, views: list[ViewStatement], say: Callable[[str], None]) -> list[RunnelError]:
    """Create what is missing, whatever order the files have: a view that reads another waits for it."""
    todo = [view for view in views if view.name not in runtime.lake.snapshot().views]
    while todo:
        names = {view.name.lower() for view in todo}
        failed: list[tuple[ViewStatement, RunnelError]] = []
        made = 0
        for view in todo:
            try:
                program = definitions.create_view(runtime, view.name, view.sql, view.properties, view.place)
            except RunnelError as error:
                there = runtime.lake.snapshot().views.get(view.name)
                if there is not None and _same(there, view):  # another process made it just now
                    made += 1
                    continue
                failed.append((view, error))
                continue
            made += 1
            say(f"view {view.name} created ({program.strategy.value})")
        todo = [view for view, _ in failed]
        if not made:
            return [_perhaps_cycle(view, error, names) for view, error in failed]
    return []


def _perhaps_cycle(view: ViewStatement, error: RunnelError, names: set[str]) -> RunnelError:
    if error.code == "RUNNEL-VIEW-TABLE" and any(f"'{name}'" in error.message.lower() for name in names):
        return Terminal(
            "RUNNEL-VIEW-CYCLE",
            f"view {view.name} waits for another view that cannot be made: {error.message}",
            place=error.place or view.place,
            hint="mend that view first, or break the cycle",
        )
    return error
