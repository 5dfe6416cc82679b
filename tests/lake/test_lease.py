"""A lease has one holder at a time; when it has run out, somebody else may take it over."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from runnel.lake.lake import Lake
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
