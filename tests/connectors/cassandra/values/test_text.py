"""Values are written as text that the server's own `fromJson` reads as the same bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from runnel.connectors.cassandra.client import Client
from runnel.connectors.cassandra.settings import Settings
from runnel.connectors.cassandra.values.text import to_json, to_text
from runnel.connectors.cassandra.values.types import parse

if TYPE_CHECKING:
    from tests.connectors.cassandra.conftest import Shop

VALUES = {
    "ascii": ["'plain'"],
    "text": ["''", "'say \"hi\"'", "'null'", "'ünïcödé ☃'"],
    "blob": ["0x", "0x00ff"],
    "boolean": ["true", "false"],
    "tinyint": ["-128"],
    "smallint": ["32767"],
    "int": ["-2147483648", "89"],
    "bigint": ["9223372036854775807"],
    "varint": ["123456789012345678901234567890", "-1"],
    "decimal": ["1.50", "-0.001", "1E+10"],
    "float": ["0.1", "-3.4e38", "NaN", "16777217"],
    "double": ["0.1", "1e300", "-Infinity"],
    "date": ["'2026-01-02'", "'1969-12-31'", "0", "2146764484", "4294967295"],
    "time": ["'23:59:59.999999999'"],
    "timestamp": ["'2026-01-02T03:04:05.678Z'", "'0001-01-01T00:00:00.000Z'", "253402300800001", "-62135596800001"],
    "frozen<list<timestamp>>": ["[-62135596800001, 0]"],
    "duration": ["1mo2d3ns", "-1y3h"],
    "uuid": ["d2177dd0-eaa2-11de-a572-001b779c76e3"],
    "inet": ["'127.0.0.1'", "'::1'"],
    "frozen<list<text>>": ["['a', '\"', 'null']", "[]"],
    "frozen<map<int, decimal>>": ["{1: 1.50, 2: -3}"],
    "frozen<set<uuid>>": ["{d2177dd0-eaa2-11de-a572-001b779c76e3}"],
    "frozen<tuple<int, text>>": ["(1, null)", "(1, 'x')"],
    "vector<float, 3>": ["[1, 2.5, -0.1]"],
}


@pytest.mark.cassandra
def test_text_is_read_back_by_the_server_as_the_same_bytes(shop: Shop) -> None:
    settings = Settings("shop", shop.keyspace, (shop.node.host,), shop.node.port)
    wrong = []
    with Client(settings) as client:
        for number, (type_name, literals) in enumerate(VALUES.items()):
            table = f"{shop.keyspace}.t{number}"
            type_ = parse(type_name)
            client.execute(f"CREATE TABLE {table} (k int PRIMARY KEY, v {type_name})")
            for at, literal in enumerate(literals):
                client.execute(f"INSERT INTO {table} (k, v) VALUES ({at}, {literal})")
                value = next(client.rows(f"SELECT v FROM {table} WHERE k = {at}"))[0]
                assert value is not None
                text = to_text(type_)(value)
                client.write(
                    [(f"INSERT INTO {table} (k, v) VALUES ({at + 100}, fromJson(?))", [to_json(type_, text).encode()])]
                )
                again = next(client.rows(f"SELECT v FROM {table} WHERE k = {at + 100}"))[0]
                if again != value:
                    wrong.append((type_name, literal, text))
    assert wrong == []


@pytest.mark.parametrize(
    ("type_name", "value", "text"),
    [
        ("int", "00000059", "89"),
        ("float", "3dcccccd", "0.1"),
        ("blob", "00ff", "0x00ff"),
        ("int", "", ""),
        ("frozen<map<text, int>>", "00000001 00000001 61 00000004 00000001", '{"a": 1}'),
        ("timestamp", "00000000000003e8", "1970-01-01 00:00:01.000Z"),
    ],
)
def test_values_have_one_text(type_name: str, value: str, text: str) -> None:
    assert to_text(parse(type_name))(bytes.fromhex(value)) == text
