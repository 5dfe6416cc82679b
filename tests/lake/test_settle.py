"""A commit is settled by asking the catalog: no published file is ever deleted because an answer was not heard."""

from __future__ import annotations

import os
import signal
import threading
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from sqlalchemy import event

from runnel.errors import Conflict, Unreachable
from runnel.lake import compaction, settle
from runnel.lake.entries import Commit
from runnel.lake.uninterrupted import uninterrupted
from tests.lake.samples import ORDERS, change, contents, create, signed

if TYPE_CHECKING:
    from collections.abc import Callable

    from runnel.lake.lake import Lake


def after_next_commit(lake: Lake, act: Callable[[], None], *, before: bool = False) -> None:
    """Do something around the next COMMIT that the lake sends, once."""
    done: list[bool] = []

    @event.listens_for(lake.catalog.engine, "commit", retval=False)
    def _commit(connection: object) -> None:
        if done:
            return
        done.append(True)
        if not before:
            connection.connection.commit() if lake.catalog.path is None else connection.exec_driver_sql("COMMIT")  # type: ignore[attr-defined]
        act()


def lost() -> None:
    raise Unreachable("RUNNEL-CATALOG-UNREACHABLE", "the answer was not heard")


def added(lake: Lake) -> Commit:
    return Commit(lake.head(), add=[lake.write(ORDERS, signed(ORDERS, (1, "n", 1, 1)))])


def test_a_commit_whose_answer_is_lost_stands_and_keeps_its_files(lake: Lake) -> None:
    create(lake, ORDERS)
    commit = added(lake)
    after_next_commit(lake, lost)
    assert lake.publish(commit) == 2
    lake.discard(commit.add)
    assert contents(lake, ORDERS) == [(1, "n", 1, 1)]


def test_a_commit_that_got_lost_itself_is_a_conflict_and_its_files_go(lake: Lake) -> None:
    create(lake, ORDERS)
    commit = added(lake)
    after_next_commit(lake, lost, before=True)
    with pytest.raises(Conflict, match="RUNNEL-EPOCH-CONFLICT"):
        lake.publish(commit)
    lake.discard(commit.add)
    assert not Path(commit.add[0].path).exists()
    assert lake.head() == 1


def test_files_of_a_commit_that_nobody_can_tell_of_stay(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    create(lake, ORDERS)
    commit = added(lake)
    monkeypatch.setattr(settle, "SETTLE_SECONDS", 0.0)
    monkeypatch.setattr(settle, "is_published", lambda *_: lost())
    after_next_commit(lake, lost)
    with pytest.raises(settle.Unsettled, match="RUNNEL-COMMIT-UNKNOWN"):
        lake.publish(commit)
    lake.discard(commit.add)
    assert contents(lake, ORDERS) == [(1, "n", 1, 1)]


def test_a_compaction_whose_answer_is_lost_stands_and_keeps_its_files(lake: Lake) -> None:
    create(lake, ORDERS)
    for number in range(3):
        change(lake, ORDERS, (number, "n", 1, 1))
    files = lake.snapshot().files("orders")
    new = lake.write(ORDERS, compaction.fold(ORDERS, lake.read(ORDERS, files)))
    after_next_commit(lake, lost)
    assert compaction.publish(lake, ORDERS, files, [new]) == 5
    assert [file.path for file in lake.snapshot().files("orders")] == [new.path]
    assert len(contents(lake, ORDERS)) == 3


def test_an_interrupt_after_the_commit_keeps_its_files(lake: Lake) -> None:
    create(lake, ORDERS)
    commit = added(lake)
    after_next_commit(lake, lambda: signal.raise_signal(signal.SIGINT))
    # Python raises it wherever the main thread is, now and then in a finalizer, which swallows it.
    with suppress(KeyboardInterrupt):
        lake.publish(commit)
    lake.discard(commit.add)
    assert contents(lake, ORDERS) == [(1, "n", 1, 1)]


def test_files_that_were_published_are_not_discarded_whoever_asks(lake: Lake) -> None:
    create(lake, ORDERS)
    commit = added(lake)
    lake.publish(commit)
    lake.discard(commit.add)
    assert contents(lake, ORDERS) == [(1, "n", 1, 1)]


def test_a_second_interrupt_does_not_wait_and_the_work_goes_on() -> None:
    handled, go, finished = threading.Event(), threading.Event(), threading.Event()

    def work() -> None:
        os.kill(os.getpid(), signal.SIGINT)
        handled.wait(10)
        os.kill(os.getpid(), signal.SIGUSR1)
        go.wait(10)
        finished.set()

    def first(*_: object) -> None:
        handled.set()
        raise KeyboardInterrupt

    def second(*_: object) -> None:
        raise SystemExit

    before = [
        (number, signal.signal(number, act)) for number, act in ((signal.SIGINT, first), (signal.SIGUSR1, second))
    ]
    try:
        with pytest.raises((SystemExit, KeyboardInterrupt)):
            uninterrupted(work)
    finally:
        for number, act in before:
            signal.signal(number, act)
    assert not finished.is_set()
    go.set()
    assert finished.wait(10)
