"""The first rows of groups that vanish and come back: whatever comes back to an empty group is its first row."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest

import runnel
from runnel.compiler import top
from runnel.engine.duckdb import DuckDbEngine
from runnel.pipeline import maintain

VIEWS = {
    "ends": "SELECT g, min(x) AS low, max(x) AS high FROM t GROUP BY g",
    "end": "SELECT max(x) AS high FROM t",
    "places": "SELECT g, id, x FROM (SELECT *, row_number() OVER (PARTITION BY g ORDER BY x, id) AS r FROM t) WHERE r <= 3",
    "tops": "SELECT id, x FROM t ORDER BY x LIMIT 3",
}


@pytest.mark.parametrize("size", [5, 60, 200])
def test_a_group_that_vanished_comes_back(size: int) -> None:
    with runnel.memory(engine=DuckDbEngine(threads=1)) as project:
        project.create_table("t", "id BIGINT, g INT, x INT", key=["id"])
        for name, sql in VIEWS.items():
            project.create_view(name, sql)
        columns = {"id": pa.array(range(size), pa.int64())}
        columns |= {"g": pa.array([1] * size, pa.int32()), "x": pa.array(range(size), pa.int32())}
        with project.transaction() as tx:
            tx.insert("t", pa.table(columns))
        project.sql("DELETE FROM t WHERE g = 1")
        assert all(project.verify(name).ok for name in VIEWS)
        project.sql("INSERT INTO t VALUES (5000, 1, 100), (5001, 1, 150), (5002, 2, 7)")
        assert [name for name in VIEWS if not project.verify(name).ok] == []
        assert project.view("end").to_arrow().to_pylist() == [{"high": 150}]


@pytest.mark.parametrize("few", [0, 64])
def test_one_row_after_the_other_leaves_and_comes_back(few: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(maintain, "FEW", few)
    monkeypatch.setattr(top, "SPARE", 4)
    ids = list(range(30))
    with runnel.memory(engine=DuckDbEngine(threads=1)) as project:
        project.create_table("t", "id BIGINT, g INT, x INT", key=["id"])
        project.sql("INSERT INTO t VALUES " + ", ".join(f"({number}, 1, {number})" for number in ids))
        for name, sql in VIEWS.items():
            project.create_view(name, sql, mode="incremental")
        while ids:
            project.sql(f"DELETE FROM t WHERE id = {ids.pop(0 if len(ids) % 3 else -1)}")
            assert [name for name in VIEWS if not project.verify(name).ok] == [], ids
        for number in range(30):
            project.sql(f"INSERT INTO t VALUES ({number}, {number % 2}, {number * 7 % 30})")
            assert [name for name in VIEWS if not project.verify(name).ok] == [], number


@pytest.mark.parametrize("sampled", [0.0, 0.3, 1.1])
def test_a_view_over_large_groups_begins_with_the_first_rows(sampled: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(top, "SAMPLED", sampled)
    size, dice = 3_000, random.Random(7)
    rows = [{"id": n, "g": n % 3 or None, "x": dice.choice([None, *range(900)])} for n in range(size)]
    with runnel.memory(engine=DuckDbEngine(threads=1)) as project:
        project.create_table("t", "id BIGINT, g INT, x INT", key=["id"])
        with project.transaction() as tx:
            tx.insert("t", rows)
        views = VIEWS | {"last": "SELECT id, x FROM t ORDER BY x DESC NULLS FIRST, id LIMIT 5"}
        for name, sql in views.items():
            project.create_view(name, sql, mode="incremental")
        assert [name for name in views if not project.verify(name).ok] == []
        for below in (10, 100, 890):
            project.sql(f"DELETE FROM t WHERE x < {below} OR x > {900 - below // 8}")
            assert [name for name in views if not project.verify(name).ok] == [], below
