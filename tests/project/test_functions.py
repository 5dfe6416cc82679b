"""Users' functions in views: known by name, remembered by their bodies, and missed with one clear sentence."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import pytest

import runnel
from runnel.cli.check import check_project
from runnel.engine.duckdb import DuckDbEngine
from runnel.engine.functions import user_function
from runnel.errors import RunnelError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    import pandas as pd

    from runnel.engine.spark import SparkEngine
    from runnel.project import Project


def tax(amount: int) -> int | None:
    """Give a fifth of an amount."""
    return None if amount is None else amount // 5


def steeper(amount: int) -> int | None:
    """Give a half of an amount."""
    return None if amount is None else amount // 2


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Project]:
    """Give a project with views that call `tax`, inside and outside of aggregates, and one that does not."""
    with runnel.create(tmp_path / "p", engine=DuckDbEngine()) as project:
        project.create_table("orders", "id BIGINT, region STRING, amount BIGINT", key=["id"])
        project.sql("INSERT INTO orders VALUES (1, 'a', 10), (2, 'a', 20), (3, 'b', NULL)")
        assert project.register_function("tax", tax, "BIGINT", "amount BIGINT") == []
        project.create_view("taxed", "SELECT id, Tax(amount) AS t FROM orders")
        project.create_view("totals", "SELECT region, sum(tax(amount)) AS t FROM orders GROUP BY region")
        project.create_view(
            "large", "SELECT region FROM (SELECT region, sum(tax(amount)) AS t FROM orders GROUP BY region) WHERE t > 5"
        )
        project.create_view("over", "SELECT count(*) AS n FROM taxed WHERE t > 3")
        project.create_view("plain", "SELECT region, count(*) AS n FROM orders GROUP BY region")
        yield project


def _open(project: Project) -> Project:
    return runnel.open(project.folder, engine=DuckDbEngine())


def _rows(project: Project, name: str) -> list[tuple[Any, ...]]:
    return sorted((tuple(row.values()) for row in project.view(name).to_pylist()), key=str)


def test_views_and_queries_call_a_function_by_its_name(shop: Project) -> None:
    assert _rows(shop, "taxed") == [(1, 2), (2, 4), (3, None)]
    shop.sql("INSERT INTO orders VALUES (4, 'a', 100); UPDATE orders SET amount = 50 WHERE id = 3")
    assert _rows(shop, "totals") == [("a", 26), ("b", 10)]
    assert _rows(shop, "large") == [("a",), ("b",)]
    assert shop.query("SELECT sum(tax(amount)) AS s FROM orders").to_arrow().to_pylist() == [{"s": 36}]
    assert all(report.ok for report in shop.verify_all())
    assert {v["strategy"] for v in shop.epochs()[-1]["views"].values()} == {"incremental"}


def test_the_same_function_registered_again_changes_nothing(shop: Project) -> None:
    epoch = shop.status().epoch
    with _open(shop) as later:
        assert later.register_function("TAX", tax, "BIGINT", "amount BIGINT") == []
        assert later.status().epoch == epoch
        later.sql("INSERT INTO orders VALUES (4, 'a', 100)")
        assert all(report.ok for report in later.verify_all())


def test_another_body_makes_the_views_anew_that_call_it(shop: Project) -> None:
    shop.create_view("told", "SELECT new.id, tax(new.amount) AS t FROM CHANGES(orders)")
    shop.sql("INSERT INTO orders VALUES (4, 'a', 100)")
    with _open(shop) as later:
        before = later.runtime.lake.snapshot().files("plain")
        said = later.register_function("tax", steeper, "BIGINT", "amount BIGINT")
        assert sorted(text.partition(":")[0] for text in said) == [
            "event view told goes on with another function tax()",
            "view large made anew",
            "view over made anew",
            "view taxed made anew",
            "view totals made anew",
        ]
        assert later.runtime.lake.snapshot().files("plain") == before
        assert _rows(later, "taxed") == [(1, 5), (2, 10), (3, None), (4, 50)]
        assert _rows(later, "totals") == [("a", 65), ("b", None)]
        later.sql("INSERT INTO orders VALUES (5, 'b', 20)")
        assert _rows(later, "large") == [("a",), ("b",)]
        assert _rows(later, "told") == [(4, 20), (5, 10)]
        assert all(report.ok for report in later.verify_all())
        assert "NOT CHECKED" in str(later.verify("told"))


def test_a_view_without_its_function_waits_and_the_others_go_on(shop: Project) -> None:
    with _open(shop) as later:
        later.sql("INSERT INTO orders VALUES (4, 'a', 100)")
        assert _rows(later, "plain") == [("a", 3), ("b", 1)]
        errors = {view.name: view.error for view in later.status().views if view.error}
        assert set(errors) == {"taxed", "totals", "large", "over"}
        assert "RUNNEL-FUNCTION-MISSING" in str(errors["taxed"])
        assert "tax() is not registered" in str(errors["large"])
        with pytest.raises(RunnelError, match="RUNNEL-FUNCTION-MISSING"):
            later.verify("taxed")
        later.sql("INSERT INTO orders VALUES (5, 'b', 50)")
        assert later.register_function("tax", tax, "BIGINT", "amount BIGINT") == []
        assert [view.error for view in later.status().views if view.error] == []
        assert _rows(later, "totals") == [("a", 26), ("b", 10)]
        assert all(report.ok for report in later.verify_all())


def test_two_processes_with_different_bodies_do_not_mix_them(shop: Project) -> None:
    with _open(shop) as later:
        later.register_function("tax", steeper, "BIGINT", "amount BIGINT")
        shop.sql("INSERT INTO orders VALUES (4, 'a', 100)")
        errors = {view.name: view.error for view in shop.status().views if view.error}
        assert "RUNNEL-FUNCTION-OTHER" in str(errors["taxed"])
        later.sql("INSERT INTO orders VALUES (5, 'a', 100)")
        assert _rows(later, "taxed") == [(1, 5), (2, 10), (3, None), (4, 50), (5, 50)]
        assert all(report.ok for report in later.verify_all())


def test_an_unknown_function_is_an_error_with_the_nearest_name(shop: Project) -> None:
    with pytest.raises(RunnelError, match=r"unknown function 'taxx'.*did you mean 'tax'") as unknown:
        shop.create_view("wrong", "SELECT taxx(amount) AS t FROM orders")
    assert unknown.value.code == "RUNNEL-VIEW-FUNCTION"
    with pytest.raises(RunnelError, match="register_function"):
        shop.create_view("wrong", "SELECT quite_unheard_of(amount) AS t FROM orders")


def test_check_says_which_function_is_missing(shop: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RUNNEL_ENGINE", "duckdb")
    folder = shop.folder / "views"
    folder.mkdir()
    (folder / "v.sql").write_text("CREATE MATERIALIZED VIEW v AS SELECT id, tax(amount) AS t FROM orders;")
    (problem,) = check_project(shop.folder).problems
    assert "unknown function 'tax'" in str(problem)
    assert "register_function" in str(problem)


def test_files_are_synced_after_functions_are_registered(tmp_path: Path) -> None:
    runnel.create(tmp_path / "p", engine=DuckDbEngine()).close()
    for name, text in {
        "tables": "CREATE TABLE t (a BIGINT);",
        "views": "CREATE MATERIALIZED VIEW v AS SELECT tax(a) AS t FROM t;",
    }.items():
        (tmp_path / "p" / name).mkdir()
        (tmp_path / "p" / name / "x.sql").write_text(text)
    with runnel.open(tmp_path / "p", engine=DuckDbEngine(), sync=False) as project:
        project.register_function("tax", tax, "BIGINT")
        project.sync()
        project.sql("INSERT INTO t VALUES (10)")
        assert _rows(project, "v") == [(2,)]


def test_a_function_of_whole_columns(shop: Project) -> None:
    shop.register_function("twice", lambda column: column * 2, "DOUBLE", "x DOUBLE", pandas=True)
    shop.create_view("doubled", "SELECT id, twice(amount) AS d FROM orders WHERE amount > 0")
    shop.sql("INSERT INTO orders VALUES (7, 'c', 7)")
    assert _rows(shop, "doubled") == [(1, 20.0), (2, 40.0), (7, 14.0)]
    assert shop.verify("doubled").ok


def test_what_is_no_function_is_refused(shop: Project) -> None:
    with pytest.raises(UsageError, match="RUNNEL-FUNCTION-NAME"):
        shop.register_function("upper", tax, "BIGINT")
    with pytest.raises(UsageError, match="RUNNEL-FUNCTION-NAME"):
        shop.register_function("my function", tax, "BIGINT")
    with pytest.raises(RunnelError, match="RUNNEL-TYPE"):
        shop.register_function("f", tax, "WHATEVER")
    with pytest.raises(UsageError, match="RUNNEL-FUNCTION-ARGUMENTS"):
        shop.register_function("f", lambda a: a, "BIGINT")
    not_callable: Any = 7
    with pytest.raises(UsageError, match="RUNNEL-FUNCTION-CALL"):
        shop.register_function("f", not_callable, "BIGINT")


def _adding(number: int) -> Callable[[int], int]:
    return lambda value: value + number


def _fingerprint(call: Callable[..., Any], returns: str = "BIGINT") -> str:
    return user_function("f", call, returns, "a BIGINT").fingerprint


def test_a_fingerprint_tells_bodies_defaults_and_closures_apart_and_nothing_else() -> None:
    same = [_fingerprint(_adding(1)), _fingerprint(_adding(1))]
    assert len(set(same)) == 1
    calls: list[Callable[..., Any]] = [
        _adding(1),
        _adding(2),
        tax,
        steeper,
        lambda a, b=1: a + b,
        lambda a, b=2: a + b,
        lambda a: a in {1, 2},
        functools.partial(tax, amount=1),
        functools.partial(tax, amount=2),
        abs,
        hash,
    ]
    assert len({_fingerprint(call) for call in calls}) == len(calls)
    assert _fingerprint(tax) != _fingerprint(tax, "INT")


@pytest.mark.spark
def test_functions_and_events_on_spark(spark_engine: SparkEngine, tmp_path: Path) -> None:
    def twice(column: pd.Series) -> pd.Series:
        return column * 2

    project = runnel.create(tmp_path / "p", engine=spark_engine)
    project.create_table("orders", "id BIGINT, region STRING, amount BIGINT", key=["id"])
    project.register_function("tax", lambda amount: None if amount is None else amount // 5, "BIGINT")
    project.register_function("twice", twice, "BIGINT", pandas=True)
    project.create_view(
        "taxed", "SELECT region, sum(tax(amount)) AS t, sum(twice(amount)) AS d FROM orders GROUP BY region"
    )
    project.create_view(
        "told", "SELECT new.id, old.amount AS was, tax(new.amount) AS t, _op AS op FROM CHANGES(orders)"
    )
    project.sql("INSERT INTO orders VALUES (1, 'a', 10), (2, 'a', 20)")
    project.sql("UPDATE orders SET amount = 30 WHERE id = 2")
    assert _rows(project, "taxed") == [("a", 8, 80)]
    assert _rows(project, "told") == [(1, None, 2, "insert"), (2, 20, 6, "update"), (2, None, 4, "insert")]
    said = project.register_function("tax", lambda amount: amount, "BIGINT")
    assert len(said) == 2
    assert _rows(project, "taxed") == [("a", 40, 80)]
    assert all(report.ok for report in project.verify_all())
    project.runtime.lake.close()
