"""A long run of small epochs: `python -m tests.soak --engine spark --epochs 2000`. State stays bounded, epochs stay fast, views stay right.

Ends with 1 if the last hundred epochs take more than 1.3 times the first hundred warm ones, if files or catalog rows grow
without bound, if memory, threads or open files of Python and Java grow in the second half, or if any view differs from its query.
"""

from __future__ import annotations

import argparse
import os
import random
import sqlite3
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import runnel
from runnel.engine.duckdb import DuckDbEngine
from runnel.engine.spark import SparkEngine

if TYPE_CHECKING:
    from runnel.engine.base import Engine
    from runnel.project import Project

WARM_UP, WINDOW, LIMIT = 100, 100, 1.3
ROWS = 2_000
VIEWS = {
    "expensive": "SELECT id, shop, cost FROM events WHERE cost > 50",
    "named": "SELECT e.id, s.name, e.cost FROM events e JOIN shops s ON e.shop = s.shop WHERE e.cost > 90",
    "takings": "SELECT s.name, sum(e.cost) AS total, count(*) AS n FROM events e JOIN shops s ON e.shop = s.shop GROUP BY s.name",
    "overall": "SELECT sum(cost) AS total, avg(cost) AS mean, count(*) AS n FROM events",
    "good_shops": "SELECT name, total FROM takings WHERE n > 20",
}


def main() -> int:
    """Run the soak and say what came out."""
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--engine", choices=("duckdb", "spark"), default="duckdb")
    arguments.add_argument("--epochs", type=int, default=10_000)
    chosen = arguments.parse_args()
    engine: Engine = DuckDbEngine() if chosen.engine == "duckdb" else SparkEngine()
    with (
        tempfile.TemporaryDirectory(prefix="runnel-soak-") as folder,
        runnel.create(Path(folder) / "p", engine=engine) as project,
    ):
        project.runtime.keep, project.runtime.grace = 50, 0.0
        return soak(project, chosen.epochs)


def soak(project: Project, epochs: int) -> int:
    """Change a little, again and again; watch times and sizes."""
    rng = random.Random(7)
    live = _set_up(project)
    times: list[float] = []
    sizes: list[tuple[int, int]] = []
    taken: list[Used] = []
    for number in range(epochs):
        begun = time.perf_counter()
        _change(project, rng, live, number)
        times.append(time.perf_counter() - begun)
        if number % 100 == 99:
            sizes.append(_sizes(project))
            print(
                f"epoch {number + 1}: median {statistics.median(times[-100:]) * 1000:.1f} ms,"
                f" {sizes[-1][0]} files, {sizes[-1][1]} catalog rows, {(used := _used())}",
                flush=True,
            )
            taken.append(used)
    warm = times[WARM_UP : WARM_UP + WINDOW]
    ratio = statistics.median(times[-WINDOW:]) / statistics.median(warm)
    middle, last = _highest(sizes, 1), _highest(sizes, 3)
    bounded = all(now <= 1.5 * then + 50 for now, then in zip(last, middle, strict=True))
    level = taken[-1].levels_off(taken[len(taken) // 2])
    wrong = [str(report) for report in project.verify_all() if not report.ok]
    print(f"last {WINDOW} epochs / first {WINDOW} warm ones: {ratio:.2f} (limit {LIMIT})")
    print(f"files and catalog rows bounded: {bounded} (most in the second quarter {middle}, in the last {last})")
    print(f"memory, threads and open files level off: {level} (half-way {taken[len(taken) // 2]}, end {taken[-1]})")
    print(f"views verified: {len(VIEWS) - len(wrong)} of {len(VIEWS)}", *wrong)
    return 0 if ratio <= LIMIT and bounded and level and not wrong else 1


def _highest(sizes: list[tuple[int, int]], quarter: int) -> tuple[int, int]:
    """Return the most files and catalog rows seen in a quarter of the run: between two rounds of upkeep both rise and fall."""
    each = max(1, len(sizes) // 4)
    seen = sizes[quarter * each : (quarter + 1) * each] or sizes[-1:]
    return max(files for files, _ in seen), max(rows for _, rows in seen)


@dataclass(frozen=True)
class Used:
    """What this process and the Java below it take."""

    python: int
    java: int
    threads: int
    files: int

    def __str__(self) -> str:
        """Print them, memory in MB."""
        return f"python {self.python} MB, java {self.java} MB, {self.threads} threads, {self.files} open files"

    def levels_off(self, halfway: Used) -> bool:
        """Say whether nothing of it grew much since half-way."""
        memory = self.python <= 1.25 * halfway.python + 50 and self.java <= 1.25 * halfway.java + 200
        return memory and self.threads <= halfway.threads + 20 and self.files <= halfway.files + 50


def _used() -> Used:
    own = Path("/proc/self")
    java = [path for path in Path("/proc").glob("[0-9]*") if _is_child(path, "java")]
    threads = len(list((own / "task").iterdir())) + sum(len(list((path / "task").iterdir())) for path in java)
    files = len(list((own / "fd").iterdir())) + sum(len(list((path / "fd").iterdir())) for path in java)
    return Used(_resident(own), sum(map(_resident, java)), threads, files)


def _is_child(path: Path, name: str) -> bool:
    try:
        command, _, rest = (path / "stat").read_text().partition("(")[2].rpartition(")")
    except OSError:
        return False
    return command == name and int(rest.split()[1]) == os.getpid()


def _resident(path: Path) -> int:
    return int((path / "statm").read_text().split()[1]) * 4096 >> 20


def _set_up(project: Project) -> dict[int, dict[str, object]]:
    project.create_table("events", "id BIGINT, shop INT, cost DECIMAL(12,2)", key=["id"])
    project.create_table("shops", "shop INT, name STRING", key=["shop"])
    live: dict[int, dict[str, object]] = {i: {"id": i, "shop": i % 20, "cost": i % 100} for i in range(ROWS)}
    with project.transaction() as tx:
        tx.insert("shops", [{"shop": i, "name": f"shop {i}"} for i in range(20)])
        tx.insert("events", list(live.values()))
    for name, sql in VIEWS.items():
        project.create_view(name, sql)
    return live


def _change(project: Project, rng: random.Random, live: dict[int, dict[str, object]], number: int) -> None:
    """Insert, update and delete a few rows; the table keeps its size."""
    new: dict[str, object] = {"id": ROWS + number, "shop": rng.randrange(20), "cost": rng.randrange(100)}
    gone, changed = rng.sample(sorted(live), 2)
    with project.transaction() as tx:
        tx.insert("events", [new])
        tx.update("events", [{"id": changed, "cost": rng.randrange(100)}])
        tx.delete("events", [gone])
        if number % 50 == 0:
            tx.update("shops", [{"shop": rng.randrange(20), "name": f"renamed {number}"}])
    del live[gone]
    live[ROWS + number] = new


def _sizes(project: Project) -> tuple[int, int]:
    files = sum(1 for path in Path(project.config.state.data).rglob("*.parquet") if path.is_file())
    path = str(project.config.state.catalog).removeprefix("sqlite:")
    with sqlite3.connect(path) as catalog:
        tables = [name for (name,) in catalog.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        rows = sum(catalog.execute(f'SELECT count(*) FROM "{name}"').fetchone()[0] for name in tables)
    return files, rows


if __name__ == "__main__":
    sys.exit(main())
