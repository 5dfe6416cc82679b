from __future__ import annotations

import datetime as dt
import random
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from runnel.connectors.cassandra.schema.tables import build_tables, build_types
from runnel.connectors.cassandra.schema.text import parse_schema
from runnel.connectors.cassandra.values.decode import decoder
from runnel.connectors.cassandra.values.equality import canonical
from runnel.connectors.cassandra.values.order import sort_key
from runnel.connectors.cassandra.values.types import NATIVE, CqlType, Udt, parse
from runnel.connectors.cassandra.values.vints import read_signed, read_unsigned, write_signed, write_unsigned
from runnel.errors import Terminal
from runnel.model.types import to_arrow

ADDRESS = Udt("address", fields=(("street", CqlType("text")), ("zip", CqlType("int"))))
UDTS = {"address": ADDRESS, "Odd Name": Udt("Odd Name", fields=(("a", CqlType("int")),))}


@pytest.mark.parametrize(
    "text",
    [
        *[name for name in NATIVE if name != "empty"],
        "list<int>",
        "frozen<set<text>>",
        "map<text, frozen<list<int>>>",
        "frozen<tuple<int, text, frozen<set<uuid>>>>",
        "vector<float, 3>",
        "vector<text, 2>",
        "address",
        "frozen<address>",
        'list<frozen<"Odd Name">>',
        "'org.example.SomeType'",
        "'org.apache.cassandra.db.marshal.EmptyType'",
    ],
)
def test_a_type_is_written_as_it_was_read_and_has_a_place_in_arrow(text: str) -> None:
    type_ = parse(text, UDTS)
    assert str(type_) == text
    assert parse(str(type_), UDTS) == type_
    assert isinstance(to_arrow(type_.model_type), pa.DataType)


@pytest.mark.parametrize(
    "text", ["", "nothing", "list<int", "map<int>", "vector<int>", "list<int>>", "vector<int, 0>", "<"]
)
def test_other_types_are_refused(text: str) -> None:
    with pytest.raises(Terminal) as caught:
        parse(text)
    assert caught.value.code == "RUNNEL-CASSANDRA-TYPE"


def test_a_type_that_nests_without_end_is_refused() -> None:
    with pytest.raises(Terminal) as caught:
        parse("frozen<list<" * 500 + "int" + ">>" * 500)
    assert caught.value.code == "RUNNEL-CASSANDRA-TYPE"


@pytest.mark.parametrize(
    ("type_", "value", "expected"),
    [
        ("int", "fffffffe", -2),
        ("int", "", None),
        ("text", "c3bc", "ü"),
        ("text", "", ""),
        ("boolean", "01", True),
        ("decimal", "00000002 ff7f", Decimal("-1.29")),
        ("decimal", "fffffffe 01", Decimal("1E+2")),
        ("varint", "00ff", 255),
        ("date", "80000001", dt.date(1970, 1, 2)),
        ("time", "0000000000000005", 5),
        ("timestamp", "00000000000003e8", dt.datetime(1970, 1, 1, 0, 0, 1, tzinfo=dt.UTC)),
        ("inet", "7f000001", "127.0.0.1"),
        ("inet", "00000000000000000000000000000001", "::1"),
        ("uuid", "6ba7b8109dad11d180b400c04fd430c8", "6ba7b810-9dad-11d1-80b4-00c04fd430c8"),
        ("duration", "020406", {"months": 1, "days": 2, "nanoseconds": 3}),
        ("frozen<list<int>>", "00000001 00000004 00000007", [7]),
        ("frozen<map<text, int>>", "00000001 00000001 61 00000004 00000007", [("a", 7)]),
        ("frozen<tuple<int, text>>", "00000004 00000007 ffffffff", {"_1": 7, "_2": None}),
        ("frozen<address>", "00000001 61", {"street": "a", "zip": None}),
        ("vector<float, 2>", "3f800000 40000000", [1.0, 2.0]),
        ("vector<text, 2>", "01 61 00", ["a", ""]),
    ],
)
def test_values_are_decoded(type_: str, value: str, expected: Any) -> None:
    assert parse(type_, UDTS).decode(bytes.fromhex(value)) == expected


@pytest.mark.parametrize(
    ("type_", "value"),
    [
        ("int", "01"),
        ("timestamp", "7fffffff"),
        ("date", "ffffff"),
        ("uuid", "00"),
        ("inet", "01"),
        ("text", "ff"),
        ("decimal", "0000"),
        ("duration", "02"),
        ("frozen<list<int>>", "7fffffff"),
        ("frozen<list<int>>", "ffffffff"),
        ("frozen<list<int>>", "00000001 00000009 00"),
        ("frozen<list<int>>", "00000000 00"),
        ("frozen<address>", "00000001 61 00000004 00000001 00000001 61"),
        ("vector<float, 2>", "3f800000"),
        ("vector<text, 2>", "ff"),
    ],
)
def test_bytes_that_are_no_value_are_refused(type_: str, value: str) -> None:
    with pytest.raises(Terminal) as caught:
        parse(type_, UDTS).decode(bytes.fromhex(value))
    assert caught.value.code == "RUNNEL-CASSANDRA-VALUE"


@given(st.sampled_from([name for name in NATIVE if name != "counter"]), st.binary(max_size=40))
def test_any_bytes_are_decoded_or_refused(name: str, value: bytes) -> None:
    for type_ in (CqlType(name), parse(f"frozen<list<{name}>>") if name != "empty" else CqlType(name)):
        try:
            decoder(type_)(value)
        except Terminal as error:
            assert error.code == "RUNNEL-CASSANDRA-VALUE"


ORDERED = {
    "int": ["", "80000000", "ffffffff", "00000000", "7fffffff"],
    "double": ["fff0000000000000", "8000000000000000", "0000000000000000", "3ff0000000000000", "7ff8000000000000"],
    "decimal": ["00000000 f6", "00000002 ff", "00000000 00", "00000001 01", "fffffff0 01"],
    "text": ["", "61", "6161", "62", "c3bc"],
    "boolean": ["00", "01"],
    "timeuuid": [
        "00000001 0000 1000 80 80 808080808080",
        "00000001 0000 1000 80 80 7f0000000000",
        "00000002 0000 1000 80 80 000000000000",
        "00000000 0001 1000 80 80 000000000000",
    ],
    "uuid": ["00000000 0000 1000 80 80 000000000000", "00000000 0000 4000 80 80 000000000000"],
    "frozen<list<int>>": ["00000000", "00000001 00000004 00000001", "00000002 00000004 00000001 00000004 80000000"],
    "frozen<tuple<int, int>>": ["ffffffff ffffffff", "00000000", "00000004 00000001", "00000004 00000002"],
}


@pytest.mark.parametrize("type_", ORDERED)
def test_values_are_ordered_as_the_server_orders_them(type_: str) -> None:
    values = [bytes.fromhex(value) for value in ORDERED[type_]]
    shuffled = random.Random(1).sample(values, len(values))
    assert sorted(shuffled, key=sort_key(parse(type_))) == values


@given(st.integers(-(10**20), 10**20), st.integers(-5, 5), st.integers(0, 3), st.integers(0, 2))
def test_equal_decimals_have_one_form_and_it_is_equal(number: int, scale: int, zeros: int, padding: int) -> None:
    def written(unscaled: int, scale: int) -> bytes:
        width = unscaled.bit_length() // 8 + 1 + padding
        return scale.to_bytes(4, "big", signed=True) + unscaled.to_bytes(width, "big", signed=True)

    form = canonical(CqlType("decimal"))
    assert form is not None
    one, other = written(number, scale), written(number * 10**zeros, scale + zeros)
    assert form(one) == form(other) == form(form(one))
    key = sort_key(CqlType("decimal"))
    assert key(one) == key(other) == key(form(one))


@given(st.integers(0, (1 << 64) - 1), st.integers(-(1 << 63), (1 << 63) - 1))
def test_vints_are_read_as_they_were_written(unsigned: int, signed: int) -> None:
    assert read_unsigned(write_unsigned(unsigned), 0) == (unsigned, len(write_unsigned(unsigned)))
    assert read_signed(write_signed(signed), 0)[0] == signed


def test_user_defined_types_may_name_each_other_in_any_order() -> None:
    rows = [
        {"type_name": "b", "field_names": ["x"], "field_types": ["frozen<a>"]},
        {"type_name": "a", "field_names": ["y"], "field_types": ["int"]},
    ]
    assert str(build_types(rows)["b"].model_type) == "struct<x:struct<y:int>>"
    with pytest.raises(Terminal):
        build_types(rows[:1])


SCHEMA = """
-- what DESCRIBE ... WITH INTERNALS prints
CREATE KEYSPACE shop WITH replication = {'class': 'SimpleStrategy', 'replication_factor': '1'};
CREATE TYPE shop.address (street text, "Zip Code" int);
CREATE TABLE shop.orders (
    a int, b text, c timestamp, "D" decimal, s text static, l list<frozen<address>>, v int MASKED WITH default(),
    PRIMARY KEY ((a, b), c, "D")
) WITH ID = 5bc52802-de25-35ed-aeab-188eecebb090
    AND CLUSTERING ORDER BY (c DESC, "D" ASC)
    AND cdc = true AND comment = 'it''s; not a ( problem' AND compaction = {'class': 'x', 'y': '1'} AND gc_grace_seconds = 5;
ALTER TABLE shop.orders ADD gone map<text, int>;
ALTER TABLE shop.orders DROP gone USING TIMESTAMP 1700000000123000;
ALTER TYPE shop.address ADD country text;
CREATE INDEX i ON shop.orders (v);
USE shop;
/* a counter */ CREATE TABLE IF NOT EXISTS hits (id uuid PRIMARY KEY, n counter) WITH ID = 3afbe79f-2194-31a7-add7-f5ab90d8ec9c;
CREATE TABLE temporary (id int PRIMARY KEY) WITH ID = 3afbe79f-2194-31a7-add7-f5ab90d8ec9d; DROP TABLE temporary;
"""


def test_definitions_are_read_from_text() -> None:
    orders, hits = build_tables(parse_schema(SCHEMA))
    assert (orders.keyspace, orders.name, str(orders.id)) == ("shop", "orders", "5bc52802-de25-35ed-aeab-188eecebb090")
    assert [column.name for column in orders.columns] == ["a", "b", "c", "D", "s", "l", "v"]
    assert [(column.name, column.descending) for column in orders.clustering] == [("c", True), ("D", False)]
    assert str(orders.by_name["l"].type.model_type) == "array<struct<street:string,`Zip Code`:int,country:string>>"
    assert orders.dropped_at == {"gone": 1_700_000_000_123_000}
    assert str(orders.type_of("gone")) == "map<text, int>"
    assert (orders.cdc, orders.gc_grace_seconds, orders.is_counter, hits.is_counter) == (True, 5, False, True)


@pytest.mark.parametrize(
    "text",
    [
        "CREATE TABLE k.t (id int PRIMARY KEY)",
        "CREATE TABLE t (id int PRIMARY KEY) WITH ID = 3afbe79f-2194-31a7-add7-f5ab90d8ec9c",
        "CREATE TABLE k.t (id int, PRIMARY KEY (other)) WITH ID = 3afbe79f-2194-31a7-add7-f5ab90d8ec9c",
        "CREATE TABLE k.t (id int PRIMARY KEY) WITH COMPACT STORAGE",
        "CREATE TABLE k.t (id int",
        "ALTER TABLE k.t ADD v int",
    ],
)
def test_definitions_that_are_not_enough_are_refused(text: str) -> None:
    with pytest.raises(Terminal) as caught:
        parse_schema(text)
    assert caught.value.code == "RUNNEL-CASSANDRA-SCHEMA"


def test_keys_of_several_columns_are_taken_apart() -> None:
    text = "CREATE TABLE k.t (a int, b text, PRIMARY KEY ((a, b))) WITH ID = 3afbe79f-2194-31a7-add7-f5ab90d8ec9c"
    table = build_tables(parse_schema(text))[0]
    assert table.key_values(bytes.fromhex("0004 00000007 00 0002 6869 00")) == (7, "hi")
    with pytest.raises(Terminal):
        table.key_values(b"\x00\x04\x00")


def test_a_cell_says_which_element_it_is_and_its_value() -> None:
    text = """CREATE TYPE k.person (name text, age int);
    CREATE TABLE k.t (id int PRIMARY KEY, v int, m map<text, int>, s set<int>, l list<int>, u person)
      WITH ID = 3afbe79f-2194-31a7-add7-f5ab90d8ec9c"""
    table = build_tables(parse_schema(text))[0]
    seven = (7).to_bytes(4, "big")
    assert table.cell_values("v", None, seven) == (None, 7)
    assert table.cell_values("m", b"a", seven) == ("a", 7)
    assert table.cell_values("s", seven, b"") == (7, None)
    assert table.cell_values("l", bytes(16), seven) == ("00000000-0000-0000-0000-000000000000", 7)
    assert table.cell_values("u", b"\x00\x01", seven) == ("age", 7)
    for column, path in (("u", b"\x00\x05"), ("nothing", None)):
        with pytest.raises(Terminal) as caught:
            table.cell_values(column, path, seven)
        assert caught.value.code == "RUNNEL-CASSANDRA-COLUMN"
