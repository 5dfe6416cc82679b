"""Every row of an Arrow table arrives in Spark, however the table is cut into chunks, and whatever its columns hold."""

from __future__ import annotations

import itertools
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import runnel
from runnel.engine.base import Rows
from runnel.model import arrow, types
from runnel.model.relation import Column

if TYPE_CHECKING:
    from pathlib import Path

    from runnel.engine.spark import SparkEngine

VALUES: dict[str, list[Any]] = {
    "boolean": [True, None, False],
    "tinyint": [1, None, -128],
    "smallint": [1, None, -32768],
    "int": [1, None, -5],
    "bigint": [1, None, 2**62],
    "float": [1.5, None, -0.25],
    "double": [1.5, None, -0.25],
    "decimal(38,6)": [Decimal("1.500000"), None, Decimal("-3.000001")],
    "string": ["ä", None, ""],
    "binary": [b"\x00", None, b""],
    "date": [date(2024, 2, 29), None, date(1, 1, 1)],
    "timestamp": [datetime(2024, 2, 29, 1, tzinfo=UTC), None, datetime(1970, 1, 1, tzinfo=UTC)],
    "timestamp_ntz": [datetime(2024, 2, 29, 1), None, datetime(1970, 1, 1)],
    "array<string>": [["a", None], None, []],
    "array<timestamp>": [[datetime(2024, 2, 29, 1, tzinfo=UTC)], None, []],
    "array<array<int>>": [[[1, 2], None], None, [[]]],
    "map<string,bigint>": [[("a", 1)], None, []],
    "map<string,array<timestamp>>": [[("a", [datetime(2024, 1, 1, tzinfo=UTC)])], None, []],
    "struct<a:int,b:timestamp>": [{"a": 1, "b": datetime(2024, 1, 1, tzinfo=UTC)}, None, {"a": None, "b": None}],
    "struct<a:array<struct<b:string>>>": [{"a": [{"b": "x"}]}, None, {"a": None}],
}


def chunks(type_: pa.DataType, values: list[Any]) -> pa.ChunkedArray:
    """Give the values in chunks with empty ones between them, two of them parts of longer ones."""
    padded = pa.array([values[0], values[0], *values, values[0]], type_)
    empty = pa.array([], type_)
    return pa.chunked_array([empty, padded.slice(2, 1), empty, padded.slice(3, 2), empty], type_)


@pytest.mark.spark
def test_every_row_of_every_type_arrives_in_spark_whatever_the_chunks(spark_engine: SparkEngine) -> None:
    """Rows after an empty chunk, and parts of nested columns, are there in Spark with their values."""
    columns = tuple(Column(f"c{at}", types.parse(text)) for at, text in enumerate(VALUES))
    arrays = [chunks(types.to_arrow(types.parse(text)), values) for text, values in VALUES.items()]
    table = pa.Table.from_arrays(arrays, [c.name for c in columns])
    found = spark_engine.rows("SELECT * FROM `t`", {"t": Rows(table, columns)}, columns)
    expected = [dict(zip(table.column_names, row, strict=True)) for row in zip(*VALUES.values(), strict=True)]
    assert sorted(found.to_pylist(), key=str) == sorted(expected, key=str)
    part = table.combine_chunks().slice(1)
    found = spark_engine.rows("SELECT * FROM `t`", {"t": Rows(part, columns)}, columns)
    assert sorted(found.to_pylist(), key=str) == sorted(expected[1:], key=str)


@pytest.mark.spark
@pytest.mark.parametrize("kind", [pa.large_string(), pa.string_view(), pa.dictionary(pa.int32(), pa.string())])
def test_other_forms_of_text_arrive_whole(spark_engine: SparkEngine, kind: pa.DataType) -> None:
    """Dictionaries, views and large strings are strings to Spark."""
    whole = pa.array(["a", None, "a", "a longer text than twelve bytes"], pa.string()).cast(kind)
    column = pa.chunked_array([whole.slice(0, 1), whole.slice(0, 0), whole.slice(1, 3)], kind)
    rows = Rows(pa.Table.from_arrays([column], ["c"]), (Column("c", types.STRING),))
    found = spark_engine.rows("SELECT c FROM `t`", {"t": rows}, rows.columns)
    assert sorted(found["c"].to_pylist(), key=str) == sorted(whole.cast(pa.string()).to_pylist(), key=str)


@pytest.mark.spark
def test_a_table_of_many_chunks_arrives_whole(spark_engine: SparkEngine) -> None:
    """Sixty thousand rows in uneven chunks, every third of them empty, are all counted and added up by Spark."""
    numbers = pa.array(range(60_000), pa.int64())
    lists = pa.array([[n] * (n % 4) for n in range(60_000)], pa.list_(pa.int64()))
    cuts = [0, 0, 7, 7, 30_000, 30_000, 59_999, 60_000, 60_000]
    pairs = list(itertools.pairwise(cuts))
    table = pa.table({
        "n": pa.chunked_array([numbers.slice(a, b - a) for a, b in pairs]),
        "l": pa.chunked_array([lists.slice(a, b - a) for a, b in pairs]),
    })  # fmt: skip
    columns = (Column("n", types.BIGINT), Column("l", types.parse("array<bigint>")))
    found = spark_engine.rows(
        "SELECT count(*) AS c, sum(n) AS s, sum(size(l)) AS z FROM `t`", {"t": Rows(table, columns)}
    )
    assert found.to_pylist() == [{"c": 60_000, "s": sum(range(60_000)), "z": sum(n % 4 for n in range(60_000))}]


@pytest.mark.spark
def test_a_row_found_in_a_file_after_one_without_it_reaches_the_view(spark_engine: SparkEngine) -> None:
    """The looked-up table has an empty chunk for a file that could have held the key, and the row comes after it."""
    rows = 50_001
    with runnel.memory(engine=spark_engine) as project:
        project.create_table("products", "prod BIGINT, cat STRING, PRIMARY KEY (prod)")
        project.create_table("events", "eid BIGINT, prod BIGINT, cost DOUBLE, PRIMARY KEY (eid)")
        with project.transaction() as tx:
            tx.insert("products", pa.table({"prod": pa.array(range(rows), pa.int64()), "cat": ["old"] * rows}))
        project.create_view(
            "takings", "SELECT p.cat, sum(e.cost) AS n FROM events e JOIN products p ON e.prod = p.prod GROUP BY p.cat"
        )
        project.sql("UPDATE products SET cat = 'other' WHERE prod IN (1, 3)")
        project.sql("UPDATE products SET cat = 'new' WHERE prod = 2")
        project.sql("INSERT INTO events VALUES (1, 2, 10)")
        assert project.view("takings").to_pylist() == [{"cat": "new", "n": 10.0}]


def test_a_contiguous_table_has_the_same_rows_and_no_empty_chunk() -> None:
    """What crosses into Spark is checked on this side: as many rows as before, none of its chunks without rows."""
    for text, values in VALUES.items():
        column = chunks(types.to_arrow(types.parse(text)), values)
        ready = arrow.contiguous(pa.Table.from_arrays([column], ["c"]))["c"]
        assert ready.to_pylist() == column.to_pylist()
        assert all(len(chunk) for chunk in ready.chunks)
    assert arrow.contiguous(pa.table({"a": [1, 2]}).select([])).num_rows == 2


@pytest.mark.spark
def test_a_data_source_gives_all_rows_after_an_empty_batch(spark_engine: SparkEngine, tmp_path: Path) -> None:
    """`format("runnel")` hands no empty batches to Spark's reader."""
    from runnel.engine.duckdb import DuckDbEngine

    with runnel.create(tmp_path / "p", engine=DuckDbEngine()) as project:
        project.create_table("t", "id BIGINT, tags ARRAY<STRING>", key=["id"])
        for n in range(3):
            with project.transaction() as tx:
                tx.insert("t", [{"id": n, "tags": ["x"] * n}])
        spark_engine.session.dataSource.register(runnel.DataSource)
        frame = spark_engine.session.read.format("runnel").option("project", str(tmp_path / "p")).load("t")
        assert sorted((row.id, len(row.tags)) for row in frame.collect()) == [(0, 0), (1, 1), (2, 2)]
