"""A report says wrong for a view that is wrong, and only for such a one."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import runnel
from runnel import verify
from runnel.engine.duckdb import DuckDbEngine
from runnel.errors import Terminal
from runnel.lake.entries import Commit
from runnel.model.relation import WEIGHT
from runnel.verify import bags

if TYPE_CHECKING:
    from collections.abc import Iterator

    from runnel.project import Project


@pytest.fixture
def project() -> Iterator[Project]:
    """Give a project with one table and a view that copies it."""
    with runnel.memory(engine=DuckDbEngine(threads=2)) as made:
        made.create_table("t", "id INT, name STRING, f DOUBLE", key=["id"])
        made.create_view("v", "SELECT id, name, f FROM t")
        with made.transaction() as tx:
            tx.insert("t", [{"id": n, "name": None if n % 7 == 0 else f"n{n}", "f": n / 3} for n in range(200)])
        yield made


def disturb(project: Project, *rows: tuple[int, str | None, float, int]) -> None:
    """Add signed rows to the view behind its back."""
    lake = project.runtime.lake
    relation = lake.snapshot().relations["v"]
    names = ("id", "name", "f", WEIGHT)
    table = pa.Table.from_pylist([dict(zip(names, row, strict=True)) for row in rows], lake.arrow_schema(relation))
    lake.publish(Commit(base=lake.head(), add=[lake.write(relation, table)]))


def differing(*rows: tuple[Any, ...]) -> pa.Table:
    """Make a table of differences: a number, a float, a weight."""
    return pa.Table.from_pylist(
        [{"k": k, "f": f, WEIGHT: weight} for k, f, weight in rows],
        pa.schema([("k", pa.int64()), ("f", pa.float64()), (WEIGHT, pa.int64())]),
    )


def test_a_view_that_a_writer_moved_on_meanwhile_is_right(project: Project) -> None:
    seen = project.runtime.lake.snapshot().views["v"]
    project.sql("INSERT INTO t VALUES (1000, 'new', 1.5)")
    report = verify.verify(project.runtime.lake, project.runtime.engine, seen)
    assert report.ok, str(report)
    assert report.rows_checked == 201


def test_a_view_that_was_dropped_meanwhile_is_unknown(project: Project) -> None:
    seen = project.runtime.lake.snapshot().views["v"]
    project.drop_view("v")
    with pytest.raises(Terminal) as caught:
        verify.verify(project.runtime.lake, project.runtime.engine, replace(seen))
    assert caught.value.code == "RUNNEL-VIEW-UNKNOWN"


def test_more_differences_than_are_fetched_are_said_to_be_too_many(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    disturb(project, *((n, "extra", 1.0, 1) for n in range(1000, 1010)))
    assert len(project.verify("v").unexpected) == 10
    monkeypatch.setattr(bags, "LISTED_WITH_FLOATS", 4)
    report = project.verify("v")
    assert report.too_many
    assert not report.ok
    assert len(report.unexpected) == 4
    assert "more than 4 rows differ" in str(report)


def test_rows_with_floats_are_fetched_far_beyond_the_usual_limit(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bags, "LISTED", 5)
    last_digit = [
        (n, f"n{n}", value, weight)
        for n in range(20, 28)
        if n % 7
        for value, weight in ((n / 3, -1), (n / 3 + 1e-13, 1))
    ]
    disturb(project, *last_digit)
    assert project.verify("v").ok


@pytest.mark.parametrize("sample", [1, 2, 10])
def test_a_sample_compares_the_same_rows_of_both_sides(project: Project, sample: int) -> None:
    assert project.verify("v", sample=sample).ok
    disturb(project, (8, "n8", 8 / 3, -1), (8, "n8", 8 / 3 + 1e-13, 1))
    assert project.verify("v", sample=sample).ok
    disturb(project, *((n, "extra", 1.0, 1) for n in range(1000, 1200)))
    assert 0.3 * 200 / sample < len(project.verify("v", sample=sample).unexpected) <= 3 * 200 / sample


def test_only_last_digits_and_what_is_left_of_zero_are_tolerated() -> None:
    names = ["k", "f"]
    same = [(0.1 + 0.2, 0.3), (0.0, 1e-13), (math.nan, math.nan), (math.inf, math.inf), (1e300, 1e300 * (1 + 1e-15))]
    for one, other in same:
        assert bags.tolerate(differing((1, one, 1), (1, other, -1)), names) == ([], []), (one, other)
    different: list[tuple[float | None, float]] = [
        (0.0, 1e-10),
        (3e-10, 8e-10),
        (1.0, 1.00001),
        (math.nan, 1.0),
        (math.inf, 1.0),
        (None, 0.0),
    ]
    for left, right in different:
        missing, unexpected = bags.tolerate(differing((1, left, 1), (1, right, -1)), names)
        assert (len(missing), len(unexpected)) == (1, 1), (left, right)


def test_many_rows_with_nothing_but_floats_to_tell_them_apart_are_paired_quickly() -> None:
    count = 20_000
    rows = [(1, n / 7, 1) for n in range(count)] + [(1, n / 7 * (1 + 1e-14), -1) for n in reversed(range(count))]
    assert bags.tolerate(differing(*rows, (1, -5.0, 2)), ["k", "f"]) == ([{"k": 1, "f": -5.0}] * 2, [])
