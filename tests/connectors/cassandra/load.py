"""Three views over Cassandra tables under load: `python -m tests.connectors.cassandra.load --seconds 600`.

One thread writes inserts, updates, times to live and deletes, and a probe five times a second. `runnel run` is a process of its own. It is
killed, the server is restarted and crashed. Between these steps writing pauses, and each view has to be what its SQL gives on the
rows of `SELECT *`. Lag is the time from a probe's acknowledgement until an epoch is published whose view shows it.

Ends with 1 if a view differs, if a probe that the server has is never seen, or if `runnel verify` finds a difference.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa
from cassandra import ConsistencyLevel
from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile
from cassandra.policies import ConstantReconnectionPolicy

from runnel.errors import Transient
from tests.connectors.cassandra.conftest import Shop
from tests.connectors.cassandra.load_parts import PROBES, TABLES, Watcher, Writer, reader
from tests.servers.cassandra import NodeOptions, cassandra
from tests.support.rows import comparable
from tests.support.runner import Runnel

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

HOST = "127.0.0.27"
STEPS = ("check", "kill", "check", "restart", "check", "kill", "check", "crash", "check")
PATIENCE = 120.0
EXPIRY_PATIENCE = 30.0
"""Seconds in which a view may differ while writing pauses: values expire meanwhile, and runnel sees that at its next epoch."""

ARROW = {
    "customers": pa.schema({"id": pa.int32(), "name": pa.string(), "region": pa.string()}),
    "orders": pa.schema({"customer": pa.int32(), "id": pa.int32(), "amount": pa.int32(), "note": pa.string()}),
}
VIEWS = {
    "bought": "SELECT o.customer, o.id, c.name, c.region, o.amount FROM orders o JOIN customers c ON o.customer = c.id",
    "takings": "SELECT c.region, sum(o.amount) AS total, count(*) AS n FROM orders o JOIN customers c ON o.customer = c.id "
    "GROUP BY c.region",
    "cheapest": "SELECT customer, min(amount) AS least FROM orders GROUP BY customer",
}


@dataclass(frozen=True)
class Options:
    """How long, by which engine, how many statements a second, and what is done meanwhile."""

    seconds: float
    engine: str
    rate: float = 100.0
    steps: Sequence[str] = STEPS
    seed: int = 0


class Load:
    """A server, tables, views, a writer, a watcher and a runner, and the steps that are done to them."""

    def __init__(self, shop: Shop, session: Any, options: Options, say: Callable[[str], None]) -> None:
        """Make tables and project."""
        self._shop, self._session, self._options, self._say = shop, session, options, say
        for name, columns in TABLES.items():
            shop.cql(f"CREATE TABLE KS.{name} ({columns}) WITH cdc = true")
        shop.cql(f"INSERT INTO KS.customers (id, name, region) VALUES ({PROBES}, 'probe', 'probes')")
        shop.configure(tables=list(TABLES))
        (shop.folder / "views").mkdir()
        for name, sql in VIEWS.items():
            (shop.folder / "views" / f"{name}.sql").write_text(f"CREATE MATERIALIZED VIEW {name} AS {sql};")
        self.runnel = Runnel(shop.folder, options.engine)
        self.writer = Writer(session, shop.keyspace, options.rate, options.seed)
        self.watcher = Watcher(shop.folder)
        self.checks, self.wrong = 0, list[str]()
        self.lost, self._crashed = 0, False
        self._away: list[tuple[float, float]] = []
        self._begun = time.monotonic()

    def run(self) -> None:
        """Write, and do the steps at even distances; `wrong` has what was not right."""
        seconds, steps = self._options.seconds, self._options.steps
        self.runnel.start()
        try:
            _wait(self._is_published, "no view was published", self.runnel.check)
            self.watcher.start()
            self.writer.start()
            self._begun = time.monotonic()
            for number, step in enumerate(steps, 1):
                time.sleep(max(0.0, self._begun + seconds * number / len(steps) - time.monotonic()))
                getattr(self, f"_{step}")()
                self._raise_errors()
            self.writer.stop()
            self.watcher.stop()
            self.runnel.stop()
        finally:
            self.runnel.kill()
        right, printed = self.runnel.verify()
        self._say(printed)
        if not right:
            self.wrong.append("runnel verify finds a difference")
        self._summary()

    def lags(self, *, undisturbed: bool) -> list[float]:
        """Give the lags of all probes in ascending order, or of those that met neither a kill nor a restart."""
        found = []
        for number, written in self.writer.probes.items():
            seen = self.watcher.seen.get(number)
            if seen is None or (undisturbed and any(begin < seen and written < end for begin, end in self._away)):
                continue
            found.append(max(0.0, seen - written))
        return sorted(found)

    def _summary(self) -> None:
        for name, undisturbed in (("all probes", False), ("probes that met no kill and no restart", True)):
            lags = self.lags(undisturbed=undisturbed)
            p50, p95 = (lags[int(len(lags) * share)] if lags else float("nan") for share in (0.5, 0.95))
            self._say(f"lag of {name}: p50 {p50 * 1000:.0f} ms, p95 {p95 * 1000:.0f} ms ({len(lags)})")
        self._say(
            f"{self.writer.written} statements, {self.writer.refused} refused while the server was away, {self.checks} checks, "
            f"{self.watcher.epochs} epochs seen, {self.lost} probes lost by a crash of the server, {len(self.wrong)} differences"
        )
        for line in self.wrong:
            self._say(line)

    # The steps.

    def _check(self) -> None:
        """Compare each view with its SQL on the server's rows, when everything written is in it."""
        with self.writer.paused():
            self._caught_up()
            begun = time.monotonic()
            while (differing := self._differing()) and time.monotonic() < begun + EXPIRY_PATIENCE:
                pass
            self.checks += 1
            self.wrong += [f"check {self.checks}: {text}" for text in differing]
            self._account_for_probes()
        self._tell(f"check {self.checks}: {'views differ' if differing else 'views equal recompute'}")

    def _kill(self) -> None:
        with self._while_away("runnel killed"):
            self.runnel.kill()
            self.runnel.start()

    def _restart(self) -> None:
        with self._while_away("server restarted"):
            self._shop.node.stop()
            self._shop.node.start()

    def _crash(self) -> None:
        with self._while_away("server killed and started"):
            self._crashed = True
            self._shop.node.kill()
            self._shop.node.start()

    @contextmanager
    def _while_away(self, what: str) -> Iterator[None]:
        begun = time.monotonic()
        yield
        before = len(self.writer.probes)
        _wait(lambda: len(self.writer.probes) > before, "nothing is written", self.runnel.check)
        last = max(self.writer.probes)
        _wait(lambda: last in self.watcher.seen, "nothing is seen", self.runnel.check)
        self._away.append((begun, time.monotonic()))
        self._tell(f"{what}, views fresh again after {time.monotonic() - begun:.1f} s")

    # What the steps need.

    def _tell(self, text: str) -> None:
        self._say(f"{time.monotonic() - self._begun:6.1f} s  {text}")

    def _raise_errors(self) -> None:
        self.runnel.check()
        for error in (self.writer.error, self.watcher.error):
            if error is not None:
                raise error

    def _is_published(self) -> bool:
        if "epoch" not in self.runnel.said.read_text():
            return False
        with reader(self._shop.folder) as project:
            return set(VIEWS) <= set(project.runtime.lake.snapshot().views)

    def _caught_up(self) -> None:
        numbers: list[int] = []

        def written() -> bool:
            number = self.writer.probe()
            numbers.extend(() if number is None else (number,))
            return number is not None

        _wait(written, "nothing is written", self.runnel.check)
        _wait(lambda: numbers[-1] in self.watcher.seen, "the last write is not seen", self.runnel.check)

    def _differing(self) -> list[str]:
        found = []
        with duckdb.connect() as recompute, reader(self._shop.folder) as project:
            for name, schema in ARROW.items():
                rows = [
                    dict(row._asdict()) for row in self._session.execute(f"SELECT * FROM {self._shop.keyspace}.{name}")
                ]
                recompute.register(name, pa.Table.from_pylist(rows, schema))
            for name, sql in VIEWS.items():
                told = comparable(recompute.sql(sql).to_arrow_table().to_pylist())
                kept = comparable(project.view(name).to_pylist())
                if told != kept:
                    found.append(f"{name}: recompute only {_less(told, kept)}, runnel only {_less(kept, told)}")
        return found

    def _account_for_probes(self) -> None:
        """Check that every probe was seen, but for those that a crash of the server took from it too."""
        missed = [number for number in self.writer.probes if number not in self.watcher.seen]
        for number in missed:
            query = f"SELECT id FROM {self._shop.keyspace}.orders WHERE customer = {PROBES} AND id = {number}"
            if not self._crashed or self._session.execute(query).one() is not None:
                self.wrong.append(f"probe {number} was never seen")
            else:
                self.lost += 1
            del self.writer.probes[number]
        self._crashed = False


def _less(some: list[Any], others: list[Any]) -> list[Any]:
    return [row for row in some if row not in others][:5]


def _wait(condition: Callable[[], bool], otherwise: str, check: Callable[[], None]) -> None:
    deadline = time.monotonic() + PATIENCE
    while True:
        check()
        try:
            if condition():
                return
        except Transient:
            pass  # the state is being written by the other process
        assert time.monotonic() < deadline, otherwise
        time.sleep(0.05)


def under_load(folder: Path, options: Options, say: Callable[[str], None]) -> Load:
    """Start a server and do the whole of it; `Load.wrong` has what was not right."""
    profiles = {EXEC_PROFILE_DEFAULT: ExecutionProfile(consistency_level=ConsistencyLevel.ALL, request_timeout=20)}
    soon = ConstantReconnectionPolicy(0.5, max_attempts=None)
    with (
        cassandra(NodeOptions(), HOST) as node,
        Cluster(
            [HOST], node.port, execution_profiles=profiles, protocol_version=5, reconnection_policy=soon
        ) as cluster,
    ):
        load = Load(Shop(folder, node), cluster.connect(), options, say)
        load.run()
        return load


def main() -> int:
    """Run the load and say what came out."""
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--seconds", type=float, default=600)
    arguments.add_argument("--engine", choices=("duckdb", "spark"), default="spark")
    arguments.add_argument("--rate", type=float, default=100, help="statements per second")
    arguments.add_argument("--seed", type=int, default=0)
    chosen = Options(**vars(arguments.parse_args()))
    print(f"seed {chosen.seed}, {chosen.rate:g} statements/s for {chosen.seconds:g} s, {chosen.engine}", flush=True)
    with tempfile.TemporaryDirectory(prefix="runnel-load-") as folder:
        load = under_load(Path(folder), chosen, lambda text: print(text, flush=True))
    return 1 if load.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
