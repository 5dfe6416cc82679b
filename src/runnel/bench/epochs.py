"""Takes epochs and times them: everything in them counts, from the first check to the upkeep behind the commit."""

from __future__ import annotations

import logging
import statistics
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import pyarrow as pa

    from runnel.project import Project

log = logging.getLogger("runnel")
WARM = 40
RECORDS = 100  # upkeep may have left many behind the one that is looked for


@dataclass(frozen=True)
class Epoch:
    """One epoch: its milliseconds from outside, and the record it left."""

    ms: float
    record: Mapping[str, Any]


def timed(work: Callable[[], Any]) -> float:
    """Give the milliseconds some work takes."""
    begun = time.perf_counter()
    work()
    return (time.perf_counter() - begun) * 1000


def take(project: Project, signed: Mapping[str, pa.Table]) -> Epoch:
    """Apply signed rows whose old rows are vouched for, as one transaction."""
    begun = time.perf_counter()
    with project.transaction() as tx:
        for table, rows in signed.items():
            tx.apply(table, rows, trusted=True)
    took = (time.perf_counter() - begun) * 1000
    record: Mapping[str, Any] = next((r for r in reversed(project.epochs(RECORDS)) if r["epoch"] == tx.epoch), {})
    return Epoch(took, record)


def take_warm(
    project: Project, change: Callable[[], Mapping[str, pa.Table]], *, warm: int, measured: int
) -> list[Epoch]:
    """Take epochs to warm up, then the ones that are measured."""
    found: list[Epoch] = []
    for number in range(warm + measured):
        epoch = take(project, change())
        log.info("epoch %s%s: %.0f ms", number + 1, " (warm-up)" if number < warm else "", epoch.ms)
        found.append(epoch)
    return found[warm:]


def summary(epochs: Sequence[Epoch]) -> dict[str, Any]:
    """Give medians: of the whole epoch, of its phases, of rows, and of bytes read where the records have them."""
    records = [epoch.record for epoch in epochs]
    found: dict[str, Any] = {
        "epochs": [epoch.ms for epoch in epochs],
        "epoch": statistics.median(epoch.ms for epoch in epochs),
        "phases": {p: statistics.median(r["ms"][p] for r in records) for p in records[0]["ms"]},
        "rows_in": statistics.median(sum(r["rows_in"].values()) for r in records),
    }
    if all("bytes_read" in record for record in records):
        found["bytes_read"] = statistics.median(_bytes(record["bytes_read"]) for record in records)
    return found


def per_view(project: Project, epochs: Sequence[Epoch], views: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Give each view's median milliseconds, those of the stages and shared joins below it included, and what was done."""
    entries = project.runtime.lake.snapshot().views
    found: dict[str, dict[str, Any]] = {}
    for view in views:
        done = [epoch.record["views"][view] for epoch in epochs]
        found[view] = {
            "epoch": statistics.median(_whole(epoch.record, view, entries[view].stages) for epoch in epochs),
            "rows_out": statistics.median(one["rows"] for one in done),
            "strategies": sorted({one["strategy"] for one in done}),
        }
    return found


def _whole(record: Mapping[str, Any], view: str, stages: Sequence[str]) -> float:
    """Add up what was done for one view; what it shares with others counts for each."""
    below: float = sum(record.get("stages", {}).get(stage, {}).get("ms", 0.0) for stage in stages)
    joins: float = sum(join["ms"] for join in record.get("joins", {}).values() if view in join["views"])
    return float(record["views"][view].get("ms", 0.0)) + below + joins


def verify_all(project: Project, views: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Recompute every view from its own text and compare; give rows and whether they are equal."""
    log.info("verifying")
    reports = {view: project.verify(view) for view in views}
    return {view: {"rows": report.rows_checked, "verified": report.ok} for view, report in reports.items()}


def _bytes(read: Any) -> int:
    """Add up what was read: a number, or numbers by relation."""
    return sum(_bytes(part) for part in read.values()) if isinstance(read, dict) else int(read)
