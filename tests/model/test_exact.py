"""Numbers from outside reach Arrow as they are, or are refused; none ends the process or becomes another number."""

from __future__ import annotations

import random
from datetime import datetime
from decimal import Decimal, localcontext
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import runnel
from runnel.connectors.base import TableInfo
from runnel.connectors.files.decode import decode
from runnel.connectors.files.listing import listing
from runnel.connectors.files.settings import Settings
from runnel.engine.duckdb import DuckDbEngine
from runnel.errors import RunnelError, Terminal
from runnel.model import types
from runnel.model.exact import exact_array, exact_cast, exact_decimal
from runnel.model.relation import Column

if TYPE_CHECKING:
    from pathlib import Path

EXTREMES = (
    "1e-999",
    "1e-9999999",
    "-1e-2147483640",
    "1e999",
    "1e9999999",
    "0.001",
    "340282366920938463463374607431768211461",  # 2^128 + 5
    "3402823669209384634633746074317682114.61",
    "1." + "0" * 5000 + "1",
    "1" * 5000,
)
FITTING = {"0e-9999999": "0.00", "1e2": "100.00", "1." + "0" * 5000: "1.00", "0e999999": "0.00", "-1.5": "-1.50"}


def test_random_numbers_are_exact_or_refused() -> None:
    chance = random.Random(6)
    with localcontext() as context:
        context.prec = 400
        for _ in range(3000):
            digits = tuple(chance.randrange(10) for _ in range(chance.randrange(1, 60)))
            number = Decimal((chance.randrange(2), digits, chance.randrange(-80, 60)))
            precision = chance.randrange(1, 39)
            scale = chance.randrange(precision + 1)
            shifted = number.scaleb(scale)
            fits = shifted == shifted.to_integral_value() and abs(shifted) < Decimal(10) ** precision
            try:
                array = exact_array([number], pa.decimal128(precision, scale))
            except ValueError:
                assert not fits, (number, precision, scale)
            else:
                assert fits
                assert array[0].as_py() == number, (number, precision, scale)


def _decoded(folder: Path, text: str, ending: str, type_: str) -> Any:
    (folder / "t").mkdir(exist_ok=True)
    (folder / "t" / f"1.{ending}").write_text(text)
    settings = Settings("s", folder, "feed", format=None)
    (file,) = listing(settings, "t", folder / "t").files()
    info = TableInfo("t", (Column("id", types.BIGINT), Column("n", types.parse(type_))))
    (changes,) = decode(file, info, settings)
    assert changes.signed is not None
    return changes.signed.column("n")[0].as_py()


@pytest.mark.parametrize("ending", ["jsonl", "csv"])
@pytest.mark.parametrize("number", EXTREMES, ids=lambda text: text[:20])
def test_a_number_that_a_decimal_cannot_hold_is_an_error_with_file_line_and_column(
    tmp_path: Path, number: str, ending: str
) -> None:
    text = f'{{"id": 1, "n": {number}}}\n' if ending == "jsonl" else f"id,n\n1,{number}\n"
    line = 1 if ending == "jsonl" else 2
    with pytest.raises(Terminal) as told:
        _decoded(tmp_path, text, ending, "decimal(10,2)")
    assert told.value.code == "RUNNEL-FILES-VALUE"
    assert f"feed/t/1.{ending}, line {line}" in str(told.value)
    assert "'n'" in str(told.value) or len(number) > 4300


@pytest.mark.parametrize("ending", ["jsonl", "csv"])
@pytest.mark.parametrize("number", FITTING, ids=lambda text: text[:20])
def test_a_number_that_fits_is_taken_however_it_is_written(tmp_path: Path, number: str, ending: str) -> None:
    text = f'{{"id": 1, "n": {number}}}\n' if ending == "jsonl" else f"id,n\n1,{number}\n"
    assert str(_decoded(tmp_path, text, ending, "decimal(10,2)")) == FITTING[number]


@pytest.mark.parametrize(
    ("type_", "value"),
    [
        ("array<decimal(10,2)>", "[1e-9999999]"),
        ("map<string,decimal(10,2)>", '{"a": 1e-9999999}'),
        ("struct<a:array<decimal(10,2)>>", '{"a": [1e-999]}'),
        ("double", "1e400"),
        ("float", "1e39"),
        ("bigint", "1e9999999"),
    ],
)
def test_nested_and_binary_numbers_are_bounded_too(tmp_path: Path, type_: str, value: str) -> None:
    with pytest.raises(Terminal, match="RUNNEL-FILES-VALUE"):
        _decoded(tmp_path, f'{{"id": 1, "n": {value}}}\n', "jsonl", type_)


def test_the_text_1e400_is_no_infinity(tmp_path: Path) -> None:
    with pytest.raises(Terminal, match="RUNNEL-FILES-VALUE"):
        _decoded(tmp_path, "id,n\n1,1e400\n", "csv", "double")
    assert _decoded(tmp_path, "id,n\n1,inf\n", "csv", "double") == float("inf")


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        (pa.array(["1e-9999999"]), pa.decimal128(10, 2)),
        (pa.array([["1e-9999999"]]), pa.list_(pa.decimal128(10, 2))),
        (pa.array([0.001]), pa.decimal128(10, 2)),
        (pa.array([[1e-300]]), pa.list_(pa.decimal128(10, 2))),
        (pa.array([1e300]), pa.float32()),
        (pa.array(["1e-999"]).dictionary_encode(), pa.decimal128(10, 2)),
    ],
)
def test_an_arrow_column_is_cast_without_loss_or_not_at_all(given: pa.Array, wanted: pa.DataType) -> None:
    with pytest.raises(pa.ArrowInvalid):
        exact_cast(pa.chunked_array([given]), wanted)


def test_a_double_means_its_shortest_decimal() -> None:
    found = exact_cast(pa.chunked_array([pa.array([0.1, -2.25, None])]), pa.decimal128(10, 2))
    assert found.to_pylist() == [Decimal("0.10"), Decimal("-2.25"), None]
    assert exact_decimal(Decimal("1e3"), 6, 2) == Decimal("1000.00")


@pytest.mark.parametrize(
    "row",
    [
        {"n": Decimal("1e-9999999")},
        {"n": "1e-999"},
        {"n": Decimal("1e9999999")},
        {"many": [Decimal("1e-9999999")]},
        {"named": {"a": Decimal("1e-9999999")}},
        {"inside": {"a": Decimal("1e-9999999")}},
        {"i": Decimal("1e9999999")},
        {"f": 1e39},
    ],
    ids=str,
)
def test_a_transaction_refuses_a_number_that_does_not_fit(row: dict[str, Any]) -> None:
    with runnel.memory(engine=DuckDbEngine()) as project:
        project.create_table(
            "t",
            "id BIGINT, n DECIMAL(10,2), many ARRAY<DECIMAL(10,2)>, named MAP<STRING, DECIMAL(10,2)>,"
            " inside STRUCT<a: DECIMAL(10,2)>, i BIGINT, f FLOAT",
        )
        with pytest.raises(RunnelError, match="RUNNEL-VALUE-TYPE"), project.transaction() as tx:
            tx.insert("t", [{"id": 1, **row}])
        table = pa.table({"id": [1], "n": ["1e-9999999"]})
        with pytest.raises(RunnelError, match="RUNNEL-VALUE-TYPE"), project.transaction() as tx:
            tx.insert("t", table)


@pytest.mark.parametrize(
    ("value", "given", "wanted"),
    [
        (datetime(2024, 1, 1, 5, 30), pa.timestamp("us"), pa.date32()),
        (2, pa.int64(), pa.bool_()),
        (0.5, pa.float64(), pa.bool_()),
    ],
)
def test_a_cast_that_leaves_a_part_of_a_value_out_is_refused(
    value: object, given: pa.DataType, wanted: pa.DataType
) -> None:
    with pytest.raises(pa.ArrowInvalid, match="is more than"):
        exact_cast(pa.chunked_array([pa.array([value], given)]), wanted)


def test_fields_of_structs_are_found_whatever_their_case() -> None:
    given = pa.struct([("A", pa.int64()), ("b", pa.list_(pa.struct([("Key", pa.string())])))])
    wanted = pa.struct([("a", pa.int32()), ("B", pa.list_(pa.struct([("key", pa.string())])))])
    rows = pa.chunked_array([pa.array([{"A": 1, "b": [{"Key": "x"}]}, None], given)])
    assert exact_cast(rows, wanted).to_pylist() == [{"a": 1, "B": [{"key": "x"}]}, None]
