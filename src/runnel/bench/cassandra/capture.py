"""The capture benchmark: whole cycles of every technique on a YCSB-like load, with what it costs to make and keep what they need.

Each technique has a table of its own with N rows, then one with 2N. A round makes each kind of change and runs a cycle after
it. Every cycle's deltas are counted and held against what the technique can see; what it cannot see is shown as lost.
"""

from __future__ import annotations

import logging
import time
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from runnel.bench.cassandra.intervals import spread
from runnel.bench.cassandra.ycsb import TABLE, Change, Load, PlainWriter, Server, Writer, connected, loaded, write
from runnel.bench.machine import machine, peak_memory
from runnel.config import Source, parse_duration
from runnel.engine.duckdb import DuckDbEngine
from runnel.errors import Place
from runnel.pipeline.source_state import StateOfSource
from runnel.project.project import memory

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from runnel.connectors.cassandra.capture import Capture
    from runnel.connectors.deltas.technique import Technique
    from runnel.project import Project

log = logging.getLogger("runnel")
LOGS = ("log", "log-partial")
SYNC_SECONDS = 10.0
"""How late a write is in the log where the server does not tell."""
MOST_LOOKS = 20
WORKLOADS = (
    *(("update", share) for share in (0.25, 0.5, 0.75)),
    *((kind, share) for share in (0.25, 0.75) for kind in ("insert", "delete")),
)


@dataclass(frozen=True)
class Size:
    """How much is measured: rows N (and 2N), rounds, columns and characters of a row's values."""

    rows: int
    rounds: int
    columns: int = 10
    width: int = 100
    triggers: bool = False


@dataclass(frozen=True)
class Way:
    """A technique with its settings; `wrapped` says that the application's wrapper keeps its helper structures."""

    name: str
    technique: str
    settings: Mapping[str, str] = field(default_factory=dict)
    wrapped: bool = False


WAYS = (
    Way("audit", "audit", {"audit": "time", "writer": "application"}, wrapped=True),
    Way("scan", "scan"),
    Way("snapshot", "snapshot"),
    Way("log-partial", "log-partial"),
    Way("log", "log"),
    Way("trigger", "trigger", {"writer": "application"}, wrapped=True),
)
SERVER_WAYS = (
    Way("audit, in the server", "audit", {"audit": "time", "writer": "trigger"}),
    Way("trigger, in the server", "trigger", {"writer": "trigger"}),
)
"""What needs runnel's triggers in the server."""


def measure(server: Server, size: Size, ways: Sequence[Way] = WAYS) -> dict[str, Any]:
    """Run the whole benchmark against a server; the keyspaces it makes there are dropped again."""
    every = (*ways, *(SERVER_WAYS if size.triggers else ()))
    found: dict[str, dict[str, Any]] = {way.name: {} for way in every}
    with connected(server) as session:
        release = str(session.execute("SELECT release_version FROM system.local").one()[0])
        for rows in (size.rows, 2 * size.rows):
            for way in every:
                load = Load(rows, size.columns, size.width)
                with loaded(session, load) as keyspace, memory(engine=DuckDbEngine()) as project:
                    found[way.name][str(rows)] = Run(session, server, keyspace, way, project).measure(load, size)
                log.info("%s, %s rows: %s", way.name, rows, found[way.name][str(rows)]["whole"]["update"])
    return {
        "benchmark": "capture",
        "load": asdict(size),
        "techniques": found,
        "verified": all(one["as_expected"] for sizes in found.values() for one in sizes.values()),
        "engine": "none",
        "machine": machine(None) | {"cassandra": release},
        "peak_memory": peak_memory(),
    }


class Run:
    """One technique on one table."""

    def __init__(self, session: Any, server: Server, keyspace: str, way: Way, project: Project) -> None:
        """Point a source at the table."""
        self._session, self._keyspace, self._way, self._project = session, keyspace, way, project
        settings: dict[str, Any] = {"hosts": list(server.hosts), "port": server.port, "keyspace": keyspace}
        settings |= {"tables": [TABLE], "consistency": "ONE", **way.settings}
        settings |= {"cdc_raw": list(server.cdc_raw)} if server.cdc_raw else {}
        self._source = Source("bench", "cassandra", settings, Place("bench"))
        self._late = _sync_seconds(session) if way.technique in LOGS else 0.0
        self.as_expected = True

    def measure(self, load: Load, size: Size) -> dict[str, Any]:
        """Give the seconds of making, cycles and removing, and of each written operation."""
        making, removing = self._helpers(size.rounds)
        capture = self._capture()
        technique = capture.open()
        try:
            first = _timed(lambda: sum(1 for _ in capture.cycles.run(technique)))
            writer = self._writer()
            rounds = [self._round(load, writer, capture, technique) for _ in range(size.rounds)]
        finally:
            technique.close()
        own = making + removing if self._way.technique != "snapshot" else first.seconds
        return {
            "create": making,
            "remove": removing,
            "first": first.seconds,
            "workloads": {name: _summary([one[name] for one in rounds], own) for name in rounds[0]},
            "whole": {
                kind: spread([s.seconds + own for one in rounds for n, s in one.items() if n.startswith(kind)])
                for kind in ("update", "insert", "delete")
            },
            "as_expected": self.as_expected,
        }

    def _capture(self) -> Capture:
        from runnel.connectors.cassandra.capture import Capture

        state = StateOfSource(self._project.runtime, self._source.name)
        return Capture(self._source, self._project.folder, state, self._way.technique)

    def _helpers(self, rounds: int) -> tuple[float, float]:
        """Make what the technique needs, and remove and make it again; give the mean seconds of both."""
        if self._way.technique not in ("audit", "trigger"):
            return 0.0, 0.0
        capture, made, removed = self._capture(), [], []
        for n in range(rounds):
            made.append(_timed(lambda: capture.prepare(_quiet)).seconds)
            if n + 1 < rounds:
                removed.append(_timed(lambda: capture.prepare(_quiet, undo=True)).seconds)
        removed = removed or [0.0]
        self._session.cluster.refresh_table_metadata(self._keyspace, TABLE)
        return sum(made) / len(made), sum(removed) / len(removed)

    def _writer(self) -> Writer:
        if not self._way.wrapped:
            return PlainWriter(self._session, self._keyspace)
        from runnel.connectors.cassandra.techniques.table_writer import TableWriter

        return TableWriter(self._session, self._keyspace, TABLE, technique=self._way.technique)

    def _round(self, load: Load, writer: Writer, capture: Capture, technique: Technique) -> dict[str, Sample]:
        found = {}
        for kind, share in WORKLOADS:
            changes = load.changes(kind, share)
            written = _timed(lambda changes=changes: write(writer, changes))  # type: ignore[misc]
            time.sleep(2 * self._late)
            expected = visible(self._way.technique, changes, len(load.columns))
            cycle = self._cycle(capture, technique, expected)
            self.as_expected &= cycle.told == expected
            gone = lost(self._way.technique, changes)
            times = (cycle.seconds, cycle.cpu, written.seconds)
            found[f"{kind} {share:.0%}"] = Sample(*times, len(changes), cycle.told, expected, gone)
        return found

    def _cycle(self, capture: Capture, technique: Technique, expected: int) -> Timed:
        """Run a cycle, and another one where the log was too late for the first."""
        told, seconds, cpu = 0, 0.0, 0.0
        for _ in range(MOST_LOOKS):
            one = _timed(lambda: sum(1 for _ in capture.cycles.run(technique)))
            told, seconds, cpu = told + one.told, seconds + one.seconds, cpu + one.cpu
            if told >= expected or not self._late:
                break
            time.sleep(self._late)
        return Timed(seconds, cpu, told)


@dataclass(frozen=True)
class Timed:
    """How long something took, on the clock and of this process, and how much it told."""

    seconds: float
    cpu: float
    told: int


@dataclass(frozen=True)
class Sample:
    """A cycle after some operations: seconds on the clock and of this process, seconds of the writes, and what was told and lost."""

    seconds: float
    cpu: float
    written: float
    operations: int
    told: int
    expected: int
    lost: int


def visible(technique: str, changes: Sequence[Change], columns: int) -> int:
    """Give how many deltas a technique tells of changes of one kind: of a cycle it sees the net effect, or all."""
    if changes[0].kind == "insert":
        return len(changes) * columns
    if changes[0].kind == "update":
        return len(changes) if technique in LOGS else len({(c.key, *c.values) for c in changes})
    return {"audit": 0, "scan": 0, "snapshot": columns, "trigger": columns}.get(technique, 1) * len(changes)


def lost(technique: str, changes: Sequence[Change]) -> int:
    """Give how many operations nobody could know of from what was told."""
    if changes[0].kind == "update":
        return len(changes) - visible(technique, changes, 0)
    return len(changes) if changes[0].kind == "delete" and technique in ("audit", "scan") else 0


def _summary(samples: Sequence[Sample], own: float) -> dict[str, Any]:
    operations = sum(sample.operations for sample in samples)
    return {
        "cycle": spread([sample.seconds for sample in samples]),
        "whole": spread([sample.seconds + own for sample in samples]),
        "cpu": spread([sample.cpu for sample in samples]),
        "write_ms": 1000 * sum(sample.written for sample in samples) / operations,
        "operations": operations,
        "told": sum(sample.told for sample in samples),
        "expected": sum(sample.expected for sample in samples),
        "lost": sum(sample.lost for sample in samples),
    }


def _timed(work: Callable[[], int | None]) -> Timed:
    began, cpu = time.perf_counter(), time.process_time()
    told = work()
    return Timed(time.perf_counter() - began, time.process_time() - cpu, told or 0)


def _quiet(_: str) -> None:
    """Say nothing."""


def _sync_seconds(session: Any) -> float:
    """Give how late a write is in the log, as the server is set."""
    rows = session.execute("SELECT value FROM system_views.settings WHERE name = 'commitlog_sync_period'")
    told = [row[0] for row in rows]
    return parse_duration(told[0]) if told and told[0] else SYNC_SECONDS
