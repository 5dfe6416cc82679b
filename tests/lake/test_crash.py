"""A process killed at any labelled point of publish, compaction or expiry leaves all of an epoch or nothing of it."""

from __future__ import annotations

import multiprocessing
import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from runnel import failpoints
from runnel.lake import compaction, expiry
from runnel.lake.entries import Commit
from tests.lake.samples import ORDERS, change, compact, contents, create, signed

if TYPE_CHECKING:
    from runnel.lake.lake import Lake
    from tests.lake.conftest import Where

ROOMS = ("publish:", "compaction:", "expiry:")
pytestmark = pytest.mark.slow
POINTS = [point for point in failpoints.POINTS if point.startswith(ROOMS)]


def work(where: Where, point: str) -> None:
    """Publish, compact and expire once each; die at the point."""
    os.environ[failpoints.KILL_AT] = point
    mine = where.open()
    mine.publish(Commit(mine.head(), add=[mine.write(ORDERS, signed(ORDERS, (100, "n", 1, 1)))]))
    files = compaction.plan(mine.snapshot(), "orders", fan_in=2)
    assert files is not None
    new = mine.write(ORDERS, compaction.fold(ORDERS, mine.read(ORDERS, files)))
    compaction.publish(mine, ORDERS, files, [new])
    expiry.expire(mine, 0, grace=0)


@pytest.mark.parametrize("point", POINTS)
def test_a_kill_loses_nothing_and_doubles_nothing(lake: Lake, where: Where, point: str) -> None:
    create(lake, ORDERS)
    for number in range(3):
        change(lake, ORDERS, (number, "n", 1, 1))
    before = contents(lake, ORDERS)
    process = multiprocessing.get_context("spawn").Process(target=work, args=(where, point))
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    published = point not in ("publish:begun", "publish:files-listed", "publish:before-commit")
    expected = sorted([*before, *([(100, "n", 1, 1)] if published else [])], key=repr)
    again = where.open()
    assert contents(again, ORDERS) == contents(lake, ORDERS) == expected
    change(again, ORDERS, (200, "n", 1, 1))
    compact(again, ORDERS)
    expiry.expire(again, 0, grace=0)
    assert contents(again, ORDERS) == sorted([*expected, (200, "n", 1, 1)], key=repr)
    (file,) = again.snapshot().files("orders")
    assert {str(path) for path in Path(again.data).rglob("*.parquet")} == {file.path}
    again.close()
