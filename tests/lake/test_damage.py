"""A flipped bit in the values of a data file is an error that names the file, never a number."""

from __future__ import annotations

import random
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import runnel
from runnel.engine.driver import Driver
from runnel.engine.duckdb import DuckDbEngine
from runnel.errors import RunnelError
from runnel.lake import files, footers, lookup

if TYPE_CHECKING:
    from runnel.engine.base import Engine
    from runnel.engine.spark import SparkEngine
    from runnel.project import Project


def start(engine: Engine) -> Project:
    """Make a table of random values."""
    chance = random.Random(1)
    project = runnel.memory(engine=engine)
    project.create_table("t", "id BIGINT, v BIGINT, name STRING, d DOUBLE", key=["id"])
    with project.transaction() as tx:
        tx.insert(
            "t", [{"id": n, "v": chance.randrange(10**12), "name": str(n), "d": chance.random()} for n in range(3000)]
        )
    return project


def flip(path: str, chance: random.Random, pages: int) -> bytes:
    """Flip one bit among the first bytes of a file; give its former contents."""
    data = Path(path).read_bytes()
    bad = bytearray(data)
    bad[chance.randrange(4, pages)] ^= 1 << chance.randrange(8)
    Path(path).write_bytes(bad)
    lookup.forget()
    footers._kept.clear()
    return data


def pages_end(path: str) -> int:
    """Say where the footer of a file begins."""
    data = Path(path).read_bytes()
    return len(data) - 8 - int.from_bytes(data[-8:-4], "little")


def test_no_flipped_bit_of_a_page_is_read_as_a_value() -> None:
    """Full reads by DuckDB and reads by Arrow: each flip has no effect on values, or is an error."""
    chance = random.Random(5)
    with start(DuckDbEngine()) as project:
        (file,) = project.runtime.lake.snapshot().files("t")
        relation = project.runtime.lake.snapshot().relations["t"]
        good, stored = project.table("t").to_arrow(), project.runtime.lake.read(relation, [file])
        end, errors = pages_end(file.path), 0
        for _ in range(150):
            data = flip(file.path, chance, end)
            for lane, right in (("duckdb", good), ("arrow", stored)):
                try:
                    found = project.table("t").to_arrow() if lane == "duckdb" else files.read(relation, [file])
                    assert found.sort_by("id").equals(right.sort_by("id"))
                except RunnelError as error:
                    errors += 1
                    if error.code == "RUNNEL-FILE-BROKEN":
                        assert error.place is not None
                        assert error.place.file == file.path
            Path(file.path).write_bytes(data)
        assert errors > 250


@pytest.mark.spark
def test_no_flipped_bit_of_a_page_is_read_as_a_value_by_spark(
    spark_engine: SparkEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark checks the pages that the driver wrote, and those it wrote itself are checked by the driver."""
    chance = random.Random(6)
    monkeypatch.setattr(spark_engine, "driver", Driver(changes=0))
    with start(spark_engine) as project:
        project.runtime.large = 0
        project.create_view("v", "SELECT id, v + 1 AS w FROM t")
        head = project.runtime.lake.snapshot()
        (file,), (made, *_) = head.files("t"), head.files("v")
        text = "SELECT sum(v) AS v, sum(d) AS d, max(name) AS m, sum(id) AS i FROM t"
        right, stored, errors = project.query(text).to_pylist(), files.read(head.relations["v"], [made]), 0
        for _ in range(10):
            data = flip(file.path, chance, pages_end(file.path))
            try:
                assert project.query(text).to_pylist() == right
            except RunnelError as error:
                errors += 1
                if error.code == "RUNNEL-FILE-BROKEN":
                    assert file.path in error.message
            Path(file.path).write_bytes(data)
            data = flip(made.path, chance, pages_end(made.path))
            try:
                assert files.read(head.relations["v"], [made]).equals(stored)
            except RunnelError:
                errors += 1
            Path(made.path).write_bytes(data)
        assert errors > 15
