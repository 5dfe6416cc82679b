"""Creates and drops tables and views. A new view is computed at one pinned epoch and joins the others in one step."""

from __future__ import annotations

from typing import TYPE_CHECKING

from runnel.compiler import compile_view, program_to_json
from runnel.config import parse_duration
from runnel.engine.inputs import standing
from runnel.errors import Conflict, RunnelError, Terminal, nearest
from runnel.lake.entries import Commit, ViewEntry
from runnel.model.relation import Kind, Relation, check_columns
from runnel.pipeline.maintain import hydrate
from runnel.pipeline.step import Change, immediate, take

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from runnel.errors import Place
    from runnel.lake.snapshot import Snapshot
    from runnel.model.program import Program
    from runnel.model.relation import Column
    from runnel.pipeline.runtime import Runtime

MODES = ("auto", "incremental", "full")
HYDRATIONS = 5
REFRESH_WORDS = ("immediate", "manual", "auto")


def create_table(runtime: Runtime, name: str, columns: tuple[Column, ...], key: tuple[str, ...]) -> Relation:
    """Create an empty table; one of the same shape that is there already is left alone."""
    check_columns(name, columns, key)
    by_name = {c.name.lower(): c.name for c in columns}
    relation = Relation(name, Kind.TABLE, columns, tuple(by_name[part.lower()] for part in key))

    def build(head: Snapshot) -> Commit | None:
        there = _find(head, name)
        if there == relation:
            return None
        if there is not None:
            raise Terminal(
                "RUNNEL-NAME-TAKEN",
                f"there is a {there.kind.value} {name!r} already, and it is different",
                hint="choose another name",
            )
        return Commit(base=head.epoch, create=[relation], kind="define")

    _publish(runtime, build)
    return relation


def create_view(
    runtime: Runtime,
    name: str,
    sql: str,
    properties: Mapping[str, str] | None = None,
    place: Place | None = None,
) -> Program:
    """Compile a view, compute its contents at one pinned epoch and let it follow from there."""
    checked = check_properties(name, properties or {}, place)
    for attempt in range(HYDRATIONS):
        try:
            program = _create(runtime, name, sql, checked, place)
            break
        except _Overtaken:
            if attempt + 1 == HYDRATIONS:
                raise
    refresh(runtime, [name])
    return program


class _Overtaken(Conflict):
    """While a view was computed, what it reads was replaced or forgotten."""


def _create(runtime: Runtime, name: str, sql: str, properties: dict[str, str], place: Place | None) -> Program:
    head = runtime.lake.snapshot()
    _refuse_taken(head, name, place)
    program = compile_view(name, sql, head.relations, runtime.engine.analyse, properties.get("mode", "auto"), place)
    check_columns(name, program.columns)
    pending = hydrate(runtime, head, program)
    stages = tuple(step.target.name for step in program.steps[:-1])
    entry = ViewEntry(name, sql, properties, program_to_json(program), program.inputs, stages, head.epoch)

    def build(now: Snapshot) -> Commit:
        _refuse_taken(now, name, place)
        _refuse_overtaken(runtime, head, now, entry)
        commit = Commit(base=now.epoch, create=[step.target for step in program.steps], kind="define")
        commit.add = pending.all()
        commit.define = [entry]
        if now.epoch == head.epoch:
            commit.frontiers = {name: None}
        commit.record = {"defined": name, "strategy": program.strategy.value, "rows": sum(f.rows for f in commit.add)}
        return commit

    try:
        _publish(runtime, build)
    except RunnelError:
        runtime.lake.discard(pending.all())
        raise
    return program


def _refuse_taken(head: Snapshot, name: str, place: Place | None) -> None:
    if _find(head, name) is not None:
        raise Terminal("RUNNEL-NAME-TAKEN", f"there is a relation {name!r} already", place=place, hint="drop it first")


def _refuse_overtaken(runtime: Runtime, then: Snapshot, now: Snapshot, view: ViewEntry) -> None:
    """See that a view computed `then` can go on from there: its inputs are the same ones, and their changes still kept."""
    ids = [(then.definitions.ids.get(name), now.definitions.ids.get(name)) for name in view.inputs]
    if any(before != after for before, after in ids):
        raise _Overtaken(
            "RUNNEL-VIEW-OVERTAKEN", f"what {view.name} reads was replaced while it was computed", hint="try again"
        )
    try:
        standing(runtime.lake, now, view)
    except Terminal as error:
        message = f"the epoch {view.name} was computed at is no longer kept"
        raise _Overtaken("RUNNEL-VIEW-OVERTAKEN", message, hint="keep more epochs: [state] keep") from error


def drop_view(runtime: Runtime, name: str) -> None:
    """Forget a view and its stages; refused while another view reads it."""

    def build(head: Snapshot) -> Commit:
        view = find_view(head, name)
        readers = [other.name for other in head.views.values() if view.name in other.inputs]
        if readers:
            raise Terminal(
                "RUNNEL-VIEW-IN-USE", f"the view {name!r} is read by {', '.join(readers)}", hint="drop those first"
            )
        return Commit(base=head.epoch, drop=[view.name, *view.stages], undefine=[view.name], kind="define")

    _publish(runtime, build)


def refresh(runtime: Runtime, names: list[str] | None = None, *, full: bool = False) -> int:
    """Bring views up to the newest epoch now: all, or these with the views they read and the immediate ones that read them.

    `full` recomputes the named ones first.
    """
    if full:
        for name in names or list(runtime.lake.snapshot().views):
            rebuild(runtime, name)

    def choose(head: Snapshot) -> list[ViewEntry]:
        if names is None:
            return list(head.views.values())
        wanted = _with_inputs(head, [find_view(head, name).name for name in names])
        wanted |= _immediate_readers(head, wanted)
        return [view for view in head.views.values() if view.name in wanted]

    return take(runtime, lambda head: Change(), choose).epoch


def rebuild(runtime: Runtime, name: str) -> None:
    """Compute a view and its stages from scratch and store the difference to what is there."""
    from runnel.pipeline.rebuild import difference

    def build(head: Snapshot) -> Commit:
        view = find_view(head, name)
        pending = difference(runtime, head, view)
        commit = Commit(base=head.epoch, kind="rebuild")
        commit.add = pending.all()
        commit.frontiers = {view.name: None}
        commit.errors = {view.name: None}
        rows = sum(f.rows for f in commit.add if f.relation == view.name)
        commit.record = {"views": {view.name: {"strategy": "full", "rows": rows}}}
        return commit

    _publish(runtime, build)


def find_view(head: Snapshot, name: str) -> ViewEntry:
    """Find a view without regard to case."""
    for view in head.views.values():
        if view.name.lower() == name.lower():
            return view
    raise Terminal(
        "RUNNEL-VIEW-UNKNOWN",
        f"there is no view {name!r}",
        hint=nearest(name, head.views) or f"there are {', '.join(head.views) or 'none yet'}",
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


def _with_inputs(head: Snapshot, names: list[str]) -> set[str]:
    wanted: set[str] = set()
    todo = list(names)
    while todo:
        name = todo.pop()
        if name not in wanted and name in head.views:
            wanted.add(name)
            todo.extend(head.views[name].inputs)
    return wanted


def _immediate_readers(head: Snapshot, names: set[str]) -> set[str]:
    follow = {view.name: set(view.inputs) for view in immediate(head)}
    found: set[str] = set()
    while more := {name for name, inputs in follow.items() if name not in found and inputs & (names | found)}:
        found |= more
    return found


def _find(head: Snapshot, name: str) -> Relation | None:
    return next((r for r in head.relations.values() if r.name.lower() == name.lower()), None)


def _publish(runtime: Runtime, build: Callable[[Snapshot], Commit | None]) -> int:
    for attempt in range(runtime.attempts):
        head = runtime.lake.snapshot()
        commit = build(head)
        if commit is None:
            return head.epoch
        try:
            return runtime.lake.publish(commit)
        except Conflict:
            runtime.lake.discard([] if commit.define else commit.add)
            if attempt + 1 == runtime.attempts:
                raise
    raise AssertionError
