"""Does the scheduled rebuilds of `[rebuild.NAME]` in a thread of its own, beside the log; what came of each is noted in the catalog."""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from runnel.connectors.guarded import translated
from runnel.errors import RunnelError
from runnel.pipeline.backoff import BackOff
from runnel.redaction import plainly

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from runnel.config import Rebuild
    from runnel.lake.lake import Lake
    from runnel.pipeline.reread import Rebuilt

NOTE = "rebuild:"
PAUSE_SECONDS = 0.5
FIRST_SECONDS, LONGEST_SECONDS = 1.0, 60.0
"""Pauses after a failure; a rebuild reads whole tables, so it is tried again later than a source is."""
log = logging.getLogger("runnel")


@dataclass(frozen=True)
class Outcome:
    """When a scheduled rebuild was last done, and what it found: rows read, rows that differed, the newest epoch after it.

    `error` is why the last try failed; the other fields are then those of the last one that did not.
    """

    at: str | None = None
    rows_read: int = 0
    rows_changed: int = 0
    epoch: int = 0
    error: str | None = None

    @property
    def age(self) -> float:
        """Seconds since it was done; endless where it never was."""
        if self.at is None:
            return float("inf")
        return (datetime.now(UTC) - datetime.fromisoformat(self.at)).total_seconds()


def outcome(lake: Lake, name: str) -> Outcome:
    """Give what came of a rebuild the last time."""
    return Outcome(**lake.noted(NOTE + name))


class Rebuilder:
    """Rebuilds what is due, one after the other; what fails is tried again after a pause that grows, and stops nothing else."""

    def __init__(self, lake: Lake, wanted: Sequence[Rebuild], do: Callable[[str, str | None], Rebuilt]) -> None:
        """Keep the settings; `do` rebuilds one table. `start` begins."""
        self._lake, self._wanted, self._do = lake, wanted, do
        self._closed = threading.Event()
        self._backoff = BackOff(FIRST_SECONDS, LONGEST_SECONDS)
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin, again after a close."""
        if not self._wanted:
            return
        self._closed.clear()
        self._thread = threading.Thread(target=self._work, name="runnel-rebuilder", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Begin no other rebuild; one that runs is waited for a little."""
        self._closed.set()
        if self._thread is not None:
            self._thread.join(timeout=5)

    def _work(self) -> None:
        while not self._closed.wait(PAUSE_SECONDS):
            for wanted in self._wanted:
                try:
                    self._rebuild_if_due(wanted)
                except RunnelError as error:  # of the catalog, which has the notes
                    self._put_off(wanted, error)
                except Exception:  # the thread has to live
                    if not self._closed.is_set():
                        log.exception("rebuild %s was put off", wanted.name)
                        self._backoff.failed(wanted.name)

    def _put_off(self, wanted: Rebuild, error: RunnelError) -> None:
        log.warning("rebuild %s was put off: %s", wanted.name, error)
        self._backoff.failed(wanted.name)

    def _rebuild_if_due(self, wanted: Rebuild) -> None:
        before = outcome(self._lake, wanted.name)
        if self._backoff.waiting(wanted.name) or before.age < wanted.every or self._closed.is_set():
            return
        begun = time.monotonic()
        done: list[Rebuilt] = []
        try:
            for table in wanted.tables:
                done.append(self._do(table, wanted.where))
        except Exception as error:
            if self._closed.is_set():
                return
            self._failed(wanted, before, translated(f"rebuild.{wanted.name}", error))
            return
        self._backoff.succeeded(wanted.name)
        read, changed = sum(one.rows_read for one in done), sum(one.rows_changed for one in done)
        epoch = max((one.epoch for one in done), default=0)
        log.info("rebuild %s: %d rows read, %d differed, %.1f s", wanted.name, read, changed, time.monotonic() - begun)
        self._keep(wanted, Outcome(datetime.now(UTC).isoformat(timespec="seconds"), read, changed, epoch))

    def _failed(self, wanted: Rebuild, before: Outcome, error: RunnelError) -> None:
        self._backoff.failed(wanted.name)
        if str(error) != before.error:
            log.error("rebuild %s: %s", wanted.name, error)
            self._keep(wanted, Outcome(before.at, before.rows_read, before.rows_changed, before.epoch, str(error)))

    def _keep(self, wanted: Rebuild, found: Outcome) -> None:
        self._lake.note(NOTE + wanted.name, plainly(asdict(found)))
