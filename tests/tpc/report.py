"""Keeps every query of TPC-H and TPC-DS as a view over changing tables and prints what became of each.

`python -m tests.tpc.report --engine duckdb --suite tpcds --queries Q1,Q64 --batches 5`
"""

from __future__ import annotations

import argparse
import contextlib
import signal
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from runnel.engine.duckdb import DuckDbEngine
from tests.tpc import tpcds, tpcds_queries, tpch
from tests.tpc.keeping import keep

if TYPE_CHECKING:
    from collections.abc import Iterator

    from runnel.engine.base import Engine
    from tests.tpc.changing import Dataset
    from tests.tpc.keeping import Outcome

BATCHES = {"tpch": 10, "tpcds": 5}


def main() -> int:
    options = _options()
    engine = _engine(options.engine)
    wrong = 0
    for suite in options.suite.split(","):
        count = options.batches or BATCHES[suite]
        data, views = _suite(suite, count, options)
        wanted = [name for name in views if not options.queries or name.split()[0] in options.queries.split(",")]
        print(f"\n{suite} on {engine.name}, {count} batches", flush=True)
        outcomes = []
        for name in wanted:
            with _limit(options.limit):
                outcome = keep(engine, data, name, views[name])
            outcomes.append(outcome)
            print(_line(outcome), flush=True)
        wrong += _totals(outcomes)
    engine.close()
    return 1 if wrong else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--engine", choices=("duckdb", "spark"), default="duckdb")
    parser.add_argument("--suite", default="tpch,tpcds")
    parser.add_argument("--queries", default="", help="names, with commas: Q1,Q22")
    parser.add_argument("--batches", type=int, default=0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--limit", type=int, default=0, help="seconds a query may take")
    parser.add_argument("--ordered", action="store_true", help="keep the ORDER BY and LIMIT of TPC-DS queries")
    return parser.parse_args()


def _engine(name: str) -> Engine:
    if name == "duckdb":
        return DuckDbEngine(threads=2)
    from runnel.engine.spark import SparkEngine

    return SparkEngine(conf={"spark.driver.memory": "3g"})


def _suite(suite: str, batches: int, options: argparse.Namespace) -> tuple[Dataset, dict[str, str]]:
    if suite == "tpcds":
        views = {name: tpcds_queries.view(name, ordered=options.ordered) for name in tpcds_queries.names()}
        return tpcds.make(batches=batches, seed=options.seed), views
    with tempfile.TemporaryDirectory() as folder:
        return tpch.make(Path(folder), batches=batches, seed=options.seed), tpch.views()


@contextlib.contextmanager
def _limit(seconds: int) -> Iterator[None]:
    """Let a query fail that takes too long."""

    def stop(*_: object) -> None:
        raise TimeoutError(f"not done after {seconds} seconds")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def _line(outcome: Outcome) -> str:
    said = outcome.problem or outcome.reason
    ok = "WRONG" if outcome.wrong else "stopped" if outcome.stopped else "refused" if outcome.problem else "ok"
    return (
        f"{outcome.name:14} {outcome.strategy.value:8} {outcome.checks:3} checks {outcome.rows:6} rows "
        f"{outcome.moved:2} moved {outcome.seconds:6.1f} s  {ok:8} {' '.join(said.split())[:600]}"
    )


def _totals(outcomes: list[Outcome]) -> int:
    """Print the sums, of the queries themselves and of their variants; give how many were wrong."""
    for kind, some in (
        ("queries", [o for o in outcomes if " " not in o.name]),
        ("variants", [o for o in outcomes if " " in o.name]),
    ):
        print(
            f"{kind}: {len(some)}, accepted {sum(o.accepted for o in some)}, incremental "
            f"{sum(o.incremental for o in some)}, wrong {sum(o.wrong for o in some)}, stopped {sum(o.stopped for o in some)}, "
            f"changed by some batch {sum(o.moved > 0 for o in some)}, {sum(o.checks for o in some)} checks, "
            f"{sum(o.seconds for o in some):.0f} s"
        )
    return sum(o.wrong for o in outcomes)


if __name__ == "__main__":
    sys.exit(main())
