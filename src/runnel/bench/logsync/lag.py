"""Lag: transactions are committed in MariaDB at a steady rate; how long until each can be read in PostgreSQL.

`runnel run` is a process of its own. The target is asked again and again for the newest order that it has; a transaction has arrived
when it is found there, so the time between two answers is part of its lag.
"""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import threading
import time
from bisect import bisect_right
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np
import psycopg

from runnel.bench.logsync.servers import TABLE, mysql_database, postgres_database, row
from runnel.errors import Terminal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from runnel.bench.logsync.servers import MysqlServer

PATIENCE = 600.0
LOOK = 0.01
VIEW = "SELECT shop, sum(amount) AS total, count(*) AS n FROM orders GROUP BY shop"
TOML = """[project]
name = "lag"

[run]
epoch = "{epoch}"

[sources.shop]
type = "{family}"
host = "{host}"
port = {port}
user = "{user}"
database = "{database}"

[targets.front]
type = "postgres"
url = "{url}"
views = {{ "shop.orders" = "orders", takings = "takings" }}
"""
log = logging.getLogger("runnel")


@dataclass(frozen=True)
class Load:
    """Transactions per second, for how many seconds after so many to warm up, and how long an epoch gathers."""

    rate: int
    seconds: float
    warm: float = 10.0
    epoch: str = "100ms"


def measure(server: MysqlServer, url: str, load: Load) -> dict[str, Any]:
    """Run writer, runner and watcher beside each other; give the lags of the measured transactions."""
    with (
        mysql_database(server) as source,
        postgres_database(url) as target,
        TemporaryDirectory(prefix="runnel-lag-") as name,
    ):
        folder = Path(name)
        known = {"family": source.family, "host": source.host, "port": source.port, "user": source.user}
        (folder / "runnel.toml").write_text(
            TOML.format(**known, database=source.database, url=target, epoch=load.epoch)
        )
        (folder / "views").mkdir()
        (folder / "views" / "takings.sql").write_text(f"CREATE MATERIALIZED VIEW takings AS {VIEW};\n")
        source.sql(f"INSERT INTO {TABLE} VALUES {row(1)}")
        runner = _start(folder)
        watcher = Watcher(target)
        watcher.start()
        try:
            watcher.wait_for(1, runner)
            written = _write(source, load)
            watcher.wait_for(len(written) + 1, runner)
        finally:
            watcher.stop()
            runner.send_signal(signal.SIGTERM)
            runner.wait(PATIENCE)
        lags = watcher.lags(written)[round(load.warm * load.rate) :]
        return _summary(lags, written, load) | {"equal": _equal(source, target)}


def _start(folder: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-c", "from runnel.cli import main; main()", "--project", str(folder), "run"]
    with (folder / "said.txt").open("wb") as said:
        return subprocess.Popen(command, stdout=said, stderr=said, cwd=folder, env=os.environ)


def _write(source: MysqlServer, load: Load) -> list[float]:
    """Commit orders 2, 3, ... at the rate, and give the moment of each; what is late is made up for."""
    written = []
    with source.connect() as connection, connection.cursor() as cursor:
        began = time.monotonic()
        for number in range(round((load.warm + load.seconds) * load.rate)):
            wait = began + number / load.rate - time.monotonic()
            if wait > 0:
                time.sleep(wait)
            cursor.execute(f"INSERT INTO {TABLE} VALUES {row(number + 2)}")
            written.append(time.monotonic())
    return written


class Watcher(threading.Thread):
    """Notes when the target was first seen to have an order, and all before it."""

    def __init__(self, url: str) -> None:
        """Nothing was seen yet."""
        super().__init__(daemon=True)
        self._url, self._stop_now = url, threading.Event()
        self._seen: list[int] = [0]
        self._when: list[float] = [0.0]

    def run(self) -> None:
        """Look until told to stop."""
        with psycopg.connect(self._url, autocommit=True) as target:
            while not self._stop_now.wait(LOOK):
                newest = next(self._newest(target), 0)
                if newest > self._seen[-1]:
                    self._when.append(time.monotonic())
                    self._seen.append(newest)

    @staticmethod
    def _newest(target: psycopg.Connection[Any]) -> Iterator[int]:
        try:
            for (newest,) in target.execute(f"SELECT max(id) FROM {TABLE}".encode()):
                yield newest or 0
        except psycopg.errors.UndefinedTable:
            return

    def wait_for(self, number: int, runner: subprocess.Popen[bytes]) -> None:
        """Wait until an order has arrived."""
        deadline = time.monotonic() + PATIENCE
        while self._seen[-1] < number:
            if runner.poll() is not None or time.monotonic() > deadline or not self.is_alive():
                raise Terminal("RUNNEL-BENCH-LAG", f"order {number} did not arrive; the newest is {self._seen[-1]}")
            time.sleep(LOOK)

    def stop(self) -> None:
        """Stop looking."""
        self._stop_now.set()
        self.join()

    def lags(self, written: list[float]) -> list[float]:
        """Give for orders 2, 3, ... the seconds from their commit until they were seen."""
        return [self._when[bisect_right(self._seen, number - 1)] - when for number, when in enumerate(written, start=2)]


def _summary(lags: list[float], written: list[float], load: Load) -> dict[str, Any]:
    p50, p95, p99 = np.percentile(lags, [50, 95, 99])
    spent = written[-1] - written[-len(lags)] if len(lags) > 1 else 0.0
    return {
        "wanted_rate": load.rate,
        "rate": (len(lags) - 1) / spent if spent else 0.0,
        "transactions": len(lags),
        "epoch": load.epoch,
        "p50": float(p50),
        "p95": float(p95),
        "p99": float(p99),
        "longest": max(lags),
    }


def _equal(source: MysqlServer, target: str) -> bool:
    """Say whether both sides have the same orders and the same takings."""
    counted = f"SELECT count(*), sum(id), sum(amount), sum(n), count(note) FROM {TABLE}"
    with psycopg.connect(target) as there:
        orders = there.execute(counted.encode()).fetchall() == source.sql(counted)
        takings = sorted(there.execute(b"SELECT shop, total, n FROM takings").fetchall()) == sorted(source.sql(VIEW))
    return orders and takings
