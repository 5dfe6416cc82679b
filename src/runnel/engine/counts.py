"""Counts what an engine did: work by kind and by place, the Spark jobs and tasks that it took, bytes of state read.

There are three kinds of work: a `step` is one SQL statement, a `read` a partition of a source, `keyed` a Python function over the rows of
keys. Each is done in the driver or on Spark. Jobs and tasks are those that Spark ran, not calls of ours: one statement may take several jobs.

>>> total = Counted()
>>> with counting() as epoch:
...     total.work("step", DRIVER)
...     total.work("step", SPARK, ran=Ran(jobs=5, tasks=7))
>>> epoch.to_dict()["work"]
{'step': {'driver': 1, 'spark': 1, 'jobs': 5, 'tasks': 7}}
"""

from __future__ import annotations

import threading
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Iterator

Kind = Literal["step", "read", "keyed"]
Place = Literal["driver", "spark"]
DRIVER: Place = "driver"
SPARK: Place = "spark"


@dataclass(frozen=True)
class Ran:
    """What Spark ran for something; None where it does not say, as with Spark Connect."""

    jobs: int | None = 0
    tasks: int | None = 0


@dataclass
class Work:
    """What was done of one kind."""

    driver: int = 0
    spark: int = 0
    jobs: int | None = 0
    tasks: int | None = 0

    def to_dict(self) -> dict[str, int | None]:
        """Give plain data; jobs only where Spark did something."""
        places: dict[str, int | None] = {"driver": self.driver, "spark": self.spark}
        return places | ({"jobs": self.jobs, "tasks": self.tasks} if self.spark else {})


@dataclass
class Counted:
    """What was done since it was made; several threads may count."""

    bytes_read: int = 0
    kinds: dict[Kind, Work] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False, compare=False)

    def read(self, size: int) -> None:
        """Count bytes of state that had to be read."""
        for counted in self._and_scope():
            with counted._lock:
                counted.bytes_read += size

    def work(self, kind: Kind, place: Place, number: int = 1, ran: Ran | None = None) -> None:
        """Count pieces of work, and what Spark ran for them."""
        ran = ran or Ran()
        for counted in self._and_scope():
            with counted._lock:
                done = counted.kinds.setdefault(kind, Work())
                setattr(done, place, getattr(done, place) + number)
                done.jobs, done.tasks = _added(done.jobs, ran.jobs), _added(done.tasks, ran.tasks)

    def _and_scope(self) -> list[Counted]:
        scope = _SCOPE.get()
        return [self] if scope is None else [self, scope]

    @property
    def in_driver(self) -> int:
        """How many statements the driver ran."""
        return self.kinds["step"].driver if "step" in self.kinds else 0

    @property
    def on_spark(self) -> int:
        """How many statements Spark ran."""
        return self.kinds["step"].spark if "step" in self.kinds else 0

    def to_dict(self) -> dict[str, Any]:
        """Give the counts, for an epoch's record."""
        with self._lock:
            jobs, tasks = 0, 0
            for done in self.kinds.values():
                jobs, tasks = _added(jobs, done.jobs), _added(tasks, done.tasks)  # type: ignore[assignment]
            work = {kind: done.to_dict() for kind, done in self.kinds.items()}
            return {"bytes_read": self.bytes_read, "jobs": jobs, "tasks": tasks, "work": work}


_SCOPE: ContextVar[Counted | None] = ContextVar("runnel_counted", default=None)


@contextmanager
def counting() -> Iterator[Counted]:
    """Count what the block does, apart from what other threads do at the same time.

    Threads that it starts count too if they run in a copy of its context.
    """
    made = Counted()
    token = _SCOPE.set(made)
    try:
        yield made
    finally:
        _SCOPE.reset(token)


def counted_here() -> dict[str, Any]:
    """Give what the block of `counting` around has done so far; nothing outside of one."""
    scope = _SCOPE.get()
    return {} if scope is None else scope.to_dict()


def _added(one: int | None, other: int | None) -> int | None:
    return None if one is None or other is None else one + other
