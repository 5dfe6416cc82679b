"""Rebuilds a table of a source, a part of it, or all tables of the source, from the store: `runnel rebuild`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from runnel.connectors import guarded_source
from runnel.errors import UsageError, nearest
from runnel.pipeline.reread import Part
from runnel.pipeline.reread import rebuild as rebuild_part
from runnel.pipeline.source_state import StateOfSource

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from runnel.config import Config
    from runnel.config import Source as SourceSettings
    from runnel.connectors.guarded import GuardedSource
    from runnel.pipeline.reread import Rebuilt
    from runnel.pipeline.runtime import Runtime
    from runnel.pipeline.step import Taken


def rebuild(runtime: Runtime, settings: Config, name: str, where: str | None) -> tuple[Rebuilt, Taken]:
    """Read `SOURCE.TABLE` or all tables of `SOURCE` again, and make the state equal to them.

    The source is opened for this alone: a run in the same process goes on with its own.
    """
    wanted, table = _found(settings, name)
    if where is not None and not table:
        raise UsageError(
            "RUNNEL-REBUILD-WHERE",
            f"a condition is about one table, and {name} is a source",
            hint=f"name the table: {name}.TABLE",
        )
    source = guarded_source(wanted, settings.folder, StateOfSource(runtime, wanted.name))
    try:
        source.can_reread()
        tables = frozenset([_table_of(source, wanted.name, table)]) if table else None
        return rebuild_part(runtime, source, Part(wanted.name, tables, where))
    finally:
        source.close()


def _found(settings: Config, name: str) -> tuple[SourceSettings, str]:
    """Give the source and the table that a name means; refuse one that has no store."""
    source, _, table = name.partition(".")
    known = {one.name: one for one in settings.sources if one.type != "managed"}
    if source not in known:
        managed = any(one.name == source for one in settings.sources) or not known
        if managed:
            raise UsageError(
                "RUNNEL-REBUILD-SOURCE",
                f"{name} is not a table of an outside source: no store has its rows",
                hint="managed tables live in the state itself; `runnel fsck` reads and checks it",
            )
        hint = nearest(source, known) or f"write SOURCE.TABLE; there are {', '.join(known)}"
        raise UsageError("RUNNEL-SOURCE-UNKNOWN", f"there is no source {source!r}", hint=hint)
    return known[source], table


def _table_of(source: GuardedSource, name: str, table: str) -> str:
    told = [info.name for info in source.tables()]
    found = _spelled(table, told)
    if found is not None:
        return found
    for problem in source.problems():
        if f"table {table}" in problem.message:
            raise problem
    raise no_table(name, table, told)


def no_table(source: str, table: str, told: Sequence[str]) -> UsageError:
    """Make the error for a table that a source does not have."""
    return UsageError(
        "RUNNEL-REBUILD-TABLE",
        f"source {source} has no table {table!r}",
        hint=nearest(table, told) or f"its tables are {', '.join(told)}",
    )


def _spelled(table: str, told: Iterable[str]) -> str | None:
    """Give a table by its name; without its case only where that means one."""
    exact = [one for one in told if one == table]
    alike = exact or [one for one in told if one.lower() == table.lower()]
    return alike[0] if len(alike) == 1 else None
