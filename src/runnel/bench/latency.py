"""Latency: a writer renames change files into a feed at a steady rate; how long until the views show each change."""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow.parquet as pq

from runnel.bench import star
from runnel.bench.dashboard import VIEWS
from runnel.bench.epochs import WARM, verify_all
from runnel.bench.machine import facts
from runnel.bench.report import Sheet, about, ms
from runnel.bench.workplace import bulk_load

if TYPE_CHECKING:
    from collections.abc import Mapping

    from runnel.bench.workplace import Workplace
    from runnel.project import Project

SOURCE = "feed"
TICK = 0.1
PATIENCE = 600.0
SETTINGS = f"""[project]
name = "latency"

[run]
epoch = "20ms"

[sources.{SOURCE}]
type = "files"
path = "feed"
schema = {{ events = "{star.TABLES[star.FACTS]}" }}
"""
log = logging.getLogger("runnel")


@dataclass(frozen=True)
class Load:
    """How much: events to begin with, changes per second, for how many seconds; before that, epochs to warm up."""

    base: int
    rate: int
    seconds: float
    warm: int = WARM


class Writer:
    """Writes change files under another name and renames them; `written` has the moment of each, `sizes` its changes."""

    def __init__(self, folder: Path, rows: star.Star, rate: int) -> None:
        """Begin with file 1."""
        self._folder, self._rows, self._rate = folder, rows, rate
        self.written: dict[str, float] = {}
        self.sizes: dict[str, int] = {}

    def write_for(self, seconds: float, stop: threading.Event) -> list[str]:
        """Write a file every tick for so long and give their names; what is late is made up for."""
        begun, names = time.monotonic(), []
        for tick in range(1, max(1, round(seconds / TICK)) + 1):
            if stop.wait(max(0.0, begun + tick * TICK - time.monotonic())):
                break
            names.append(self._write(max(1, round(self._rate * TICK))))
        return names

    def _write(self, changes: int) -> str:
        name = f"{len(self.written) + 1:08d}.parquet"
        hidden = self._folder / f".{name}"
        pq.write_table(self._rows.change(changes), hidden)
        hidden.rename(self._folder / name)
        self.written[name], self.sizes[name] = time.monotonic(), changes
        return name


class Visible:
    """Notes when each file's changes became visible: asked after every epoch for the position that was committed with it."""

    def __init__(self, project: Project, writer: Writer) -> None:
        """Nothing is visible yet."""
        self._project, self._writer = project, writer
        self.seen: dict[str, float] = {}
        self.epochs = 0
        self._moved = threading.Condition()

    def look(self, _: Any = None) -> None:
        """Note the files that the newest epoch covers."""
        now = time.monotonic()
        position = self._project.runtime.lake.snapshot().positions.get(SOURCE, {})
        last = position.get(star.FACTS, {}).get("file", "")
        with self._moved:
            self.epochs += 1
            self.seen |= {name: now for name in list(self._writer.written) if name <= last and name not in self.seen}
            self._moved.notify_all()

    def wait(self, name: str, timeout: float) -> bool:
        """Wait until a file is visible."""
        with self._moved:
            return self._moved.wait_for(lambda: name in self.seen, timeout)


def measure(workplace: Workplace, load: Load) -> dict[str, Any]:
    """Run writer and runner beside each other; give the times from rename to commit."""
    rows = star.Star(load.base)
    with TemporaryDirectory(prefix="runnel-latency-") as name:
        folder = Path(name)
        feed = folder / "feed" / star.FACTS
        feed.mkdir(parents=True)
        (folder / "runnel.toml").write_text(SETTINGS)
        with workplace.project(folder) as project:
            _set_up(project, rows)
            found = _follow(project, Writer(feed, rows, load.rate), load)
            checked = verify_all(project, VIEWS)
    right = all(view["verified"] for view in checked.values()) and found.pop("arrived")
    return {"benchmark": "latency", "load": asdict(load), **found, "verified": right, **facts(workplace)}


def _set_up(project: Project, rows: star.Star) -> None:
    for name, chunks in rows.tables().items():
        if name != star.FACTS:
            project.create_table(name, star.TABLES[name])
        bulk_load(project, f"{SOURCE}.{name}" if name == star.FACTS else name, chunks)
    for name, sql in star.VIEWS.items():
        project.create_view(name, sql, mode="incremental")
        log.info("created %s", name)


def _follow(project: Project, writer: Writer, load: Load) -> dict[str, Any]:
    visible, ended = Visible(project, writer), threading.Event()
    failed: list[BaseException] = []

    def run() -> None:
        try:
            project.run(on_epoch=visible.look)
        except BaseException as error:
            failed.append(error)
        finally:
            ended.set()

    runner = threading.Thread(target=run, name="runnel-bench-runner")
    runner.start()
    try:
        warm: list[str] = []
        while visible.epochs < load.warm and not ended.is_set():
            warm += writer.write_for(1.0, ended)
        arrived = not warm or visible.wait(warm[-1], PATIENCE)
        before = visible.epochs
        log.info("warm after %s epochs", before)
        names = writer.write_for(load.seconds, ended)
        arrived = arrived and not ended.is_set() and visible.wait(names[-1], PATIENCE)
        epochs = visible.epochs - before
    finally:
        project.stop()
        runner.join()
    if failed:
        raise failed[0]
    return {"arrived": arrived, "epochs_taken": epochs, **_percentiles(names, writer, visible)}


def _percentiles(names: list[str], writer: Writer, visible: Visible) -> dict[str, Any]:
    """Give milliseconds, each change counted once."""
    came = [name for name in names if name in visible.seen]
    waited = np.array([(visible.seen[name] - writer.written[name]) * 1000 for name in came])
    each = np.repeat(waited, [writer.sizes[name] for name in came])
    lasted = max(visible.seen[name] for name in came) - writer.written[came[0]]
    return {
        **{f"p{p}": float(np.percentile(each, p)) for p in (50, 95, 99)},
        "longest": float(each.max()),
        "changes": len(each),
        "changes_per_second": len(each) / lasted,
        "over_time": [float(part.mean()) for part in np.array_split(waited, min(20, len(waited)))],
    }


def sheet(figures: Mapping[str, Any]) -> Sheet:
    """Show the percentiles."""
    load = figures["load"]
    names = ("p50", "p95", "p99", "longest")
    return Sheet(
        f"latency: {load['base']:,} events, seven views, {load['rate']:,} changes per second for {load['seconds']:.0f} s",
        (f"half of the changes are visible within {ms(figures['p50'])} ms, 99 of 100 within {ms(figures['p99'])} ms",),
        ("from rename to commit", *names),
        (("ms", *(ms(figures[name]) for name in names)),),
        (
            f"{figures['changes']:,} changes in {figures['epochs_taken']:,} epochs, {figures['changes_per_second']:,.0f} changes/s.",
            about(figures),
        ),
    )
