"""The driver as a process of its own, whose memory can be told from that of everybody else.

`python -m tests.cluster.driver FOLDER` opens a project, starts its Spark session and runs a job that does nothing. Then it is idle, says so and
waits for lines: at each it takes everything that waits, and says in JSON what that took. `Driver` is the other end.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from subprocess import PIPE
from typing import IO, TYPE_CHECKING, Any

import runnel
from runnel.bench.machine import held_memory, peak_memory

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import pyarrow as pa

    from runnel.project import Project

ROOT = Path(__file__).parents[2]
STOP_SECONDS = 60


@dataclass(frozen=True)
class Done:
    """What a run took: seconds, memory of Python and Java (idle and at most, in bytes), tasks by worker, records of epochs."""

    seconds: float
    idle: Mapping[str, int]
    peak: Mapping[str, int]
    tasks: Mapping[str, int]
    epochs: list[dict[str, Any]]

    @property
    def above_idle(self) -> int:
        """The most memory above idle; the peaks of both processes count as if they came together."""
        return sum(self.peak.values()) - sum(self.idle.values())

    @property
    def rows(self) -> int:
        """Rows that came in."""
        return sum(rows for epoch in self.epochs for rows in epoch["rows_in"].values())


class Driver:
    """A driver's process; it is idle when this returns."""

    def __init__(self, folder: Path) -> None:
        """Start it and wait until it is idle."""
        self._said = folder / "driver.log"
        command = [sys.executable, "-m", "tests.cluster.driver", str(folder)]
        with self._said.open("ab") as said:
            self.process = subprocess.Popen(
                command, stdin=PIPE, stdout=PIPE, stderr=said, text=True, cwd=ROOT, start_new_session=True
            )
        self.idle = self._answer()

    def go(self) -> None:
        """Let it begin."""
        pipe = self._pipe(self.process.stdin)
        pipe.write("go\n")
        pipe.flush()

    def wait_for_epoch(self) -> None:
        """Wait until it has published an epoch."""
        assert "epoch" in self._answer(), "the driver published no epoch"

    def done(self) -> Done:
        """Wait until it has taken everything and give what it said."""
        told = self._answer()
        while "epoch" in told:
            told = self._answer()
        return Done(idle=self.idle, **told)

    def run(self) -> Done:
        """Let it take everything that waits."""
        self.go()
        return self.done()

    def __enter__(self) -> Driver:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._pipe(self.process.stdin).close()
        if kind is not None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(timeout=STOP_SECONDS)
        self._pipe(self.process.stdout).close()

    def _answer(self) -> dict[str, Any]:
        line = self._pipe(self.process.stdout).readline()
        assert line, f"the driver ended: {self._said.read_text()[-4000:]}"
        told: dict[str, Any] = json.loads(line)
        return told

    @staticmethod
    def _pipe(pipe: IO[str] | None) -> IO[str]:
        assert pipe is not None
        return pipe


def main() -> None:
    """Be the driver."""
    with runnel.open(sys.argv[1], sync=False) as project:
        session: Any = project.runtime.engine.session  # type: ignore[attr-defined]
        session.range(0, 8, 1, 8).mapInArrow(nothing, "id BIGINT").count()
        _say(held_memory())
        for _ in sys.stdin:
            _say(run(project, session))


def run(project: Project, session: Any) -> dict[str, Any]:
    """Take everything that waits, and give what that took."""
    tasks, epoch, begun = tasks_by_worker(session), project.runtime.lake.head(), time.perf_counter()
    project.run(once=True, on_epoch=lambda taken: _say({"epoch": taken.epoch}))
    seconds = time.perf_counter() - begun
    ran = {host: count - tasks.get(host, 0) for host, count in tasks_by_worker(session).items()}
    records = [one for one in project.epochs(10_000) if one["epoch"] > epoch and one.get("rows_in")]
    return {"seconds": seconds, "peak": peak_memory(), "tasks": ran, "epochs": records}


def nothing(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Give rows as they came; so the workers have their Python processes."""
    yield from batches


def tasks_by_worker(session: Any) -> dict[str, int]:
    """Count the tasks that executors ran, by the addresses of their workers; those of dead executors too."""
    listed = session.sparkContext._jsc.sc().statusStore().executorList(False)
    found: dict[str, int] = {}
    for at in range(listed.size()):
        one = listed.apply(at)
        if one.id() != "driver":
            host = one.hostPort().partition(":")[0]
            found[host] = found.get(host, 0) + one.totalTasks()
    return found


def _say(told: Mapping[str, Any]) -> None:
    sys.stdout.write(json.dumps(told, default=str) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
