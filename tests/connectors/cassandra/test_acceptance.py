"""The acceptance checks C.a to C.e and C.h for the techniques that ask the server, against a real one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.connectors.cassandra.ways import LOGS, WAYS, written

if TYPE_CHECKING:
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


@pytest.mark.parametrize("value", [9, 2])
@pytest.mark.parametrize("way", WAYS)
def test_c_b_a_value_deleted_and_set_again(shop: Shop, way: str, value: int) -> None:
    with written(shop, way) as (technique, writer):
        writer.set(b=2)
        shop.capture(technique)
        writer.delete("b")
        writer.set(b=value)
        expected = [] if way == "snapshot" and value == 2 else [text.format(value) for text in B_DELTAS[way]]
        assert shop.told(technique) == expected
