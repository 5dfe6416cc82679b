"""Run one check and print what came out; ends with 1 if a bound or an equality does not hold."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from tests.cluster import backlog, feed, snapshot, state, takeover
from tests.cluster.workplace import workplace

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.cluster.report import Report
    from tests.cluster.workplace import Workplace

CHECKS: dict[str, Callable[[Workplace, argparse.Namespace], Report]] = {
    "backlog": lambda place, given: backlog.check(
        place, backlog.Backlog(int(given.gigabytes * 1e9), given.keys), given.ways.split(","), given.ratio
    ),
    "snapshot": lambda place, given: snapshot.check(place, given.rows),
    "feed": lambda place, given: feed.check(place, feed.Feed(given.rows)),
    "takeover": lambda place, given: takeover.check(place, given.seconds, given.rate),
    "state": lambda place, given: state.check(place, given.rows),
}
ROWS = {"snapshot": 5_000_000, "feed": 50_000_000, "state": 1_000_000}


def main() -> int:
    """Run the check that the first argument names."""
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--max-rows", type=int, help="changes of an epoch, if not as many as usual")
    common.add_argument(
        "--driver-rows", type=int, help="changes that the driver takes, if not as many as on any cluster"
    )
    parser = argparse.ArgumentParser(prog="python -m tests.cluster")
    checks = parser.add_subparsers(dest="name", required=True)
    log = checks.add_parser("backlog", parents=[common], help="segments of Cassandra's log through three views")
    log.add_argument("--gigabytes", type=float, default=2.0)
    log.add_argument("--keys", type=int, default=50_000, help="rows that are changed in turn")
    log.add_argument("--ways", default="one,two,killed", help="by one worker, by two, with one of two killed")
    log.add_argument("--ratio", type=float, help="times one worker that two have to be")
    helps = ("a Cassandra table, read as a whole", "change files of three forms", "the size of a state of cells")
    for name, text in zip(ROWS, helps, strict=True):
        checks.add_parser(name, parents=[common], help=text).add_argument("--rows", type=int, default=ROWS[name])
    load = checks.add_parser("takeover", parents=[common], help="a runner killed under load, and a standby")
    load.add_argument("--seconds", type=float, default=120)
    load.add_argument("--rate", type=float, default=100, help="statements per second")
    given = parser.parse_args()
    said = {"max_rows": given.max_rows, "driver_rows": given.driver_rows}
    run = [f"{name} = {value}" for name, value in said.items() if value is not None]
    with workplace(*run) as place:
        report = CHECKS[given.name](place, given)
    sys.stdout.write(f"{report}\n")
    return 1 if report.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
