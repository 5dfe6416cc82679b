"""The long-running job: one runner holds the lease, gathers changes, takes epochs, refreshes due views, does the upkeep.

A second runner waits; it takes over when the first one's lease ends or when its process on the same host is gone.

Whatever fails (a source, a view, a target, an epoch as a whole) is noted in the state and tried again after a pause that grows;
everything else goes on. A run ends when it is stopped, or when the state itself cannot be read.
"""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING, Any

from runnel.config import parse_duration
from runnel.connectors.guarded import translated
from runnel.errors import Conflict, RunnelError, Terminal, Transient
from runnel.lake.owner import this_process
from runnel.pipeline.backoff import BackOff
from runnel.pipeline.epoch import Captured, run_epoch
from runnel.pipeline.source_tables import check_source_tables
from runnel.pipeline.step import with_stages
from runnel.pipeline.targets import Targets
from runnel.pipeline.upkeep import after_epoch, tidy

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from runnel.connectors.base import Source
    from runnel.lake.entries import ViewEntry
    from runnel.lake.snapshot import Snapshot
    from runnel.pipeline.prove import Prover
    from runnel.pipeline.rebuilds import Rebuilder
    from runnel.pipeline.runtime import Runtime
    from runnel.pipeline.step import Taken

LEASE = "runner"
RUN_NOTE = "run"
"""The note that says why no epoch can be taken."""
LEASE_SECONDS = 15.0
AUTO_SHARE = 10
EPOCH, DEFINITIONS = "#epoch", "#definitions"
"""Names of what is tried again besides sources and views; they cannot be names of those."""
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
        define: Callable[[], RunnelError | None] | None = None,
        prover: Prover | None = None,
        rebuilder: Rebuilder | None = None,
    ) -> None:
        """Keep the settings; `gather` is how long changes are collected for an epoch, in seconds.

        `define` makes definitions that could not be made at the start; it is called until it gives no error.
        """
        self._runtime, self._sources = runtime, sources
        self._gather = 0.0 if per_transaction else gather
        self._max_rows, self._single = max_rows, per_transaction
        self._told = deliver
        self._targets = targets or Targets(runtime, {})
        self._owner = this_process()
        self._lost = threading.Event()
        self._refreshed: dict[str, float] = {}
        self._costs: dict[str, float] = {}
        self._failed_at: dict[str, int] = {}
        self._define = define
        self._beside = [one for one in (prover, rebuilder) if one is not None]
        self._backoff = BackOff()
        self._view_backoff = BackOff(first=1.0, longest=60.0)
        self._errors: dict[str, RunnelError] = {}
        self._noted = True  # a run before this one may have left a note

    def run(self, *, once: bool, stop: threading.Event) -> dict[str, RunnelError]:
        """Run until caught up (`once`) or stopped; give the errors of sources that could not be read.

        Targets follow beside the epochs; with `once` they are brought up to date at the end.
        """
        errors: dict[str, RunnelError] = {}
        while self._wait_for_lease(stop):
            errors = self._run_with_lease(once=once, stop=stop)
            if once or stop.is_set():
                break
            log.warning("RUNNEL-LEASE-LOST: another runner took over")
        return errors

    def _run_with_lease(self, *, once: bool, stop: threading.Event) -> dict[str, RunnelError]:
        self._lost.clear()
        heart = threading.Thread(target=self._heartbeat, args=(stop,), name="runnel-lease", daemon=True)
        heart.start()
        try:
            if not once:
                self._targets.start()
                for one in self._beside:
                    one.start()
            errors = self._loop(once=once, stop=stop)
            if once and not stop.is_set():
                self._targets.bring_up()
            return errors
        finally:
            self._targets.close()
            for one in self._beside:
                one.close()
            self._lost.set()
            heart.join(timeout=5)
            try:
                self._runtime.lake.release(LEASE, self._owner)
            except Transient as error:
                log.warning("the lease could not be given back, it ends by itself: %s", error)

    def _loop(self, *, once: bool, stop: threading.Event) -> dict[str, RunnelError]:
        while not stop.is_set():
            if self._lost.is_set():
                if not once:
                    break
                raise Conflict("RUNNEL-LEASE-LOST", "another runner took over", hint="stop this one, or the other")
            try:
                self._make_definitions(once=once)
                taken, captured = self._epoch(once=once)
                if taken.published:
                    after_epoch(self._runtime, taken.epoch) if once else tidy(self._runtime, taken.epoch)
                self._note_run(self._runtime.engine.lost())
            except Exception as error:
                if once:
                    raise
                self._end_if_unreadable(error)
                self._note_run(_as_runnel_error(error))
                stop.wait(self._backoff.failed(EPOCH))
                continue
            self._backoff.succeeded(EPOCH)
            if once and not captured.ends:
                break
            if not captured.ends:
                stop.wait(max(self._gather, 0.02))
        return self._errors

    def _end_if_unreadable(self, error: Exception) -> None:
        """Raise if the state itself cannot be read: then nothing can go on."""
        if isinstance(error, Transient):
            return
        try:
            self._runtime.lake.snapshot()
        except Transient as passing:
            log.warning("%s", passing)

    def _note_run(self, error: RunnelError | None) -> None:
        """Log what stops all epochs, and keep it for `status`, which another process may ask; None says that they go on."""
        if error is None and not self._noted:
            return
        said = None if error is None else str(error)
        try:
            if self._runtime.lake.noted(RUN_NOTE).get("error") != said:
                log.error("%s", said) if said else log.info("epochs go on")
                self._runtime.lake.note(RUN_NOTE, {"error": said})
            self._noted = error is not None
        except RunnelError as unnoted:
            log.warning("%s (and it cannot be noted: %s)", said, unnoted)

    def _make_definitions(self, *, once: bool) -> None:
        if self._define is None or once or self._backoff.waiting(DEFINITIONS):
            return
        if self._define() is None:
            log.info("all tables and views of the project's files are made now")
            self._define = None
        else:
            self._backoff.failed(DEFINITIONS)

    def _epoch(self, *, once: bool) -> tuple[Taken, Captured]:
        """Take an epoch of the sources that are not waiting after a failure."""
        ready = {name: source for name, source in self._sources.items() if once or not self._backoff.waiting(name)}
        failed = {name: error for name, error in self._errors.items() if name not in ready}
        failed |= check_source_tables(self._runtime, ready)
        asked = {name: source for name, source in ready.items() if name not in failed}
        try:
            taken, captured = self._take(asked, failed)
        except Transient:
            raise
        except Exception as error:
            if not asked:
                raise
            log.debug("an epoch of all sources failed", exc_info=error)
            taken, captured = self._take_one_by_one(asked, failed)
        for name in ready:
            if name in captured.errors:
                self._backoff.failed(name)
            else:
                self._backoff.succeeded(name)
        self._report(captured, self._errors)
        self._errors = captured.partial | captured.errors
        return taken, captured

    def _take_one_by_one(
        self, sources: Mapping[str, Source], failed: Mapping[str, RunnelError]
    ) -> tuple[Taken, Captured]:
        """Take each source by itself after an epoch of all of them failed, so that the one at fault stops nobody else."""
        errors = dict(failed)
        ends: dict[str, dict[str, Any]] = {}
        partial: dict[str, RunnelError] = {}
        for name, source in sources.items():
            try:
                _, captured = self._take({name: source}, errors)
            except Transient:
                raise
            except Exception as error:
                errors[name] = translated(f"sources.{name}", error)
                continue
            errors, ends, partial = captured.errors, ends | captured.ends, partial | captured.partial
        taken, _ = self._take({}, errors)
        return taken, Captured(ends, errors, partial)

    def _take(self, sources: Mapping[str, Source], failed: Mapping[str, RunnelError]) -> tuple[Taken, Captured]:
        result = run_epoch(
            self._runtime, sources, self._max_rows, self._due, self._deliver, failed, single=self._single
        )
        now = time.monotonic()
        for view in result[0].results:
            if view.strategy != "skipped" or view.view not in self._refreshed:
                self._costs[view.view] = view.milliseconds / 1000
            self._refreshed[view.view] = now
            if view.error:
                self._failed_at[view.view] = result[0].epoch
                self._view_backoff.failed(view.view)
            elif view.view in self._failed_at:
                del self._failed_at[view.view]
                self._view_backoff.succeeded(view.view)
        return result

    def _deliver(self, taken: Taken) -> None:
        self._targets.due()
        if self._told:
            self._told(taken)

    def _due(self, head: Snapshot) -> list[ViewEntry]:
        due = with_stages(head, [view for view in head.views.values() if self._is_due(view)])
        return [entry for entry in due if not self._in_vain(entry, head)]

    def _in_vain(self, view: ViewEntry, head: Snapshot) -> bool:
        """Say whether a view failed on this very state a moment ago; it is tried again when something changed, or after a pause."""
        failed_here = view.error is not None and self._failed_at.get(view.name) == head.epoch
        return failed_here and self._view_backoff.waiting(view.name)

    def _is_due(self, view: ViewEntry) -> bool:
        refresh = view.properties.get("refresh", "immediate")
        if refresh in ("immediate", "manual"):
            return refresh == "immediate"
        if view.name not in self._refreshed:
            return True
        wait = self._costs.get(view.name, 0.0) * AUTO_SHARE if refresh == "auto" else parse_duration(refresh)
        return time.monotonic() - self._refreshed[view.name] >= wait

    def _report(self, captured: Captured, before: Mapping[str, RunnelError]) -> None:
        now = captured.partial | captured.errors
        for name, error in now.items():
            if str(before.get(name)) != str(error):
                log.error("source %s: %s", name, error)
        for name in before.keys() - now.keys():
            log.info("source %s is read again", name)

    def _wait_for_lease(self, stop: threading.Event) -> bool:
        lake, told = self._runtime.lake, False
        while not stop.is_set():
            try:
                if lake.acquire(LEASE, self._owner, LEASE_SECONDS):
                    return True
            except Transient as error:
                log.warning("%s", error)
                stop.wait(self._backoff.failed(LEASE))
                continue
            if not told:
                log.info("another runner works on this project (%s); waiting to take over", lake.holder(LEASE))
                told = True
            stop.wait(0.25)
        return False

    def _heartbeat(self, stop: threading.Event) -> None:
        while not self._lost.wait(LEASE_SECONDS / 5):
            try:
                held = self._runtime.lake.renew(LEASE, self._owner, LEASE_SECONDS)
            except Exception as error:  # the thread has to live: without it another runner would take over
                log.warning("the lease could not be renewed just now: %s", error)
                continue
            if not held:
                self._lost.set()


def _as_runnel_error(error: Exception) -> RunnelError:
    if isinstance(error, RunnelError):
        return error
    log.debug("an epoch failed", exc_info=error)
    said = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
    return Terminal(
        "RUNNEL-EPOCH-FAULT",
        f"an epoch failed: unexpected {type(error).__name__}: {said[:200]}",
        hint="it is tried again; run with --debug for the traceback, and report it",
    )
