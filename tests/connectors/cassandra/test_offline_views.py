"""Views over copied log files: what the files say is what the views hold, however they come."""

from __future__ import annotations

import json
import shutil
import time
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner

import runnel
from runnel import config
from runnel.cli import app
from runnel.connectors.cassandra import open_source
from runnel.connectors.cassandra.log.mutation import Decoder
from runnel.engine.duckdb import DuckDbEngine
from runnel.errors import RunnelError
from runnel.lake.lake import Lake
from runnel.pipeline.versions import is_versions, time_text
from tests.connectors.cassandra.by_tasks import ByTasks
from tests.connectors.cassandra.encoder import Cell, Row, Updated
from tests.connectors.cassandra.offline import COLUMNS, Archive, number

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    import pyarrow as pa

    from runnel.lake.entries import DataFile
    from runnel.model.relation import Relation

NOW = int(time.time())


@pytest.fixture
def log(tmp_path: Path) -> Archive:
    return Archive(tmp_path)


def followed(log: Archive, *columns: str) -> list[tuple[Any, ...]]:
    """Run until caught up; give the rows of the table."""
    with runnel.open(log.folder, engine=DuckDbEngine()) as project:
        project.run(once=True)
        rows: Iterable[dict[str, Any]] = project.table("shop.t").to_pylist()
        return sorted((tuple(row[name] for name in columns) for row in rows), key=str)


def test_a_row_with_a_clustering_value_of_no_bytes_is_a_row(log: Archive) -> None:
    def write(value: int, time: int) -> None:
        row = Row((b"",), (time, 0, 0), cells=(Cell("v", number(value), time),))
        log.write(Updated(log.table, number(1), rows=(row,)))

    write(7, 10)
    log.row(1, 2, 10, v=2)
    assert followed(log, "k", "c", "v") == [(1, 2, 2), (1, None, 7)]
    write(8, 20)
    assert followed(log, "k", "c", "v") == [(1, 2, 2), (1, None, 8)]
    log.write(Updated(log.table, number(1), rows=(Row((b"",), deletion=(30, NOW)),)))
    assert followed(log, "k", "c", "v") == [(1, 2, 2)]
    assert log.told("log") == ["ins v:7", "ins v:2", "upd v:8 (was 7)", "del row ('',)"]


WIDE = "k int, c int, d date, t timestamp, n decimal, y varint, l list<date>, PRIMARY KEY (k, c)"
DAY_BEFORE_YEAR_1 = (2**31 - 719163).to_bytes(4, "big")
WIDE_VALUES = {
    "d": DAY_BEFORE_YEAR_1,
    "n": (0).to_bytes(4, "big") + (10**40).to_bytes(18, "big"),
    "t": (253402300800000).to_bytes(8, "big"),
    "y": (10**39).to_bytes(17, "big"),
}
WIDE_TEXTS = {"d": "0000-12-31", "n": f"1{'0' * 40}", "t": "+10000-01-01 00:00:00.000Z", "y": f"1{'0' * 39}"}


@pytest.fixture
def wide(tmp_path: Path) -> Archive:
    """Give a log with values that can be held, and one of each kind that cannot."""
    log = Archive(tmp_path, WIDE)
    for c, name in enumerate(WIDE_VALUES):
        log.write(Updated(log.table, number(1), rows=(Row((number(c),), cells=(Cell(name, b"", 5),)),)))
        cell = Cell(name, WIDE_VALUES[name], 10)
        log.write(Updated(log.table, number(1), rows=(Row((number(c),), cells=(cell,)),)))
    return log


def stopped(log: Archive) -> str:
    with pytest.raises(RunnelError) as error, runnel.open(log.folder, engine=DuckDbEngine()) as project:
        project.run(once=True)
    return str(error.value)


def test_a_value_that_cannot_be_held_is_named_with_its_place_and_can_be_passed(wide: Archive) -> None:
    for c, name in enumerate(WIDE_VALUES):
        said = stopped(wide)
        assert f"s.t: in the column {name} of the row k = 1, c = {c}, {WIDE_TEXTS[name]}" in said
        position = json.loads(said.split("--position '")[1].split("'")[0])
        assert json.dumps(position) in said.split("cannot be held")[1].split("of the log")[0]
        run(wide, "skip", "shop", "--position", json.dumps(position), "--reason", f"{name} is wrong there")
    assert followed(wide, "c", "d", "t", "n", "y") == [(c, None, None, None, None) for c in range(4)]
    assert "d is wrong there" in run(wide, "skip", "shop")
    assert "skipped" in run(wide, "status")
    assert len(wide.told("log-partial")) == 4, "captures go past them too"
    assert json.dumps(position) in run(wide, "status").replace("'", '"')
    kept = {path.name.partition("-")[0] for path in (wide.folder / ".runnel").iterdir()}
    assert kept == {"catalog.sqlite", "data"}, "the state knows them, and nothing else does"


def test_a_value_that_cannot_be_held_and_was_overwritten_stops_nothing(tmp_path: Path) -> None:
    log = Archive(tmp_path, WIDE)
    for value, when in ((WIDE_VALUES["y"], 10), (b"\x07", 20)):
        log.write(Updated(log.table, number(1), rows=(Row((number(1),), cells=(Cell("y", value, when),)),)))
    assert followed(log, "c", "y") == [(1, 7)]


def test_what_to_skip_and_why_has_to_be_said(wide: Archive) -> None:
    for arguments in (
        ("--position", '{"a": [1, 2]}'),
        ("--position", "{}", "--reason", "x"),
        ("--position", "12", "--reason", "x"),
    ):
        assert "RUNNEL-SKIP" in run(wide, "skip", "shop", *arguments, exit_code=2)


def test_values_that_cannot_be_held_are_null_or_text_where_that_is_wanted(wide: Archive) -> None:
    wide.configure(unrepresentable="null")
    assert followed(wide, "c", "d", "t", "n", "y") == [(c, None, None, None, None) for c in range(4)]
    shutil.rmtree(wide.folder / ".runnel")
    wide.configure(unrepresentable="text")
    assert followed(wide, "c", *WIDE_TEXTS) == [
        (c, *(WIDE_TEXTS[name] if c == at else None for at, name in enumerate(WIDE_TEXTS))) for c in range(4)
    ]


def test_deltas_have_values_that_cannot_be_held_as_text(wide: Archive) -> None:
    found = wide.capture("log-partial")
    assert [delta.value for delta in found][1::2] == list(WIDE_TEXTS.values())


def test_a_value_that_cannot_be_held_is_no_null_in_a_key(tmp_path: Path) -> None:
    log = Archive(tmp_path, "k int, c date, v int, PRIMARY KEY (k, c)")
    log.configure(unrepresentable="null")
    row = Row((DAY_BEFORE_YEAR_1,), (10, 0, 0), cells=(Cell("v", number(1), 10),))
    log.write(Updated(log.table, number(1), rows=(row,)))
    assert "in the column c of the row k = 1, c = 0000-12-31" in stopped(log)
    shutil.rmtree(log.folder / ".runnel")
    log.configure(unrepresentable="text")
    assert followed(log, "k", "c", "v") == [(1, "0000-12-31", 1)]


def test_a_mutation_that_cannot_be_decoded_can_be_passed(log: Archive) -> None:
    log.row(1, 1, 10, v=1)
    log.bodies.append(b"\x01" + log.table.id.bytes + b"\x04" + number(1) + b"\xff")
    log.row(1, 2, 10, v=2)
    said = stopped(log)
    assert "RUNNEL-CASSANDRA-LOG-BODY" in said
    position = said.split("--position '")[1].split("'")[0]
    run(log, "skip", "shop", "--position", position, "--reason", "damaged")
    assert followed(log, "c", "v") == [(1, 1), (2, 2)]
    assert log.told("log") == ["ins v:1", "ins v:2"]


def run(log: Archive, *arguments: str, exit_code: int = 0) -> str:
    """Run a command and give what it printed."""
    done = CliRunner(env={"RUNNEL_ENGINE": "duckdb"}).invoke(app, ["--project", str(log.folder), *arguments])
    assert done.exit_code == exit_code, f"{done.output}\n{done.stderr}\n{done.exception!r}"
    return done.stdout if exit_code == 0 else done.stderr


def test_a_copied_segment_that_has_grown_is_read_on(log: Archive) -> None:
    log.row(1, 1, 10, v=1)
    assert followed(log, "k", "c", "v") == [(1, 1, 1)]
    assert log.told("log") == ["ins v:1"]
    log.row(1, 2, 20, v=2)
    assert followed(log, "k", "c", "v") == [(1, 1, 1), (1, 2, 2)]
    assert log.told("log") == ["ins v:2"]
    log.row(1, 3, 30, v=3)
    log.bodies.clear()
    log.row(1, 4, 40, v=4, segment=2)
    assert followed(log, "c", "v") == [(1, 1), (2, 2), (3, 3), (4, 4)]
    assert log.told("log") == ["ins v:3", "ins v:4"]
    assert log.told("log") == []


def test_a_log_is_followed_from_a_position_on(log: Archive) -> None:
    log.row(1, 1, 10, v=1)
    log.row(1, 2, 20, v=2)
    source = open_source(config.load(log.folder).sources[0], log.folder)
    position = source.latest_offset({}, 1_000)
    source.close()
    log.row(1, 2, 30, v=3)
    log.row(1, 3, 30, v=4)
    log.configure(start=json.dumps({"hosts": position["hosts"]}).replace('"', '\\"'))
    assert followed(log, "c", "v") == [(2, 3), (3, 4)]
    assert log.told("log") == ["ins v:3", "ins v:4"]
    assert log.told("log") == []
    log.row(1, 4, 40, v=5)
    assert followed(log, "c", "v") == [(2, 3), (3, 4), (4, 5)]


@pytest.mark.parametrize("start", ["never", "{}", "[1, 2]", '{"a": [1]}'])
def test_what_is_no_place_to_start_is_refused(log: Archive, start: str) -> None:
    log.configure(start=start.replace('"', '\\"'))
    log.row(1, 1, 10, v=1)
    assert "RUNNEL-CONFIG-VALUE" in run(log, "capture", "shop", exit_code=2)


def test_a_column_that_the_schema_of_copied_logs_adds_is_filled(log: Archive) -> None:
    log.row(1, 1, 10, v=1)
    assert followed(log, "c", "v") == [(1, 1)]
    log.define(COLUMNS.replace("v int", "v int, added int"))
    log.row(1, 2, 20, v=2, added=7)
    assert followed(log, "c", "v", "added") == [(1, 1, None), (2, 2, 7)]


def history(log: Archive, *, column: str | None = "v", **bounds: Any) -> list[tuple[Any, ...]]:
    with runnel.open(log.folder, engine=DuckDbEngine()) as project:
        found = project.history("shop.t", {"k": 1, "c": 1}, column, **bounds)
        return [(entry["time"], entry["op"], entry["old"], entry["new"]) for entry in found]


def at(second: int) -> str:
    return time_text((NOW - 1000 + second) * 1_000_000)


@pytest.mark.parametrize("epoch", ["100ms", "transaction"])
def test_c_g_history_has_every_change_of_an_epoch_with_its_own_time(log: Archive, epoch: str) -> None:
    with (log.folder / "runnel.toml").open("a") as settings:
        settings.write(f'[run]\nepoch = "{epoch}"\n')
    base = (NOW - 1000) * 1_000_000
    for n in range(5):
        log.row(1, 1, base + n * 1_000_000, v=n)
        log.row(1, 2, base + n * 1_000_000, v=100)
    log.row(1, 1, base + 5_000_000, v=None, w=1, now=NOW - 995)
    log.row(1, 1, base + 6_000_000, deleted=(base + 6_000_000, NOW - 994))
    assert followed(log, "c", "v") == [(2, 100)]
    changes = [(at(0), "insert", None, 0)] + [(at(n), "update", n - 1, n) for n in range(1, 5)]
    assert history(log) == [*changes, (at(5), "update", 4, None)]
    assert history(log, since=at(2), until=at(4)) == changes[2:5]
    whole = history(log, column=None)
    assert [op for _, op, _, _ in whole] == ["insert", *["update"] * 5, "delete"]
    log.row(1, 1, base + 8_000_000, v=7)
    log.row(1, 1, base + 9_000_000, v=8)
    assert followed(log, "c", "v") == [(1, 8), (2, 100)]
    assert history(log)[6:] == [(at(8), "insert", None, 7), (at(9), "update", 7, 8)]


def test_history_tells_each_change_once_however_many_epochs_there_are(log: Archive) -> None:
    expected = []
    for n in range(6):
        log.row(1, 1, 2 * n, v=n)
        log.row(1, 1, 2 * n + 1, v=-n)
        followed(log, "c")
        expected += [n, -n] if n else [0]
    assert [new for _, _, _, new in history(log)] == expected


def test_what_expires_is_in_the_history_at_its_second(log: Archive) -> None:
    base = (NOW - 1000) * 1_000_000
    log.row(1, 1, base, v=1, ttl=10, now=NOW - 1000)
    log.row(1, 1, base + 1_000_000, w=2)
    followed(log, "c")
    assert history(log) == [(at(0), "insert", None, 1), (at(10), "update", 1, None)]


def test_what_came_and_expired_within_an_epoch_is_in_the_history(log: Archive) -> None:
    base = (NOW - 1000) * 1_000_000
    log.row(1, 1, base, insert=True, v=1, ttl=10, now=NOW - 1000)
    assert followed(log, "c") == []
    assert history(log) == [(at(0), "insert", None, 1), (at(10), "delete", 1, None)]


def test_the_versions_of_large_epochs_are_replaced_without_the_driver(
    log: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, read_files = list[str](), Lake.read

    def noted(lake: Lake, relation: Relation, files: Sequence[DataFile], *others: Any, **named: Any) -> pa.Table:
        read.extend([relation.name] if files else [])
        return read_files(lake, relation, files, *others, **named)

    expected = []
    for n in range(3):
        log.row(1, 1, 2 * n, v=n)
        log.row(1, 1, 2 * n + 1, v=-n)
        with runnel.open(log.folder, engine=ByTasks()) as project:
            monkeypatch.setattr(Lake, "read", noted)
            project.run(once=True)
            monkeypatch.undo()
        expected += [n, -n] if n else [0]
    assert [new for _, _, _, new in history(log)] == expected
    assert not any(is_versions(name) for name in read)


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """Give the bodies of mutations that are decoded from now on."""
    found, decode = list[bytes](), Decoder.decode

    def noted(decoder: Decoder, data: bytes) -> list[Any]:
        found.append(data)
        return decode(decoder, data)

    monkeypatch.setattr(Decoder, "decode", noted)
    return found


def test_copied_logs_are_opened_without_decoding_more_than_their_definitions(
    log: Archive, decoded: list[bytes]
) -> None:
    log.define("k int, c int, v int, w int, PRIMARY KEY (k, c)")
    log.insert_many((n, 1, 1) for n in range(100))
    with closing(open_source(config.load(log.folder).sources[0], log.folder)) as source:
        assert [table.name for table in source.tables()] == ["t"]
        assert decoded == []
        source.latest_offset({}, 1_000)
        assert len(decoded) <= 1


def test_whether_several_logs_have_news_is_known_without_reading_all_of_them(
    log: Archive, decoded: list[bytes]
) -> None:
    log.define("k int, c int, v int, w int, PRIMARY KEY (k, c)")
    log.insert_many((n, 1, 1) for n in range(100))
    shutil.copytree(log.folder / "logs", log.folder / "others")
    text = (log.folder / "runnel.toml").read_text().replace('logs = "logs/*"', 'logs = ["logs/*", "others/*"]')
    (log.folder / "runnel.toml").write_text(text)
    with closing(open_source(config.load(log.folder).sources[0], log.folder)) as source:
        begin: dict[str, Any] = {"hosts": {}, "time": 0, "tables": {}}
        assert source.latest_offset(begin, 1_000) != begin
        assert len(decoded) <= 2
