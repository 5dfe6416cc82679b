"""A look-up finds exactly the rows of its keys, netted, and opens only files that can hold them."""

from __future__ import annotations

import math
import random
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from runnel.errors import Terminal
from runnel.lake import files, lookup
from runnel.model.relation import Kind, Relation
from tests.lake.samples import BAG, NESTED, ORDERS, TAKINGS, as_rows, columns, signed

if TYPE_CHECKING:
    from runnel.lake.lake import Lake

pytestmark = pytest.mark.usefixtures("lake")
PAIR = Relation("pair", Kind.TABLE, columns("a int; b string; t timestamp; v double"), ("a", "b"))


@pytest.fixture
def where(sqlite: Any) -> Any:
    """Look-ups read no catalog: one kind is enough."""
    return sqlite


def test_rows_are_netted_over_files(lake: Lake) -> None:
    written = [
        lake.write(ORDERS, signed(ORDERS, (1, "n", 1, 1), (2, "n", 1, 1))),
        lake.write(ORDERS, signed(ORDERS, (1, "n", 1, -1), (1, "s", 1, 1))),
        lake.write(ORDERS, signed(ORDERS, (2, "n", 1, -1))),
    ]
    assert as_rows(lake.lookup(ORDERS, written, pa.table({"id": [1, 2, 3]}))) == [(1, "s", 1, 1)]


def test_partials_are_added_up(lake: Lake) -> None:
    written = [lake.write(TAKINGS, signed(TAKINGS, ("n", 5, 1, 1), (None, 2, 1, 1))) for _ in range(3)]
    found = lake.lookup(TAKINGS, written, pa.table({"region": pa.array([None], pa.string())}))
    assert as_rows(found) == [(None, 6, 3, 3)]


def test_nothing_asked_or_nothing_there_gives_nothing(lake: Lake) -> None:
    file = lake.write(ORDERS, signed(ORDERS, (1, "n", 1, 1)))
    assert lake.lookup(ORDERS, [file], pa.table({"id": pa.array([], pa.int64())})).num_rows == 0
    assert lake.lookup(ORDERS, [], pa.table({"id": [1]})).num_rows == 0
    assert lake.lookup(ORDERS, [], pa.table({"id": [1]})).schema.names == ["id", "region", "amount", "_weight"]


def test_files_outside_the_keys_are_not_opened(lake: Lake) -> None:
    written = [lake.write(ORDERS, signed(ORDERS, *((n * 100 + i, "n", 1, 1) for i in range(10)))) for n in range(5)]
    for n in (0, 1, 3, 4):
        Path(written[n].path).unlink()
    assert lake.lookup(ORDERS, written, pa.table({"id": [150, 205, 350]})).num_rows == 1


def test_row_groups_outside_the_keys_are_not_read(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "ROW_GROUP", 10)
    file = lake.write(ORDERS, signed(ORDERS, *((i, "n", 1, 1) for i in range(100))))
    lookup.forget()
    monkeypatch.setattr(lookup, "SMALL_FILE", 0)
    read: list[int] = []
    original = pq.ParquetFile.read_row_groups

    def counting(self: Any, groups: list[int], **options: Any) -> pa.Table:
        read.extend(groups)
        return original(self, groups, **options)

    monkeypatch.setattr(pq.ParquetFile, "read_row_groups", counting)
    assert [row[0] for row in as_rows(lake.lookup(ORDERS, [file], pa.table({"id": [35, 71]})))] == [35, 71]
    assert set(read) == {3, 7}


@pytest.mark.parametrize("values", [0, 300, 12_000_000], ids=["nothing kept", "the column looked up by", "all columns"])
@pytest.mark.parametrize("keys", [[7], [3, 7, None], list(range(40))], ids=["one", "few", "many"])
def test_columns_that_stay_in_memory_change_nothing(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, values: int, keys: list[int | None]
) -> None:
    chance = random.Random(7)
    rows = [(n, "r", chance.choice([None, *range(40)]), 1) for n in range(300)]
    monkeypatch.setattr(files, "ROW_GROUP", 10)
    written = [lake.write(ORDERS, signed(ORDERS, *rows[:200])), lake.write(ORDERS, signed(ORDERS, *rows[200:]))]
    asked = pa.table({"amount": pa.array(keys, lake.arrow_schema(ORDERS).field("amount").type)})
    monkeypatch.setattr(lookup, "SMALL_FILE", 0)
    monkeypatch.setattr(lookup, "KEPT_VALUES", values)
    lookup.forget()
    for _ in range(2):  # the second time from memory
        found = as_rows(lake.lookup(ORDERS, written, asked))
        assert sorted(row[0] for row in found) == [row[0] for row in rows if row[2] in keys]
    assert any(part for _, part in lookup._memory.parts()) is (values >= 300 and (len(keys) < 30 or values > 300))
    lookup.forget()


def test_nan_and_null_keys_are_found(lake: Lake) -> None:
    rows = [("a", math.nan, 1), ("b", None, 1), ("c", 1.0, 1)]
    written = [lake.write(BAG, signed(BAG, row)) for row in rows]
    found = lake.lookup(BAG, written, pa.table({"price": pa.array([math.nan, None], pa.float64())}))
    assert sorted(found["item"].to_pylist()) == ["a", "b"]


def test_nested_keys_are_found(lake: Lake) -> None:
    file = lake.write(NESTED, signed(NESTED, (1, ["a"], None, None, 1), (2, ["b"], None, None, 1)))
    keys = pa.table({"tags": pa.array([["b"]], pa.list_(pa.string()))})
    assert lake.lookup(NESTED, [file], keys)["id"].to_pylist() == [2]


def test_an_unknown_key_column_is_refused(lake: Lake) -> None:
    with pytest.raises(Terminal, match=r"RUNNEL-COLUMN-UNKNOWN.*did you mean 'region'"):
        lake.lookup(ORDERS, [], pa.table({"regoin": ["n"]}))


def test_keys_of_another_type_are_refused(lake: Lake) -> None:
    with pytest.raises(Terminal, match="RUNNEL-KEY-TYPE"):
        lake.lookup(ORDERS, [], pa.table({"id": ["one"]}))


@pytest.mark.parametrize("seed", range(20))
def test_any_look_up_equals_a_scan(lake: Lake, seed: int) -> None:
    chance = random.Random(seed)

    def row() -> tuple[Any, ...]:
        moment = datetime.fromtimestamp(chance.randrange(5) * 1000, UTC)
        return (
            chance.choice([None, 1, 2, 3, 40]), chance.choice([None, "", "x", "y" * 70]), chance.choice([None, moment]),
            chance.choice([None, math.nan, 0.5, 2.0]), chance.choice([1, 1, -1]),
        )  # fmt: skip

    written = [lake.write(PAIR, signed(PAIR, *(row() for _ in range(chance.randrange(1, 12))))) for _ in range(4)]
    names = chance.choice([["a"], ["b"], ["a", "b"], ["t", "a"], ["v"], ["b", "v", "t"]])
    keys = signed(PAIR, *(row() for _ in range(3))).select(names)

    def key(values: dict[str, Any]) -> str:
        return repr([values[name] for name in names])

    asked = {key(values) for values in keys.to_pylist()}
    everything = lake.read(PAIR, written)
    expected: dict[str, int] = {}
    for values in everything.to_pylist():
        if key(values) in asked:
            weight = values.pop("_weight")
            expected[repr(values)] = expected.get(repr(values), 0) + weight
    found = {}
    for values in lake.lookup(PAIR, written, keys).to_pylist():
        weight = values.pop("_weight")
        found[repr(values)] = weight
    assert found == {text: weight for text, weight in expected.items() if weight}


def test_a_text_column_of_nothing_but_null_is_looked_up(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lookup, "SMALL_FILE", 0)
    file = lake.write(ORDERS, signed(ORDERS, *((i, None, 1, 1) for i in range(10))))
    lookup.forget()
    name = ORDERS.columns[1].name
    assert lake.lookup(ORDERS, [file], pa.table({name: ["x"]})).num_rows == 0
    assert lake.lookup(ORDERS, [file], pa.table({name: pa.array([None], pa.string())})).num_rows == 10


def test_floats_are_found_by_whatever_equals_them(lake: Lake) -> None:
    """0.0 equals -0.0 in SQL, and NaN itself, however its bits are set."""
    measured = Relation("measured", Kind.TABLE, columns("id int; d double; f float"), ("id",))
    values = [-0.0, 0.0, math.nan, 1.5]
    file = lake.write(measured, signed(measured, *((n, value, value, 1) for n, value in enumerate(values))))
    for name, type_ in (("d", pa.float64()), ("f", pa.float32())):
        for asked, ids in ((0.0, [0, 1]), (-0.0, [0, 1]), (math.nan, [2]), (1.5, [3])):
            found = lookup.find(measured, [file], pa.table({name: pa.array([asked], type_)}))
            assert sorted(found["id"].to_pylist()) == ids
