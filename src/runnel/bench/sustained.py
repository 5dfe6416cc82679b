"""Sustained load: batches as fast as they are taken, or at a rate, for minutes; throughput, lag, files and memory over time."""

from __future__ import annotations

import itertools
import logging
import queue
import statistics
import threading
import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from runnel.bench import star
from runnel.bench.dashboard import VIEWS, set_up
from runnel.bench.epochs import take, verify_all
from runnel.bench.machine import bytes_written, facts, held_memory
from runnel.bench.report import GIGA, Sheet, about, ms

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa

    from runnel.bench.workplace import Workplace
    from runnel.project import Project

AHEAD = 2
BOUNDED = 1.25
SHOWN = 12
log = logging.getLogger("runnel")


@dataclass(frozen=True)
class Load:
    """How much: events to begin with, changes per second (0: as fast as taken), for how long, changes per batch.

    Some batches before the clock starts are for warming up.
    """

    base: int
    rate: int
    seconds: float
    batch: int
    warm: int = 3


class Producer:
    """A thread that makes batches ahead, at most two and at least one in all; at a given rate never more than are due."""

    def __init__(self, rows: star.Star, load: Load) -> None:
        """Prepare; `start` begins the clock."""
        self._rows, self._load = rows, load
        self._made: queue.Queue[pa.Table | None] = queue.Queue(maxsize=AHEAD)
        self._thread = threading.Thread(target=self._produce, name="runnel-bench-producer", daemon=True)
        self.begun = 0.0

    def start(self) -> None:
        """Begin to produce."""
        self.begun = time.perf_counter()
        self._thread.start()

    def elapsed(self) -> float:
        """Give the seconds since the start."""
        return time.perf_counter() - self.begun

    def take(self) -> pa.Table | None:
        """Give the next batch, or None when the time is over."""
        return self._made.get()

    def offered(self) -> int:
        """Say how many changes were due by now at the given rate."""
        due = int(min(self.elapsed(), self._load.seconds) * self._load.rate)
        return due // self._load.batch * self._load.batch

    def _produce(self) -> None:
        for number in itertools.count(1):
            due = number * self._load.batch / self._load.rate if self._load.rate else self.elapsed()
            if number > 1 and due > self._load.seconds:
                break
            time.sleep(max(0.0, due - self.elapsed()))
            self._made.put(self._rows.change(self._load.batch))
        self._made.put(None)


def measure(workplace: Workplace, load: Load) -> dict[str, Any]:
    """Take batches for so many seconds and note after each epoch how things stand."""
    rows = star.Star(load.base)
    with workplace.project() as project:
        setup = set_up(project, rows)
        for number in range(load.warm):
            log.info("batch %s (warm-up): %.0f ms", number + 1, take(project, {star.FACTS: rows.change(load.batch)}).ms)
        producer = Producer(rows, load)
        written, raw = bytes_written(), 0
        producer.start()
        samples: list[dict[str, Any]] = []
        while (batch := producer.take()) is not None:
            raw += batch.nbytes
            samples.append(_sample(project, producer, batch, load, samples))
            log.info("%.0f s: %s changes, epoch %.0f ms", *(samples[-1][k] for k in ("second", "changes", "epoch")))
        elapsed = producer.elapsed()
        amplification = (bytes_written() - written) / raw if bytes_written() else None
        checked = verify_all(project, VIEWS)
    return {
        "benchmark": "sustained",
        "load": asdict(load),
        "setup": setup,
        "seconds": elapsed,
        "samples": samples,
        "changes_per_second": samples[-1]["changes"] / elapsed,
        "write_amplification": amplification,
        "bounded": {name: _bounded(samples, name) for name in ("memory", "files", "epoch")},
        "verified": all(view["verified"] for view in checked.values()),
        **facts(workplace),
    }


def _sample(
    project: Project, producer: Producer, batch: pa.Table, load: Load, before: list[dict[str, Any]]
) -> dict[str, Any]:
    epoch = take(project, {star.FACTS: batch})
    done = (before[-1]["changes"] if before else 0) + load.batch
    head = project.runtime.lake.snapshot()
    files = [file for name in head.relations for file in head.files(name)]
    memory = held_memory()
    return {
        "second": producer.elapsed(),
        "changes": done,
        "epoch": epoch.ms,
        "lag": max(0, producer.offered() - done) if load.rate else None,
        "files": len(files),
        "bytes": sum(file.bytes for file in files),
        "memory": sum(memory.values()),
        **{f"memory_{name}": size for name, size in memory.items()},
    }


def _bounded(samples: list[dict[str, Any]], name: str) -> bool | None:
    """Say whether a figure's median in the last third is about that of the third before; None with too few samples."""
    third = len(samples) // 3
    if third < 3:
        return None
    middle, last = (statistics.median(s[name] for s in part) for part in (samples[third : 2 * third], samples[-third:]))
    return bool(last <= middle * BOUNDED)


def sheet(figures: Mapping[str, Any]) -> Sheet:
    """Show some of the samples, evenly in time."""
    samples, load = figures["samples"], figures["load"]
    step = max(1, -(-len(samples) // SHOWN))
    shown = [*samples[step - 1 :: step], *([samples[-1]] if len(samples) % step else [])]
    rate = f"{load['rate']:,} changes/s offered" if load["rate"] else "as fast as taken"
    bounds = ", ".join(f"{name} {_WORDS[value]}" for name, value in figures["bounded"].items())
    more = figures["write_amplification"]
    wrote = f"{more:.1f} bytes written (shuffles included) per byte of change; " if more is not None else ""
    return Sheet(
        f"sustained: {load['base']:,} events, batches of {load['batch']:,}, {rate}, {figures['seconds']:.0f} s",
        (f"{figures['changes_per_second']:,.0f} changes per second in seven views; {bounds}",),
        ("second", "changes", "epoch ms", "lag", "files", "state GiB", "driver GiB", "Spark GiB"),
        tuple(_row(sample) for sample in shown),
        (f"{wrote}{len(samples)} epochs.", about(figures)),
    )


_WORDS = {True: "bounded", False: "GROWING", None: "too short to tell"}


def _row(sample: Mapping[str, Any]) -> tuple[str, ...]:
    lag = "-" if sample["lag"] is None else f"{sample['lag']:,}"
    sizes = (f"{sample[name] / GIGA:.2f}" for name in ("bytes", "memory_driver", "memory_spark"))
    return (
        f"{sample['second']:.0f}",
        f"{sample['changes']:,}",
        ms(sample["epoch"]),
        lag,
        f"{sample['files']:,}",
        *sizes,
    )
