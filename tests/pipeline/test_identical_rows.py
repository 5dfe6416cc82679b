"""Rows are added up by what they are, bit by bit: -0.0, the order of a map's entries and NULLs inside maps stay as they were written."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import runnel
from runnel.engine.base import Rows
from runnel.engine.driver import Driver
from runnel.engine.duckdb import DuckDbEngine
from runnel.lake.compaction import fold, fold_sql
from runnel.model import types
from runnel.model.relation import WEIGHT, Column, Kind, Relation
from tests.engine.looking import LookingEngine

if TYPE_CHECKING:
    from pathlib import Path

    from runnel.engine.base import Engine
    from runnel.engine.spark import SparkEngine
    from runnel.project import Project

COLUMNS = "d DOUBLE, m MAP<STRING, INT>, s STRUCT<x: DOUBLE, inner: MAP<STRING, INT>>, a ARRAY<DOUBLE>"
TEXT = "CAST(d AS STRING) AS d, to_json(m) AS m, to_json(s) AS s, CAST(a AS STRING) AS a"
VIEWS = {
    "by_key": f"SELECT id, {TEXT} FROM t",
    "kept": "SELECT id, d, m, s, a FROM t WHERE id > 1",
    "above": f"SELECT id, {TEXT} FROM kept",
    "by_value": f"SELECT {TEXT} FROM b",
    "ranked": f"SELECT id, row_number() OVER (PARTITION BY id % 2 ORDER BY id) AS r, {TEXT} FROM t",
    "last_of_each": "SELECT id % 2 AS g, max_by(m, id) AS m, max_by(d, id) AS d FROM t GROUP BY 1",
    "above_last": "SELECT g, to_json(m) AS m, CAST(d AS STRING) AS d FROM last_of_each",
}
ODD = {"d": -0.0, "m": [("z", 1), ("a", None)], "s": {"x": -0.0, "inner": [("q", None), ("b", 2)]}, "a": [-0.0, 1.0]}
EVEN = {"d": 0.0, "m": [("a", None), ("z", 1)], "s": {"x": 0.0, "inner": [("b", 2), ("q", None)]}, "a": [0.0, 1.0]}
"""The same values to SQL's GROUP BY, and yet others."""


def row(key: int, **values: Any) -> dict[str, Any]:
    return {"id": key, **ODD, **values}


def written(project: Project) -> dict[int, dict[str, Any]]:
    return {found["id"]: found for found in project.table("t").to_arrow().to_pylist()}


def text(rows: Any) -> list[str]:
    """Give rows as texts: Python finds 0.0 and -0.0 equal too."""
    return sorted(str(found) for found in rows)


def keeps_rows_as_they_were_written(project: Project) -> None:
    project.create_table("t", f"id BIGINT, {COLUMNS}", key=["id"])
    project.create_table("b", COLUMNS)
    expected = {key: row(key) for key in range(1, 6)}
    with project.transaction() as tx:
        tx.insert("t", list(expected.values()))
        tx.insert("b", [ODD, ODD, EVEN])
    for name, sql in VIEWS.items():
        project.create_view(name, sql)

    def check() -> None:
        assert text(written(project).values()) == text(expected.values())
        assert {name: project.verify(name).ok for name in VIEWS} == dict.fromkeys(VIEWS, True)
        assert {name for name in VIEWS if not project.explain(name).incremental} == set()

    with project.transaction() as tx:
        tx.delete("t", [{"id": 2}])
        tx.apply("b", [{**ODD, "_weight": -1}])
    del expected[2]
    check()
    for name, value in EVEN.items():
        with project.transaction() as tx:
            tx.update("t", [row(3, **{name: value})])
        expected[3] = row(3, **{name: value})
        assert text(written(project).values()) == text(expected.values())
    project.compact()
    check()
    assert text(project.table("b").to_arrow().to_pylist()) == text([ODD, EVEN])


def test_the_second_engine_keeps_rows_as_they_were_written(tmp_path: Path) -> None:
    with opened(tmp_path, DuckDbEngine()) as project:
        keeps_rows_as_they_were_written(project)


@pytest.mark.spark
@pytest.mark.parametrize("driver", [Driver(), Driver(changes=0)], ids=["in the driver", "on Spark"])
def test_spark_keeps_rows_as_they_were_written(
    tmp_path: Path, spark_engine: SparkEngine, driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spark_engine, "driver", driver)
    with opened(tmp_path, spark_engine) as project:
        keeps_rows_as_they_were_written(project)


def opened(folder: Path, engine: Engine) -> Project:
    (folder / "runnel.toml").write_text("[project]\nname = 'p'\n")
    return runnel.open(folder, engine=engine)


@pytest.mark.spark
def test_spark_folds_signed_rows_into_the_same_rows_as_the_driver(spark_engine: SparkEngine) -> None:
    declared = {
        "d": "double",
        "m": "map<string,int>",
        "s": "struct<x:double,inner:map<string,int>>",
        "a": "array<double>",
    }
    columns = tuple(Column(name, types.parse(type_)) for name, type_ in declared.items())
    relation = Relation("t", Kind.TABLE, columns)
    schema = pa.schema([*((c.name, types.to_arrow(c.type)) for c in columns), (WEIGHT, pa.int64())])
    rows = [{**ODD, WEIGHT: 2}, {**EVEN, WEIGHT: 1}, {**ODD, WEIGHT: -1}]
    stored = pa.Table.from_pylist(rows, schema=schema)
    inputs = {"stored": Rows(stored, (*columns, Column(WEIGHT, types.BIGINT)))}
    by_spark = spark_engine.rows(fold_sql(relation, "`stored`"), inputs)
    assert text(by_spark.to_pylist()) == text(fold(relation, stored).to_pylist())
    assert text(by_spark.to_pylist()) == text([{**ODD, WEIGHT: 1}, {**EVEN, WEIGHT: 1}])


@pytest.mark.spark
@pytest.mark.parametrize(
    "sql", ["SELECT m, count(*) AS n FROM t GROUP BY m", "SELECT m, collect_set(id) AS ids FROM t GROUP BY m"]
)
def test_a_grouping_by_a_map_is_recomputed_for_maps_cannot_be_looked_up(
    spark_engine: SparkEngine, tmp_path: Path, sql: str
) -> None:
    with opened(tmp_path, spark_engine) as project:
        project.create_table("t", "id BIGINT, m MAP<STRING, INT>", key=["id"])
        project.create_view("v", sql)
        project.create_view("above", "SELECT to_json(m) AS m FROM v")
        assert not project.explain("v").incremental
        for m in ([("a", 1)], [("b", 2), ("a", 1)]):
            with project.transaction() as tx:
                tx.insert("t", [{"id": len(m), "m": m}])
            assert not tx.failed
            assert project.verify("v").ok
            assert project.verify("above").ok


def test_rows_joined_by_a_float_are_looked_up_by_whatever_equals_it() -> None:
    engine = LookingEngine()
    with runnel.memory(engine=engine) as project:
        project.create_table("t", "id BIGINT, d DOUBLE", key=["id"])
        project.create_table("u", "k BIGINT, d DOUBLE", key=["k"])
        with project.transaction() as tx:
            tx.insert("t", [{"id": 1, "d": -0.0}, {"id": 2, "d": 0.0}, {"id": 3, "d": math.nan}, {"id": 4, "d": 1.5}])
        project.create_view("inner_", "SELECT t.id, u.k FROM t JOIN u ON t.d = u.d")
        project.create_view("padded", "SELECT u.k, t.id FROM u LEFT JOIN t ON t.d = u.d")
        project.create_view("some", "SELECT id FROM t WHERE d IN (SELECT d FROM u)")
        for k, d in enumerate((0.0, -0.0, math.nan)):
            with project.transaction() as tx:
                tx.insert("u", [{"k": k, "d": d}])
            assert {name: project.verify(name).ok for name in ("inner_", "padded", "some")} == {
                "inner_": True,
                "padded": True,
                "some": True,
            }
        with project.transaction() as tx:
            tx.delete("u", [{"k": 0}, {"k": 2}])
        assert sorted((row["id"], row["k"]) for row in project.view("inner_").to_arrow().to_pylist()) == [
            (1, 1),
            (2, 1),
        ]
        assert sorted(row["id"] for row in project.view("padded").to_arrow().to_pylist()) == [1, 2]
    assert engine.looked_up
