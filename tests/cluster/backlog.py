"""A backlog of Cassandra's log: segments of the decode benchmark, through three views, by one worker, by two, and with one killed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from runnel.bench.cassandra.segment import SCHEMA, rows, write_segment
from tests.cluster.compare import differing
from tests.cluster.driver import Driver
from tests.cluster.report import Report

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tests.cluster.driver import Done
    from tests.cluster.workplace import Workplace

WAYS = ("one", "two", "killed")
SEGMENT = 32 << 20
BYTES_PER_MUTATION = 211
VIEWS = {
    "by_product": "SELECT product, count(*) AS n, sum(quantity) AS total FROM shop.orders GROUP BY product",
    "active": "SELECT id, product, quantity FROM shop.orders WHERE active",
    "largest": "SELECT product, max(quantity) AS most FROM shop.orders GROUP BY product",
}
COMPARED = ("id", "active", "customer", "product", "quantity", "remark", "shipment")


@dataclass(frozen=True)
class Backlog:
    """A log of so many bytes, in segments of this size, that changes so many keys in turn."""

    bytes: int
    keys: int = 50_000
    segment: int = SEGMENT

    @property
    def mutations(self) -> int:
        """How many mutations it has."""
        return max(self.keys, self.bytes // BYTES_PER_MUTATION)

    @property
    def pieces(self) -> list[range]:
        """The mutations of each segment."""
        each = self.segment // BYTES_PER_MUTATION
        return [range(first, min(first + each, self.mutations)) for first in range(0, self.mutations, each)]

    def write(self, folder: Path) -> str:
        """Write it, and give the section of a project that reads it."""
        logs = folder / "logs"
        logs.mkdir()
        for number, piece in enumerate(self.pieces):
            write_segment(logs, len(piece), number, first=piece.start, keys=self.keys)
        (folder / "schema.cql").write_text(SCHEMA + ";", encoding="utf-8")
        lines = ["[sources.shop]", 'type = "cassandra"', f'logs = "{logs}/*"', f'schema = "{folder}/schema.cql"']
        return "\n".join([*lines, 'keyspace = "shop"'])

    def expected(self) -> pa.Table:
        """Give the rows that are there in the end: what each id was set to last."""
        last, begin = {}, self.mutations - self.keys
        for piece in self.pieces:
            if piece.stop > begin:
                for row in rows(len(piece), first=piece.start, keys=self.keys):
                    last[row["id"]] = tuple(row[name] for name in COMPARED)
        return pa.table(dict(zip(COMPARED, map(list, zip(*last.values(), strict=True)), strict=True)))


def check(place: Workplace, backlog: Backlog, ways: Sequence[str] = WAYS, ratio: float | None = None) -> Report:
    """Take the backlog in each of these ways, each in a state of its own, and compare all of them with what was written.

    With a `ratio`, two workers have to be so many times as fast as one.
    """
    report = Report(f"backlog: {backlog.bytes / 1e6:,.0f} MB, {backlog.mutations:,} mutations of {backlog.keys:,} rows")
    source = backlog.write(place.folder)
    expected = {"shop.orders": backlog.expected()}
    speeds = {}
    for way in ways:
        folder = place.project(way, source, VIEWS, workers=1 if way == "one" else None)
        done = _taken(place, folder, kill=way == "killed")
        report.run(way, done, workers=1 if way == "one" else 2)
        speeds[way] = backlog.mutations / done.seconds
        report.say(f"{way}: log", f"{speeds[way]:,.0f} mutations/s")
        report.equal(f"{way}: rows", differing(folder, expected, VIEWS))
    if {"one", "two"} <= speeds.keys():
        found = speeds["two"] / speeds["one"]
        report.hold("two workers", f"{found:.2f} times one", right=ratio is None or found >= ratio)
    return report


def _taken(place: Workplace, folder: Path, *, kill: bool) -> Done:
    """Take everything; with `kill`, a worker is killed once the first epoch is published."""
    with Driver(folder) as driver:
        driver.go()
        if kill:
            driver.wait_for_epoch()
            place.cluster.workers[-1].kill()
        return driver.done()
