"""Brings tables and views in line with the project's SQL files: new ones are made, changed views made anew, others left alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from runnel.compiler import TableStatement, ViewStatement, parse_statements
from runnel.errors import Problems, RunnelError, Terminal
from runnel.pipeline import definitions

if TYPE_CHECKING:
    from collections.abc import Callable

    from runnel.config import Config
    from runnel.lake.snapshot import Snapshot
    from runnel.pipeline.runtime import Runtime


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
                    f"{statement.name!r} is defined twice, first at {other.place}",
                    place=statement.place,
                    hint="rename one of them",
                )
            )
    return problems


def sync(runtime: Runtime, settings: Config, progress: Callable[[str], None] | None = None) -> list[str]:
    """Create and replace what the files say; every problem at once, what is fine is kept."""
    tables, views = statements(settings)
    done: list[str] = []
    problems: list[RunnelError] = []

    def say(text: str) -> None:
        done.append(text)
        if progress:
            progress(text)

    for table in tables:
        before = table.name in runtime.lake.snapshot().relations
        try:
            definitions.create_table(runtime, table.name, table.columns, table.key)
        except RunnelError as error:
            error.place = error.place or table.place
            problems.append(error)
            continue
        if not before:
            say(f"table {table.name} created")
    _drop_changed(runtime, views, say)
    problems.extend(_create_views(runtime, views, say))
    if problems:
        raise Problems(problems)
    return done


def _drop_changed(runtime: Runtime, views: list[ViewStatement], say: Callable[[str], None]) -> None:
    """Drop views whose text or options changed, and those that read them; they are made anew right after."""
    head = runtime.lake.snapshot()
    wanted = {view.name: view for view in views}
    doomed = {n for n, entry in head.views.items() if n in wanted and not _same(entry.sql, entry.properties, wanted[n])}
    grown = True
    while grown:
        more = {n for n, e in head.views.items() if n not in doomed and n in wanted and doomed & set(e.inputs)}
        doomed |= more
        grown = bool(more)
    for name in _readers_first(head, doomed):
        definitions.drop_view(runtime, name)
        say(f"view {name} dropped, to be made anew")


def _same(sql: str, properties: object, statement: ViewStatement) -> bool:
    return sql == statement.sql and properties == dict(statement.properties)


def _readers_first(head: Snapshot, names: set[str]) -> list[str]:
    order: list[str] = []
    left = set(names)
    while left:
        free = {n for n in left if not any(n in head.views[o].inputs for o in left if o != n)}
        order.extend(sorted(free))
        left -= free
    return order


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
            place=view.place,
            hint="mend that view first, or break the cycle",
        )
    return error
