"""Log techniques whatever clients write as times: what has expired, what a delete took, what an INSERT of NULLs is."""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING

import pytest

from runnel.connectors.cassandra.cells import Range
from runnel.connectors.cassandra.techniques import captured_cells
from runnel.errors import UsageError
from tests.connectors.cassandra.conftest import short
from tests.connectors.cassandra.offline import MICRO, Archive, number

if TYPE_CHECKING:
    from pathlib import Path

NOW = int(time.time())
AT = NOW * MICRO


@pytest.fixture
def log(tmp_path: Path) -> Archive:
    return Archive(tmp_path)


def test_a_back_dated_delete_is_expanded_into_what_it_took(log: Archive) -> None:
    log.row(1, 1, 10, v=1)
    log.row(1, 1, 30, w=2)
    log.delete_key(1, 20, NOW)
    assert log.told("log", expand=True) == ["ins v:1", "ins w:2", "del v (was 1)"]


def test_a_range_is_expanded_into_what_it_took(log: Archive) -> None:
    for c in (1, 2, 3):
        log.row(1, c, 10 * c, v=c)
    log.delete_range(1, Range((number(1),), True, (number(3),), False), 15, NOW)
    assert log.told("log", expand=True)[3:] == ["del v (was 1)"]


def test_a_delete_and_a_newer_value_in_one_mutation_are_a_delete_and_an_insertion(log: Archive) -> None:
    log.row(1, 1, 10, v=1)
    log.row(1, 1, 21, v=2, deleted=(20, NOW))
    assert log.told("log") == ["ins v:1", "del row ('1',)", "ins v:2"]


@pytest.mark.parametrize("technique", ["log", "log-partial"])
def test_a_back_dated_delete_does_not_hide_what_is_newer(log: Archive, technique: str) -> None:
    operation = "ins" if technique == "log" else "ups"
    log.row(1, 1, 10, v=1)
    log.row(1, 1, 30, w=2)
    log.delete_key(1, 20, NOW)
    assert log.told(technique, last=True) == [f"{operation} w:2", "del key"]


def test_the_last_operation_is_the_newest_not_the_one_logged_last(log: Archive) -> None:
    log.row(1, 1, 30, v=3)
    log.row(1, 1, 10, v=1)
    log.delete_key(2, 20, NOW)
    log.row(2, 1, 10, v=1)
    assert log.told("log-partial", last=True) == ["ups v:3", "del key"]


def test_a_write_dated_ahead_does_not_expire_what_lives(log: Archive) -> None:
    log.row(1, 1, AT, v=1, ttl=1_000_000, now=NOW)
    log.row(1, 1, AT + 10**15, w=2)
    assert log.told("log") == ["ins v:1", "ins w:2"]
    assert log.told("log-partial") == ["ups v:1", "ups w:2"]


def test_a_value_with_a_small_write_time_expires_by_the_clock(log: Archive) -> None:
    log.row(1, 1, 5, v=1, ttl=10, now=NOW - 100)
    log.row(1, 2, 6, v=1, ttl=1_000_000, now=NOW)
    for technique, operation in (("log", "ins"), ("log-partial", "ups")):
        found = log.capture(technique)
        assert sorted((d.time or 0, str(d.operation), d.cluster) for d in found) == [
            (5, operation, ("1",)),
            (6, operation, ("2",)),
            ((NOW - 90) * MICRO, "del", ("1",)),
        ]
        assert log.told(technique) == []


def test_what_expired_before_a_write_is_told_before_it_and_once(log: Archive) -> None:
    log.row(1, 1, AT - 100 * MICRO, v=1, ttl=10, now=NOW - 100)
    log.row(1, 1, AT - 50 * MICRO, v=2)
    log.row(1, 1, AT - 60 * MICRO, w=5, ttl=10, now=NOW - 40)
    assert log.told("log") == ["ins v:1", "del v (was 1)", "ins v:2", "ins w:5", "del w (was 5)"]
    assert log.told("log") == []


def test_an_expired_element_of_a_collection_is_told(log: Archive) -> None:
    log.element(1, 1, 1, 10, AT - 100 * MICRO, ttl=10, now=NOW - 100)
    log.element(1, 1, 2, 20, AT - 99 * MICRO)
    assert log.told("log") == [
        'ins m:{"1": 10}',
        'upd m:{"1": 10, "2": 20} (was {"1": 10})',
        'upd m:{"2": 20} (was {"1": 10, "2": 20})',
    ]
    assert log.told("log") == []
    assert log.told("log-partial") == ["ups m[1]:10", "ups m[2]:20", "del m[1]"]


def test_what_was_written_again_or_deleted_does_not_expire_in_the_partial_log(log: Archive) -> None:
    for c in (1, 2, 3, 4):
        log.row(1, c, 10, v=c, ttl=10, now=NOW - 100)
    log.row(1, 1, 20, v=9)
    log.row(1, 2, 5, v=9)
    log.delete_range(1, Range((number(3),), True, (number(3),), True), 20, NOW - 95)
    log.delete_range(1, Range((number(3),), False, (), True), 5, NOW - 95)
    found = log.capture("log-partial")[8:]
    assert [(str(d.operation), d.cluster, d.ttl) for d in found] == [("del", ("2",), 10), ("del", ("4",), 10)]


def test_an_insert_of_nulls_inserts_the_row_and_deletes_the_column(log: Archive) -> None:
    log.row(1, 1, 10, insert=True, v=None, now=NOW)
    log.row(2, 1, 10, v=5)
    log.row(2, 1, 20, insert=True, v=None, now=NOW)
    assert log.told("log") == ["ins :", "ins v:5", "upd : (was )", "del v (was 5)"]
    assert log.told("log-partial") == ["ups :", "del v", "ups v:5", "ups :", "del v"]


def test_what_has_expired_is_the_last_operation_whatever_its_time(log: Archive) -> None:
    log.row(1, 1, AT + 10**12, v=1, ttl=10, now=NOW - 100)
    log.row(1, 2, 5, v=1, ttl=10, now=NOW - 100)
    for technique in ("log", "log-partial"):
        assert log.told(technique, last=True) == ["del v (was 1)"] * 2 if technique == "log" else ["del v"] * 2


def test_a_write_after_an_expiry_is_the_last_operation_whatever_its_time(log: Archive) -> None:
    log.row(1, 2, 5, v=1, ttl=10, now=NOW - 100)
    log.row(1, 1, 5, insert=True, w=1, ttl=10, now=NOW - 50)
    log.row(1, 2, 6, v=2)
    assert log.told("log", last=True) == ["ins v:2", "del w (was 1)"]


def test_deltas_are_the_same_however_few_partitions_are_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of three cycles over keys that come again and again, some of whose values expire."""
    chosen, logs = random.Random(7), []
    for name in ("many", "few"):
        (tmp_path / name).mkdir()
        logs.append(Archive(tmp_path / name))
    found: list[list[list[str]]] = [[], []]
    for _ in range(3):
        for _ in range(60):
            k, c, v = (chosen.randrange(n) for n in (12, 2, 5))
            at, lives = AT - chosen.randrange(MICRO), chosen.random() < 0.3
            for log in logs:
                if v == 0:
                    log.delete_key(k, at, NOW)
                else:
                    log.row(k, c, at, v=v, ttl=1 if lives else 0, now=NOW - 5 if lives else 0)
        for at_log, (held, at_once) in enumerate([(50_000, 5_000), (2, 3)]):
            monkeypatch.setattr(captured_cells, "MOST_HELD", held)
            monkeypatch.setattr(captured_cells, "MUTATIONS_AT_ONCE", at_once)
            found[at_log].append(sorted(logs[at_log].told("log")))
    assert found[0] == found[1]
    assert all(found[0])
    assert {line.split()[0] for cycle in found[0] for line in cycle} == {"ins", "upd", "del"}


def test_the_full_log_is_read_since_a_position_without_being_remembered(log: Archive) -> None:
    log.row(1, 1, 10, v=1)
    assert log.told("log") == ["ins v:1"]
    position = log.position("log")
    log.row(1, 1, 20, v=2)
    for _ in range(2):
        assert [short(delta) for delta in log.capture("log", since=position)] == ["upd v:2 (was 1)"]
    assert log.position("log") == position
    assert log.told("log") == ["upd v:2 (was 1)"]


def test_cycles_of_an_earlier_version_are_refused_until_they_are_deleted(log: Archive) -> None:
    log.row(1, 1, 10, v=1)
    older = log.folder / ".runnel" / "capture" / "shop" / "log" / "state.json"
    older.parent.mkdir(parents=True)
    older.write_text("{}")
    with pytest.raises(UsageError, match="RUNNEL-CAPTURE-OLDER"):
        log.told("log")
    assert log.told("log-partial") == ["ups v:1"]
    older.unlink()
    assert log.told("log") == ["ins v:1"]
    older.write_text("{}")
    assert log.told("log") == [], "it goes on in the state, whatever the folder holds"
