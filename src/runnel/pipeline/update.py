"""Brings views up to date when asked: those that are named with all they read, and the immediate ones that read them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from runnel.pipeline.step import Change, immediate, take

if TYPE_CHECKING:
    from collections.abc import Iterable

    from runnel.lake.entries import ViewEntry
    from runnel.lake.snapshot import Snapshot
    from runnel.pipeline.runtime import Runtime
    from runnel.pipeline.step import Taken


def update(runtime: Runtime, names: Iterable[str] | None = None) -> Taken:
    """Bring views or stages up to the newest epoch in one step: all, or these and whatever moves with them."""
    wanted = None if names is None else list(names)
    return take(runtime, lambda head: Change(), lambda head: moving_with(head, wanted))


def moving_with(head: Snapshot, names: Iterable[str] | None) -> list[ViewEntry]:
    """Choose what moves when these do: what they read, and the immediate views that read any of it."""
    if names is None:
        return list(head.entries.values())
    wanted = with_inputs(head, names)
    wanted |= immediate_readers(head, wanted)
    return [entry for entry in head.entries.values() if entry.name in wanted]


def with_inputs(head: Snapshot, names: Iterable[str]) -> set[str]:
    """Give these views and stages and all that they read, tables apart."""
    wanted: set[str] = set()
    todo = list(names)
    while todo:
        name = todo.pop()
        if name not in wanted and name in head.entries:
            wanted.add(name)
            todo.extend(head.entries[name].inputs)
    return wanted


def immediate_readers(head: Snapshot, names: set[str]) -> set[str]:
    """Give the views that follow every epoch, and their stages, that read one of these, directly or not."""
    follow = {view.name: set(view.inputs) for view in immediate(head)}
    found: set[str] = set()
    while more := {name for name, inputs in follow.items() if name not in found and inputs & (names | found)}:
        found |= more
    return found
