"""The benchmarks of change data capture at a tiny size: whole figures, nothing told wrongly."""

from __future__ import annotations

import json
import random
import uuid
from typing import TYPE_CHECKING

import pytest

from runnel.bench.cassandra import capture, capture_sheet, decode
from runnel.bench.cassandra.intervals import spread
from runnel.bench.cassandra.segment import SCHEMA, write_segment
from runnel.bench.cassandra.ycsb import Change, Server
from runnel.bench.report import markdown
from runnel.bench.workplace import Workplace
from runnel.connectors.cassandra.schema.tables import build_tables
from runnel.connectors.cassandra.schema.text import parse_schema
from tests.connectors.cassandra import encoder
from tests.connectors.cassandra.encoder import Cell, Row, Updated, body
from tests.servers.cassandra import cassandra_node

if TYPE_CHECKING:
    from pathlib import Path

    from runnel.engine.spark import SparkEngine
    from tests.servers.cassandra import CassandraNode

__all__ = ["cassandra_node"]


def test_what_a_cycle_follows_is_told_apart_by_rows_and_by_the_share_of_changes() -> None:
    def size(*means: float) -> dict[str, object]:
        shares = zip(("25%", "50%", "75%"), means, strict=True)
        return {"workloads": {f"update {share}": {"cycle": {"mean": mean}} for share, mean in shares}}

    by_rows = {"100": size(1, 1, 1), "200": size(2, 2, 2)}
    by_changes = {"100": size(1, 2, 3), "200": size(1, 2, 3)}
    assert [capture_sheet.growth(by_rows), capture_sheet.share_effect(by_rows)] == [2, 1]
    assert [capture_sheet.growth(by_changes), capture_sheet.share_effect(by_changes)] == [1, 3]


@pytest.mark.cassandra
@pytest.mark.timeout(900)
def test_all_techniques_are_measured_with_what_they_need_and_what_they_lose(cassandra_node: CassandraNode) -> None:
    server = Server((cassandra_node.host,), cassandra_node.port)
    figures = json.loads(json.dumps(capture.measure(server, capture.Size(20, rounds=2, triggers=True))))
    assert figures["verified"]
    assert figures["techniques"].keys() == {way.name for way in (*capture.WAYS, *capture.SERVER_WAYS)}
    for sizes in figures["techniques"].values():
        assert all(one["whole"]["update"].keys() == spread([1.0]).keys() for one in sizes.values())
    made = figures["techniques"]["audit"]["40"]
    assert made["create"] > 0 < made["remove"]
    assert made["whole"]["update"]["mean"] > made["create"] + made["remove"]
    text = markdown(capture_sheet.sheet(figures))
    assert "| 100% |" in text, "audit and scan lose deletes"
    assert "as each technique can" in text


def test_what_a_technique_can_see_and_what_is_lost() -> None:
    updates = [Change("update", key, {"a": "1"}) for key in ("x", "x", "y")]
    deletes = [Change("delete", "x", {})]
    assert [capture.visible(name, updates, 10) for name in ("scan", "log")] == [2, 3]
    assert [capture.lost(name, updates) for name in ("scan", "log")] == [1, 0]
    assert [capture.visible(name, deletes, 10) for name in ("scan", "snapshot", "log-partial")] == [0, 10, 1]
    assert [capture.lost(name, deletes) for name in ("audit", "trigger")] == [1, 0]


def test_a_segment_of_the_benchmark_is_what_the_encoder_of_the_tests_writes(tmp_path: Path) -> None:
    made, table = random.Random(1), build_tables(parse_schema(SCHEMA))[0]
    bodies = []
    for n in range(40):
        now = 1_750_000_000_000_000 + n
        values = {
            "active": bytes([n % 2]),
            "amount": made.randbytes(8),
            "customer": made.randbytes(8),
            "placed": (1_750_000_000_000 + n).to_bytes(8, "big"),
            "product": f"product {n % 1000}".encode(),
            "quantity": made.randbytes(4),
            "remark": b"nothing to remark, " * (n % 3) + b"thanks",
            "shipment": uuid.UUID(int=made.getrandbits(128)).bytes,
        }
        cells = tuple(Cell(name, value, now) for name, value in values.items())
        row = Row((), (now, 0, 0) if n % 2 else None, cells=cells)
        bodies.append(body(Updated(table, n.to_bytes(8, "big"), rows=(row,))))
    (tmp_path / "other").mkdir()
    other = encoder.write_segment(tmp_path / "other", [bodies[:32], bodies[32:]])
    assert write_segment(tmp_path, 40).read_bytes() == other.read_bytes()


def test_decoding_is_measured_on_one_core() -> None:
    with Workplace("duckdb") as place:
        figures = json.loads(json.dumps(decode.measure(place, decode.Load(2_000, 2))))
    assert figures["verified"]
    assert figures["ways"].keys() == decode.WAYS.keys()
    assert "All were found" in markdown(decode.sheet(figures))


@pytest.mark.spark
def test_decoding_is_measured_with_tasks_of_spark(spark_engine: SparkEngine) -> None:
    figures = json.loads(json.dumps(decode.measure(Workplace(spark=spark_engine.session), decode.Load(500, 1))))
    assert figures["verified"]
    assert [one["found"] for one in figures["tasks"].values()] == [500, 1000]
    assert "Spark, 2 tasks" in markdown(decode.sheet(figures))
