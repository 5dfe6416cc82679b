"""A Spark standalone cluster on loopback from PySpark's own jars: one master, and workers with an address, a core and a folder each.

Workers have addresses of their own, as machines have, so that tasks can be told apart by where they ran. A worker and the executors it
starts are one process group: `kill` ends all of it at once, as a machine does that loses its power.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from runnel.engine.java import ensure_java

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

WORKERS = ("127.0.0.61", "127.0.0.62")
START_SECONDS = 120
STOP_SECONDS = 20
MASTER, WORKER = "org.apache.spark.deploy.master.Master", "org.apache.spark.deploy.worker.Worker"
_HOME = find_spec("pyspark")
_STARTED = re.compile(r"Starting Spark master at (spark://\S+)")
_REGISTERED = "Successfully registered with master"


@dataclass
class Worker:
    """One worker: its address, and its process group while it runs."""

    host: str
    log: Path
    process: subprocess.Popen[bytes] = field(repr=False)

    def kill(self) -> None:
        """End it and its executors at once."""
        _kill(self.process)


@dataclass
class SparkCluster:
    """A running cluster; `url` is what `[spark] master` is set to."""

    url: str
    home: Path
    memory: str
    workers: list[Worker]

    def add(self, host: str, cores: int = 1) -> Worker:
        """Start a worker at an address and wait until the master knows it."""
        log = self.home / f"{host}.log"
        more = ["--host", host, "--cores", str(cores), "--memory", self.memory]
        more += ["--work-dir", str(self.home / host), self.url]
        process = _start(WORKER, more, log)
        worker = Worker(host, log, process)
        self.workers.append(worker)
        _wait_for(process, log, re.compile(_REGISTERED))
        return worker


@contextmanager
def spark_cluster(hosts: Sequence[str] = WORKERS, memory: str = "2g") -> Iterator[SparkCluster]:
    """Run a master and a worker of one core at each address; every process is ended afterwards."""
    home = Path(tempfile.mkdtemp(prefix="rsc"))
    log = home / "master.log"
    master = _start(MASTER, ["--host", "127.0.0.1", "--port", "0", "--webui-port", "0"], log)
    made = SparkCluster("", home, memory, [])
    try:
        made.url = _wait_for(master, log, _STARTED)[1]
        for host in hosts:
            made.add(host)
        yield made
    finally:
        for process in (*(worker.process for worker in made.workers), master):
            _kill(process)
        shutil.rmtree(home, ignore_errors=True)


def _start(program: str, arguments: Sequence[str], log: Path) -> subprocess.Popen[bytes]:
    assert _HOME is not None
    assert _HOME.origin is not None
    home = Path(_HOME.origin).parent
    environment = os.environ | {
        "SPARK_HOME": str(home),
        "SPARK_SCALA_VERSION": "2.13",
        "PYSPARK_PYTHON": sys.executable,
    }
    opened = ["java.base/java.lang", "java.base/java.nio", "java.base/sun.nio.ch", "java.base/java.util"]
    command = [f"{ensure_java()}/bin/java", "-Xmx256m", "-XX:+UseSerialGC"]
    command += [part for name in opened for part in ("--add-opens", f"{name}=ALL-UNNAMED")]
    command += ["-cp", f"{home}/jars/*", program, *arguments]
    environment["JAVA_HOME"] = ensure_java()
    with log.open("wb") as out:
        return subprocess.Popen(
            command, stdout=out, stderr=out, cwd=log.parent, env=environment, start_new_session=True
        )


def _wait_for(process: subprocess.Popen[bytes], log: Path, text: re.Pattern[str]) -> re.Match[str]:
    deadline = time.monotonic() + START_SECONDS
    while (found := text.search(log.read_text(errors="replace"))) is None:
        assert process.poll() is None, f"Spark stopped at its start: {log.read_text(errors='replace')[-3000:]}"
        assert time.monotonic() < deadline, f"Spark did not start: {log.read_text(errors='replace')[-3000:]}"
        try:
            process.wait(timeout=0.1)
        except subprocess.TimeoutExpired:
            continue
    return found


def _kill(process: subprocess.Popen[bytes]) -> None:
    """End a process with all that it started."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
    process.wait(timeout=STOP_SECONDS)
