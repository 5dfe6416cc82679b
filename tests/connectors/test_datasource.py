"""`format("runnel.STORE")` for any store, from the partitions of its source: batch, stream, and what is refused."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from runnel.connectors.files.datasource import FilesDataSource

if TYPE_CHECKING:
    from pathlib import Path

    from runnel.engine.spark import SparkEngine

pytestmark = pytest.mark.spark


@pytest.fixture
def spark(spark_engine: SparkEngine) -> Any:
    spark_engine.session.dataSource.register(FilesDataSource)
    return spark_engine.session


def put(folder: Path, name: str, *rows: dict[str, Any]) -> None:
    (folder / "feed" / "orders").mkdir(parents=True, exist_ok=True)
    (folder / "feed" / "orders" / name).write_text("".join(json.dumps(row) + "\n" for row in rows))


def options(folder: Path, **further: str) -> dict[str, str]:
    schema = json.dumps({"orders": "id BIGINT, amount DECIMAL(9,2), PRIMARY KEY (id)"})
    return {"folder": str(folder), "path": "feed", "schema": schema, "table": "orders", **further}


def test_changes_are_read_in_batch_a_file_in_each_task(tmp_path: Path, spark: Any) -> None:
    put(tmp_path, "1.jsonl", {"id": 1, "amount": "1.50"}, {"id": 2, "amount": "2"})
    put(tmp_path, "2.jsonl", {"op": "d", "before": {"id": 1, "amount": "1.50"}, "after": None})
    found = spark.read.format("runnel.files").options(**options(tmp_path)).load()
    assert found.schema.simpleString() == "struct<id:bigint,amount:decimal(9,2),_weight:bigint,_op:string>"
    assert found.rdd.getNumPartitions() == 2
    rows = [(row.id, str(row.amount), row._weight, row._op) for row in found.orderBy("id", "_weight").collect()]
    assert rows == [(1, "1.50", -1, None), (1, "1.50", 1, None), (2, "2.00", 1, None)]


def test_a_stream_goes_on_where_it_was(tmp_path: Path, spark: Any) -> None:
    put(tmp_path, "1.jsonl", {"id": 1, "amount": "1"})

    def run() -> list[int]:
        changes = spark.readStream.format("runnel.files").options(**options(tmp_path)).load()
        writer = changes.writeStream.format("parquet").option("checkpointLocation", str(tmp_path / "checkpoint"))
        writer.trigger(availableNow=True).start(str(tmp_path / "out")).awaitTermination(120)
        return sorted(row.id for row in spark.read.parquet(str(tmp_path / "out")).collect())

    assert run() == [1]
    put(tmp_path, "2.jsonl", {"id": 2, "amount": "2"}, {"id": 3, "amount": "3"})
    assert run() == [1, 2, 3]


def test_a_table_that_is_missing_is_named(tmp_path: Path, spark: Any) -> None:
    put(tmp_path, "1.jsonl", {"id": 1, "amount": "1"})
    with pytest.raises(Exception, match="has no table 'ordrs'; did you mean 'orders'"):
        spark.read.format("runnel.files").options(**options(tmp_path, table="ordrs")).load()
