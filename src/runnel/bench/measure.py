"""Measures a load: builds a real project, takes warm epochs, recomputes the same views in full in the same process."""

from __future__ import annotations

import logging
import statistics
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from runnel.bench import dashboard
from runnel.bench.machine import machine, peak_memory
from runnel.lake.entries import Commit
from runnel.model.relation import WEIGHT
from runnel.project import memory

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from runnel.project import Project

WARM = 40
REPEATS = 3
log = logging.getLogger("runnel")


@dataclass(frozen=True)
class Load:
    """How much: rows of facts to begin with, changes per epoch, measured epochs."""

    base: int
    changes: int
    epochs: int = 10


@dataclass
class Figures:
    """What was measured; times are in milliseconds, medians where not said otherwise."""

    benchmark: str
    load: Load
    machine: dict[str, Any]
    setup: dict[str, float] = field(default_factory=dict)
    epochs: list[float] = field(default_factory=list)
    phases: dict[str, float] = field(default_factory=dict)
    views: dict[str, dict[str, Any]] = field(default_factory=dict)
    recompute_one_by_one: float = 0.0
    recompute_side_by_side: float = 0.0
    verified: bool = False
    peak_memory: dict[str, int] = field(default_factory=dict)

    @property
    def epoch(self) -> float:
        """The median warm epoch, everything in it: checks, views, commit, upkeep."""
        return statistics.median(self.epochs)

    @property
    def recompute(self) -> float:
        """The full recompute in whichever way was faster."""
        return min(self.recompute_one_by_one, self.recompute_side_by_side)

    @property
    def ratio(self) -> float:
        """How many times faster an epoch is than the recompute."""
        return self.recompute / self.epoch


def measure(name: str, load: Load) -> Figures:
    """Run the whole benchmark in a throw-away project."""
    figures = Figures(name, load, {})
    events = dashboard.Events(load.base)
    with memory() as project:
        figures.setup = set_up(project, events)
        take_epochs(project, events, figures)
        _recompute(project, events, figures)
        log.info("verifying")
        for view in dashboard.VIEWS:
            report = project.verify(view)
            figures.views[view] |= {"rows": report.rows_checked, "verified": report.ok}
        figures.verified = all(view["verified"] for view in figures.views.values())
        figures.machine = machine(project.runtime.engine)
        figures.peak_memory = peak_memory()
    return figures


def set_up(project: Project, events: dashboard.Events) -> dict[str, float]:
    """Load the tables, then create the views; give how long each took."""
    log.info("loading %s events", len(events))
    took = {"load": _timed(partial(_load, project, events))}
    for name, sql in dashboard.VIEWS.items():
        log.info("creating %s", name)
        took[name] = _timed(partial(project.create_view, name, sql, mode="incremental"))
    return took


def _load(project: Project, events: dashboard.Events) -> None:
    for name, columns in dashboard.TABLES.items():
        project.create_table(name, columns)
    for name, rows in dashboard.dimensions().items():
        with project.transaction() as tx:
            tx.insert(name, rows)
    bulk_load(project, dashboard.FACTS, events.chunks())


def bulk_load(project: Project, table: str, chunks: Iterable[pa.Table]) -> None:
    """Write rows that are known to be new as files of their own and publish them as one epoch, without a key look-up."""
    lake = project.runtime.lake
    head = lake.snapshot()
    relation = head.relations[table]
    ones = (chunk.append_column(WEIGHT, pa.array(np.ones(chunk.num_rows, dtype=np.int64))) for chunk in chunks)
    files = [lake.write(relation, chunk) for chunk in ones]
    lake.publish(Commit(base=head.epoch, add=files, record={"rows_in": {table: sum(file.rows for file in files)}}))


def take_epochs(project: Project, events: dashboard.Events, figures: Figures) -> None:
    """Take warm-up epochs, then measured ones."""
    records = []
    for number in range(WARM + figures.load.epochs):
        signed = events.change(figures.load.changes)
        begun = time.perf_counter()
        with project.transaction() as tx:
            tx.apply(dashboard.FACTS, signed, trusted=True)
        took = (time.perf_counter() - begun) * 1000
        log.info("epoch %s%s: %.0f ms", tx.epoch, " (warm-up)" if number < WARM else "", took)
        if number >= WARM:
            figures.epochs.append(took)
            records += [record for record in project.epochs(5) if record["epoch"] == tx.epoch]
    figures.phases = {phase: statistics.median(record["ms"][phase] for record in records) for phase in records[0]["ms"]}
    for view in dashboard.VIEWS:
        done = [record["views"][view] for record in records]
        strategies = sorted({one["strategy"] for one in done})
        figures.views[view] = {"epoch": statistics.median(one["ms"] for one in done), "strategies": strategies}


def _recompute(project: Project, events: dashboard.Events, figures: Figures) -> None:
    """Recompute every view with plain Spark over plain Parquet, result written to Parquet; warm, median of some runs."""
    folder = project.folder / "recompute"
    spark = _copied(project, events, folder)

    def compute(view: str) -> None:
        spark.sql(dashboard.VIEWS[view]).write.mode("overwrite").parquet(str(folder / "out" / view))

    def side_by_side() -> None:
        with ThreadPoolExecutor(len(dashboard.VIEWS)) as pool:
            list(pool.map(compute, dashboard.VIEWS))

    for view in dashboard.VIEWS:
        compute(view)
        figures.views[view]["recompute"] = _median(partial(compute, view))
        log.info("recompute of %s: %.0f ms", view, figures.views[view]["recompute"])
    figures.recompute_one_by_one = sum(view["recompute"] for view in figures.views.values())
    figures.recompute_side_by_side = _median(side_by_side)


def _copied(project: Project, events: dashboard.Events, folder: Path) -> Any:
    """Write the tables as they are now as plain Parquet and name them in a session of their own."""
    engine: Any = project.runtime.engine
    spark = engine.session.newSession()
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    spark.conf.set("spark.sql.shuffle.partitions", engine.session.conf.get("spark.sql.shuffle.partitions"))
    for name, rows in {**{n: [t] for n, t in dashboard.dimensions().items()}, dashboard.FACTS: events.chunks()}.items():
        target = folder / "base" / name
        target.mkdir(parents=True)
        for number, chunk in enumerate(rows):
            pq.write_table(chunk, target / f"{number:05d}.parquet")
        spark.read.parquet(str(target)).createOrReplaceTempView(name)
    return spark


def _timed(work: Callable[[], Any]) -> float:
    begun = time.perf_counter()
    work()
    return (time.perf_counter() - begun) * 1000


def _median(work: Callable[[], Any]) -> float:
    return statistics.median(_timed(work) for _ in range(REPEATS))
