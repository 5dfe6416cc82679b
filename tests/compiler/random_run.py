"""A long run of random cases: `python -m tests.compiler.random_run --engine spark --checks 1000 --driver-rows 0 --seed 1`.

It goes on after a failure, prints each with its seed, and at the end how many checks were made, how many of the views were kept
incrementally, and how long it took. It ends with 1 if any case failed.
"""

from __future__ import annotations

import argparse
import gc
import math
import random
import sys
import time
import traceback
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from runnel.engine import spark
from runnel.engine.driver import CHANGES, Driver
from runnel.engine.duckdb import DuckDbEngine
from runnel.engine.registry import Registry
from tests.compiler.harness import check_case

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

    from runnel.engine.base import Engine
    from runnel.model.relation import Column

QUIET = 60.0
"""Seconds between two lines of progress."""


@dataclass
class Tally:
    """What a run came to."""

    checks: int = 0
    cases: int = 0
    views: int = 0
    incremental: int = 0
    refused: int = 0
    reasons: Counter[str] = field(default_factory=Counter)
    failed: list[int] = field(default_factory=list)

    def __str__(self) -> str:
        share = self.incremental / self.views if self.views else 1.0
        return (
            f"{self.checks} checks in {self.cases} cases, {share:.1%} of {self.views} views incremental, "
            f"{self.refused} texts refused, {len(self.failed)} cases failed"
        )


def run(engine: Engine, checks: int, seed: int, only: str = "", seconds: float = math.inf) -> Tally:
    """Play the cases of one seed after the other until so many comparisons were made, or so much time has passed.

    Failures are printed and counted.
    """
    tally, begun = Tally(), time.monotonic()
    said = begun
    while tally.checks < checks and time.monotonic() - begun < seconds:
        try:
            outcome = check_case(engine, seed, only, many=True)
        except Exception as error:
            # Any way of failing is what is looked for, and the next case has nothing to do with it.
            tally.failed.append(seed)
            where = "".join(traceback.format_tb(error.__traceback__)[-3:])
            text = "".join(f"  {line}\n" for line in f"{type(error).__name__}: {error}\n{where}".splitlines())
            print(f"FAILED seed {seed}\n{text}", flush=True)
        else:
            tally.checks += outcome.checks
            tally.views += outcome.views
            tally.incremental += outcome.incremental
            tally.refused += outcome.refused
            tally.reasons.update(set(outcome.reasons))
        tally.cases += 1
        seed += 1
        if time.monotonic() - said > QUIET:
            said = time.monotonic()
            print(f"{said - begun:.0f} s: {tally}, next seed {seed}", flush=True)
    return tally


class OnePartition(Registry):
    """Gives every input in one partition, so that a join of them needs neither an exchange nor a job of its own."""

    def _local(self, table: pa.Table, columns: tuple[Column, ...]) -> DataFrame:
        frame = super()._local(table, columns)
        return frame.coalesce(1) if table.num_rows else frame  # of nothing, Spark leaves out what is joined with it


class SmallSpark(spark.SparkEngine):
    """Spark over inputs of one partition."""

    def _registry(self, *, quick: bool) -> Registry:
        if not self._registries:
            super()._registry(quick=quick)
            self._registries = {size: OnePartition(known.session) for size, known in self._registries.items()}
        return self._registries[quick]


def engine_for(name: str, driver_rows: int) -> Engine:
    """Give an engine that uses one core and little memory."""
    if name == "duckdb":
        return DuckDbEngine(threads=1)
    log = Path(spark.__file__).with_name("log4j2.properties").as_uri()
    # Plans are run once: compiling them as far as Java can costs more than it saves.
    java = f"-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Dlog4j2.configurationFile={log}"
    conf = {
        "spark.driver.memory": "2g",
        "spark.driver.extraJavaOptions": java,
        "spark.sql.shuffle.partitions": "1",
        "spark.sql.autoBroadcastJoinThreshold": "-1",
        # A page is the least that an aggregate or a join takes: by default 64 MB, which keeps the collector busy.
        "spark.buffer.pageSize": "1m",
    }
    return SmallSpark(master="local[1]", conf=conf, driver=Driver(driver_rows))


def main() -> int:
    """Run as told and print what came out."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--engine", choices=("duckdb", "spark"), default="duckdb")
    parser.add_argument("--checks", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=0, help="the first seed; 0 begins anywhere")
    parser.add_argument("--driver-rows", type=int, default=CHANGES, help="0 sends every step to Spark")
    parser.add_argument("--only", default="", help="make all cases mostly of this feature")
    parser.add_argument(
        "--seconds", type=float, default=math.inf, help="end after so long, however few checks were made"
    )
    given = parser.parse_args()
    seed = given.seed or random.SystemRandom().randrange(1, 10**9)
    gc.set_threshold(200_000, 20, 100)  # parsed texts are full of circles, and most of them are kept
    engine = engine_for(given.engine, given.driver_rows)
    begun = time.monotonic()
    tally = run(engine, given.checks, seed, given.only, given.seconds)
    seconds, counted = time.monotonic() - begun, engine.counted
    engine.close()
    print(f"{given.engine}, seeds from {seed}: {tally}")
    print(f"{seconds:.0f} s, {seconds / max(1, tally.checks):.3f} s a check")
    if given.engine == "spark":
        print(f"{counted.on_spark} queries by Spark, {counted.in_driver} in the driver")
    print("kept otherwise:", tally.reasons.most_common(8))
    if tally.failed:
        print("failed:", *tally.failed)
    return 1 if tally.failed else 0


if __name__ == "__main__":
    sys.exit(main())
