"""What comes to the driver is bounded by the result, not by the change; what is written is counted by its writer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import runnel
from runnel.engine.base import Bound, Rows, TooLarge
from runnel.engine.driver import Driver
from runnel.engine.duckdb import DuckDbEngine
from runnel.engine.spark import SparkEngine
from runnel.errors import Terminal
from runnel.lake import files, lookup
from runnel.lake.lake import Lake
from runnel.model import types
from runnel.model.relation import Column
from tests.lake.samples import ORDERS, signed

if TYPE_CHECKING:
    from pathlib import Path

NUMBER = (Column("n", types.BIGINT),)


def test_a_result_beyond_the_bound_is_never_held() -> None:
    """Billions of rows from two small inputs are given up after the bound, not after the memory."""
    rows = Rows(pa.table({"n": pa.array(range(100_000), pa.int64())}), NUMBER)
    engine = DuckDbEngine(memory_limit="1GB")
    with pytest.raises(TooLarge):
        engine.rows_within(
            Bound(rows=1_000_000), "SELECT a.n FROM `a` a CROSS JOIN `b` b", {"a": rows, "b": rows}, NUMBER
        )
    with pytest.raises(TooLarge):
        engine.rows_within(Bound(bytes=1000), "SELECT n FROM `a`", {"a": rows}, NUMBER)
    assert engine.rows_within(Bound(), "SELECT n FROM `a`", {"a": rows}, NUMBER).num_rows == 100_000


@pytest.mark.parametrize("threads", [1, 2])
def test_a_union_of_joins_ends_however_many_rows_its_first_branch_has(threads: int) -> None:
    """DuckDB never ends such a query when it is read while it runs: its buffer is full, and the other branches wait for the first."""
    count = 1_000_000
    columns = (Column("x", types.Type("double")),)  # these DuckDB reads from its own tables: it knows their sizes
    many = Rows(pa.table({"x": pa.array(range(count), pa.float64())}), columns)
    few = Rows(pa.table({"x": pa.array([0.0] * 700, pa.float64())}), columns)
    engine = DuckDbEngine(threads=threads)
    branch = "SELECT a.x + {0} AS x FROM `t` a JOIN `t` b ON a.x = b.x + {0}"
    text = " UNION ALL ".join(branch.format(number) for number in range(3))
    for rows, wanted in ((many, 3 * count - 3), (few, 700 * 700)):
        for bound in (None, Bound()):
            assert engine.rows_within(bound, text, {"t": rows}, columns).num_rows == wanted


def test_what_does_not_fit_into_the_memory_of_the_lane_is_beyond_the_bound() -> None:
    wide = Rows(pa.table({"s": ["x" * 10_000] * 1_000}), (Column("s", types.STRING),))
    engine = DuckDbEngine(memory_limit="100MB")
    text = "SELECT a.s || CAST(row_number() OVER (ORDER BY a.s) AS STRING) AS s FROM `a` a CROSS JOIN `a` b"
    with pytest.raises(TooLarge):
        engine.rows_within(Bound(), text, {"a": wide}, wide.columns)


def test_an_error_in_a_row_is_the_same_error_within_a_bound() -> None:
    """A result that is taken as it comes fails like one that is taken at once."""
    rows = Rows(pa.table({"n": pa.array([2**62, 2**62], pa.int64())}), NUMBER)
    engine = DuckDbEngine()
    for bound in (None, Bound()):
        with pytest.raises(Terminal, match="Overflow"):
            engine.rows_within(bound, "SELECT n + n + n AS n FROM `a`", {"a": rows}, NUMBER)


def test_a_key_with_too_many_rows_is_not_looked_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The look-up stops at the bytes it found, before all files are read."""
    monkeypatch.setattr(lookup, "SMALL_FILE", 10)
    lake = Lake.create(f"sqlite:{tmp_path}/catalog.sqlite", f"{tmp_path}/data", durable=False)
    table = signed(ORDERS, *((n, "north", None, 1) for n in range(50_000)))
    written = [lake.write(ORDERS, table, remembered=False) for _ in range(3)]
    keys = pa.table({"region": ["north"]})
    reading = lookup.Reading(most_found=1_500_000)
    with pytest.raises(lookup.TooMuch):
        lookup.find(ORDERS, written, keys, reading=reading)
    assert lookup.find(ORDERS, written[:1], keys, reading=lookup.Reading(most_found=1 << 30)).num_rows == 50_000


def test_files_with_other_rows_than_were_given_are_an_error_and_are_deleted(tmp_path: Path) -> None:
    """An engine says how many rows it gave its writer; files that hold fewer are not taken over."""
    lake = Lake.create(f"sqlite:{tmp_path}/catalog.sqlite", f"{tmp_path}/data", durable=False)
    one = files.write(ORDERS, str(tmp_path / "x" / "one.parquet"), signed(ORDERS, (1, "a", None, 1)))
    two = files.write(ORDERS, str(tmp_path / "x" / "two.parquet"), signed(ORDERS, (2, "a", None, 1), (3, "a", None, 1)))
    with pytest.raises(Terminal) as raised:
        lake.adopt(ORDERS, [one.path, two.path], 4)
    assert raised.value.code == "RUNNEL-WRITE-INCOMPLETE"
    assert not list((tmp_path / "x").glob("*.parquet"))


@pytest.fixture
def bounded(spark_engine: SparkEngine, monkeypatch: pytest.MonkeyPatch) -> SparkEngine:
    """Give the engine with bounds that a test can reach."""
    monkeypatch.setattr(spark_engine, "driver", Driver(bound=Bound(rows=1_000)))
    monkeypatch.setattr("runnel.engine.spark.LIMITED_FROM", 0)
    return spark_engine


@pytest.mark.spark
@pytest.mark.parametrize("cost", ["DECIMAL(10,2)", "DOUBLE"], ids=["driver", "job"])
def test_one_changed_row_that_changes_every_row_is_written_by_spark(bounded: SparkEngine, cost: str) -> None:
    """One dimension row joins more rows than may come to the driver: the epoch stands, and the views over it too."""
    with runnel.memory(engine=bounded) as project:
        project.create_table("events", f"id BIGINT, c INT, cost {cost}, PRIMARY KEY (id)")
        project.create_table("dim", "c INT, name STRING, PRIMARY KEY (c)")
        with project.transaction() as tx:
            tx.insert("events", [{"id": n, "c": 1, "cost": n} for n in range(3_000)])
            tx.insert("dim", [{"c": 1, "name": "one"}])
        project.create_view("v", "SELECT e.id, d.name, e.cost + 1 AS cost FROM events e JOIN dim d ON e.c = d.c")
        project.create_view("w", "SELECT name, count(*) AS n FROM v GROUP BY name")
        with project.transaction() as tx:
            tx.update("dim", [{"c": 1, "name": "two"}])
        assert project.view("w").to_pylist() == [{"name": "two", "n": 3_000}]
        assert project.verify("v").ok


@pytest.mark.spark
def test_a_spark_write_that_loses_files_publishes_nothing(
    spark_engine: SparkEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows are counted on their way into Spark's writer, and files that went away meanwhile are missed."""
    whole = SparkEngine.write

    def losing(engine: SparkEngine, *arguments: Any, **more: Any) -> Any:
        written = whole(engine, *arguments, **more)
        files.delete(written.paths[0])
        return type(written)(written.paths[1:], written.rows)

    with runnel.memory(engine=spark_engine) as project:
        project.runtime.large = 0
        monkeypatch.setattr(spark_engine, "driver", Driver(changes=0))
        project.create_table("t", "id BIGINT, v INT, PRIMARY KEY (id)")
        with project.transaction() as tx:
            tx.insert("t", [{"id": n, "v": n} for n in range(100)])
        monkeypatch.setattr(SparkEngine, "write", losing)
        with pytest.raises(Terminal) as raised:
            project.create_view("v", "SELECT id, v + 1 AS w FROM t")
        assert raised.value.code == "RUNNEL-WRITE-INCOMPLETE"
        monkeypatch.setattr(SparkEngine, "write", whole)
        project.create_view("v", "SELECT id, v + 1 AS w FROM t WHERE v >= 0")
        project.create_view("none", "SELECT id FROM t WHERE v < 0")
        assert project.view("v").to_arrow().num_rows == 100
        assert project.view("none").to_arrow().num_rows == 0
