"""Creates and drops tables and views. A new view is computed at one pinned epoch and joins the others in one step."""

from __future__ import annotations

from typing import TYPE_CHECKING

from runnel.config import parse_duration
from runnel.errors import RunnelError, Terminal, nearest
from runnel.lake.entries import Commit
from runnel.model.ddl import spelled
from runnel.model.foreign_keys import with_references
from runnel.model.relation import Kind, Relation, check_columns, check_name
from runnel.pipeline.plan import Definition, stages_in_use, text_reads
from runnel.pipeline.rebuild import rebuild
from runnel.pipeline.step import in_turn
from runnel.pipeline.swap import swap
from runnel.pipeline.update import update

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from runnel.errors import Place
    from runnel.lake.entries import ViewEntry
    from runnel.lake.snapshot import Snapshot
    from runnel.model.foreign_keys import Reference
    from runnel.model.program import Program
    from runnel.model.relation import Column
    from runnel.pipeline.plan import Plan
    from runnel.pipeline.runtime import Runtime

MODES = ("auto", "incremental", "full")
REFRESH_WORDS = ("immediate", "manual", "auto")


def create_table(
    runtime: Runtime,
    name: str,
    columns: tuple[Column, ...],
    key: tuple[str, ...],
    references: Sequence[Reference] = (),
    sources: Collection[str] = (),
) -> None:
    """Create an empty table; one of the same shape that is there already is left alone.

    `sources` are the names of the outside sources, between whose tables no foreign key can be enforced.
    """
    check_columns(name, columns, key)
    plain = Relation(name, Kind.TABLE, columns, spelled(key, columns))

    def build(head: Snapshot) -> Commit | None:
        there = _find(head, name)
        relation = with_references(plain, references, head.relations, sources)
        if there == relation:
            return None
        if there is not None:
            raise Terminal(
                "RUNNEL-NAME-TAKEN",
                f"there is a {there.kind.value} {name!r} already, and it is different",
                hint="choose another name, or change its columns with ALTER TABLE",
            )
        return Commit(base=head.epoch, create=[relation], kind="define")

    _publish(runtime, build)


def create_view(
    runtime: Runtime,
    name: str,
    sql: str,
    properties: Mapping[str, str] | None = None,
    place: Place | None = None,
    *,
    replace: bool = False,
) -> Program:
    """Compile a view, compute its contents at one pinned epoch and let it follow from there.

    With `replace` a view of that name gives way to the new one, and those that read it are made anew, in one step.
    """
    check_name(name, "a table or view")
    name = _spelled(runtime.lake.snapshot(), name)
    definition = Definition(name, sql, check_properties(name, properties or {}, place), place)

    def allowed(head: Snapshot) -> None:
        there = _find(head, name)
        if there is not None and not (replace and there.kind is Kind.VIEW):
            raise Terminal(
                "RUNNEL-NAME-TAKEN",
                f"there is a {there.kind.value} {name!r} already",
                place=place,
                hint="drop it first",
            )

    plan = swap(runtime, [definition], allowed)
    update(runtime, [name])
    return plan.programs[name]


def replace_views(runtime: Runtime, definitions: Sequence[Definition]) -> Plan:
    """Make views that are there what these definitions say, together and with those that read them, in one step."""
    for definition in definitions:
        check_properties(definition.name, definition.properties, definition.place)
    plan = swap(runtime, definitions)
    update(runtime, [definition.name for definition in definitions])
    return plan


def drop_view(runtime: Runtime, name: str) -> None:
    """Forget a view, and the stages that no other view reads; refused while another view reads it."""

    def build(head: Snapshot) -> Commit:
        view = find_view(head, name)
        readers = [v.name for v in head.views.values() if view.name in text_reads(head, v, head.shown) - {v.name}]
        if readers:
            raise Terminal(
                "RUNNEL-VIEW-IN-USE", f"the view {name!r} is read by {', '.join(readers)}", hint="drop those first"
            )
        used = stages_in_use(entry for entry in head.entries.values() if entry.name != view.name)
        gone = [view.name, *(stage for stage in view.stages if stage not in used)]
        return Commit(base=head.epoch, drop=gone, undefine=[*gone], kind="define")

    _publish(runtime, build)


def refresh(runtime: Runtime, names: list[str] | None = None, *, full: bool = False) -> int:
    """Bring views up to the newest epoch now: all, or these with the views they read and the immediate ones that read them.

    `full` recomputes the named ones first.
    """
    head = runtime.lake.snapshot()
    found = None if names is None else [find_view(head, name).name for name in names]
    if full:
        for name in found or [view.name for view in head.views.values() if not view.events]:
            rebuild(runtime, name)
    return update(runtime, found).epoch


def find_view(head: Snapshot, name: str) -> ViewEntry:
    """Find a view without regard to case."""
    for view in head.views.values():
        if view.name.lower() == str(name).lower():
            return view
    raise Terminal(
        "RUNNEL-VIEW-UNKNOWN",
        f"there is no view {name!r}",
        hint=nearest(str(name), head.views) or f"there are {', '.join(head.views) or 'none yet'}",
    )


def check_properties(name: str, properties: Mapping[str, str], place: Place | None = None) -> dict[str, str]:
    """Check `refresh` and `mode`; anything else is refused with the nearest name."""
    for key, value in properties.items():
        if key not in ("refresh", "mode"):
            raise Terminal(
                "RUNNEL-VIEW-PROPERTY",
                f"view {name}: there is no property {key!r}",
                place=place,
                hint=nearest(key, ("refresh", "mode")) or "there are refresh and mode",
            )
        if key == "mode" and value not in MODES:
            raise Terminal(
                "RUNNEL-VIEW-PROPERTY",
                f"view {name}: mode is {value!r}",
                place=place,
                hint=f"use one of {', '.join(MODES)}",
            )
        if key == "refresh" and value not in REFRESH_WORDS:
            try:
                parse_duration(value)
            except RunnelError as error:
                raise Terminal(
                    "RUNNEL-VIEW-PROPERTY",
                    f"view {name}: refresh is {value!r}",
                    place=place,
                    hint="use immediate, manual, auto or an interval such as '5 seconds'",
                ) from error
    return dict(properties)


def _find(head: Snapshot, name: str) -> Relation | None:
    return next((r for r in head.relations.values() if r.name.lower() == name.lower()), None)


def _spelled(head: Snapshot, name: str) -> str:
    """Write a name as it was given first, if it is known."""
    there = _find(head, name)
    return there.name if there is not None else name


def _publish(runtime: Runtime, build: Callable[[Snapshot], Commit | None]) -> int:
    def attempt() -> int:
        head = runtime.lake.snapshot()
        commit = build(head)
        return head.epoch if commit is None else runtime.lake.publish(commit)

    return in_turn(runtime, attempt)
