"""The table that a check prints, and whether all of it is as it has to be."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.cluster.driver import Done

MEBI = 1 << 20
DRIVER_BOUND = 1 << 30
"""Bytes that a driver may take above what it takes when idle, whatever the size of a range."""


@dataclass
class Report:
    """Lines of a figure's name and its value; `wrong` are those that do not hold."""

    title: str
    lines: list[tuple[str, str]] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)

    def say(self, name: str, value: str) -> None:
        """Add a figure."""
        self.lines.append((name, value))

    def hold(self, name: str, value: str, *, right: bool) -> None:
        """Add a figure that has to be right."""
        self.say(name, value if right else f"{value}  <-- WRONG")
        if not right:
            self.wrong.append(f"{name}: {value}")

    def run(self, name: str, done: Done, *, workers: int) -> None:
        """Add what a run took: speed, tasks of each worker, the driver's memory."""
        epochs = len(done.epochs)
        self.say(f"{name}: rows", f"{done.rows:,} in {done.seconds:.1f} s, {epochs} epochs")
        self.say(f"{name}: speed", f"{done.rows / done.seconds:,.0f} rows/s; {where_time_went(done)}")
        spread = ", ".join(f"{host} {count}" for host, count in sorted(done.tasks.items()))
        worked = sum(count > 0 for count in done.tasks.values())
        self.hold(f"{name}: tasks", spread, right=worked >= workers)
        parts = ", ".join(f"{part} {done.idle[part] // MEBI} -> {done.peak[part] // MEBI}" for part in done.idle)
        text = f"{done.above_idle // MEBI} MiB above idle ({parts})"
        self.hold(f"{name}: driver", text, right=done.above_idle <= DRIVER_BOUND)

    def equal(self, what: str, differing: list[str]) -> None:
        """Add whether relations hold what they should."""
        self.hold(what, "equal" if not differing else "; ".join(differing), right=not differing)

    def __str__(self) -> str:
        width = max(len(name) for name, _ in self.lines)
        load = ", ".join(f"{one:.1f}" for one in os.getloadavg())
        body = [f"  {name:<{width}}  {value}" for name, value in self.lines]
        return "\n".join([self.title, *body, f"  {'load of the machine':<{width}}  {load} on {os.cpu_count()} cores"])


def where_time_went(done: Done) -> str:
    """Say how the time of the epochs is shared between capture and maintenance."""
    phases = [epoch.get("ms", {}) for epoch in done.epochs]
    return ", ".join(
        f"{name} {sum(phase.get(name, 0) for phase in phases) / 1000:.1f} s" for name in ("capture", "maintain")
    )
