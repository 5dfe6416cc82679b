"""What a watcher of the demo sees: tables that move on a terminal, one line per second elsewhere."""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rich.console import Group
from rich.live import Live
from rich.table import Table

from runnel.demo.shop import SHOWN

if TYPE_CHECKING:
    from types import TracebackType

    from rich.console import Console, RenderableType

    from runnel.project import Project

EVERY = 1.0


@dataclass
class Tally:
    """What has happened so far."""

    changes: int = 0
    milliseconds: list[float] = field(default_factory=list)
    moved: dict[str, int] = field(default_factory=dict)
    last: dict[str, dict[str, Any]] = field(default_factory=dict)

    def add(self, changes: int, milliseconds: float, record: dict[str, Any]) -> None:
        """Count one epoch."""
        self.changes += changes
        self.milliseconds.append(milliseconds)
        for view, did in record.get("views", {}).items():
            self.moved[view] = self.moved.get(view, 0) + did["rows"]
            self.last[view] = did

    def summary(self) -> str:
        """Say it in one line."""
        if not self.milliseconds:
            return "no epochs"
        median, slowest = statistics.median(self.milliseconds), max(self.milliseconds)
        epochs = len(self.milliseconds)
        return f"{epochs} epochs, {self.changes} changes; epoch time: median {median:.0f} ms, slowest {slowest:.0f} ms"


class Stage:
    """Shows the demo; used in a `with` block."""

    def __init__(self, console: Console, project: Project) -> None:
        """Choose by the console how to show it."""
        self._console, self._project = console, project
        self._live = Live(console=console, auto_refresh=False) if console.is_terminal else None
        self._shown = float("-inf")
        self._before: dict[str, Any] = {}

    def update(self, epoch: int, tally: Tally) -> None:
        """Show an epoch, at most one each second: reading rows to show them costs time, too."""
        if time.monotonic() - self._shown < EVERY:
            return
        rows = sorted(self._project.view(SHOWN).to_pylist(), key=lambda row: str(row["region"]))
        if self._live:
            self._live.update(self._picture(epoch, tally, rows), refresh=True)
        else:
            moving = ", ".join(f"{row['region']} {row['total']} ({row['n']})" for row in rows)
            self._console.print(f"epoch {epoch}: {tally.milliseconds[-1]:.0f} ms; {SHOWN}: {moving}")
        self._before = {row["region"]: row["total"] for row in rows}
        self._shown = time.monotonic()

    def _picture(self, epoch: int, tally: Tally, rows: list[dict[str, Any]]) -> RenderableType:
        views = Table(title=f"epoch {epoch}: {tally.summary()}", title_justify="left")
        for name in ("view", "kept by", "rows in last epoch", "ms", "rows changed so far"):
            views.add_column(name, justify="left" if name in ("view", "kept by") else "right")
        for view, did in tally.last.items():
            views.add_row(view, did["strategy"], str(did["rows"]), f"{did.get('ms', 0):.0f}", str(tally.moved[view]))
        return Group(views, self._takings(rows))

    def _takings(self, rows: list[dict[str, Any]]) -> Table:
        table = Table(title=SHOWN, title_justify="left")
        for name in ("region", "total", "n", "since the last look"):
            table.add_column(name, justify="left" if name == "region" else "right")
        for row in rows:
            moved = row["total"] - self._before.get(row["region"], row["total"])
            style = "green" if moved > 0 else "red" if moved < 0 else None
            table.add_row(str(row["region"]), str(row["total"]), str(row["n"]), f"{moved:+}", style=style)
        return table

    def __enter__(self) -> Stage:
        if self._live:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live:
            self._live.stop()
