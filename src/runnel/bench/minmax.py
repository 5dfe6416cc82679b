"""The extremes load: the smallest and the largest value of groups of a million rows, under deletes of just those values.

Deleting an extremum is the case in which most systems read the whole group again. An insert into the same group is what it is
compared with, in the same run, turn by turn.
"""

from __future__ import annotations

import logging
import statistics
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from rich.console import Console
from rich.table import Table

from runnel.bench.machine import machine, peak_memory
from runnel.bench.measure import bulk_load
from runnel.project import memory

if TYPE_CHECKING:
    from collections.abc import Iterator

    from runnel.project import Project

GROUP = 1_000_000
WARM = 12
STREAK = 60
VIEW = "extremes"
SQL = "SELECT sensor, min(value) AS low, max(value) AS high FROM readings GROUP BY sensor"
log = logging.getLogger("runnel")


@dataclass
class Extremes:
    """What was measured, in milliseconds: epochs of each kind, and a streak of deletes that empties what is kept to spare."""

    base: int
    inserts: list[float] = field(default_factory=list)
    deletes: list[float] = field(default_factory=list)
    streak: list[float] = field(default_factory=list)
    recompute: float = 0.0
    verified: bool = False
    machine: dict[str, Any] = field(default_factory=dict)
    peak_memory: dict[str, int] = field(default_factory=dict)

    @property
    def ratio(self) -> float:
        """How many times an insert a delete of the extremum costs."""
        return statistics.median(self.deletes) / statistics.median(self.inserts)


class Readings:
    """Rows of sensors with distinct values, known in memory; the largest value of the first sensor is deleted again and again."""

    def __init__(self, base: int, seed: int = 5) -> None:
        """Make the first rows: ids count up, values are a permutation of even numbers within each sensor."""
        self._random = np.random.default_rng(seed)
        self._base = base
        self._values = {s: self._random.permutation(min(GROUP, base - s * GROUP)) * 2 for s in range(-(-base // GROUP))}
        self._order = np.argsort(self._values[0])
        self._gone = 0
        self._next = base

    def chunks(self) -> Iterator[pa.Table]:
        """Give every row, a sensor at a time."""
        for sensor, values in self._values.items():
            ids = np.arange(len(values), dtype=np.int64) + sensor * GROUP
            yield _rows(ids, np.full(len(values), sensor, dtype=np.int32), values.astype(np.int64))

    def insert(self) -> pa.Table:
        """Give one new row in the middle of the first sensor's values."""
        value = int(self._random.integers(0, len(self._order) - STREAK)) * 2 + 1
        self._next += 1
        return _signed(self._next, value, 1)

    def delete_largest(self) -> pa.Table:
        """Give the removal of the row with the largest value of the first sensor."""
        self._gone += 1
        at = int(self._order[-self._gone])
        return _signed(at, int(self._values[0][at]), -1)


def _rows(ids: np.ndarray, sensors: np.ndarray, values: np.ndarray) -> pa.Table:
    return pa.table({"id": ids, "sensor": sensors, "value": values})


def _signed(id_: int, value: int, weight: int) -> pa.Table:
    rows = _rows(np.array([id_]), np.array([0], dtype=np.int32), np.array([value]))
    return rows.append_column("_weight", pa.array([weight], pa.int64()))


def measure(base: int, epochs: int) -> Extremes:
    """Run the whole benchmark in a throw-away project."""
    found = Extremes(base)
    readings = Readings(base)
    with memory() as project:
        project.create_table("readings", "id BIGINT, sensor INT, value BIGINT, PRIMARY KEY (id)")
        log.info("loading %s rows", base)
        bulk_load(project, "readings", readings.chunks())
        project.create_view(VIEW, SQL, mode="incremental")
        for number in range(WARM + epochs):
            insert, delete = _epoch(project, readings.insert()), _epoch(project, readings.delete_largest())
            log.info("epoch pair %s: insert %.0f ms, delete %.0f ms", number, insert, delete)
            if number >= WARM:
                found.inserts.append(insert)
                found.deletes.append(delete)
        found.streak = [_epoch(project, readings.delete_largest()) for _ in range(STREAK)]
        begun = time.perf_counter()
        report = project.verify(VIEW)
        found.recompute = (time.perf_counter() - begun) * 1000
        found.verified = report.ok
        found.machine, found.peak_memory = machine(project.runtime.engine), peak_memory()
    return found


def _epoch(project: Project, signed: pa.Table) -> float:
    begun = time.perf_counter()
    with project.transaction() as tx:
        tx.apply("readings", signed, trusted=True)
    return (time.perf_counter() - begun) * 1000


def show(found: Extremes) -> None:
    """Print the table."""
    console = Console(highlight=False, markup=False)
    table = Table(title=f"minmax: {found.base:,} rows, groups of {min(GROUP, found.base):,}", title_justify="left")
    for name in ("epoch", "median ms", "slowest ms", "times an insert"):
        table.add_column(name, justify="left" if name == "epoch" else "right")
    typical = statistics.median(found.inserts)
    for name, times in (
        ("insert into a group", found.inserts),
        ("delete of its extremum", found.deletes),
        (f"{len(found.streak)} such deletes in a row", found.streak),
    ):
        middle = statistics.median(times)
        table.add_row(name, f"{middle:.0f}", f"{max(times):.0f}", f"{middle / typical:.2f}")
    table.add_row("verify: recompute and compare", f"{found.recompute:.0f}", "", f"{found.recompute / typical:.2f}")
    console.print(table)
    console.print(
        f"verified: {'yes' if found.verified else 'NO'}; Spark {found.machine['pyspark']}, {found.machine['cores']} cores"
    )
