"""A lease has one holder at a time; when it has run out, somebody else may take it over."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from runnel.errors import Conflict
from runnel.lake import catalog
from runnel.lake.lake import Lake
from runnel.lake.lease import pin_name, pinned
from runnel.lake.owner import this_process
from tests.lake.samples import ORDERS, change, create

if TYPE_CHECKING:
    from pathlib import Path

    from tests.lake.conftest import Where


def test_a_held_lease_is_refused_to_others(lake: Lake, where: Where) -> None:
    other = where.open()
    assert lake.holder("runner") is None
    assert lake.acquire("runner", "a", 60)
    assert not other.acquire("runner", "b", 60)
    assert other.acquire("another", "b", 60)
    assert other.holder("runner") == "a"
    assert lake.acquire("runner", "a", 60)


def test_a_lease_that_has_run_out_is_taken_over(lake: Lake, where: Where) -> None:
    other = where.open()
    assert lake.acquire("runner", "a", -1)
    assert lake.holder("runner") is None
    assert other.acquire("runner", "b", 60)
    assert not lake.renew("runner", "a", 60)
    assert other.holder("runner") == "b"


def test_a_renewed_lease_lasts(lake: Lake, where: Where) -> None:
    assert lake.acquire("runner", "a", -1)
    assert lake.renew("runner", "a", 60)
    assert not where.open().acquire("runner", "b", 60)


def test_a_released_lease_is_free_and_only_its_holder_releases_it(lake: Lake) -> None:
    lake.acquire("runner", "a", 60)
    lake.release("runner", "b")
    assert lake.holder("runner") == "a"
    lake.release("runner", "a")
    assert lake.acquire("runner", "b", 60)


def gone() -> str:
    """Give the owner's name that a process of this host had, which is no more."""
    child = os.fork()
    if not child:
        os._exit(0)
    os.waitpid(child, 0)
    host, _, __, unique = this_process().split(":")
    return f"{host}:{child}:0:{unique}"


def test_a_process_of_this_host_that_is_gone_holds_nothing(lake: Lake) -> None:
    """Neither the turn of a writer that was killed in it, nor the runner's lease, nor an epoch."""
    create(lake, ORDERS)
    owner = gone()
    assert lake.acquire("writer", owner, 600)
    assert lake.holder("writer") is None
    assert lake.acquire("writer", this_process(), 600)
    assert lake.holder("writer") is not None
    assert lake.acquire(pin_name(0, "x"), owner, 600)
    with lake.catalog.read() as connection:
        assert pinned(connection) == []


@pytest.mark.postgres
def test_a_writer_that_stands_still_in_its_publish_does_not_stop_the_others(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(catalog, "IDLE_SECONDS", 0.5)
    url = request.getfixturevalue("postgres_server").database()
    lake = Lake.create(url, str(tmp_path))
    create(lake, ORDERS)
    stopped = Lake.open(url, str(tmp_path))
    with pytest.raises(Conflict, match="RUNNEL-EPOCH-CONFLICT"), stopped.catalog.write() as connection:
        assert change(lake, ORDERS, (1, "n", 1, 1)) == 2
        connection.exec_driver_sql("SELECT 1")
    assert change(stopped, ORDERS, (2, "n", 1, 1)) == 3
    stopped.close()
    lake.close()
