"""The acceptance checks C.a, C.b, C.d, C.e and C.i, each technique against a real server."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from runnel.connectors.deltas.forms import Separators, from_oplog, from_text
from tests.connectors.cassandra.conftest import short
from tests.connectors.cassandra.ways import LOGS, WAYS, written

if TYPE_CHECKING:
    from runnel.connectors.deltas.model import Delta
    from tests.connectors.cassandra.conftest import Shop

pytestmark = pytest.mark.cassandra

A_DELTAS = {
    "audit by time, wrapper": ["upd a:11", "ins d:5"],
    "audit by value, wrapper": ["upd a:11 (was 1)", "ins d:5"],
    "audit by time, trigger": ["upd a:11", "ins d:5"],
    "audit by value, trigger": ["upd a:11 (was 1)", "ins d:5"],
    "scan": ["ups a:11", "ups d:5"],
    "snapshot": ["del b (was 2)", "ins d:5", "upd a:11 (was 1)"],
    "log-partial": ["ups d:4", "ups d:5", "ups a:10", "ups a:11", "del b", "ups e:6", "del e"],
    "log": [
        "ins d:4",
        "upd d:5 (was 4)",
        "upd a:10 (was 1)",
        "upd a:11 (was 10)",
        "del b (was 2)",
        "ins e:6",
        "del e (was 6)",
    ],
    "tracking, trigger": ["del b (was 2)", "ins d:5", "upd a:11 (was 1)"],
    "tracking, wrapper": ["del b (was 2)", "ins d:5", "upd a:11 (was 1)"],
}
B_DELTAS = {
    "audit by time, wrapper": ["ins b:{}"],
    "audit by value, wrapper": ["ins b:{}"],
    "audit by time, trigger": ["ins b:{}"],
    "audit by value, trigger": ["ins b:{}"],
    "scan": ["ups b:{}"],
    "snapshot": ["upd b:{} (was 2)"],
    "log-partial": ["del b", "ups b:{}"],
    "log": ["del b (was 2)", "ins b:{}"],
    "tracking, trigger": ["upd b:{} (was 2)"],
    "tracking, wrapper": ["upd b:{} (was 2)"],
}


@pytest.mark.parametrize("way", WAYS)
def test_c_a_one_cycle_tells_what_its_technique_can_see(shop: Shop, way: str) -> None:
    with written(shop, way) as (technique, writer):
        writer.set(a=1, b=2, c=3)
        shop.capture(technique)
        writer.set(d=4)
        writer.set(d=5)
        writer.set(a=10)
        writer.set(a=11)
        writer.delete("b")
        writer.set(e=6)
        writer.delete("e")
        told = shop.told(technique)
        assert told == A_DELTAS[way] if technique in LOGS else sorted(told) == sorted(A_DELTAS[way])
        assert shop.told(technique) == []


@pytest.mark.parametrize("way", WAYS)
def test_c_b_a_value_deleted_and_set_again(shop: Shop, way: str) -> None:
    with written(shop, way) as (technique, writer):
        for value in (9, 2):
            writer.set(b=2)
            shop.capture(technique)
            writer.delete("b")
            writer.set(b=value)
            expected = [] if way == "snapshot" and value == 2 else [text.format(value) for text in B_DELTAS[way]]
            assert shop.told(technique) == expected


GRADES = """CREATE TABLE KS."Grades" (name text, semester text, "Mathematic" int, "Physics" int, PRIMARY KEY (name, semester))
WITH cdc = true"""
CELLS = [
    f'INSERT INTO KS."Grades" (name, semester, "Mathematic", "Physics") VALUES (\'Carol\', \'{s}\', 1, 2)' for s in "ab"
]
COLUMNS = [f"del {name} (was {value})" for _ in "ab" for name, value in (("Mathematic", 1), ("Physics", 2))]


@pytest.mark.parametrize(
    ("technique", "options", "expected"),
    [
        ("log", (), ["del key"]),
        ("log-partial", (), ["del key"]),
        ("log", ("--expand-deletes",), COLUMNS),
        ("snapshot", (), COLUMNS),
        ("trigger", (), COLUMNS),
    ],
)
def test_c_d_a_deleted_key_is_told_at_its_level_or_column_by_column(
    shop: Shop, technique: str, options: tuple[str, ...], expected: list[str]
) -> None:
    shop.configure(tables=["Grades"])
    shop.cql(GRADES, *CELLS)
    if technique == "trigger":
        shop.run("prepare", "shop", "--technique", technique)
    shop.capture(technique)
    shop.cql("DELETE FROM KS.\"Grades\" WHERE name = 'Carol'")
    assert sorted(shop.told(technique, *options)) == sorted(expected)


@pytest.mark.parametrize("technique", LOGS)
def test_c_d_the_last_operation_of_a_key_is_its_delete(shop: Shop, technique: str) -> None:
    shop.configure(tables=["Grades"], times=False)
    shop.cql(GRADES, *CELLS)
    shop.capture(technique)
    shop.cql(
        "UPDATE KS.\"Grades\" SET \"Mathematic\" = 5 WHERE name = 'Carol' AND semester = 'a'",
        "DELETE FROM KS.\"Grades\" WHERE name = 'Carol'",
    )
    shop.wait_for_log()
    text = shop.run("capture", "shop", "--technique", technique, "--last-per-key")
    assert text == f"del/{shop.keyspace}/Grades/Carol\n"


def test_rows_and_ranges_are_deleted_at_their_own_level(shop: Shop) -> None:
    shop.configure(tables=["t"])
    shop.cql(
        "CREATE TABLE KS.t (k int, a int, b int, v int, PRIMARY KEY (k, a, b)) WITH cdc = true",
        *(f"INSERT INTO KS.t (k, a, b, v) VALUES (1, {a}, {b}, 1)" for a in (1, 2, 3) for b in (1, 2)),
    )
    for technique in LOGS:
        shop.capture(technique)
    shop.cql(
        "DELETE FROM KS.t WHERE k = 1 AND a = 1 AND b = 1",
        "DELETE FROM KS.t WHERE k = 1 AND a = 2",
        "DELETE FROM KS.t WHERE k = 1 AND a >= 3 AND a < 9",
    )
    shop.wait_for_log()
    for technique in LOGS:
        lines = shop.run("capture", "shop", "--technique", technique).splitlines()
        places = [line.split("/")[4].rpartition("-")[0] for line in lines]
        assert places == ["1,1", "2", "[3[]9)"]
    assert shop.cql("SELECT a, b FROM KS.t") == [(1, 2)]


ODD = """CREATE TABLE KS.odd ("a/b" text, "c:d" text, "e-f" text, PRIMARY KEY ("a/b", "c:d")) WITH cdc = true"""


@pytest.mark.parametrize(
    "separators", [{}, {"level": "|", "value": "=", "time": "@"}, {"level": "#", "value": "/", "time": ":"}]
)
def test_c_e_text_is_read_back_as_the_json_tells_it(shop: Shop, separators: dict[str, str]) -> None:
    shop.configure(separators=separators, **{"tables": ["odd", "t"]})
    shop.cql(
        ODD,
        "INSERT INTO KS.odd (\"a/b\", \"c:d\", \"e-f\") VALUES ('k/1', 'null', 'v:1-2|3')",
        "INSERT INTO KS.odd (\"a/b\", \"c:d\", \"e-f\") VALUES ('k,@', 'x\\y', 'one\ntwo=')",
        "CREATE TABLE KS.t (k text PRIMARY KEY, v text)",
        "INSERT INTO KS.t (k, v) VALUES ('null', 'v')",
    )
    expected = shop.capture("scan", "--since", "0")
    text = shop.run("capture", "shop", "--technique", "scan", "--since", "0")
    parsed = [from_text(line, Separators(**separators)) for line in text.split("\n") if line]
    oplog = shop.run("capture", "shop", "--technique", "scan", "--since", "0", "--format", "oplog")
    assert sorted(map(str, parsed)) == sorted(str(delta.bare()) for delta in expected)
    assert sorted(str(from_oplog(line, Separators(**separators))) for line in oplog.split("\n") if line) == sorted(
        map(str, parsed)
    )
    level = separators.get("level", "/")
    assert f"{level}t{level}null{level}null{level}v" in text
    assert f"{level}\\null{level}" in text


def test_c_e_two_equal_separators_are_a_configuration_error(shop: Shop) -> None:
    shop.configure(separators={"level": "/", "value": "/"})
    assert "RUNNEL-CAPTURE-SEPARATOR" in shop.run("capture", "shop", "--technique", "scan", exit_code=2)


def test_c_i_expiry_is_a_delete_at_its_time_and_counters_are_told_as_counters(shop: Shop) -> None:
    shop.configure(tables=["t", "hits"])
    shop.cql(
        "CREATE TABLE KS.t (k int PRIMARY KEY, v int) WITH cdc = true",
        "CREATE TABLE KS.hits (k int PRIMARY KEY, n counter) WITH cdc = true",
    )
    for technique in LOGS:
        shop.capture(technique)
    shop.cql("UPDATE KS.t USING TTL 1 SET v = 1 WHERE k = 1", *["UPDATE KS.hits SET n = n + 2 WHERE k = 1"] * 2)
    expected = {
        "log": ["ins v:1", "ins n:2", "upd n:4 (was 2)", "del v (was 1)"],
        "log-partial": ["ups v:1", "ups n:2", "ups n:4", "del v"],
    }
    found: dict[str, list[Delta]] = {technique: [] for technique in LOGS}
    deadline = time.monotonic() + 60
    while any(len(found[technique]) < 4 for technique in LOGS):
        assert time.monotonic() < deadline, found
        for technique in LOGS:
            found[technique] += shop.capture(technique)
    for technique, deltas in found.items():
        assert [short(delta) for delta in deltas] == expected[technique]
        assert [delta.counter for delta in deltas] == [False, True, True, False]
        set_at, deleted_at = deltas[0].time or 0, deltas[3].time or 0
        assert deleted_at // 1_000_000 == set_at // 1_000_000 + 1


def test_a_truncated_table_and_a_dropped_column_are_told(shop: Shop) -> None:
    shop.configure(tables=["t"])
    shop.cql(
        "CREATE TABLE KS.t (k int PRIMARY KEY, v int, w int, m map<int, int>) WITH cdc = true",
        "INSERT INTO KS.t (k, v, w) VALUES (1, 1, 10)",
        "UPDATE KS.t USING TIMESTAMP 4000000000000000 SET v = 2, m[1] = 1 WHERE k = 2",
    )
    for technique in LOGS:
        shop.capture(technique)
    shop.cql(
        "ALTER TABLE KS.t DROP w", "TRUNCATE KS.t", "ALTER TABLE KS.t ADD w int", "UPDATE KS.t SET w = 3 WHERE k = 1"
    )
    found = {technique: shop.capture(technique) for technique in LOGS}
    assert [short(delta) for delta in found["log"]] == ["del w (was 10)", "del key", "del key", "ins w:3"]
    assert [short(delta) for delta in found["log-partial"]] == ["del w", "del table", "ups w:3"]
    assert [delta.key for delta in found["log-partial"][:2]] == [(), ()]
    dropped, truncated = (delta.time or 0 for delta in found["log-partial"][:2])
    assert 0 < truncated - dropped < 60_000_000
    assert sorted(delta.time or 0 for delta in found["log"][1:3]) == [truncated, 4_000_000_000_000_000]


def test_the_values_of_a_truncated_table_are_told_one_by_one_when_deletes_are_expanded(shop: Shop) -> None:
    shop.configure(tables=["t"])
    shop.cql(
        "CREATE TABLE KS.t (k int, c int, s int static, v int, PRIMARY KEY (k, c)) WITH cdc = true",
        "INSERT INTO KS.t (k, c, s, v) VALUES (1, 1, 7, 1)",
    )
    shop.capture("log")
    shop.cql("TRUNCATE KS.t")
    assert sorted(shop.told("log", "--expand-deletes")) == ["del s (was 7)", "del v (was 1)"]
