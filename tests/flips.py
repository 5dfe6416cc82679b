"""Flips single bits in the files of a state and reads it: `python -m tests.flips --flips 10000`. Ends with 1 if a value is read wrong.

The state has tables of many types, views, stages, compacted runs and several epochs. Each flip hits one random bit of one random file
(one in four hits the catalog), is read by every lane as by a process that has just begun, and is undone. A flip is an *error* (with a
code), changes nothing (*same*), or is *silent*: other values without an error. Half of the flips in data files are read as if the
files were too large to be checked whole, so that only their footers and pages are. `--spark N` has Spark read N more of them.
"""

from __future__ import annotations

import argparse
import datetime
import random
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

import runnel
from runnel.engine import contents
from runnel.engine.duckdb import DuckDbEngine
from runnel.errors import RunnelError
from runnel.lake import digests, files, footers, lookup
from runnel.lake.lake import Lake

if TYPE_CHECKING:
    from collections.abc import Callable

    from runnel.engine.base import Engine
    from runnel.engine.spark import SparkEngine
    from runnel.lake.entries import DataFile
    from runnel.lake.snapshot import Snapshot
    from runnel.project import Project

EPOCHS = 24
CATALOG_SHARE = 4
CONTROL_EVERY = 10
TABLES = {
    "events": (
        "id BIGINT, shop INT, cost DECIMAL(12,2), note STRING, weight DOUBLE, at TIMESTAMP, day DATE, ok BOOLEAN",
        ["id"],
    ),
    "shops": ("shop INT, name STRING", ["shop"]),
    "bags": ("a INT, tags ARRAY<STRING>, f FLOAT, raw BINARY", []),
    "large": ("id BIGINT, v BIGINT", ["id"]),
}
VIEWS = {
    "dear": "SELECT id, shop, cost, day FROM events WHERE cost > 50",
    "named": "SELECT e.id, s.name, e.cost FROM events e LEFT JOIN shops s ON e.shop = s.shop",
    "takings": "SELECT s.name, sum(e.cost) AS total, count(*) AS n FROM events e JOIN shops s ON e.shop = s.shop GROUP BY s.name",
    "ends": "SELECT shop, min(cost) AS low, max(at) AS latest, count(DISTINCT note) AS notes FROM events GROUP BY shop",
    "means": "SELECT shop, sum(weight) AS w, avg(cost) AS mean FROM events GROUP BY shop",
    "good": "SELECT name, total FROM takings WHERE n > 5",
}


@dataclass
class Counts:
    """What became of the flips."""

    codes: Counter[str] = field(default_factory=Counter)
    same: int = 0
    silent: list[str] = field(default_factory=list)
    without_code: list[str] = field(default_factory=list)

    @property
    def errors(self) -> int:
        """How many flips were errors with a code."""
        return self.codes.total()

    def note(self, where: str, read: Callable[[], bool]) -> None:
        """Read after a flip and count what came of it; `read` says whether all values were right."""
        try:
            right = read()
        except RunnelError as error:
            self.codes[error.code] += 1
        except Exception as error:
            self.without_code.append(f"{where}: {type(error).__name__}: {error}")
        else:
            if right:
                self.same += 1
            else:
                self.silent.append(where)

    def __str__(self) -> str:
        codes = ", ".join(f"{code} {count}" for code, count in self.codes.most_common())
        rest = f"{self.same} same, {len(self.silent)} silent, {len(self.without_code)} errors without a code"
        return f"{self.errors} errors ({codes}), {rest}"


def main() -> int:
    """Flip bits and say what came of it."""
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--flips", type=int, default=10_000)
    arguments.add_argument("--spark", type=int, default=0)
    arguments.add_argument("--seed", type=int, default=1)
    chosen = arguments.parse_args()
    with tempfile.TemporaryDirectory(prefix="runnel-flips-") as folder:
        bad = False
        if chosen.flips:
            found = flip_many(Path(folder), chosen.flips, chosen.seed, say=lambda text: print(text, flush=True))
            bad = report(found)
        if chosen.spark:
            bad |= report(flip_on_spark(Path(folder) / "spark", chosen.spark, chosen.seed))
    return int(bad)


def report(found: dict[str, Counts]) -> bool:
    """Print what was counted; say whether anything was silent or had no code."""
    for kind, counts in found.items():
        print(f"{kind}: {counts}")
        for where in [*counts.silent, *counts.without_code][:50]:
            print(f"  {where}")
    return any(counts.silent or counts.without_code for counts in found.values())


def build(folder: Path, engine: Engine) -> Project:
    """Make a state worth reading: types, stages, updates, deletes, compacted runs, a view that is behind."""
    rng = random.Random(3)
    project = runnel.create(folder, engine=engine)
    project.runtime.keep = 12
    for name, (columns, key) in TABLES.items():
        project.create_table(name, columns, key=key)
    with project.transaction() as tx:
        tx.insert("shops", [{"shop": n, "name": f"shop {n}"} for n in range(9)])
        tx.insert("events", [event(n, rng) for n in range(400)])
        tx.insert("bags", [bag(rng) for _ in range(60)])
        tx.insert("large", [{"id": n, "v": rng.randrange(10**15)} for n in range(12_000)])
    for name, sql in VIEWS.items():
        project.create_view(name, sql)
    project.create_view("late", "SELECT shop, count(*) AS n FROM events GROUP BY shop", refresh="manual")
    for number in range(EPOCHS):
        with project.transaction() as tx:
            tx.insert("events", [event(1000 + 10 * number + n, rng) for n in range(10)])
            if number % 3 == 0:
                tx.insert("bags", [bag(rng) for _ in range(3)])
            if number % 5 == 0:
                tx.update("shops", [{"shop": number % 9, "name": f"shop {number}"}])
            tx.delete("events", [{"id": number * 3}])
    return project


def event(number: int, rng: random.Random) -> dict[str, Any]:
    """Make a row of events."""
    return {
        "id": number,
        "shop": rng.randrange(9) if rng.random() < 0.95 else None,
        "cost": Decimal(rng.randrange(10_000)) / 100,
        "note": rng.choice(["a", "bb", "", None, "long " * 5]),
        "weight": rng.choice([rng.random(), float("nan"), -0.0, 1e300]),
        "at": datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC) + datetime.timedelta(seconds=rng.randrange(10**7)),
        "day": datetime.date(2024, 1, 1) + datetime.timedelta(days=rng.randrange(400)),
        "ok": rng.random() < 0.5,
    }


def bag(rng: random.Random) -> dict[str, Any]:
    """Make a row of bags."""
    tags = [rng.choice(["x", "y", None]) for _ in range(rng.randrange(4))]
    return {"a": rng.randrange(5), "tags": tags, "f": rng.choice([0.5, 2.25]), "raw": rng.randbytes(4)}


def forget() -> None:
    """Let go of all that a process keeps of files: what is read next is read as by a new one."""
    lookup.forget()
    footers._kept.clear()
    files.forget_checks()


def values(table: pa.Table) -> list[str]:
    """Give a table's rows in an order that does not depend on how they were read."""
    return sorted(map(repr, zip(*(column.to_pylist() for column in table.columns), strict=True)))


class Lanes:
    """The ways to read files of one relation, and what each of them reads while nothing is damaged."""

    def __init__(self, engine: Engine, snapshot: Snapshot, name: str, *, looked_up: bool = True) -> None:
        """Read everything once."""
        self._engine, self._snapshot = engine, snapshot
        self._relation = snapshot.relations[name]
        self._files = snapshot.files(name)
        self._looked_up = looked_up
        self._keys: pa.Table | None = None
        first = self._relation.columns[0].name
        stored = files.read(self._relation, self._files, [first])
        if looked_up and not pa.types.is_nested(stored.schema[0].type):
            self._keys = stored.slice(0, 1).append_column("_", pa.nulls(min(1, stored.num_rows))).select([first])
        self._right = self.read()

    def read(self) -> list[list[str]]:
        """Read by every lane: rows by the engine, stored rows by Arrow, and a look-up by key."""
        forget()
        found = [values(contents.rows(self._engine, self._snapshot, self._relation))]
        if self._looked_up:
            forget()
            found.append(values(files.read(self._relation, self._files)))
        if self._keys is not None and self._keys.num_rows:
            forget()
            found.append(values(lookup.find(self._relation, self._files, self._keys)))
        return found

    def each(self) -> list[Callable[[], bool]]:
        """Give one check per lane."""
        reads: list[Callable[[], pa.Table]] = [
            lambda: contents.rows(self._engine, self._snapshot, self._relation),
            lambda: files.read(self._relation, self._files),
            lambda: lookup.find(self._relation, self._files, self._keys),
        ]

        def check(at: int) -> bool:
            forget()
            return values(reads[at]()) == self._right[at]

        return [lambda at=at: check(at) for at in range(len(self._right))]  # type: ignore[misc]


def facts(lake: Lake, epochs: list[int]) -> list[Any]:
    """Load epochs, the newest first, and give everything that decides what is read of them."""
    found: list[Any] = []
    for at in (None, *epochs):
        snapshot = lake.snapshot(at)
        found.append((snapshot.epoch, snapshot.relations, snapshot.entries, snapshot.positions, snapshot.live))
        found.append({name: snapshot.kept_changes(name) for name in snapshot.relations})
    return found


def flip_many(folder: Path, flips: int, seed: int, say: Callable[[str], None] = lambda _: None) -> dict[str, Counts]:
    """Build a state, flip bits and read; give what was counted for data files, read whole or in part, and for the catalog."""
    rng = random.Random(seed)
    with build(folder / "p", DuckDbEngine()) as project:
        data = project.runtime.lake.data
    catalog = project.runtime.lake.catalog.path
    assert catalog is not None
    url = project.runtime.lake.catalog.name
    engine = DuckDbEngine(threads=1)
    lake = Lake.open(url, data)
    head = lake.snapshot()
    lanes = {name: Lanes(engine, head, name) for name in head.relations}
    live = [file for name in head.relations for file in head.files(name)]
    kept = [epoch["epoch"] for epoch in lake.epochs()][-10:]
    right = facts(lake, kept)
    lake.close()
    others = [catalog, *Path(data).glob("*.json")]
    counted = {kind: Counts() for kind in ("files, checked whole", "files, checked in part", "catalog")}
    begun, told = time.monotonic(), 0
    for number in range(flips):
        if rng.randrange(CATALOG_SHARE) == 0:
            path = rng.choices(others, [20, *[1] * (len(others) - 1)])[0]
            with flipped(path, rng, others) as where:
                counted["catalog"].note(where, lambda: reopened(url, data, kept, right))
        else:
            file = rng.choice(live)
            if number % CONTROL_EVERY == 0:
                assert all(read() for read in lanes[file.relation].each())
            kind = rng.choice(("files, checked whole", "files, checked in part"))
            with flipped(Path(file.path), rng) as where, whole_up_to(kind):
                for lane, read in enumerate(lanes[file.relation].each()):
                    counted[kind].note(f"{file.relation} lane {lane} {where}", read)
        bad = [where for counts in counted.values() for where in (*counts.silent, *counts.without_code)]
        if len(bad) > told:
            say(f"not an error with a code: {bad[-1]}")
            told = len(bad)
        if (number + 1) % 1000 == 0:
            said = "; ".join(f"{kind}: {counts}" for kind, counts in counted.items())
            say(f"{number + 1} flips, {time.monotonic() - begun:.0f} s: {said}")
    return counted


class flipped:
    """A file with one bit flipped, put right at the end; `beside` are files that a reader may have changed meanwhile."""

    def __init__(self, path: Path, rng: random.Random, beside: list[Path] | None = None) -> None:
        """Choose the bit."""
        self._path = path
        self._before = {other: other.read_bytes() for other in {path, *(beside or [])}}
        self._at, self._bit = rng.randrange(len(self._before[path])), rng.randrange(8)

    def __enter__(self) -> str:
        bad = bytearray(self._before[self._path])
        bad[self._at] ^= 1 << self._bit
        self._path.write_bytes(bad)
        return f"{self._path.name} byte {self._at} of {len(bad)} bit {self._bit}"

    def __exit__(self, *_: object) -> None:
        for path, data in self._before.items():
            path.write_bytes(data)
            for ending in ("-wal", "-shm", "-journal"):
                path.with_name(path.name + ending).unlink(missing_ok=True)


class whole_up_to:
    """Reads files as if they were too large to be checked whole, where that is what is counted."""

    def __init__(self, kind: str) -> None:
        """Keep what is counted."""
        self._partly = kind == "files, checked in part"
        self._before = digests.WHOLE_BYTES

    def __enter__(self) -> None:
        if self._partly:
            digests.WHOLE_BYTES = 0

    def __exit__(self, *_: object) -> None:
        digests.WHOLE_BYTES = self._before


def reopened(url: str, data: str, kept: list[int], right: list[Any]) -> bool:
    """Open the state as a new process does and compare what its epochs show."""
    lake = Lake.open(url, data)
    try:
        return facts(lake, kept) == right
    finally:
        lake.close()


def flip_on_spark(folder: Path, flips: int, seed: int, engine: SparkEngine | None = None) -> dict[str, Counts]:
    """Let Spark write the state and read it after each flip in a data file, by final rows."""
    from runnel.engine.driver import Driver
    from runnel.engine.spark import SparkEngine

    rng = random.Random(seed)
    engine = engine or SparkEngine()
    driver, engine.driver = engine.driver, Driver(changes=0)
    counted = {kind: Counts() for kind in ("Spark, checked whole", "Spark, checked in part")}
    try:
        project = build_small(folder / "p", engine)
        head = project.runtime.lake.snapshot()
        lanes = {name: Lanes(engine, head, name, looked_up=False) for name in head.relations}
        live = [file for name in head.relations for file in head.files(name)]
        for number in range(flips):
            file: DataFile = rng.choice(live)
            partly = number % 4 != 0
            if number % CONTROL_EVERY == 0:
                _read_undamaged(engine, lanes[file.relation])
            with (
                flipped(Path(file.path), rng) as where,
                whole_up_to("files, checked in part" if partly else ""),
            ):
                _forget_registered(engine)
                counted["Spark, checked in part" if partly else "Spark, checked whole"].note(
                    f"{file.relation} {where}", lanes[file.relation].each()[0]
                )
        project.runtime.lake.close()
    finally:
        engine.driver = driver
    return counted


def _forget_registered(engine: SparkEngine) -> None:
    for registry in engine._registries.values():
        registry._registered.clear()


def _read_undamaged(engine: SparkEngine, lanes: Lanes) -> None:
    """See that it is the flip that makes an error, not what was left of the flip before."""
    _forget_registered(engine)
    assert all(read() for read in lanes.each())


def build_small(folder: Path, engine: SparkEngine) -> Project:
    """Make a state that Spark itself wrote: a table of the driver's, and views as files of Spark's."""
    rng = random.Random(4)
    project = runnel.create(folder, engine=engine)
    project.runtime.large = 0
    project.create_table("events", TABLES["events"][0], key=["id"])
    with project.transaction() as tx:
        tx.insert("events", [event(n, rng) for n in range(3000)])
    project.create_view("dear", "SELECT id, shop, cost, note, day, weight FROM events WHERE cost > 20")
    project.create_view("ends", "SELECT shop, min(cost) AS low, count(*) AS n FROM events GROUP BY shop")
    return project


if __name__ == "__main__":
    sys.exit(main())
