"""History tells the changes that are still kept, and never fails because older ones have expired."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
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


def test_what_went_of_one_key_and_came_of_another_is_no_update(project: Project) -> None:
    project.sql("INSERT INTO t VALUES (1, 7), (2, 7), (3, 7)")
    project.sql("DELETE FROM t WHERE id = 1; INSERT INTO t VALUES (9, 7)")
    last = [e for e in project.history("t", {"n": 7}) if e["epoch"] == project.status().epoch]
    assert sorted((e["op"], (e["old"] or e["new"])["id"]) for e in last) == [("delete", 1), ("insert", 9)]
    project.sql("UPDATE t SET n = n + 1")
    last = [e for e in project.history("t", {}) if e["epoch"] == project.status().epoch]
    assert sorted((e["old"]["id"], e["new"]["id"]) for e in last) == [(2, 2), (3, 3), (9, 9)]


@pytest.mark.parametrize(
    ("type_", "key"), [("BINARY", b""), ("BINARY", b"\xff\x00a"), ("DOUBLE", float("nan")), ("FLOAT", float("nan"))]
)
def test_keys_of_every_type_are_found(project: Project, type_: str, key: object) -> None:
    project.create_table("odd", f"k {type_}, x DOUBLE", key=["k"])
    for x in (1.0, float("nan"), float("nan")):
        with project.transaction() as tx:
            tx.upsert("odd", [{"k": key, "x": x}])
    assert [entry["op"] for entry in project.history("odd", {"k": key})][:2] == ["insert", "update"]
    assert len(project.history("odd", {"k": key}, column="x")) == 2


def test_times_are_compared_as_times_however_they_are_written(project: Project) -> None:
    change(project, 1)
    (entry,) = project.history("t", {"id": 1})
    moment = datetime.fromisoformat(entry["time"])
    east = moment.astimezone(timezone(timedelta(hours=5)))
    for bound in (
        moment,
        east,
        moment.isoformat(),
        east.isoformat(),
        moment.date(),
        str(moment.date()),
        entry["epoch"],
    ):
        assert len(project.history("t", {"id": 1}, since=bound)) == 1, bound
    for bound in (moment, east, moment.isoformat(), east.isoformat(), entry["epoch"]):
        assert len(project.history("t", {"id": 1}, until=bound)) == 1, bound
    assert project.history("t", {"id": 1}, since=east + timedelta(seconds=1)) == []
    assert project.history("t", {"id": 1}, until=(moment - timedelta(seconds=1)).isoformat()) == []


@pytest.mark.parametrize("bound", ["yesterday", "", 1.5, True])
def test_a_bound_that_is_no_epoch_and_no_time_is_a_wrong_call(project: Project, bound: object) -> None:
    change(project, 1)
    with pytest.raises(UsageError, match="no epoch and no time"):
        project.history("t", {"id": 1}, since=bound)
