"""`format("runnel.mariadb")` and `format("runnel.mysql")`: a snapshot in batch, and a stream that goes on along the log."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from runnel.connectors.mysql.datasource import MariadbDataSource, MysqlDataSource

if TYPE_CHECKING:
    from pathlib import Path

    from runnel.engine.spark import SparkEngine
    from tests.servers.mysql import SqlServer

pytestmark = pytest.mark.spark


def test_rows_are_read_in_batch_and_changes_as_a_stream(
    tmp_path: Path, sql_server: SqlServer, spark_engine: SparkEngine
) -> None:
    spark, database = spark_engine.session, sql_server.database()
    for format_ in (MariadbDataSource, MysqlDataSource):
        spark.dataSource.register(format_)
    sql_server.sql(
        "CREATE TABLE orders (id INT PRIMARY KEY, amount DECIMAL(9,2))",
        "INSERT INTO orders VALUES (1, 1.5), (2, NULL)",
        database=database,
    )
    known = {"host": "127.0.0.1", "port": str(sql_server.port), "user": "root", "database": database, "table": "orders"}
    format_name = f"runnel.{sql_server.program.name.partition('-')[0]}"
    found = spark.read.format(format_name).options(**known).load()
    assert found.schema.simpleString() == "struct<id:int,amount:decimal(9,2),_weight:bigint,_op:string>"
    rows = [(row.id, str(row.amount), row._weight, row._op) for row in found.orderBy("id").collect()]
    assert rows == [(1, "1.50", None, "upsert"), (2, "None", None, "upsert")]

    def run() -> list[Any]:
        changes = spark.readStream.format(format_name).options(**known).load()
        writer = changes.writeStream.format("parquet").option("checkpointLocation", str(tmp_path / "checkpoint"))
        writer.trigger(availableNow=True).start(str(tmp_path / "out")).awaitTermination(120)
        out = spark.read.parquet(str(tmp_path / "out")).collect()
        return sorted((row.id, str(row.amount), row._weight or 0, row._op or "") for row in out)

    snapshot = [(1, "1.50", 0, "upsert"), (2, "None", 0, "upsert")]
    assert run() == snapshot
    sql_server.sql("UPDATE orders SET amount = 2 WHERE id = 1", "DELETE FROM orders WHERE id = 2", database=database)
    assert run() == sorted([*snapshot, (1, "1.50", -1, ""), (1, "2.00", 1, ""), (2, "None", -1, "")])
