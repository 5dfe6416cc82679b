"""Follows the epochs with the targets: each in a thread of its own, so that a slow or dead one holds up nobody.

A target that fails is tried again, less and less often; how far it is and why it failed is noted in the state.
"""

from __future__ import annotations

import logging
import random
import threading
from contextlib import suppress
from typing import TYPE_CHECKING

from runnel.errors import RunnelError, Terminal, Transient
from runnel.pipeline.deliver import Round, deliver, note_name

if TYPE_CHECKING:
    from collections.abc import Mapping

    from runnel import config
    from runnel.connectors.base import Target
    from runnel.pipeline.runtime import Runtime

LOOK_SECONDS = 0.5
"""How often somebody else's epochs are looked for."""
FIRST_PAUSE, LONGEST_PAUSE = 0.5, 60.0
TRIES = 4
CLOSE_SECONDS = 60.0
log = logging.getLogger("runnel")


class Follower:
    """Keeps one target up to date."""

    def __init__(self, runtime: Runtime, wanted: config.Target, target: Target) -> None:
        """Take over an open target; nothing is connected to yet."""
        self.wanted = wanted
        self._runtime, self.target = runtime, target
        self._wake, self._closed = threading.Event(), threading.Event()
        self._thread: threading.Thread | None = None
        self._told: dict[str, str] = {}

    def start(self) -> None:
        """Follow from now on, in a thread."""
        self._closed.clear()
        self._thread = threading.Thread(target=self._follow, name=f"runnel-{self.wanted.label}", daemon=True)
        self._thread.start()

    def due(self) -> None:
        """Note that an epoch was published."""
        self._wake.set()

    def close(self) -> None:
        """Finish what is being delivered, and let go of the target."""
        self._closed.set()
        self._wake.set()
        if self._thread is not None:
            self._thread.join(CLOSE_SECONDS)
            if self._thread.is_alive():
                log.warning("%s does not answer; what it lacks is delivered next time", self.wanted.label)
                return
        self.target.close()

    def bring_up(self, *, full: bool = False, tries: int = TRIES) -> Round:
        """Bring the target up to date now; what may be gone on the next try is tried a few times."""
        pause = FIRST_PAUSE
        for left in reversed(range(tries)):
            done = self._once(full=full)
            if not left or not any(isinstance(problem, Transient) for problem in done.problems.values()):
                break
            if self._closed.wait(pause):
                break
            pause *= 2
        return done

    def _follow(self) -> None:
        pause, seen = 0.0, -1
        while not self._closed.is_set():
            try:
                failed = False
                if pause or self._runtime.lake.head() != seen:
                    done = self._once()
                    failed, seen = bool(done.problems), done.epoch
            except Exception as error:  # nothing may end the following
                log.warning("%s: %s", self.wanted.label, error)
                failed = True
            pause = min(max(pause * 2, FIRST_PAUSE), LONGEST_PAUSE) if failed else 0.0
            if failed:
                self._closed.wait(pause * random.uniform(0.75, 1.0))
            else:
                self._wake.wait(LOOK_SECONDS)
                self._wake.clear()

    def _once(self, *, full: bool = False) -> Round:
        """Deliver once; what concerns the target itself is told as a problem of all its views."""
        try:
            done = deliver(self._runtime, self.wanted, self.target, full=full)
        except RunnelError as error:
            done = self._failed(error)
        except Exception as error:  # a fault of a driver must not end the following
            log.exception("%s", self.wanted.label)
            done = self._failed(
                Terminal("RUNNEL-TARGET-FAILED", f"{self.wanted.label}: {type(error).__name__}: {error}")
            )
        self._note(done)
        self._tell(done)
        return done

    def _failed(self, error: RunnelError) -> Round:
        """Begin with a new connection next time: a driver may take long to see that a server is back."""
        with suppress(Exception):  # what is broken already may not close either
            self.target.close()
        return Round(self._runtime.lake.head(), 0, dict.fromkeys(self.wanted.views, error))

    def _note(self, done: Round) -> None:
        """Keep how far each view is and its error, when that says something new."""
        lake = self._runtime.lake
        known = lake.noted(note_name(self.wanted.name))
        epochs, errors = dict(known.get("epochs", {})), {view: str(p) for view, p in done.problems.items()}
        fresh = [view for view in self.wanted.views if view not in errors]
        old = min((epochs.get(view, -1) for view in fresh), default=done.epoch)
        stale = done.rows or done.epoch - old >= max(1, self._runtime.keep // 4) or old < 0
        if stale or errors != known.get("errors", {}):
            epochs = {view: epoch for view, epoch in epochs.items() if view in self.wanted.views}
            lake.note(
                note_name(self.wanted.name), {"epochs": epochs | dict.fromkeys(fresh, done.epoch), "errors": errors}
            )

    def _tell(self, done: Round) -> None:
        now = {view: str(problem) for view, problem in done.problems.items()}
        for text in dict.fromkeys(text for view, text in now.items() if self._told.get(view) != text):
            log.error("%s", text)
        if self._told and not now:
            log.info("%s is up to date again, at epoch %s", self.wanted.label, done.epoch)
        self._told = now


class Targets:
    """All targets of a run."""

    def __init__(self, runtime: Runtime, targets: Mapping[str, tuple[config.Target, Target]]) -> None:
        """Take over open targets, by name."""
        self.followers = {name: Follower(runtime, *pair) for name, pair in targets.items()}
        self.problems: list[RunnelError] = []

    def start(self) -> None:
        """Follow from now on."""
        for follower in self.followers.values():
            follower.start()

    def due(self) -> None:
        """Note that an epoch was published."""
        for follower in self.followers.values():
            follower.due()

    def bring_up(self, *, full: bool = False) -> dict[str, Round]:
        """Bring all targets up to date now; `problems` are those of all of them, each told once."""
        done = {name: follower.bring_up(full=full) for name, follower in self.followers.items()}
        self.problems = list({id(p): p for one in done.values() for p in one.problems.values()}.values())
        return done

    def close(self) -> None:
        """Finish what is being delivered."""
        for follower in self.followers.values():
            follower.close()
