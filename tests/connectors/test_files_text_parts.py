"""Text files of many rows, plain and zipped, are taken in parts; every part can be read again, by anyone, and none is read twice."""

from __future__ import annotations

import csv
import gzip
import io
import itertools
import json
import os
import random
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import runnel
from runnel.connectors.files import open_files, row_reader
from runnel.engine.duckdb import DuckDbEngine
from runnel.errors import Terminal
from runnel.failpoints import KILL_AT

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from runnel.connectors import Source
    from tests.connectors.conftest import Feed

SCHEMA = {"orders": "id BIGINT, s STRING"}
ROWS = 503
FORMS = ("jsonl", "jsonl.gz", "csv", "csv.gz")
ODD = ("plain", 'a "quoted" word', "two\nlines", '"', "", ",", 'x"\n"y', "\ufeffmark", "ends\r")


def rows_of(count: int = ROWS) -> list[dict[str, Any]]:
    return [{"id": number, "s": ODD[number % len(ODD)]} for number in range(count)]


def text(rows: list[dict[str, Any]], form: str) -> bytes:
    if form.startswith("csv"):
        out = io.StringIO()
        csv.writer(out, lineterminator="\n", quoting=csv.QUOTE_NONNUMERIC).writerows(
            [["id", "s"], *(row.values() for row in rows)]
        )
        return b"\xef\xbb\xbf" + out.getvalue().encode()
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()


def write(feed: Feed, form: str, rows: list[dict[str, Any]], name: str = "2") -> Path:
    return feed.write(f"orders/{name}.{form}", text(rows, form))


def read(source: Source, start: Any, end: Any) -> list[dict[str, Any]]:
    found = [row for s in source.read(start, end) if s.signed is not None for row in s.signed.to_pylist()]
    return [{"id": row["id"], "s": row["s"]} for row in found]


def positions(source: Source, max_rows: int, start: Any = None) -> list[Any]:
    found = [source.initial_offset() if start is None else start]
    while (end := source.latest_offset(found[-1], max_rows)) != found[-1]:
        found.append(json.loads(json.dumps(end)))  # as the state keeps it
    return found


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("max_rows", [3, 70, 200])
def test_no_range_of_a_text_file_has_more_than_twice_the_rows_asked_for(feed: Feed, form: str, max_rows: int) -> None:
    feed.rows("orders/1.jsonl", {"id": -1, "s": ""})
    write(feed, form, rows_of())
    feed.rows("orders/3.jsonl", {"id": -3, "s": ""})
    source = feed.open(schema=SCHEMA)
    found = positions(source, max_rows)
    other = feed.open(schema=SCHEMA)  # another process, which has planned nothing
    ranges = [read(other, start, end) for start, end in itertools.pairwise(found)]
    assert max(map(len, ranges)) <= 2 * max_rows
    assert min(map(len, ranges)) > 0
    whole = [{"id": -1, "s": ""}, *rows_of(), {"id": -3, "s": ""}]
    assert [row for rows in ranges for row in rows] == whole
    assert read(other, found[0], found[-1]) == whole
    assert read(other, found[1], found[-2]) == [row for rows in ranges[1:-1] for row in rows]
    assert found[-1] == positions(feed.open(schema=SCHEMA), 1_000_000)[-1]
    assert all(source.covers(later, earlier) for earlier, later in itertools.pairwise(found))
    assert not any(source.covers(earlier, later) for earlier, later in itertools.pairwise(found))


def test_quotes_in_the_middle_of_a_value_do_not_move_where_a_csv_file_is_cut(feed: Feed) -> None:
    """Only a quote that begins a field opens one: a rule of thumb would cut inside the second value here."""
    chance, lines, expected = random.Random(7), ["id,s"], list[str]()
    for number in range(400):
        raw, value = chance.choice([('5" pipe', '5" pipe'), ('"a\nb"', "a\nb"), ('"a""\n,b"', 'a"\n,b'), ("x", "x")])
        lines.append(f"{number},{raw}")
        expected.append(value)
    feed.write("orders/1.csv", "\n".join(lines) + "\n")
    source = feed.open(schema=SCHEMA)
    for max_rows in (1, 2, 3, 50):
        found = positions(source, max_rows)
        ranges = [read(source, start, end) for start, end in itertools.pairwise(found)]
        assert [row["s"] for rows in ranges for row in rows] == expected


def test_a_byte_order_mark_that_begins_a_part_belongs_to_the_value(feed: Feed) -> None:
    values = [("\ufeff" if number % 3 else "") + f"v{number}" for number in range(60)]
    feed.write("orders/1.csv", "".join(f"{value}\n" for value in ["s", *values]))
    source = feed.open(schema={"orders": "s STRING"})
    found = positions(source, 5)
    sets = [s.signed for begin, end in itertools.pairwise(found) for s in source.read(begin, end)]
    assert [row["s"] for rows in sets if rows is not None for row in rows.to_pylist()] == values


@pytest.mark.parametrize("form", FORMS)
def test_a_bad_value_is_named_by_its_line_in_the_whole_file_and_can_be_mended(feed: Feed, form: str) -> None:
    bad = rows_of(300)
    bad[250]["id"] = "zero"
    path = write(feed, form, bad)
    source = feed.open(schema=SCHEMA)
    start, taken = source.initial_offset(), list[dict[str, Any]]()
    with pytest.raises(Terminal, match="RUNNEL-FILES-VALUE") as raised:
        while (end := source.latest_offset(start, 40)) != start:
            taken, start = taken + read(source, start, end), end
            source.commit(end)
    expected = 1 + text(bad[:250], form).count(b"\n")
    assert raised.value.place is not None
    assert raised.value.place.line == expected
    path.unlink()
    write(feed, form, rows_of(300))
    source = feed.open(schema=SCHEMA)
    for begin, end in itertools.pairwise(positions(source, 40, start)):
        taken += read(source, begin, end)
    assert taken == rows_of(300)


@pytest.mark.parametrize("form", FORMS)
def test_what_is_taken_of_a_file_must_not_change_but_it_may_grow(feed: Feed, form: str) -> None:
    path = write(feed, form, rows_of())
    before = path.read_bytes()
    start = feed.open(schema=SCHEMA).latest_offset({}, 100)
    other = rows_of()
    other[0]["id"], other[3]["id"] = 3, 0  # as long as before
    for changed in (other, rows_of(50)):
        write(feed, form, changed)
        with pytest.raises(Terminal, match="RUNNEL-FILES-CHANGED"):
            feed.open(schema=SCHEMA).latest_offset(start, 100)
        with pytest.raises(Terminal, match="RUNNEL-FILES-CHANGED"):
            read(feed.open(schema=SCHEMA), {}, start)
    write(feed, form, rows_of(ROWS + 77))
    source = feed.open(schema=SCHEMA)
    found = positions(source, 100, start)
    ranges = [read(source, begin, end) for begin, end in itertools.pairwise([{}, *found])]
    assert [row for rows in ranges for row in rows] == rows_of(ROWS + 77)
    path.write_bytes(before[:-9])
    with pytest.raises(runnel.errors.Transient, match="RUNNEL-FILES-HALF"):
        feed.open(schema=SCHEMA).latest_offset(start, 100)
    path.unlink()
    with pytest.raises(Terminal, match="RUNNEL-FILES-GONE"):
        feed.open(schema=SCHEMA).latest_offset(start, 100)


@pytest.mark.parametrize("form", FORMS)
def test_a_file_that_changes_between_plan_and_read_of_a_part_is_an_error(feed: Feed, form: str) -> None:
    write(feed, form, rows_of())
    source = feed.open(schema=SCHEMA)
    end = source.latest_offset({}, 100)
    write(feed, form, rows_of(60))
    with pytest.raises(Terminal, match="RUNNEL-FILES-CHANGED"):
        read(source, {}, end)


@pytest.mark.parametrize("form", FORMS)
def test_names_before_a_file_in_parts_are_late_and_none_that_was_read_is(feed: Feed, form: str) -> None:
    write(feed, form, rows_of())
    source = feed.open(schema=SCHEMA)
    start = source.latest_offset(source.initial_offset(), 100)
    feed.rows("orders/1.jsonl", {"id": -1})
    feed.rows("orders/3.jsonl", {"id": -3})
    found = positions(source, 100, start)
    ranges = [read(source, begin, end) for begin, end in itertools.pairwise(found)]
    assert [row["id"] for rows in ranges for row in rows][-2:] == [ROWS - 1, -3]
    assert source.lag(found[-1])["late"] == ["feed/orders/1.jsonl"]


def open_readers(source: Any) -> list[Any]:
    return [kept.reader for kept in source._files._kept]


def count_reads(monkeypatch: pytest.MonkeyPatch, kind: str) -> list[int]:
    """Count the bytes that are unzipped, or the rows that are decoded."""
    counted: list[int] = []
    if kind == "parquet":
        before = pq.ParquetFile.iter_batches

        def batches(self: Any, *args: Any, **options: Any) -> Iterator[pa.RecordBatch]:
            for batch in before(self, *args, **options):
                counted.append(batch.num_rows)
                yield batch

        monkeypatch.setattr(pq.ParquetFile, "iter_batches", batches)
        return counted
    unzipped = gzip.GzipFile.read1

    def read1(self: gzip.GzipFile, size: int = -1) -> bytes:
        counted.append(len(data := unzipped(self, size)))
        return data

    readinto = gzip.GzipFile.readinto

    def into(self: gzip.GzipFile, buffer: Any) -> int:
        counted.append(count := readinto(self, buffer))
        return count

    monkeypatch.setattr(gzip.GzipFile, "read1", read1)
    monkeypatch.setattr(gzip.GzipFile, "readinto", into)
    return counted


@pytest.mark.parametrize("form", ["jsonl.gz", "csv.gz", "parquet"])
def test_what_can_only_be_read_from_the_beginning_is_not_read_again_for_each_part(
    feed: Feed, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows, parts = [{"id": number, "s": "x" * 40} for number in range(20_000)], 40
    if form == "parquet":
        monkeypatch.setattr(row_reader, "BATCH", 300)
        (feed.folder / "feed" / "orders").mkdir()
        pq.write_table(pa.Table.from_pylist(rows), feed.folder / "feed" / "orders" / "1.parquet")  # one row group
        size = len(rows)
    else:
        write(feed, form, rows)
        size = len(text(rows, form))
    counted = count_reads(monkeypatch, form)
    source = feed.open(schema=SCHEMA)
    position, taken = source.initial_offset(), list[dict[str, Any]]()
    while (end := source.latest_offset(position, len(rows) // parts)) != position:
        taken += read(source, position, end)
        source.commit(end)
        position = end
    assert taken == rows
    # Once to see whether it is whole (twice for CSV), once to find the cuts, once to read; a beginning of CSV for each header.
    assert sum(counted) <= 8 * size
    assert open_readers(source) == []


def test_files_left_open_in_the_middle_are_few_and_closed_with_the_source(feed: Feed) -> None:
    for name in "abcdefg":
        feed.write(f"{name}/1.jsonl.gz", text(rows_of(), "jsonl"))
    source = feed.open(schema=dict.fromkeys("abcdefg", SCHEMA["orders"]))
    end = source.latest_offset({}, 20)
    list(source.read({}, end))
    kept = open_readers(source)
    assert 0 < len(kept) <= open_files.MOST_OPEN
    source.close()
    assert all(reader.closed for reader in kept)


CHILD = """
import sys, runnel
from runnel.engine.duckdb import DuckDbEngine
with runnel.open(sys.argv[1], engine=DuckDbEngine(threads=1)) as project:
    project.run(once=True)
"""


def test_a_run_killed_inside_a_file_goes_on_where_it_was(tmp_path: Path) -> None:
    tables = {form.replace(".", "_"): form for form in FORMS}
    for table, form in tables.items():
        (tmp_path / "feed" / table).mkdir(parents=True)
        data = text(rows_of(), form)
        (tmp_path / "feed" / table / f"1.{form}").write_bytes(gzip.compress(data) if form.endswith(".gz") else data)
    schema = ", ".join(f'{table} = "id BIGINT, s STRING"' for table in tables)
    (tmp_path / "runnel.toml").write_text(
        f'[run]\nmax_rows = 100\n[sources.s]\ntype = "files"\npath = "feed"\nschema = {{ {schema} }}\n'
    )
    with runnel.open(tmp_path, engine=DuckDbEngine(threads=1)):
        pass  # the tables exist before the first epoch
    for point in ("epoch:before-release", "epoch:captured", "publish:before-commit", "epoch:before-release"):
        command = [sys.executable, "-c", CHILD, str(tmp_path)]
        killed = subprocess.run(command, check=False, env={**os.environ, KILL_AT: point}, capture_output=True)
        assert killed.returncode == -signal.SIGKILL, killed.stderr
    with runnel.open(tmp_path, engine=DuckDbEngine(threads=1)) as project:
        project.run(once=True)
        for table in tables:
            assert sorted(project.table(f"s.{table}").to_pylist(), key=lambda row: row["id"]) == rows_of()
        taken = [rows for record in project.epochs() for rows in record.get("rows_in", {}).values()]
        assert sum(taken) == len(tables) * ROWS
        assert max(taken) <= 2 * 100


def test_an_epoch_for_each_transaction_takes_a_file_whole(tmp_path: Path) -> None:
    """A file is what a files source has of a transaction; only one of more than twice max_rows is cut."""
    feed = tmp_path / "feed" / "t"
    feed.mkdir(parents=True)
    pq.write_table(pa.table({"v": range(5)}), feed / "1.parquet")
    for name, count in (("2.jsonl", 7), ("3.jsonl", 30)):
        (feed / name).write_text("".join(f'{{"v": {number}}}\n' for number in range(count)))
    (tmp_path / "runnel.toml").write_text(
        '[run]\nepoch = "transaction"\nmax_rows = 10\n[sources.s]\ntype = "files"\npath = "feed"\nschema = { t = "v INT" }\n'
    )
    with runnel.open(tmp_path, engine=DuckDbEngine(threads=1)) as project:
        project.run(once=True)
        taken = [record["rows_in"]["s.t"] for record in project.epochs() if record.get("rows_in")]
        assert taken == [5, 7, 10, 20]
