"""`max_rows` bounds an epoch: never more than twice as many changes, and not less than half of them while more wait."""

from __future__ import annotations

import gzip
import json
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from runnel import config
from runnel.connectors import guarded_source
from runnel.connectors.cells import CLUSTERING, KEY
from runnel.errors import Place
from tests.connectors.cassandra.encoder import Cell, Row, Updated, body, write_segment
from tests.connectors.cassandra.offline import Archive, number

if TYPE_CHECKING:
    from pathlib import Path

    from runnel.connectors.base import ChangeSet, Source

MAX = 200


def taken(source: Source, most: int = MAX) -> list[int]:
    """Take range after range; give how many changes each has."""
    source.tables()
    found, at = [], source.initial_offset()
    while (end := source.latest_offset(at, most)) != at:
        found.append(sum(rows_of(changes) for changes in source.read(at, end)))
        source.commit(end)
        at = end
    source.close()
    return found


def rows_of(changes: ChangeSet) -> int:
    """Count the rows that changes are of; several cells may be of one."""
    if changes.cells is None:
        return changes.rows
    return len(set(zip(changes.cells[KEY].to_pylist(), changes.cells[CLUSTERING].to_pylist(), strict=True)))


def check(found: list[int], total: int, *, learned_after: int = 0) -> None:
    assert sum(found) == total
    assert max(found) <= 2 * MAX
    assert min(found[learned_after:-1], default=MAX) >= MAX // 2, found


def text(name: str, begin: int, rows: int, width: int) -> str:
    """Write rows of a format; every tenth is long."""
    wide = [("x" * width) if n % 10 == 0 else "x" for n in range(begin, begin + rows)]
    if name.startswith("csv"):
        return "id,s\n" + "".join(f'{begin + n},"{s}"\n' for n, s in enumerate(wide))
    return "".join(json.dumps({"id": begin + n, "s": s}) + "\n" for n, s in enumerate(wide))


@pytest.mark.parametrize("size", [30, 150, 2100])
@pytest.mark.parametrize("form", ["jsonl", "csv", "jsonl.gz", "csv.gz", "parquet"])
def test_files_of_any_size_and_format(tmp_path: Path, form: str, size: int) -> None:
    folder = tmp_path / "feed" / "t"
    folder.mkdir(parents=True)
    for number_, begin in enumerate(range(0, 2100, size)):
        path = folder / f"{number_:04}.{form}"
        if form == "parquet":
            pq.write_table(pa.table({"id": range(begin, begin + size), "s": ["x"] * size}), path)
            continue
        data = text(form, begin, size, 3000).encode()
        path.write_bytes(gzip.compress(data) if form.endswith("gz") else data)
    check(taken(files(tmp_path)), 2100)


def files(folder: Path) -> Source:
    settings = {"path": "feed", "schema": {"t": "id BIGINT, s STRING"}}
    return guarded_source(config.Source("s", "files", settings, Place("runnel.toml", 1)), folder)


def test_short_rows_after_long_ones_are_not_taken_for_long_ones(tmp_path: Path) -> None:
    folder = tmp_path / "feed" / "t"
    folder.mkdir(parents=True)
    for file in range(20):
        rows = [{"id": 0, "s": "x" * 70_000}, *({"id": n, "s": ""} for n in range(150))]
        (folder / f"{file:02}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    check(taken(files(tmp_path)), 20 * 151)


def test_records_of_csv_with_many_lines_are_counted_as_one(tmp_path: Path) -> None:
    (tmp_path / "feed" / "t").mkdir(parents=True)
    lines = "\n" * 9
    rows = "".join(f'{n},"a{lines}b"\n' for n in range(2100))
    (tmp_path / "feed" / "t" / "1.csv").write_text("id,s\n" + rows)
    check(taken(files(tmp_path)), 2100)


class Log(Archive):
    """A log of mutations of so many rows, with values of some size."""

    def mutation(self, k: int, rows: int, width: int) -> bytes:
        made = [
            Row((number(c),), (1000, 0, 0), cells=(Cell("v", number(1), 1000), Cell("s", b"x" * width, 1000)))
            for c in range(rows)
        ]
        return body(Updated(self.table, number(k), rows=tuple(made)))

    def fill(self, sections: list[list[bytes]]) -> Source:
        write_segment(self.folder / "logs", sections, id_=1)
        return guarded_source(config.load(self.folder).sources[0], self.folder)


COLUMNS = "k int, c int, s text, v int, PRIMARY KEY (k, c)"


@pytest.mark.parametrize("width", [0, 20, 2000])
@pytest.mark.parametrize("each", [1, 50, 1500])
def test_cassandra_s_log_whatever_a_row_and_a_sync_hold(tmp_path: Path, width: int, each: int) -> None:
    log = Log(tmp_path, COLUMNS)
    bodies = [log.mutation(k, 1, width) for k in range(1500)]
    check(taken(log.fill([bodies[at : at + each] for at in range(0, 1500, each)])), 1500)


def test_cassandra_s_log_that_turns_from_wide_rows_to_narrow_ones(tmp_path: Path) -> None:
    log = Log(tmp_path, COLUMNS)
    bodies = [log.mutation(k, 1, 5000 if k < 700 else 1) for k in range(1500)]
    check(taken(log.fill([bodies[at : at + 10] for at in range(0, 1500, 10)])), 1500)


def test_cassandra_s_log_of_batches_is_learned_from_the_first_range(tmp_path: Path) -> None:
    log = Log(tmp_path, COLUMNS)
    found = taken(log.fill([[log.mutation(k, 5, 10)] for k in range(600)]))
    assert found[0] <= 5 * MAX
    check(found[1:], 3000 - found[0])
