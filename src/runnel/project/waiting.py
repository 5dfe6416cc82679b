"""Waits until views cover a position of a source's log: a driver that wrote to the store then reads its own writes in the views."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from runnel.engine.inputs import follows
from runnel.errors import Terminal, Transient, UsageError
from runnel.pipeline.definitions import find_view
from runnel.project.freshness import has_changes

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from runnel.connectors.base import Offset, Source
    from runnel.lake.entries import ViewEntry
    from runnel.lake.lake import Lake
    from runnel.lake.snapshot import Snapshot

PAUSE_SECONDS = 0.02


@dataclass
class Wanted:
    """A position of one source; `reached` is the oldest epoch that was seen to cover it."""

    name: str
    source: Source
    position: Offset
    reached: Snapshot | None = None

    def is_in(self, snapshot: Snapshot) -> bool:
        """Say whether the tables of an epoch cover it."""
        return self.source.covers(snapshot.positions.get(self.name, {}), self.position)


def find_source(sources: Mapping[str, Source], name: str) -> Source:
    """Give a source by its name."""
    if name not in sources:
        hint = f"there are {', '.join(sources)}" if sources else "see [sources] in runnel.toml"
        raise UsageError("RUNNEL-SOURCE-UNKNOWN", f"there is no source {name!r}", hint=hint)
    return sources[name]


def wait(lake: Lake, wanted: Wanted, view: str | None, timeout: float) -> int:
    """Wait until a view, or every immediate one, covers a position; give an epoch at which its rows do.

    `RUNNEL-WAIT-TIMEOUT` after `timeout` seconds says what is missing: the source, or a view. Nothing is refreshed by waiting.
    """
    deadline = time.monotonic() + timeout
    while True:
        head = lake.snapshot()
        late = _late(lake, head, wanted, _chosen(head, view))
        if late is None:
            return head.epoch
        if time.monotonic() >= deadline:
            raise Transient("RUNNEL-WAIT-TIMEOUT", f"{late[0]} after {timeout} s", hint=late[1])
        time.sleep(PAUSE_SECONDS)


def _chosen(head: Snapshot, view: str | None) -> list[ViewEntry]:
    if view is not None:
        return [find_view(head, view)]
    return [entry for entry in head.views.values() if _is_immediate(head, entry)]


def _is_immediate(head: Snapshot, view: ViewEntry) -> bool:
    """Say whether a view follows every epoch; one that reads a view which does not, does not either."""
    return all(_refresh(one) == "immediate" for one in _with_read_views(head, view))


def _refresh(view: ViewEntry) -> str:
    return str(view.properties.get("refresh", "immediate"))


def _late(lake: Lake, head: Snapshot, wanted: Wanted, views: Iterable[ViewEntry]) -> tuple[str, str] | None:
    """Say what does not cover the position yet, and what can be done about it; None when everything does."""
    if wanted.reached is None:
        if not wanted.is_in(head):
            return f"{wanted.name} has not reached {wanted.position}", "check that `runnel run` is working"
        wanted.reached = head
    for view in views:
        for one in _with_read_views(head, view):
            if not _covers(lake, one, wanted):
                return _view_late(head, view, one)
    return None


def _with_read_views(head: Snapshot, view: ViewEntry) -> list[ViewEntry]:
    """Give a view and the views that it reads, directly or not: its rows are no newer than theirs."""
    found, todo = {view.name: view}, [view]
    while todo:
        for name in follows(head, todo.pop()):
            if name in head.views and name not in found:
                found[name] = head.views[name]
                todo.append(head.views[name])
    return list(found.values())


def _covers(lake: Lake, view: ViewEntry, wanted: Wanted) -> bool:
    """Say whether a view's own frontier covers the position, or nothing that it reads changed from there to the position."""
    assert wanted.reached is not None
    if view.frontier >= wanted.reached.epoch or not has_changes(wanted.reached, view):
        return True
    try:
        return wanted.is_in(lake.snapshot(view.frontier))
    except Terminal:  # that epoch is no longer kept
        return False


def _view_late(head: Snapshot, view: ViewEntry, one: ViewEntry) -> tuple[str, str]:
    through = "" if one.name == view.name else f", which view {view.name} reads,"
    said = f"view {one.name}{through} is at epoch {one.frontier} of {head.epoch} and does not cover the position"
    if one.error is not None:
        return f"{said}, because it failed: {one.error}", "mend what it says"
    if _refresh(one) == "manual":
        return said, f"it is refreshed by hand: project.refresh({one.name!r})"
    return said, f"check that `runnel run` is working; its refresh is {_refresh(one)!r}"


def as_position(position: Mapping[str, Any]) -> Offset:
    """Check that a position is a JSON object."""
    if not isinstance(position, dict):
        raise UsageError(
            "RUNNEL-WAIT-POSITION",
            f"a position is a dictionary, not {position!r}",
            hint="take it from project.position(source)",
        )
    return dict(position)
