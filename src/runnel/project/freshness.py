"""Says so when rows that are read are not of the newest epoch: a view that failed, and one that waits for it, keep their old rows."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

from runnel.engine.inputs import follows
from runnel.errors import RunnelError, RunnelWarning, Terminal

if TYPE_CHECKING:
    from collections.abc import Iterable

    from runnel.lake.entries import ViewEntry
    from runnel.lake.snapshot import Snapshot


def check_fresh(snapshot: Snapshot, names: Iterable[str], *, strict: bool = False) -> None:
    """Warn of views among these that failed or are late; with `strict` raise instead, also of those that lag by design."""
    for name in names:
        view = snapshot.views.get(name)
        error = None if view is None else late(snapshot, view, strict=strict)
        if error is not None and strict:
            raise error
        if error is not None:
            warnings.warn(str(error), RunnelWarning, stacklevel=3)


def late(snapshot: Snapshot, view: ViewEntry, *, strict: bool) -> RunnelError | None:
    """Say why a view's rows are not those of the epoch that is read, if they are not."""
    if view.error is not None:
        return Terminal(
            "RUNNEL-VIEW-FAILED",
            f"view {view.name} stands at epoch {view.frontier} of {snapshot.epoch}, because it failed: {view.error}",
            hint="mend what it says; the view then goes on by itself, or with project.refresh",
        )
    by_design = view.properties.get("refresh", "immediate") != "immediate"
    if view.frontier >= snapshot.epoch or (by_design and not strict) or not has_changes(snapshot, view):
        return None
    if not strict and any(_by_design(snapshot, name) for name in follows(snapshot, view)):
        return None
    return Terminal(
        "RUNNEL-VIEW-BEHIND",
        f"view {view.name} stands at epoch {view.frontier} of {snapshot.epoch}",
        hint=f"bring it up to date: project.refresh({view.name!r})",
    )


def _by_design(snapshot: Snapshot, name: str) -> bool:
    entry = snapshot.entries.get(name)
    return entry is not None and entry.properties.get("refresh", "immediate") != "immediate"


def has_changes(snapshot: Snapshot, view: ViewEntry) -> bool:
    """Say whether something that a view reads changed since its frontier."""
    try:
        return any(snapshot.changes(name, view.frontier) for name in follows(snapshot, view))
    except RunnelError:  # changes that are no longer kept were there
        return True
