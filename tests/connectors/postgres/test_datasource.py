"""`format("runnel.postgres")`: rows in batch without a slot, changes as a stream that goes on where it was."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from runnel.connectors.postgres.datasource import PostgresDataSource

if TYPE_CHECKING:
    from pathlib import Path

    from runnel.engine.spark import SparkEngine
    from tests.connectors.postgres.conftest import Shop

pytestmark = [pytest.mark.spark, pytest.mark.postgres]


@pytest.fixture
def spark(spark_engine: SparkEngine) -> Any:
    spark_engine.session.dataSource.register(PostgresDataSource)
    return spark_engine.session


def test_rows_are_read_in_batch_and_changes_as_a_stream(shop: Shop, spark: Any, tmp_path: Path) -> None:
    shop.sql(
        "CREATE TABLE orders (id int PRIMARY KEY, amount numeric(9,2))", "INSERT INTO orders VALUES (1, 1.5), (2, 2)"
    )
    found = spark.read.format("runnel.postgres").option("url", shop.url).load("orders")
    assert found.schema.simpleString() == "struct<id:int,amount:decimal(9,2),_weight:bigint,_op:string>"
    assert sorted((row.id, str(row.amount), row._weight) for row in found.collect()) == [(1, "1.50", 1), (2, "2.00", 1)]
    slots = "SELECT slot_name FROM pg_replication_slots WHERE database = current_database()"
    assert shop.sql(slots) == []

    def run() -> list[tuple[int, str | None]]:
        options = {"url": shop.url, "slot": "spark_orders", "table": "orders"}
        changes = spark.readStream.format("runnel.postgres").options(**options).load()
        writer = changes.writeStream.format("parquet").option("checkpointLocation", str(tmp_path / "checkpoint"))
        writer.trigger(availableNow=True).start(str(tmp_path / "out")).awaitTermination(120)
        found = spark.read.parquet(str(tmp_path / "out")).collect()
        return sorted(((row.id, row._op) for row in found), key=str)

    assert run() == [(1, None), (2, None)]
    shop.sql("INSERT INTO orders VALUES (3, 3)", "DELETE FROM orders WHERE id = 1")
    assert run() == [(1, "delete"), (1, None), (2, None), (3, "upsert")]
