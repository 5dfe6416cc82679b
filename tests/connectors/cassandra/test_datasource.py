"""`format("runnel.cassandra")` on Spark: tables by token ranges, logs by segments, and logs as a stream."""

from __future__ import annotations

import re
import shutil
from typing import TYPE_CHECKING, Any

import pytest

from runnel.connectors.cassandra.datasource import CassandraDataSource
from runnel.connectors.cassandra.log.segment import Segment
from scripts.capture_reference import PAGE
from tests.connectors.cassandra.techniques.test_log_capture import WIDE

if TYPE_CHECKING:
    from pathlib import Path

    from runnel.engine.spark import SparkEngine
    from tests.connectors.cassandra.conftest import Shop

BLOCK = re.compile(r"```text\n(.*?)```", re.DOTALL)
pytestmark = [pytest.mark.cassandra, pytest.mark.spark]
ROWS = 50


@pytest.fixture
def spark(spark_engine: SparkEngine) -> Any:
    spark_engine.session.dataSource.register(CassandraDataSource)
    return spark_engine.session


def options(shop: Shop, **further: str) -> dict[str, str]:
    return {"hosts": shop.node.host, "port": str(shop.node.port), "keyspace": shop.keyspace, **further}


def filled(shop: Shop) -> None:
    shop.cql(
        "CREATE TABLE KS.t (k int, c int, m map<text, int>, d decimal, u uuid, PRIMARY KEY (k, c)) WITH cdc = true",
        *(
            f"INSERT INTO KS.t (k, c, m, d, u) VALUES ({n}, 1, {{'a': {n}}}, {n}.5, 123e4567-e89b-42d3-a456-426614174000)"
            for n in range(ROWS)
        ),
    )


def test_a_table_is_read_by_token_ranges(shop: Shop, spark: Any) -> None:
    filled(shop)
    reader = spark.read.format("runnel.cassandra").options(**options(shop, partitions="3"))
    found = reader.load("t")
    assert found.rdd.getNumPartitions() == 3
    assert [(f.name, f.dataType.simpleString()) for f in found.schema] == [
        ("k", "int"),
        ("c", "int"),
        ("d", "decimal(38,18)"),
        ("m", "map<string,int>"),
        ("u", "string"),
    ]
    rows = sorted(found.collect())
    assert len(rows) == ROWS
    assert (rows[7].k, rows[7].m, float(rows[7].d)) == (7, {"a": 7}, 7.5)
    assert found.where("k < 3").count() == 3


def test_the_example_of_the_documentation_runs(shop: Shop, spark: Any, capsys: pytest.CaptureFixture[str]) -> None:
    shop.cql(
        "CREATE TABLE KS.grades (name text, semester text, math int, PRIMARY KEY (name, semester)) WITH cdc = true",
        "INSERT INTO KS.grades (name, semester, math) VALUES ('Carol', 'second', 91)",
        "INSERT INTO KS.grades (name, semester, math) VALUES ('Tom', 'first', 70)",
    )
    shop.wait_for_log()
    example = next(block for block in BLOCK.findall(PAGE.read_text()) if "CassandraDataSource" in block)
    for word, meant in {
        "10.0.0.1,10.0.0.2": shop.node.host,
        "9042": str(shop.node.port),
        "school": shop.keyspace,
    }.items():
        assert f'"{word}"' in example
        example = example.replace(f'"{word}"', f'"{meant}"')
    exec(compile(example, "example", "exec"), {"spark": spark})
    printed = capsys.readouterr().out
    assert printed.startswith("1\n")
    assert "|ups|[Carol]|[second]|math|91|" in printed.replace(" ", "")


def has_sections(path: Path) -> bool:
    with Segment(path) as segment:
        return next(segment.section_ends(), None) is not None


def test_copied_logs_are_read_a_segment_in_each_task(shop: Shop, spark: Any, tmp_path: Path) -> None:
    shop.cql("CREATE TABLE KS.t (k int PRIMARY KEY, v text) WITH cdc = true")
    shop.cql(*(f"INSERT INTO KS.t (k, v) VALUES ({n}, '{n}{WIDE}')" for n in range(300)))
    shop.cql("DELETE FROM KS.t WHERE k = 5")
    shop.wait_for_log()
    (tmp_path / "logs").mkdir()
    for path in shop.node.cdc_raw.glob("*.log"):
        shutil.copy(path, tmp_path / "logs")
    query = f"SELECT id FROM system_schema.tables WHERE keyspace_name = '{shop.keyspace}' AND table_name = 't'"
    table_id = shop.node.cql(query)[0].id
    (tmp_path / "schema.cql").write_text(f"CREATE TABLE t (k int PRIMARY KEY, v text) WITH ID = {table_id};")
    where = {"logs": str(tmp_path / "logs" / "*"), "schema": str(tmp_path / "schema.cql"), "tables": "t"}
    found = spark.read.format("runnel.cassandra").options(keyspace=shop.keyspace, **where).load()
    written = [path for path in (tmp_path / "logs").iterdir() if has_sections(path)]
    assert found.rdd.getNumPartitions() == len(written) > 2, "spare segments, which are empty, need no task"
    told = {row.operation: row["count"] for row in found.groupBy("operation").count().collect()}
    assert told == {"ups": 300, "del": 1}
    live = spark.read.format("runnel.cassandra").options(**options(shop, read="log", tables="t")).load()
    assert live.where("operation = 'del'").select("table", "key", "column").collect() == [("t", ["5"], None)]


def test_a_stream_follows_the_log_and_goes_on_where_it_was(shop: Shop, spark: Any, tmp_path: Path) -> None:
    filled(shop)
    shop.wait_for_log()
    seen: list[tuple[str, str]] = []

    def keep(batch: Any, _: int) -> None:
        for row in batch.where("table = 't'").orderBy("host", "segment", "position").collect():
            seen.append((row.operation, f"{row.key[0]} {row.cluster} {row.range} {row.column} {row.value}"))

    def run() -> list[tuple[str, str]]:
        shop.wait_for_log()
        seen.clear()
        stream = spark.readStream.format("runnel.cassandra").options(**options(shop)).load()
        query = stream.writeStream.foreachBatch(keep).option("checkpointLocation", str(tmp_path / "checkpoint"))
        query.trigger(availableNow=True).start().awaitTermination()
        return list(seen)

    first = run()
    assert len(first) == ROWS * 4  # the map, which was overwritten, is told as deleted and set; with it d and u
    shop.cql("UPDATE KS.t SET d = 9.25 WHERE k = 1 AND c = 1", "DELETE FROM KS.t WHERE k = 2 AND c > 0")
    assert run() == [("ups", "1 ['1'] None d 9.25"), ("del", "2 None (0[]] None None")]
    assert run() == []
