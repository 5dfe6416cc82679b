"""The long-running job: one runner holds the lease, gathers changes, takes epochs, refreshes due views, does the upkeep.

A second runner waits; it takes over when the first one's lease ends or when its process on the same host is gone.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
import uuid
from typing import TYPE_CHECKING

from runnel.config import parse_duration
from runnel.errors import Conflict, Transient
from runnel.pipeline.epoch import run_epoch
from runnel.pipeline.source_tables import check_source_tables
from runnel.pipeline.step import with_stages
from runnel.pipeline.targets import Targets
from runnel.pipeline.upkeep import after_epoch, tidy

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from runnel.connectors.base import Source
    from runnel.lake.entries import ViewEntry
    from runnel.lake.snapshot import Snapshot
    from runnel.pipeline.epoch import Captured
    from runnel.pipeline.runtime import Runtime
    from runnel.pipeline.step import Taken

LEASE = "runner"
LEASE_SECONDS = 15.0
AUTO_SHARE = 10
log = logging.getLogger("runnel")


class Runner:
    """Runs epochs until told to stop, or until there is nothing left to do."""

    def __init__(
        self,
        runtime: Runtime,
        sources: Mapping[str, Source],
        *,
        gather: float = 0.1,
        max_rows: int = 1_000_000,
        per_transaction: bool = False,
        deliver: Callable[[Taken], None] | None = None,
        targets: Targets | None = None,
    ) -> None:
        """Keep the settings; `gather` is how long changes are collected for an epoch, in seconds."""
        self._runtime, self._sources = runtime, sources
        self._gather = 0.0 if per_transaction else gather
        self._max_rows = 1 if per_transaction else max_rows
        self._told = deliver
        self._targets = targets or Targets(runtime, {})
        self._owner = f"{socket.gethostname()}:{os.getpid()}:{uuid.uuid4().hex[:8]}"
        self._lost = threading.Event()
        self._refreshed: dict[str, float] = {}
        self._costs: dict[str, float] = {}
        self._failed_at: dict[str, int] = {}

    def run(self, *, once: bool, stop: threading.Event) -> dict[str, str]:
        """Run until caught up (`once`) or stopped; give the errors of sources that could not be read.

        Targets follow beside the epochs; with `once` they are brought up to date at the end.
        """
        if not self._wait_for_lease(stop):
            return {}
        self._lost.clear()
        heart = threading.Thread(target=self._heartbeat, args=(stop,), name="runnel-lease", daemon=True)
        heart.start()
        try:
            if not once:
                self._targets.start()
            errors = self._loop(once=once, stop=stop)
            if once and not stop.is_set():
                self._targets.bring_up()
            return errors
        finally:
            self._targets.close()
            self._lost.set()
            heart.join(timeout=5)
            self._runtime.lake.release(LEASE, self._owner)

    def _loop(self, *, once: bool, stop: threading.Event) -> dict[str, str]:
        errors: dict[str, str] = {}
        while not stop.is_set():
            if self._lost.is_set():
                raise Conflict("RUNNEL-LEASE-LOST", "another runner took over", hint="stop this one, or the other")
            try:
                taken, captured = self._epoch()
            except Transient as error:
                if once:
                    raise
                log.warning("%s", error)
                stop.wait(1.0)
                continue
            self._report(captured, errors)
            errors = captured.errors
            if taken.published:
                after_epoch(self._runtime, taken.epoch) if once else tidy(self._runtime, taken.epoch)
            if once and not captured.ends:
                return errors
            if not captured.ends:
                stop.wait(max(self._gather, 0.02))
        return errors

    def _epoch(self) -> tuple[Taken, Captured]:
        check_source_tables(self._runtime, self._sources)
        result = run_epoch(self._runtime, self._sources, self._max_rows, self._due, self._deliver)
        now = time.monotonic()
        for view in result[0].results:
            if view.strategy != "skipped" or view.view not in self._refreshed:
                self._costs[view.view] = view.milliseconds / 1000
            self._refreshed[view.view] = now
            if view.error:
                self._failed_at[view.view] = result[0].epoch
        return result

    def _deliver(self, taken: Taken) -> None:
        self._targets.due()
        if self._told:
            self._told(taken)

    def _due(self, head: Snapshot) -> list[ViewEntry]:
        due = with_stages(head, [view for view in head.views.values() if self._is_due(view)])
        return [entry for entry in due if not self._in_vain(entry, head)]

    def _in_vain(self, view: ViewEntry, head: Snapshot) -> bool:
        """Say whether a view failed on this very state already; it is tried again when something has changed."""
        return view.error is not None and self._failed_at.get(view.name) == head.epoch

    def _is_due(self, view: ViewEntry) -> bool:
        refresh = view.properties.get("refresh", "immediate")
        if refresh in ("immediate", "manual"):
            return refresh == "immediate"
        if view.name not in self._refreshed:
            return True
        wait = self._costs.get(view.name, 0.0) * AUTO_SHARE if refresh == "auto" else parse_duration(refresh)
        return time.monotonic() - self._refreshed[view.name] >= wait

    def _report(self, captured: Captured, before: Mapping[str, str]) -> None:
        for name, error in captured.errors.items():
            if before.get(name) != error:
                log.error("source %s: %s", name, error)

    def _wait_for_lease(self, stop: threading.Event) -> bool:
        lake, told = self._runtime.lake, False
        while not stop.is_set():
            if lake.acquire(LEASE, self._owner, LEASE_SECONDS):
                return True
            holder = lake.holder(LEASE)
            if holder and _is_dead(holder):
                lake.release(LEASE, holder)
                continue
            if not told:
                log.info("another runner works on this project (%s); waiting to take over", holder)
                told = True
            stop.wait(0.25)
        return False

    def _heartbeat(self, stop: threading.Event) -> None:
        while not self._lost.wait(LEASE_SECONDS / 5):
            try:
                held = self._runtime.lake.renew(LEASE, self._owner, LEASE_SECONDS)
            except Transient as error:
                log.warning("the lease could not be renewed just now: %s", error)
                continue
            if not held:
                self._lost.set()


def _is_dead(owner: str) -> bool:
    """Tell whether an owner on this very host has no process any more."""
    host, pid, _ = owner.split(":", 2)
    if host != socket.gethostname():
        return False
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    return False
