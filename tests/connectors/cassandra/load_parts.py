"""The three that work at once under load: one writes, one looks at the published view, and `runnel run` follows."""

from __future__ import annotations

import random
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from cassandra import DriverException
from cassandra.cluster import NoHostAvailable

import runnel
from runnel.engine.duckdb import DuckDbEngine

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from runnel.project import Project

PROBES_EACH = 0.2
PROBE_TTL = 300
"""Seconds. A probe is there until the check after it has asked for it."""
PROBES, CUSTOMERS, IDS = 0, 30, 60
"""The customer whose orders are probes, how many others there are, and how many orders each may have."""

TABLES = {
    "customers": "id int PRIMARY KEY, name text, region text",
    "orders": "customer int, id int, amount int, note text, PRIMARY KEY (customer, id)",
}


def reader(folder: Path) -> Project:
    """Open the project to read what is published."""
    return runnel.open(folder, engine=DuckDbEngine(), sync=False)


class Writer(threading.Thread):
    """Writes at a steady rate until told to stop; what the server does not acknowledge is not counted."""

    def __init__(self, session: Any, keyspace: str, rate: float, seed: int) -> None:
        """Nothing is written yet."""
        super().__init__(name="writer", daemon=True)
        self._session, self._keyspace, self._rate = session, keyspace, rate
        self._random = random.Random(seed)
        self._turn, self._stop_now = threading.Lock(), threading.Event()
        self.written, self.refused = 0, 0
        self.probes: dict[int, float] = {}
        self._probe = 0
        self.error: BaseException | None = None

    def run(self) -> None:
        """Write."""
        begun, turn, probed = time.monotonic(), 0, 0.0
        try:
            while not self._stop_now.wait(max(0.0, begun + turn / self._rate - time.monotonic())):
                with self._turn:
                    turn = max(turn + 1, int((time.monotonic() - begun - 1) * self._rate))  # a pause is not made up for
                    if time.monotonic() - probed >= PROBES_EACH:
                        probed = time.monotonic()
                        self.probe()
                    done = self._execute(self._statement())
                if not done:
                    self._stop_now.wait(0.2)
        except BaseException as error:
            self.error = error

    def stop(self) -> None:
        """Stop writing."""
        self._stop_now.set()
        self.join()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Write nothing meanwhile."""
        with self._turn:
            yield

    def probe(self) -> int | None:
        """Write a row with a number of its own and give the number, if the server acknowledged it."""
        self._probe += 1
        values = f"({PROBES}, {self._probe}, {self._probe})"
        if not self._execute(f"INSERT INTO orders (customer, id, amount) VALUES {values} USING TTL {PROBE_TTL}"):
            return None
        self.probes[self._probe] = time.monotonic()
        return self._probe

    def _execute(self, statement: str) -> bool:
        for table in TABLES:
            statement = statement.replace(f" {table} ", f" {self._keyspace}.{table} ")
        try:
            self._session.execute(statement)
        except (DriverException, NoHostAvailable):
            self.refused += 1
            return False
        self.written += 1
        return True

    def _statement(self) -> str:
        made = self._random
        customer, number, amount = made.randint(1, CUSTOMERS), made.randrange(IDS), made.randrange(-50, 1000)
        row, ttl = f"customer = {customer} AND id = {number}", f"USING TTL {made.randint(1, 20)}"
        insert = f"INSERT INTO orders (customer, id, amount, note) VALUES ({customer}, {number}, {amount}, 'n{amount}')"
        update = f"SET amount = {amount} WHERE {row}"
        region = made.choice(("north", "south", "east", "west"))
        named = f"INSERT INTO customers (id, name, region) VALUES ({customer}, 'c{amount}', '{region}')"
        likely = {
            insert: 30,
            f"{insert} {ttl}": 10,
            f"UPDATE orders {update}": 25,
            f"UPDATE orders {ttl} {update}": 8,
            f"DELETE FROM orders WHERE {row}": 10,
            f"DELETE amount FROM orders WHERE {row}": 4,
            f"DELETE FROM orders WHERE customer = {customer} AND id > {number} AND id < {number + 8}": 3,
            f"DELETE FROM orders WHERE customer = {customer}": 0.5,
            named: 4,
            f"{named} {ttl}": 1,
            f"UPDATE customers SET region = '{region}' WHERE id = {customer}": 3,
            f"DELETE FROM customers WHERE id = {customer}": 1.5,
        }
        return made.choices(list(likely), list(likely.values()))[0]


class Watcher(threading.Thread):
    """Looks at the published view again and again, and notes when it saw each probe first."""

    def __init__(self, folder: Path) -> None:
        """Nothing was seen yet."""
        super().__init__(name="watcher", daemon=True)
        self._folder = folder
        self._stop_now = threading.Event()
        self.seen: dict[int, float] = {}
        self.epochs = 0
        self.error: BaseException | None = None

    def run(self) -> None:
        """Look after every epoch."""
        try:
            with reader(self._folder) as project:
                head = -1
                while not self._stop_now.wait(0.01):
                    newest, now = project.runtime.lake.head(), time.monotonic()
                    if newest == head:
                        continue
                    head = newest
                    rows = project.query(f"SELECT id FROM bought WHERE customer = {PROBES}", at=head).to_pylist()
                    self.epochs += 1
                    for row in rows:
                        self.seen.setdefault(row["id"], now)
        except BaseException as error:
            self.error = error

    def stop(self) -> None:
        """Stop looking."""
        self._stop_now.set()
        self.join()
