"""Subscriptions: no epoch is skipped, whatever fails in between; a cursor keeps what it has not passed, within a bound."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import runnel
from runnel.engine.duckdb import DuckDbEngine
from runnel.errors import RunnelError, Transient

if TYPE_CHECKING:
    from collections.abc import Iterator

    from runnel.project import Project


@pytest.fixture
def project() -> Iterator[Project]:
    """Give a project with one view, which keeps five epochs."""
    with runnel.memory(engine=DuckDbEngine()) as made:
        made.runtime.keep, made.runtime.grace = 5, 0.0
        made.create_table("t", "id BIGINT", key=["id"])
        made.create_view("v", "SELECT count(*) AS n FROM t")
        yield made


def insert(project: Project, *ids: int) -> None:
    """Insert rows, each in an epoch of its own."""
    for id_ in ids:
        project.sql(f"INSERT INTO t VALUES ({id_})")


def counts(heard: list[list[dict[str, Any]]]) -> list[int]:
    """Give the counts that came, in order."""
    return [row["n"] for rows in heard for row in rows if row["_weight"] > 0]


def test_a_catalog_that_is_locked_for_a_moment_drops_no_subscription(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard: list[list[dict[str, Any]]] = []
    project.subscribe("v", lambda rows, _: heard.append(rows.to_pylist()), cursor="c")
    insert(project, 1)

    def locked(*_: object) -> None:
        raise Transient("RUNNEL-CATALOG-LOCKED", "the catalog is locked")

    with monkeypatch.context() as patched:
        patched.setattr(project.runtime.lake, "deliver", locked)
        insert(project, 2)
    insert(project, 3, 4)
    assert counts(heard) == [1, 2, 3, 4]


def test_an_epoch_whose_callback_failed_comes_again_and_in_order(project: Project) -> None:
    heard: list[list[dict[str, Any]]] = []
    broken = [True, True]

    def callback(rows: Any, epoch: int) -> None:
        if broken and broken.pop():
            raise ValueError("not now")
        heard.append(rows.to_pylist())

    subscription = project.subscribe("v", callback, cursor="c")
    insert(project, 1, 2)
    assert "not now" in (subscription.error or "")
    insert(project, 3)
    assert counts(heard) == [1, 2, 3]
    assert subscription.error is None


def test_expiry_keeps_what_a_stored_cursor_has_not_passed(project: Project) -> None:
    project.subscribe("v", lambda rows, epoch: None, cursor="c")
    project._subscriptions.clear()  # as if the process had ended
    insert(project, *range(1, 20))
    project.compact()
    heard: list[list[dict[str, Any]]] = []
    project.subscribe("v", lambda rows, _: heard.append(rows.to_pylist()), cursor="c")
    insert(project, 20)
    assert counts(heard) == list(range(1, 21))


def test_a_cursor_that_is_left_behind_is_an_error_and_never_a_gap(project: Project) -> None:
    project.runtime.keep = 1
    project.subscribe("v", lambda rows, epoch: None, cursor="c")
    project._subscriptions.clear()
    insert(project, *range(1, 25))
    project.compact()
    heard: list[list[dict[str, Any]]] = []
    subscription = project.subscribe("v", lambda rows, _: heard.append(rows.to_pylist()), cursor="c")
    with pytest.raises(RunnelError, match=r"RUNNEL-SUBSCRIPTION-BEHIND.*restart"):
        subscription.poll()
    epoch = subscription.restart()
    assert project.view("v").to_pylist(at=epoch) == [{"n": 24}]
    insert(project, 25)
    assert counts(heard) == [25]
