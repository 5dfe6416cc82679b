"""Whether a view is followed or computed anew is chosen by estimate, said in the epoch's record, and right in both ways."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import runnel
from runnel.engine.duckdb import DuckDbEngine
from runnel.pipeline.cost import Estimate, Learned

if TYPE_CHECKING:
    from collections.abc import Iterator

    from runnel.project import Project

VIEWS = {
    "sums": "SELECT k, sum(a) AS s, count(*) AS n FROM t GROUP BY k",
    "lows": "SELECT k, min(a) AS low FROM t GROUP BY k",
    "rows": "SELECT t.id, u.b FROM t LEFT JOIN u ON t.k = u.k",
    "tops": "SELECT id, a FROM t ORDER BY a DESC LIMIT 3",
}


@pytest.fixture
def project() -> Iterator[Project]:
    with runnel.memory(engine=DuckDbEngine()) as project:
        project.runtime.floor = 50
        project.create_table("t", "id BIGINT, k INT, a INT", key=["id"])
        project.create_table("u", "k INT, b INT")
        for name, sql in VIEWS.items():
            project.create_view(name, sql)
        yield project


def change(project: Project, first: int, count: int) -> dict[str, dict[str, object]]:
    ids = list(range(first, first + count))
    rows = pa.table({"id": ids, "k": [i % 7 for i in ids], "a": [i * 31 % 101 for i in ids]})
    with project.transaction() as tx:
        tx.insert("t", rows.cast(pa.schema([("id", pa.int64()), ("k", pa.int32()), ("a", pa.int32())])))
    return {name: project.epochs(1)[-1]["views"][name] for name in VIEWS}


def test_a_change_of_most_of_a_table_is_computed_anew_and_said_so(project: Project) -> None:
    change(project, 0, 40)
    done = change(project, 100, 400)
    assert done["sums"]["strategy"] == "full"
    assert done["sums"]["estimate"]["full"] < done["sums"]["estimate"]["incremental"]  # type: ignore[index]
    assert all(project.verify(name).ok for name in VIEWS)
    small = change(project, 1_000, 5)
    assert {one["strategy"] for one in small.values()} == {"incremental"}
    assert all(project.verify(name).ok for name in VIEWS)


def test_mode_incremental_is_followed_whatever_the_estimate_says(project: Project) -> None:
    project.create_view("forced", VIEWS["sums"], mode="incremental")
    change(project, 0, 40)
    change(project, 100, 400)
    assert project.epochs(1)[-1]["views"]["forced"]["strategy"] == "incremental"
    assert project.verify("forced").ok


def test_the_choice_learns_from_what_each_way_took() -> None:
    learned = Learned()
    fresh = Estimate(4_000.0, 10_000.0, 1_000, (learned.rate("v", "incremental"), learned.rate("v", "full")))
    assert not fresh.full(0)
    for _ in range(6):
        learned.note("v", "incremental", 4_000.0, 400.0)
        learned.note("v", "full", 10_000.0, 50.0)
    rates = (learned.rate("v", "incremental"), learned.rate("v", "full"))
    assert rates[0] == pytest.approx(0.1)
    assert rates[1] == pytest.approx(0.005)
    known = Estimate(4_000.0, 10_000.0, 1_000, rates)
    assert known.full(0)
    assert not known.full(floor=1_000)
    assert known.to_dict() == {"incremental": 4_000, "full": 500}
