"""Small slices of what `make cluster` shows at size: the same checks, the same bounds."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from runnel.engine.spark import session_settings
from tests.cluster import backlog, feed
from tests.cluster.workplace import SPARK, workplace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.cluster.workplace import Workplace

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]
CORES = """
import json, sys, time
from runnel.engine.spark import SparkEngine

engine = SparkEngine(master=sys.argv[1], conf=json.loads(sys.argv[2]))
end = time.monotonic() + 120
for wanted in (2, 5):
    while engine._parallelism() != wanted and time.monotonic() < end:
        engine.session.range(8).count()
    print(engine._parallelism(), flush=True)
engine.close()
"""


@pytest.fixture(scope="module")
def shared() -> Iterator[Workplace]:
    with workplace("max_rows = 10000", "driver_rows = 5000") as made:
        yield made


@pytest.fixture
def place(shared: Workplace) -> Workplace:
    """Give the workplace with two workers that run."""
    for worker in list(shared.cluster.workers):
        if worker.process.poll() is not None:
            shared.cluster.workers.remove(worker)
            shared.cluster.add(worker.host)
    return shared


def test_a_backlog_read_by_two_workers_is_right_when_one_is_killed(
    place: Workplace, say: Callable[[str], None]
) -> None:
    log = backlog.Backlog(3_000_000, keys=1_000, segment=1 << 19)
    report = backlog.check(place, log, ["killed"])
    say(str(report))
    assert report.wrong == []


def test_a_feed_of_three_forms_hydrates_and_follows_on_a_cluster(place: Workplace, say: Callable[[str], None]) -> None:
    report = feed.check(place, feed.Feed(60_000))
    say(str(report))
    assert report.wrong == []


def test_work_is_cut_for_the_cores_that_a_cluster_has_now(place: Workplace) -> None:
    """In a process of its own: this one may have a session already, which is local."""
    command = [sys.executable, "-c", CORES, place.cluster.url, json.dumps(SPARK)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        before = int(child.stdout.readline())
        place.cluster.add("127.0.0.65", cores=3)
        assert (before, int(child.stdout.readline())) == (2, 5)


def test_a_driver_listens_on_loopback_only_where_its_executors_are_inside() -> None:
    assert session_settings("local[*]")["spark.driver.host"] == "127.0.0.1"
    assert "spark.driver.host" not in session_settings("spark://head:7077")
