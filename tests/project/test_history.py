"""History tells the changes that are still kept, and never fails because older ones have expired."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import pytest

import runnel
from runnel.engine.duckdb import DuckDbEngine
from runnel.errors import UsageError
from runnel.lake import expiry
from runnel.pipeline import upkeep

if TYPE_CHECKING:
    from collections.abc import Iterator

    from runnel.project import Project


@pytest.fixture
def project() -> Iterator[Project]:
    """Give a project with one table."""
    with runnel.memory(engine=DuckDbEngine(threads=2)) as made:
        made.create_table("t", "id INT, n INT", key=["id"])
        yield made


def change(project: Project, times: int) -> None:
    """Change row 1 a number of times."""
    project.sql("INSERT INTO t VALUES (1, 0)")
    for number in range(1, times):
        project.sql(f"UPDATE t SET n = {number} WHERE id = 1")


def forget(project: Project, keep: int) -> None:
    """Fold everything and forget all but the newest epochs."""
    lake = project.runtime.lake
    upkeep.compact(project.runtime, lake.snapshot(), all_files=True)
    expiry.expire(lake, keep, grace=0.0)


def told(project: Project) -> list[Any]:
    return [entry["new"] for entry in project.history("t", {"id": 1}, column="n")]


def test_what_has_expired_is_left_out(project: Project) -> None:
    change(project, 6)
    assert told(project) == [0, 1, 2, 3, 4, 5]
    forget(project, 4)
    assert told(project) == [3, 4, 5]


def test_changes_without_the_epoch_before_them_are_left_out(project: Project) -> None:
    change(project, 6)
    expiry.expire(project.runtime.lake, 3, grace=0.0)
    assert told(project) == [3, 4, 5]


def test_history_goes_on_when_all_before_has_expired(project: Project) -> None:
    change(project, 6)
    forget(project, 0)
    assert told(project) == []
    project.sql("UPDATE t SET n = 99 WHERE id = 1")
    assert told(project) == [99]


@pytest.mark.parametrize("key", [None, 7, "id"])
def test_a_key_that_is_no_mapping_is_a_wrong_call(project: Project, key: object) -> None:
    with pytest.raises(UsageError):
        project.history("t", cast("Any", key))
