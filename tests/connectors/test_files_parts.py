"""A Parquet file of many rows is taken in parts, and every part can be read again."""

from __future__ import annotations

import itertools
import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import runnel
from runnel.engine.duckdb import DuckDbEngine
from runnel.errors import Terminal

if TYPE_CHECKING:
    from pathlib import Path

    from runnel.connectors import Source
    from tests.connectors.conftest import Feed

SCHEMA = {"orders": "id BIGINT"}
ROWS = 1003


def parquet(feed: Feed, name: str = "2.parquet", first: int = 0, rows: int = ROWS) -> Path:
    path: Path = feed.folder / "feed" / "orders" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"id": range(first, first + rows)}), path, row_group_size=70)
    return path


def read(source: Source, start: Any, end: Any) -> list[int]:
    return [row["id"] for s in source.read(start, end) if s.signed is not None for row in s.signed.to_pylist()]


def positions(source: Source, max_rows: int, start: Any = None) -> list[Any]:
    found = [source.initial_offset() if start is None else start]
    while (end := source.latest_offset(found[-1], max_rows)) != found[-1]:
        found.append(json.loads(json.dumps(end)))  # as the state keeps it
    return found


@pytest.mark.parametrize("max_rows", [1, 69, 100, 501])
def test_no_range_of_a_parquet_file_has_more_than_twice_the_rows_asked_for(feed: Feed, max_rows: int) -> None:
    feed.rows("orders/1.jsonl", {"id": -1})
    parquet(feed)
    feed.rows("orders/3.jsonl", {"id": -3})
    source = feed.open(schema=SCHEMA)
    found = positions(source, max_rows)
    other = feed.open(schema=SCHEMA)  # another process, which has planned nothing
    ranges = [read(other, start, end) for start, end in itertools.pairwise(found)]
    assert max(map(len, ranges)) <= 2 * max_rows
    assert [id_ for ids in ranges for id_ in ids] == [-1, *range(ROWS), -3]
    assert read(other, found[0], found[-1]) == [-1, *range(ROWS), -3]
    assert read(other, found[1], found[-2]) == [id_ for ids in ranges[1:-1] for id_ in ids]
    assert "part" not in found[-1]["orders"]
    assert found[-1] == positions(feed.open(schema=SCHEMA), 1_000_000)[-1]
    assert all(source.covers(later, earlier) for earlier, later in itertools.pairwise(found))
    assert not any(source.covers(earlier, later) for earlier, later in itertools.pairwise(found))


def test_a_file_before_the_one_in_parts_is_late_and_one_after_it_waits(feed: Feed) -> None:
    parquet(feed)
    source = feed.open(schema=SCHEMA)
    start = source.latest_offset(source.initial_offset(), 300)
    feed.rows("orders/1.jsonl", {"id": -1})
    feed.rows("orders/3.jsonl", {"id": -3})
    found = positions(source, 300, start)
    ranges = [read(source, begin, end) for begin, end in itertools.pairwise(found)]
    assert [id_ for ids in ranges for id_ in ids] == [*range(300, ROWS), -3]
    assert source.lag(found[-1])["late"] == ["feed/orders/1.jsonl"]


def test_a_file_that_changes_or_goes_while_it_is_taken_in_parts_is_an_error(feed: Feed) -> None:
    path = parquet(feed)
    source = feed.open(schema=SCHEMA)
    start = source.latest_offset(source.initial_offset(), 300)
    parquet(feed, rows=ROWS + 50)
    with pytest.raises(Terminal, match="RUNNEL-FILES-CHANGED"):
        source.latest_offset(start, 300)
    path.unlink()
    with pytest.raises(Terminal, match="RUNNEL-FILES-GONE"):
        source.latest_offset(start, 300)


def test_max_rows_bounds_an_epoch_whatever_a_parquet_file_holds(tmp_path: Path) -> None:
    (tmp_path / "feed" / "t").mkdir(parents=True)
    pq.write_table(pa.table({"v": range(5000)}), tmp_path / "feed" / "t" / "1.parquet")
    (tmp_path / "runnel.toml").write_text(
        '[run]\nmax_rows = 700\n[sources.s]\ntype = "files"\npath = "feed"\nschema = { t = "v BIGINT" }\n'
    )
    with runnel.open(tmp_path, engine=DuckDbEngine(threads=1)) as project:
        project.run(once=True)
        taken = [record["rows_in"]["s.t"] for record in project.epochs() if record.get("rows_in")]
        assert sum(taken) == 5000
        assert max(taken) <= 2 * 700
    with runnel.open(tmp_path, engine=DuckDbEngine(threads=1)) as project:
        project.run(once=True)
        assert project.query("SELECT count(*) AS n, sum(v) AS s FROM t").to_pylist() == [{"n": 5000, "s": 12497500}]
