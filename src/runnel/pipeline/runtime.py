"""What every step of the pipeline needs at hand: the lake, the engine, and the few settings that shape the work."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

from runnel.compiler import program_from_json
from runnel.compiler.serialize import is_current
from runnel.errors import Terminal
from runnel.lake.expiry import GRACE_SECONDS
from runnel.pipeline.cost import FLOOR, Learned

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from runnel.engine.base import Engine
    from runnel.lake.entries import ViewEntry
    from runnel.lake.lake import Lake
    from runnel.lake.snapshot import Snapshot
    from runnel.model.program import Program
    from runnel.pipeline.upkeep import Keeper

LARGE = 500_000


@dataclass
class Runtime:
    """The lake and the engine of one open project; `large` is the row count from which the engine writes, not the driver.

    Changes of up to `floor` rows are always followed; larger ones may be cheaper to compute anew.
    """

    lake: Lake
    engine: Engine
    keep: int = 100
    grace: float = GRACE_SECONDS
    threads: int = 4
    large: int = LARGE
    floor: int = FLOOR
    attempts: int = 30
    learned: Learned = field(default_factory=Learned)
    expired_at: int = 0
    programs: dict[str, Program] = field(default_factory=dict)
    keeper: Keeper | None = None
    """Does upkeep beside the epochs; without one it is done after each of them."""
    on_difference: Literal["rebuild", "stop", "report"] = "rebuild"
    """What becomes of a view that a proof finds wrong."""
    reports: Path | None = None
    """Where reproductions of differences are written."""
    settled: set[int] = field(default_factory=set)
    """The views, by their relations' ids, that were proved after their first changes or are left to the background."""
    _working: int = 0
    _idle: threading.Condition = field(default_factory=threading.Condition, repr=False)

    @contextmanager
    def working(self) -> Iterator[None]:
        """Say that an epoch is being computed, for as long as the block lasts."""
        with self._idle:
            self._working += 1
        try:
            yield
        finally:
            with self._idle:
                self._working -= 1
                self._idle.notify_all()

    def wait_idle(self, seconds: float) -> None:
        """Wait until no epoch is being computed, but not forever: upkeep has to go on under a steady load too."""
        with self._idle:
            self._idle.wait_for(lambda: self._working == 0, timeout=seconds)

    @property
    def functions(self) -> dict[str, str]:
        """The users' functions that are registered, each with the fingerprint of its body."""
        return {name: function.fingerprint for name, function in self.engine.functions.items()}

    def program(self, view: ViewEntry) -> Program:
        """Give a view's compiled program; parsed once per text."""
        if view.program not in self.programs:
            if not is_current(view.program):
                raise Terminal(
                    "RUNNEL-VIEW-OLDER",
                    f"view {view.name} was compiled by another version of runnel",
                    hint="open the project with its files once, as `runnel run` does: such views are made anew",
                )
            self.programs[view.program] = program_from_json(view.program)
        return self.programs[view.program]

    def whole_program(self, head: Snapshot, view: ViewEntry) -> Program:
        """Give a view's program with the programs of all stages below it."""
        stages = tuple(self.program(head.entries[name]) for name in view.stages)
        return replace(self.program(view), stages=stages)
