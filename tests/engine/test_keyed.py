"""A function over whole keys gives the same signed rows in the driver, in the second engine and in Spark's tasks."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark import TaskContext

from runnel.engine import keyed
from runnel.engine.base import Files, Rows
from runnel.engine.counts import counting
from runnel.engine.duckdb import DuckDbEngine
from runnel.engine.inputs import signed
from runnel.engine.keyed import Keyed
from runnel.engine.spark import SparkEngine
from runnel.errors import Place, Terminal
from runnel.lake.compaction import fold
from runnel.model import types
from runnel.model.relation import WEIGHT, Column, Kind, Relation

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from runnel.engine.base import Engine, Input

INT, TEXT = types.parse("int"), types.parse("string")
COLUMNS = (Column("hash", INT), Column("k", TEXT), Column("n", types.BIGINT))
STORED = Relation("s", Kind.STAGE, COLUMNS)
TOTALS, LOUD = Relation("totals", Kind.STAGE, COLUMNS), Relation("loud", Kind.STAGE, COLUMNS[:2])


def hashed(key: str) -> int:
    return zlib.crc32(key.encode()) - 2**31


def totals(stored: pa.Table, changed: pa.Table) -> Mapping[str, pa.Table]:
    """Add what changed to the number stored for each key; keys whose number passes 90 are told apart."""
    before = {row["k"]: row["n"] for row in stored.to_pylist()}
    after = dict(before)
    for row in changed.to_pylist():
        if row["n"] == 13:
            raise Terminal("RUNNEL-TEST", f"{row['k']} is unlucky", place=Place("here", 7), hint="mend it")
        after[row["k"]] = after.get(row["k"], 0) + row["n"]
    told = [(key, before[key], -1) for key in after if key in before and after[key] != before[key]]
    told += [(key, n, 1) for key, n in after.items() if n != before.get(key)]
    loud = [key for key, n in after.items() if n > 90]
    return {
        "totals": table(told),
        "loud": pa.table(
            {"hash": pa.array([hashed(key) for key in loud], pa.int32()), "k": pa.array(loud, pa.string())}
        ).append_column(WEIGHT, pa.array([1] * len(loud), pa.int64())),
    }


def table(rows: list[tuple[str, int, int]]) -> pa.Table:
    keys, numbers, weights = zip(*rows, strict=True) if rows else ((), (), ())
    return pa.table(
        {
            "hash": pa.array([hashed(key) for key in keys], pa.int32()),
            "k": pa.array(keys, pa.string()),
            "n": pa.array(numbers, pa.int64()),
            WEIGHT: pa.array(weights, pa.int64()),
        }
    )


BEFORE = table([(f"k{n}", n, 1) for n in range(100)] + [("k7", 7, -1), ("k7", 70, 1)])
CHANGED = table([(f"k{n % 150}", n, 1) for n in range(0, 300, 2)]).drop_columns([WEIGHT])


def by_engine(engine: Engine, folder: Path, changed: pa.Table) -> dict[str, list[tuple[object, ...]]]:
    pq.write_table(BEFORE, folder / "stored.parquet")
    stored = Files((str(folder / "stored.parquet"),), signed(COLUMNS), BEFORE.num_rows)
    outputs = {"totals": (TOTALS, str(folder / "totals")), "loud": (LOUD, str(folder / "loud"))}
    work = Keyed(totals, "hash", STORED, COLUMNS, outputs)
    inputs: dict[str, Input] = {"stored": stored, "changed": Rows(changed, COLUMNS)}
    written = engine.keyed(work, "SELECT * FROM `stored`", "SELECT * FROM `changed`", inputs)
    found = {}
    for name, files in written.items():
        read = [pq.read_table(path) for path in files.paths]
        assert sum(part.num_rows for part in read) == files.rows
        found[name] = plain(pa.concat_tables(read)) if read else []
    return found


def plain(rows: pa.Table) -> list[tuple[object, ...]]:
    return sorted(tuple(row.values()) for row in rows.to_pylist())


def expected() -> dict[str, list[tuple[object, ...]]]:
    return {name: plain(rows) for name, rows in totals(fold(STORED, BEFORE), CHANGED).items()}


def test_the_second_engine_gives_what_the_function_gives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keyed, "BUCKET_ROWS", 20)
    assert by_engine(DuckDbEngine(), tmp_path, CHANGED) == expected()
    assert len(list((tmp_path / "totals").iterdir())) > 1


@pytest.mark.spark
def test_sparks_tasks_give_what_the_function_gives(spark_engine: SparkEngine, tmp_path: Path) -> None:
    with counting() as counted:
        assert by_engine(spark_engine, tmp_path, CHANGED) == expected()
    done = counted.kinds["keyed"]
    assert (done.driver, done.spark) == (0, 1)
    assert done.tasks


@pytest.mark.spark
def test_an_error_in_a_task_comes_back_as_what_it_was(spark_engine: SparkEngine, tmp_path: Path) -> None:
    with pytest.raises(Terminal) as failed:
        by_engine(spark_engine, tmp_path, table([("k1", 13, 1)]).drop_columns([WEIGHT]))
    assert str(failed.value) == "RUNNEL-TEST: k1 is unlucky (here:7); mend it"


def where(stored: pa.Table, changed: pa.Table) -> Mapping[str, pa.Table]:
    """Give the number of the task that a range of keys is in."""
    context = TaskContext.get()
    assert context is not None
    return {"totals": table([("task", context.partitionId(), 1)])}


@pytest.mark.spark
def test_two_ranges_of_keys_are_the_work_of_two_tasks(spark_engine: SparkEngine, tmp_path: Path) -> None:
    engine = SparkEngine(spark_engine.session, conf={"spark.sql.shuffle.partitions": "2"})
    work = Keyed(where, "hash", STORED, COLUMNS, {"totals": (TOTALS, str(tmp_path / "totals"))})
    inputs: dict[str, Input] = {"changed": Rows(CHANGED, COLUMNS)}
    empty = f"SELECT *, CAST(1 AS BIGINT) AS `{WEIGHT}` FROM `changed` WHERE false"
    written = engine.keyed(work, empty, "SELECT * FROM `changed`", inputs)["totals"]
    found = pa.concat_tables([pq.read_table(path) for path in written.paths]).to_pylist()
    assert len({row["n"] for row in found}) == len(found) == 2
