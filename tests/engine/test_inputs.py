"""The rows of a relation are right however much of its history is added up to find them."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

import runnel
from runnel.engine.base import Derived
from runnel.engine.duckdb import DuckDbEngine
from runnel.engine.inputs import Inputs, Pending

if TYPE_CHECKING:
    from collections.abc import Iterator

    from runnel.engine.base import Engine, Input
    from runnel.project import Project


@pytest.fixture(params=["duckdb", pytest.param("spark", marks=pytest.mark.spark)])
def project(request: pytest.FixtureRequest) -> Iterator[Project]:
    """Give a project with a table with a key and one without."""
    engine: Engine = request.getfixturevalue("spark_engine") if request.param == "spark" else DuckDbEngine(threads=2)
    with runnel.memory(engine=engine) as made:
        made.create_table("t", "a INT, b STRING, v DOUBLE", key=["a", "b"])
        made.create_table("loose", "a INT, v STRING")
        with made.transaction() as tx:
            tx.insert("t", [{"a": n, "b": f"b{n % 3}", "v": None if n % 5 == 0 else n / 4} for n in range(100)])
            tx.insert("loose", [{"a": n % 10, "v": None if n % 7 == 0 else f"v{n % 40}"} for n in range(100)])
        yield made


def roles(project: Project, relation: str) -> dict[str, Input]:
    head = project.runtime.lake.snapshot()
    return Inputs(project.runtime.engine, head, head, Pending()).roles([(relation, "rows")])


def rows(project: Project, relation: str) -> Counter[Any]:
    found = project.runtime.engine.rows(f"SELECT * FROM `{relation}__rows`", roles(project, relation))
    return Counter(tuple(row.values()) for row in found.to_pylist())


def sql_of(project: Project, relation: str) -> str:
    found = roles(project, relation)[f"{relation}__rows"]
    assert isinstance(found, Derived)
    return found.sql


def test_rows_that_nothing_takes_away_are_not_added_up(project: Project) -> None:
    assert "GROUP BY" not in sql_of(project, "t")
    assert "GROUP BY" not in sql_of(project, "loose")
    assert rows(project, "t")[(1, "b1", 0.25)] == 1
    assert sum(rows(project, "t").values()) == 100
    loose = Counter((n % 10, None if n % 7 == 0 else f"v{n % 40}") for n in range(100))
    assert rows(project, "loose") == loose
    assert max(loose.values()) > 1


def test_only_keys_that_something_was_taken_from_are_added_up(project: Project) -> None:
    project.sql("UPDATE t SET v = 100 WHERE a = 5")
    project.sql("DELETE FROM t WHERE a = 6")
    project.sql("INSERT INTO t VALUES (7, 'other', 1.5), (6, 'b0', NULL)")
    assert set(roles(project, "t")) == {"t__rows", "t__stored_new", "t__stored_minus"}
    expected = Counter({(n, f"b{n % 3}", None if n % 5 == 0 else n / 4): 1 for n in range(100)})
    expected -= Counter([(5, "b2", None), (6, "b0", 1.5)])
    assert rows(project, "t") == expected + Counter([(5, "b2", 100.0), (7, "other", 1.5), (6, "b0", None)])


def test_where_much_was_taken_away_or_no_key_is_known_everything_is_added_up(project: Project) -> None:
    project.sql("UPDATE t SET v = 1 WHERE a < 50")
    project.sql("DELETE FROM loose WHERE a = 3")
    assert set(roles(project, "t")) == {"t__rows", "t__stored_new"}
    assert set(roles(project, "loose")) == {"loose__rows", "loose__stored_new"}
    assert sum(rows(project, "t").values()) == 100
    assert rows(project, "loose") == Counter(
        (n % 10, None if n % 7 == 0 else f"v{n % 40}") for n in range(100) if n % 10 != 3
    )


def test_a_statement_sees_what_an_earlier_one_of_its_transaction_took_away(project: Project) -> None:
    project.sql("DELETE FROM t WHERE a = 8")
    with project.transaction() as tx:
        tx.sql("DELETE FROM t WHERE a < 20")
        tx.sql("INSERT INTO t SELECT count(*), 'left', 0 FROM t")
    assert (80, "left", 0.0) in rows(project, "t")
    assert sum(rows(project, "t").values()) == 81
