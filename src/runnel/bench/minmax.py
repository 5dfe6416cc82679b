"""The extremes load: the smallest and the largest value of groups of a million rows, under deletes of just those values.

Deleting an extremum is the case in which most systems read the whole group again. An insert into the same group is what it is
compared with, in the same run, turn by turn.
"""

from __future__ import annotations

import logging
import statistics
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from runnel.bench.epochs import take, timed, verify_all
from runnel.bench.machine import facts
from runnel.bench.report import Sheet, about, ms, times
from runnel.bench.star import weighted
from runnel.bench.workplace import load

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from runnel.bench.workplace import Workplace

GROUP = 1_000_000
WARM = 12
STREAK = 60
TABLES = {"readings": "id BIGINT, sensor INT, value BIGINT, PRIMARY KEY (id)"}
VIEW = "extremes"
SQL = "SELECT sensor, min(value) AS low, max(value) AS high FROM readings GROUP BY sensor"
log = logging.getLogger("runnel")


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


def _signed(id_: int, value: int, weight: int) -> dict[str, pa.Table]:
    rows = _rows(np.array([id_]), np.array([0], dtype=np.int32), np.array([value]))
    return {"readings": weighted(rows, weight)}


def measure(workplace: Workplace, base: int, epochs: int, warm: int = WARM) -> dict[str, Any]:
    """Run the whole benchmark in a throw-away project."""
    readings = Readings(base)
    inserts: list[float] = []
    deletes: list[float] = []
    with workplace.project() as project:
        load(project, TABLES, {"readings": readings.chunks()})
        project.create_view(VIEW, SQL, mode="incremental")
        for number in range(warm + epochs):
            inserts.append(take(project, readings.insert()).ms)
            deletes.append(take(project, readings.delete_largest()).ms)
            log.info("epoch pair %s: insert %.0f ms, delete %.0f ms", number, inserts[-1], deletes[-1])
        streak = [take(project, readings.delete_largest()).ms for _ in range(STREAK)]
        checked: dict[str, Any] = {}
        took = timed(lambda: checked.update(verify_all(project, [VIEW])))
    typical, other = statistics.median(inserts[warm:]), statistics.median(deletes[warm:])
    return {
        "benchmark": "minmax",
        "load": {"base": base, "group": min(GROUP, base), "epochs": epochs, "warm": warm},
        "inserts": inserts[warm:],
        "deletes": deletes[warm:],
        "streak": streak,
        "verify": took,
        "ratio": other / typical,
        "verified": checked[VIEW]["verified"],
        **facts(workplace),
    }


def sheet(figures: Mapping[str, Any]) -> Sheet:
    """Show deletes of an extremum beside inserts."""
    typical = statistics.median(figures["inserts"])
    kinds = {
        "insert into a group": figures["inserts"],
        "delete of its extremum": figures["deletes"],
        f"{len(figures['streak'])} such deletes in a row": figures["streak"],
        "verify: recompute and compare": [figures["verify"]],
    }
    rows = tuple(
        (name, ms(statistics.median(found)), ms(max(found)), times(statistics.median(found), typical))
        for name, found in kinds.items()
    )
    size = figures["load"]
    return Sheet(
        f"minmax: {size['base']:,} rows, groups of {size['group']:,}",
        (f"deleting the extremum costs {figures['ratio']:.2f} times an insert",),
        ("epoch", "median ms", "slowest ms", "times an insert"),
        rows,
        (about(figures),),
    )
