"""Values of every type arrive as they are, in every store; what a store cannot hold is told, never changed."""

from __future__ import annotations

import datetime as dt
import json
import math
from decimal import Decimal
from itertools import product
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from runnel.connectors.cassandra.values.decode import decoder
from runnel.connectors.cassandra.values.encode import encoder
from runnel.connectors.cassandra.values.types import parse as parse_cql
from runnel.errors import RunnelError
from runnel.lake.lease import pinned
from runnel.model import types
from tests.connectors.targets.conftest import Front, state

if TYPE_CHECKING:
    from pathlib import Path

    from runnel.project import Project
    from tests.connectors.targets.stores import CassandraStore, PostgresStore, Store

MYSQL = ("mariadb", "mysql")
NOON = dt.datetime(2026, 1, 2, 12, 30, 15, 250_000)
AWARE = NOON.replace(tzinfo=dt.UTC)
SAME = object()
"""What arrives is what was sent."""
VALUES: list[tuple[str, Any, Any, Any]] = [
    ("boolean", True, SAME, SAME),
    ("tinyint", -128, SAME, SAME),
    ("smallint", 32767, SAME, SAME),
    ("int", -(2**31), SAME, SAME),
    ("bigint", 2**63 - 1, SAME, SAME),
    ("float", 0.5, SAME, SAME),
    ("double", 1.0e300, SAME, SAME),
    ("double", float("inf"), SAME, SAME),
    ("decimal(38,10)", Decimal("-1234567890123456789012345678.0123456789"), SAME, SAME),
    ("decimal(5,0)", Decimal("-7"), SAME, SAME),
    ("string", 'it\'s "Zürich"\\ \t\n€ 漢 \U0001f600', SAME, SAME),
    ("string", "", SAME, SAME),
    ("binary", b"\x00\xff\\", SAME, SAME),
    ("date", dt.date(1, 1, 1), SAME, SAME),
    ("date", dt.date(9999, 12, 31), SAME, SAME),
    ("timestamp", AWARE, SAME, NOON),
    ("timestamp_ntz", NOON, SAME, SAME),
    ("array<int>", [1, 2], SAME, SAME),
    ("array<string>", ["a,b", '"{}', ""], SAME, SAME),
    ("array<int>", [], SAME, SAME),
    ("array<array<int>>", [[1], [2, 3]], SAME, SAME),
    ("map<string,int>", [("z", 1), ("a", 2)], {"z": 1, "a": 2}, {"a": 2, "z": 1}),
    ("map<int,string>", [(2, "b"), (1, "a")], {"1": "a", "2": "b"}, {1: "a", 2: "b"}),
    (
        "struct<a:int,b:struct<c:decimal(6,2),d:array<string>>>",
        {"a": 1, "b": {"c": Decimal("1.50"), "d": ["x"]}},
        SAME,
        SAME,
    ),
    ("struct<a:int,b:string>", {"a": None, "b": "x"}, SAME, SAME),
    (
        "array<struct<f:date,g:boolean>>",
        [{"f": dt.date(2026, 1, 2), "g": None}],
        [{"f": "2026-01-02", "g": None}],
        SAME,
    ),
]


def create(project: Project, sent: list[tuple[str, Any]]) -> None:
    """Make a table with a column per value, a row that has them all and a row that has none."""
    columns = ", ".join(f"c{at:02} {type_}" for at, (type_, _) in enumerate(sent))
    project.create_table("t", f"id INT, {columns}", key=["id"])
    arrays = {"id": pa.array([1, 2], pa.int32())}
    for at, (type_, value) in enumerate(sent):
        arrays[f"c{at:02}"] = pa.array([value, None], types.to_arrow(types.parse(type_)))
    with project.transaction() as tx:
        tx.insert("t", pa.table(arrays))


def arriving(store: Store) -> list[tuple[str, Any, Any]]:
    """Give the values that are sent to a store, each with its type and what arrives."""
    found = []
    for type_, value, postgres, cassandra in VALUES:
        if store.type in MYSQL and isinstance(value, float) and math.isinf(value):
            continue
        arrives = cassandra if store.type == "cassandra" else postgres
        if store.type in MYSQL and type_ == "timestamp":
            arrives = NOON
        found.append((type_, value, value if arrives is SAME else arrives))
    return found


def rows_by_id(store: Store, nested: list[str]) -> dict[int, dict[str, Any]]:
    """Give the rows of `t`; MariaDB and MySQL have nested values as JSON text."""
    rows = store.rows("t")
    for row, name in product(rows, nested if store.type in MYSQL else []):
        row[name] = None if row[name] is None else json.loads(row[name], parse_float=Decimal)
    return {row.pop("id"): row for row in rows}


def test_values_of_every_type_arrive_and_change_to_null_and_back(front: Front) -> None:
    front.configure("t")
    values = arriving(front.store)
    expected = {f"c{at:02}": arrives for at, (_, _, arrives) in enumerate(values)}
    nested = [f"c{at:02}" for at, (type_, _, _) in enumerate(values) if types.nested(types.parse(type_))]
    with front.open() as project:
        create(project, [(type_, value) for type_, value, _ in values])
        project.run(once=True)
        assert rows_by_id(front.store, nested) == {1: expected, 2: dict.fromkeys(expected)}
        whole = project.table("t").to_arrow()
        for order in ([1, 0], [0, 1]):
            moved = whole.take(pa.array(order)).set_column(0, "id", pa.array([1, 2], pa.int32()))
            with project.transaction() as tx:
                tx.upsert("t", moved)
            project.run(once=True)
        assert rows_by_id(front.store, nested) == {1: expected, 2: dict.fromkeys(expected)}
        assert project.deliver(full=True)["front"].rows in (0, 2)


def test_not_a_number_arrives_or_is_told_with_its_row(front: Front) -> None:
    front.configure("t")
    with front.open() as project:
        create(project, [("double", math.nan), ("float", -math.inf), ("array<double>", [math.nan, 1.0])])
        if front.store.type in MYSQL:
            with pytest.raises(RunnelError, match=r"RUNNEL-TARGET-VALUE.*t: column 'c00' has nan.*the row with id = 1"):
                project.run(once=True)
            assert front.rows("t") == []
            return
        project.run(once=True)
        row = next(row for row in front.store.rows("t") if row["id"] == 1)
        assert math.isnan(row["c00"])
        assert row["c01"] == -math.inf
        assert math.isnan(row["c02"][0])


@pytest.mark.postgres
def test_json_has_no_numbers_for_infinity(postgres_store: PostgresStore, tmp_path: Path) -> None:
    front = Front(tmp_path, postgres_store)
    front.configure("t")
    with front.open() as project:
        sent: list[tuple[str, Any]] = [
            ("struct<a:double,b:double>", {"a": math.nan, "b": -math.inf}),
            ("struct<a:binary,b:timestamp>", {"a": b"\x00\xff", "b": AWARE}),
            ("map<string,int>", []),
            ("array<int>", [None, 1]),
        ]
        create(project, sent)
        project.run(once=True)
        row = next(row for row in front.store.rows("t") if row["id"] == 1)
        assert row["c00"] == {"a": "NaN", "b": "-Infinity"}
        assert row["c01"] == {"a": "AP8=", "b": "2026-01-02T12:30:15.250000+00:00"}
        assert row["c02"] == {}
        assert row["c03"] == [None, 1]


@pytest.mark.postgres
@pytest.mark.parametrize(
    ("type_", "value"),
    [
        ("string", "a\0b"),
        ("array<string>", ["a\0b"]),
        ("struct<a:string>", {"a": "a\0b"}),
        ("map<string,int>", [("a\0b", 1)]),
    ],
)
def test_a_nul_character_is_told_with_its_column(
    postgres_store: PostgresStore, tmp_path: Path, type_: str, value: Any
) -> None:
    front = Front(tmp_path, postgres_store)
    front.configure("t", "fine")
    with front.open() as project:
        create(project, [(type_, value)])
        project.create_view("fine", "SELECT id FROM t")
        with pytest.raises(RunnelError, match=r"RUNNEL-TARGET-VALUE.*t: column 'c00' has a NUL character.*id = 1"):
            project.run(once=True)
        assert front.rows("fine") == [(1,), (2,)]
        assert state(project, "fine").error is None
        project.sql("DELETE FROM t WHERE id = 1")
        project.run(once=True)
        assert front.rows("t", "id") == [(2,)]


@pytest.mark.cassandra
@pytest.mark.parametrize(
    ("type_", "value", "told"),
    [
        ("timestamp", AWARE.replace(microsecond=1), "milliseconds only"),
        ("array<int>", [1, None], "NULL in a collection"),
        ("map<string,int>", [("a", None)], "NULL in a collection"),
    ],
)
def test_what_cassandra_cannot_hold_is_told_with_its_column(
    cassandra_store: CassandraStore, tmp_path: Path, type_: str, value: Any, told: str
) -> None:
    front = Front(tmp_path, cassandra_store)
    front.configure("t", "fine", keys={"fine": ["id"]})
    with front.open() as project:
        create(project, [(type_, None)])
        project.create_view("fine", "SELECT id FROM t")
        project.run(once=True)
        with project.transaction() as tx:
            tx.upsert(
                "t",
                pa.table(
                    {"id": pa.array([1], pa.int32()), "c00": pa.array([value], types.to_arrow(types.parse(type_)))}
                ),
            )
        with pytest.raises(RunnelError, match=rf"RUNNEL-TARGET-VALUE.*t: column 'c00' has .*{told}"):
            project.run(once=True)
        assert front.rows("t", "c00") == [(None,), (None,)]
        project.sql("DELETE FROM t WHERE id = 1")
        project.run(once=True)
        assert front.rows("t", "id") == front.rows("fine", "id") == [(2,)]


def test_null_is_a_key_like_any_other_or_is_refused(front: Front) -> None:
    front.configure("v", "t")
    with front.open() as project:
        project.create_table("t", "id INT, a STRING, b INT, x INT", key=["id"])
        project.create_view("v", "SELECT a, b, sum(x) AS s FROM t GROUP BY a, b")
        project.sql("INSERT INTO t VALUES (1, NULL, 1, 1), (2, 'a', NULL, 2), (3, NULL, NULL, 3), (4, 'a', 1, 4)")
        if front.store.type == "cassandra":
            with pytest.raises(RunnelError, match=r"RUNNEL-TARGET-KEY-NULL.*'a' is NULL") as held:
                project.run(once=True)
            assert len(front.rows("t")) == 4
            with project.runtime.lake.catalog.read() as connection:
                assert pinned(connection) == [], held  # whoever keeps the error does not keep the epoch
            project.sql("DELETE FROM t WHERE id <> 4")
            project.run(once=True)
            assert front.rows("v", "a", "b", "s") == [("a", 1, 4)]
            return
        project.run(once=True)
        everything = [("a", 1, 4), ("a", None, 2), (None, 1, 1), (None, None, 3)]
        assert front.rows("v", "a", "b", "s") == sorted(everything, key=str)
        project.sql(
            "UPDATE t SET x = 10 WHERE id = 1; DELETE FROM t WHERE id = 3; INSERT INTO t VALUES (5, NULL, 7, 1)"
        )
        project.run(once=True)
        changed = [("a", 1, 4), ("a", None, 2), (None, 1, 10), (None, 7, 1)]
        assert front.rows("v", "a", "b", "s") == sorted(changed, key=str)
        front.store.run("INSERT INTO v (a, b, s) VALUES (NULL, 8, 8), ('z', NULL, 1), (NULL, NULL, 9)")
        assert project.deliver(full=True)["front"].rows == 3
        assert front.rows("v", "a", "b", "s") == sorted(changed, key=str)


def test_rows_that_repeat_are_as_many_in_sql(sql_front: Front) -> None:
    front = sql_front
    front.configure("bag", "one")
    with front.open() as project:
        project.create_table("t", "id INT, a STRING, x DOUBLE, m MAP<STRING,INT>", key=["id"])
        project.create_view("bag", "SELECT a, x, m FROM t")
        project.create_view("one", "SELECT count(*) AS n, sum(x) AS s FROM t")
        project.sql(
            "INSERT INTO t VALUES (1, 'a', 1, NULL), (2, 'a', 1, NULL), (3, 'a', 1, NULL), (4, NULL, NULL, NULL)"
        )
        project.run(once=True)
        assert front.rows("bag", "a", "x") == [("a", 1.0), ("a", 1.0), ("a", 1.0), (None, None)]
        assert front.rows("one", "n", "s") == [(4, 3.0)]
        project.sql("DELETE FROM t WHERE id IN (1, 4); UPDATE t SET x = 2 WHERE id = 2")
        project.sql("INSERT INTO t VALUES (5, 'a', 2, NULL), (6, 'a', 2, NULL)")
        project.run(once=True)
        assert front.rows("bag", "a", "x") == [("a", 1.0), ("a", 2.0), ("a", 2.0), ("a", 2.0)]
        front.store.run("DELETE FROM bag WHERE x = 2 AND _runnel_copy = 2", "UPDATE bag SET a = 'b' WHERE x = 1")
        assert project.deliver(full=True)["front"].rows == 2
        assert front.rows("bag", "a", "x") == [("a", 1.0), ("a", 2.0), ("a", 2.0), ("a", 2.0)]
        assert front.rows("one", "n", "s") == [(4, 7.0)]


def test_a_large_load_comes_in_parts(front: Front, monkeypatch: pytest.MonkeyPatch) -> None:
    from runnel.pipeline import deliver

    monkeypatch.setattr(deliver, "PART_ROWS", 7)
    front.configure("t", "v", *(["bag"] if front.store.type != "cassandra" else []))
    with front.open() as project:
        project.create_table("t", "id INT, a STRING, x DOUBLE", key=["id"])
        project.create_view("v", "SELECT a, sum(x) AS s FROM t GROUP BY a")
        project.create_view("bag", "SELECT a, x FROM t")
        values = ", ".join(f"({n}, 'a{n % 20}', {n % 3})" for n in range(200))
        project.sql(f"INSERT INTO t VALUES {values}")
        for _ in range(2):
            project.run(once=True)
            for name in project.config.targets[0].views:
                rows = project.table(name).to_pylist()
                columns = sorted(rows[0])
                expected = sorted((tuple(row[column] for column in columns) for row in rows), key=str)
                assert front.rows(name, *columns) == expected
            project.sql("DELETE FROM t WHERE id % 3 = 1; UPDATE t SET a = 'b' WHERE id % 7 = 0")


@pytest.mark.cassandra
def test_rows_that_repeat_are_refused_by_cassandra(cassandra_store: CassandraStore, tmp_path: Path) -> None:
    front = Front(tmp_path, cassandra_store)
    front.configure("bag")
    with front.open() as project:
        project.create_table("t", "id INT, a STRING", key=["id"])
        project.create_view("bag", "SELECT a FROM t")
    told = front.command("check", exit_code=1)
    assert "RUNNEL-TARGET-KEY" in told
    assert 'keys = { bag = ["id"] }' in told


CQL = [
    ("int", -5),
    ("varint", -(2**70)),
    ("decimal", Decimal("-12.340")),
    ("text", "x€"),
    ("blob", b"\0\1"),
    ("date", dt.date(1969, 12, 31)),
    ("timestamp", AWARE),
    ("uuid", "d2177dd0-eaa2-11de-a572-001b779c76e3"),
    ("inet", "::1"),
    ("time", 123_456_789),
    ("frozen<list<frozen<map<text, int>>>>", [[("a", 1), ("b", 2)], []]),
]


@pytest.mark.parametrize(("type_", "value"), CQL)
def test_what_is_encoded_is_decoded_again(type_: str, value: Any) -> None:
    parsed = parse_cql(type_)
    assert decoder(parsed)(encoder(parsed)(value)) == value
