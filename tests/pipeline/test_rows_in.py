"""Rows as callers hand them over: names without regard to case, numbers exact, everything else refused with a code."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from runnel.errors import RunnelError
from runnel.model.ddl import parse_columns
from runnel.model.relation import Kind, Relation, check_columns
from runnel.pipeline.rows_in import by_given_columns, to_table

if TYPE_CHECKING:
    from runnel.project import Project

COLUMNS, KEY = parse_columns("id BIGINT, Name STRING, a ARRAY<INT>, d DECIMAL(38,2), PRIMARY KEY (id)")
TABLE = Relation("t", Kind.TABLE, COLUMNS, KEY)


def test_rows_may_spell_names_differently() -> None:
    made = to_table(TABLE, [{"ID": 1, "name": "a"}, {"id": 2, "NAME": "b"}])
    assert made.to_pylist() == [{"id": 1, "Name": "a"}, {"id": 2, "Name": "b"}]


def test_rows_are_grouped_by_the_columns_they_name() -> None:
    rows = [{"id": 1, "name": "a"}, {"id": 2}, {"NAME": None, "Id": 3}, {"id": 4}]
    assert [table.to_pylist() for table in by_given_columns(TABLE, rows)] == [
        [{"id": 1, "Name": "a"}, {"id": 3, "Name": None}],
        [{"id": 2}, {"id": 4}],
    ]
    assert by_given_columns(TABLE, []) == []
    assert [table.to_pylist() for table in by_given_columns(TABLE, {"id": 1})] == [[{"id": 1}]]
    assert [table.to_pylist() for table in by_given_columns(TABLE, pa.table({"ID": [1]}))] == [[{"id": 1}]]


def test_a_wrong_value_is_told_with_its_row_in_the_whole_list() -> None:
    with pytest.raises(RunnelError, match="in row 2"):
        by_given_columns(TABLE, [{"id": 1}, {"id": 2, "name": "a"}, {"id": "x"}])


def test_whole_floats_are_taken_for_integers() -> None:
    made = to_table(TABLE, [{"id": 2.0, "a": [1.0, None], "_weight": -1.0}], weighted=True)
    assert made.to_pylist() == [{"id": 2, "a": [1, None], "_weight": -1}]
    assert to_table(TABLE, pa.table({"id": [2.0]})).to_pylist() == [{"id": 2}]


@pytest.mark.parametrize(
    ("code", "rows"),
    [
        ("RUNNEL-COLUMN-TWICE", [{"id": 1, "ID": 2}]),
        ("RUNNEL-COLUMN-TWICE", pa.table({"id": [1], "ID": [2]})),
        ("RUNNEL-COLUMN-TWICE", pa.Table.from_arrays([pa.array([1]), pa.array([1])], ["id", "id"])),
        ("RUNNEL-COLUMN-NAME", [{1: 1}]),
        ("RUNNEL-ROWS-EMPTY", [{}]),
        ("RUNNEL-VALUE-TYPE", [{"id": 1.5}]),
        ("RUNNEL-VALUE-TYPE", [{"id": float("nan")}]),
        ("RUNNEL-VALUE-TYPE", [{"id": float("inf")}]),
        ("RUNNEL-VALUE-TYPE", [{"id": 2**63}]),
        ("RUNNEL-VALUE-TYPE", [{"id": 10**5000}]),
        ("RUNNEL-VALUE-TYPE", [{"id": 1, "d": 10**5000}]),
        ("RUNNEL-VALUE-TYPE", [{"id": 1, "a": [1.5]}]),
        ("RUNNEL-VALUE-TYPE", [{"id": 1, "name": "\ud800"}]),
        ("RUNNEL-VALUE-TYPE", pa.table({"id": [1.5]})),
        ("RUNNEL-WEIGHT-TYPE", [{"id": 1, "_weight": 1.5}]),
        ("RUNNEL-WEIGHT-TYPE", [{"id": 1, "_weight": "1"}]),
        ("RUNNEL-WEIGHT-TYPE", [{"id": 1, "_weight": True}]),
        ("RUNNEL-WEIGHT-TYPE", [{"id": 1, "_weight": [1]}]),
        ("RUNNEL-WEIGHT-TYPE", [{"id": 1, "_weight": 2**63}]),
        ("RUNNEL-WEIGHT-TYPE", [{"id": 1, "_weight": 10**5000}]),
        ("RUNNEL-WEIGHT-TYPE", pa.table({"id": [1], "_weight": [1.5]})),
        ("RUNNEL-WEIGHT-TYPE", pa.table({"id": [1], "_weight": ["1"]})),
        ("RUNNEL-WEIGHT-TYPE", pa.table({"id": [1], "_weight": pa.array([2**64 - 1], pa.uint64())})),
    ],
)
def test_what_does_not_fit_is_refused_with_a_code_and_a_hint(code: str, rows: Any) -> None:
    with pytest.raises(RunnelError) as caught:
        to_table(TABLE, rows, weighted=True)
    assert caught.value.code == code
    assert caught.value.hint


@pytest.mark.parametrize("type_", ["ARRAY<INT>", "MAP<STRING,INT>", "STRUCT<p:INT>"])
def test_a_key_of_a_nested_type_is_refused(project: Project, type_: str) -> None:
    with pytest.raises(RunnelError, match="RUNNEL-KEY-TYPE"):
        project.create_table("n", f"id {type_}, x INT", key=["ID"])


@pytest.mark.parametrize("name", ["", " "])
def test_an_empty_name_is_refused(name: str) -> None:
    with pytest.raises(RunnelError, match="RUNNEL-NAME-EMPTY"):
        check_columns(name, COLUMNS, KEY)


def test_keys_are_equal_where_sql_finds_them_equal(project: Project) -> None:
    project.create_table("f", "k DOUBLE, x INT", key=["k"])
    with project.transaction() as tx:
        tx.insert("f", [{"k": float("nan"), "x": 1}, {"k": -0.0, "x": 2}])
        tx.update("f", [{"k": float("nan"), "x": 3}, {"k": 0.0, "x": 4}])
    for bad in ([{"k": 0.0}, {"k": -0.0}], [{"k": -0.0}], [{"k": 0.0}], [{"k": float("nan")}], [{"k": float("-nan")}]):
        with pytest.raises(RunnelError, match="RUNNEL-KEY-DUPLICATE"), project.transaction() as tx:
            tx.insert("f", bad)
    with project.transaction() as tx:
        tx.update("f", [{"k": -0.0, "x": 5}])
        tx.delete("f", [{"k": float("nan")}])
    assert project.table("f").to_pylist() == [{"k": 0.0, "x": 5}]
    with project.transaction() as tx:
        tx.apply("f", [{"k": -0.0, "x": 5, "_weight": -1}])
    assert project.table("f").to_pylist() == []


STRUCTS = Relation("s", Kind.TABLE, parse_columns("s STRUCT<a: INT, B: ARRAY<STRUCT<c: INT>>>, d DATE")[0], ())


def test_fields_of_structs_are_named_without_regard_to_case() -> None:
    rows = [{"s": {"A": 1, "b": [{"C": 2}]}}, {"s": {"a": 3}}, {"s": None}]
    told = [{"s": {"a": 1, "B": [{"c": 2}]}}, {"s": {"a": 3, "B": None}}, {"s": None}]
    assert to_table(STRUCTS, rows).to_pylist() == told
    arrow = pa.table({"s": pa.array([{"A": 1, "b": [{"C": 2}]}])})
    assert to_table(STRUCTS, arrow).to_pylist() == told[:1]


@pytest.mark.parametrize(
    "rows",
    [
        [{"s": {"a": 1, "x": 2}}],
        [{"s": {"a": 1, "A": 2}}],
        [{"s": {"B": [{"d": 2}]}}],
        pa.table({"s": [{"a": 1, "x": 2}]}),
        pa.table({"s": [{"B": [{"d": 2}]}]}),
        [{"d": datetime(2024, 1, 1, 5)}],
        pa.table({"d": [datetime(2024, 1, 1, 5)]}),
    ],
)
def test_what_a_column_has_no_room_for_is_refused_not_left_out(rows: Any) -> None:
    with pytest.raises(RunnelError) as caught:
        to_table(STRUCTS, rows)
    assert caught.value.code in ("RUNNEL-VALUE-TYPE", "RUNNEL-COLUMN-UNKNOWN")


@pytest.mark.parametrize(
    "columns",
    [
        "d DECIMAL(40, 2)",
        "d DECIMAL(0, 0)",
        "d DECIMAL(5, 10)",
        "s STRUCT<>",
        "s STRUCT<a: INT, A: INT>",
        "m MAP<MAP<INT, INT>, INT>",
    ],
)
def test_a_type_that_spark_does_not_have_is_refused_with_a_code(columns: str) -> None:
    with pytest.raises(RunnelError) as caught:
        parse_columns(columns)
    assert caught.value.code == "RUNNEL-TYPE-UNSUPPORTED"
