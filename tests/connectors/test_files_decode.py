from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from runnel.errors import Terminal, UsageError

if TYPE_CHECKING:
    from tests.connectors.conftest import Feed

EVERYTHING = (
    "b BOOLEAN, i INT, l BIGINT, f DOUBLE, d DECIMAL(12,2), s STRING, x BINARY, day DATE, t TIMESTAMP, "
    "n TIMESTAMP_NTZ, a ARRAY<INT>, m MAP<STRING,INT>, r STRUCT<p:INT,q:STRING>"
)
ROW = {
    "b": True, "i": -5, "l": 2**40, "f": 1.5, "d": "12.50", "s": "ä", "x": "AAE=", "day": "2026-01-31",
    "t": "2026-01-31T10:00:00+02:00", "n": "2026-01-31 10:00:00.123456", "a": [1, None], "m": {"k": 1},
    "r": {"p": 1, "q": "z"},
}  # fmt: skip
READ = {
    "b": True, "i": -5, "l": 2**40, "f": 1.5, "d": Decimal("12.50"), "s": "ä", "x": b"\0\1",
    "day": dt.date(2026, 1, 31), "t": dt.datetime(2026, 1, 31, 8, tzinfo=dt.UTC),
    "n": dt.datetime(2026, 1, 31, 10, 0, 0, 123456), "a": [1, None], "m": [("k", 1)], "r": {"p": 1, "q": "z"}, "_weight": 1,
}  # fmt: skip


def test_json_lines_hold_every_type(feed: Feed) -> None:
    feed.rows("t/1.jsonl", ROW)
    assert feed.signed(schema={"t": EVERYTHING}) == [READ]


def test_csv_holds_every_type(feed: Feed) -> None:
    cells = ['"' + (v if isinstance(v, str) else json.dumps(v)).replace('"', '""') + '"' for v in ROW.values()]
    feed.write("t/1.csv.gz", ",".join(ROW) + "\n" + ",".join(cells) + "\n")
    assert feed.signed(schema={"t": EVERYTHING}) == [READ]


def test_parquet_tells_its_own_schema(feed: Feed) -> None:
    (feed.folder / "feed" / "orders").mkdir()
    pq.write_table(pa.table({"id": [1, 2], "_weight": [1, -3]}), feed.folder / "feed" / "orders" / "1.parquet")
    source = feed.open(schema={}, key={"orders": ["ID"]})
    (table,) = source.tables()
    assert (table.name, [str(column) for column in table.columns], table.key) == ("orders", ["id bigint"], ("id",))
    assert feed.signed(schema={}) == [{"id": 1, "_weight": 1}, {"id": 2, "_weight": -3}]


def test_csv_knows_null_from_an_empty_string(feed: Feed) -> None:
    feed.write("orders/1.csv", 'id,region,amount\n1,,\n2,"",3\n')
    assert [(row["region"], row["amount"]) for row in feed.signed()] == [(None, None), ("", Decimal("3.00"))]


def test_csv_settings_are_followed(feed: Feed) -> None:
    feed.write("orders/1.csv", "ID;amount;region;_weight\n1;2.5;NA;-2\n")
    (row,) = feed.signed(delimiter=";", null="NA")
    assert row == {"id": 1, "region": None, "amount": Decimal("2.50"), "_weight": -2}


def test_a_number_of_json_is_exact_in_a_decimal(feed: Feed) -> None:
    feed.write("orders/1.jsonl", '{"id": 1, "amount": 9999999999.99}\n')
    assert feed.signed()[0]["amount"] == Decimal("9999999999.99")


@pytest.mark.parametrize(
    ("file", "content", "told"),
    [
        ("1.jsonl", '{"id": 1}\n\n{"id": "x"}\n', ["line 3", "'id'", "'x'", "bigint"]),
        ("1.jsonl", '{"id": 1, "amount": 1.005}\n', ["line 1", "'amount'", "1.005", "decimal(12,2)"]),
        ("1.jsonl", '{"id": 9223372036854775808}\n', ["line 1", "'id'", "out of range"]),
        ("1.jsonl", '{"id": true}\n', ["line 1", "True", "bigint"]),
        ("1.jsonl", '{"id": 1, "region": 5}\n', ["'region'", "string"]),
        ("1.jsonl", '{"id": 1, "_weight": null}\n', ["line 1", "'_weight'", "missing"]),
        ("1.jsonl", '{"id": 1, "_weight": 1.5}\n', ["line 1", "'_weight'", "1.5"]),
        ("1.csv", "id,region,amount,_weight\n1,a,1,\n", ["_weight"]),
        ("1.csv", 'id,region,amount\n1,"a\nb",1\n2,c,x1\n', ["line 4", "'amount'", "'x1'", "decimal(12,2)"]),
        ("1.csv", "id,region,amount\n1,a,1\n0x10,b,1\n", ["line 3", "'0x10'", "bigint"]),
        ("1.csv", "id,region,amount\n1,a,1\n2,b\n", ["line 3", "2 fields", "3"]),
        ("1.jsonl", '{"id": 1, "region": "' + "y" * 500 + '", "amount": "' + "z" * 500 + '"}\n', ["zzz..."]),
    ],
)
def test_a_bad_value_is_told_with_file_line_column_value_and_type(
    feed: Feed, file: str, content: str, told: list[str]
) -> None:
    feed.write(f"orders/{file}", content)
    with pytest.raises(Terminal) as error:
        feed.read()
    text = str(error.value)
    assert f"feed/orders/{file}" in text
    assert all(part in text for part in told), text
    assert len(text) < 400


def test_a_parquet_value_that_does_not_fit_is_told_with_its_row(feed: Feed) -> None:
    (feed.folder / "feed" / "orders").mkdir()
    pq.write_table(pa.table({"id": [1, 2**40]}), feed.folder / "feed" / "orders" / "1.parquet")
    with pytest.raises(Terminal, match=r"row 2, column 'id': 1099511627776 is no int"):
        feed.read(schema={"orders": "id INT"})


@pytest.mark.parametrize("content", ['{"id": 1, "amuont": 2}\n', '{"op": "c", "after": {"id": 1, "amuont": 2}}\n'])
def test_an_unknown_column_brings_the_nearest_name(feed: Feed, content: str) -> None:
    feed.write("orders/1.jsonl", content)
    with pytest.raises(Terminal, match=r"RUNNEL-FILES-COLUMN.*'amuont'.*did you mean 'amount'"):
        feed.read()


def test_a_missing_csv_column_is_an_error(feed: Feed) -> None:
    feed.write("orders/1.csv", "id,region\n1,a\n")
    with pytest.raises(Terminal, match=r"RUNNEL-FILES-COLUMN.*'amount'"):
        feed.read()


@pytest.mark.parametrize("content", ["{]\n", "5\n", "[1]\n", '"a"\n'])
def test_a_line_that_is_no_row_is_told(feed: Feed, content: str) -> None:
    feed.write("orders/1.jsonl", '{"id": 1}\n' + content)
    with pytest.raises(Terminal, match=r"RUNNEL-FILES-SYNTAX.*line 2"):
        feed.read()


def test_text_without_a_schema_is_an_error_with_an_example(feed: Feed) -> None:
    feed.rows("orders/1.jsonl", {"id": 1})
    with pytest.raises(Terminal, match=r"RUNNEL-FILES-SCHEMA.*schema = "):
        feed.open(schema={}).tables()


def after(id_: int, amount: str = "1.00") -> dict[str, Any]:
    return {"id": id_, "region": "n", "amount": amount}


def test_envelopes_with_old_rows_become_signed_rows(feed: Feed) -> None:
    feed.rows(
        "orders/1.jsonl",
        {"before": None, "after": after(1), "op": "c", "source": {}, "ts_ms": 5},
        {"schema": {}, "payload": {"before": after(1), "after": after(1, "2.00"), "op": "u"}},
        {"before": after(1, "2.00"), "after": None, "op": "d"},
        None,
    )
    rows = [(str(row["amount"]), row["_weight"]) for row in feed.signed()]
    assert rows == [("1.00", 1), ("1.00", -1), ("2.00", 1), ("2.00", -1)]


def test_envelopes_without_old_rows_become_keyed_rows_in_order(feed: Feed) -> None:
    feed.rows(
        "orders/1.jsonl",
        {"after": after(1), "op": "r"},
        {"before": None, "after": after(1, "2.00"), "op": "u"},
        {"before": None, "after": after(9), "op": "c"},
        {"before": {"id": 1}, "after": after(2), "op": "u"},
        {"before": {"id": 9}, "after": None, "op": "d"},
    )
    first, signed, last = feed.read()
    assert first.keyed is not None
    assert last.keyed is not None
    assert [(row["id"], row["_op"]) for row in first.keyed.to_pylist()] == [(1, "upsert"), (1, "upsert")]
    assert signed.signed is not None
    assert signed.signed.column("_weight").to_pylist() == [1]
    assert [(row["id"], row["_op"]) for row in last.keyed.to_pylist()] == [(1, "delete"), (2, "upsert"), (9, "delete")]
    assert (first.place, last.place) == ("feed/orders/1.jsonl:1", "feed/orders/1.jsonl:4")


def test_envelopes_in_parquet_are_the_same(feed: Feed) -> None:
    row = pa.struct([("id", pa.int64()), ("amount", pa.decimal128(12, 2))])
    (feed.folder / "feed" / "orders").mkdir()
    one, two = {"id": 1, "amount": Decimal("1.00")}, {"id": 1, "amount": Decimal("2.00")}
    table = pa.table(
        {
            "before": pa.array([None, one], row),
            "after": pa.array([one, two], row),
            "op": pa.array(["c", "u"]),
        }
    )
    pq.write_table(table, feed.folder / "feed" / "orders" / "1.parquet")
    assert [(str(r["amount"]), r["_weight"]) for r in feed.signed(schema={})] == [
        ("1.00", 1),
        ("1.00", -1),
        ("2.00", 1),
    ]


@pytest.mark.parametrize(
    ("envelope", "told"),
    [
        ({"op": "t", "after": None}, "op 't'"),
        ({"op": "d", "before": None}, "does not tell the row's key"),
        ({"op": "u", "after": None}, "needs the row 'after'"),
    ],
)
def test_an_envelope_that_cannot_be_followed_is_told(feed: Feed, envelope: dict[str, Any], told: str) -> None:
    feed.rows("orders/1.jsonl", envelope)
    with pytest.raises(Terminal, match=f"RUNNEL-FILES-ENVELOPE.*line 1.*{told}"):
        feed.read()


def test_an_update_without_old_row_and_without_key_asks_for_a_key(feed: Feed) -> None:
    feed.rows("orders/1.jsonl", {"op": "u", "after": {"id": 1}})
    with pytest.raises(Terminal, match=r"RUNNEL-FILES-ENVELOPE.*declare its key"):
        feed.read(schema={"orders": "id BIGINT"})


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"pth": "x"}, "did you mean 'path'"),
        ({"format": "xml"}, "parquet, csv, jsonl"),
        ({"schema": "id INT"}, "one entry per table"),
        ({"schema": {"orders": "id INTT"}}, "did you mean 'int'"),
        ({"key": {"orders": ["idd"]}}, "RUNNEL-KEY-UNKNOWN"),
        ({"path": 5}, "must be a string"),
        ({"tables": "orders"}, "list of names"),
    ],
)
def test_wrong_settings_are_told_with_a_hint(feed: Feed, settings: dict[str, Any], told: str) -> None:
    with pytest.raises(UsageError, match=told):
        feed.open(**settings)


texts = st.text(st.characters(codec="utf-8", exclude_characters="\0"))
rows = st.lists(
    st.fixed_dictionaries(
        {
            "id": st.integers(-(2**63), 2**63 - 1),
            "region": st.none() | texts,
            "amount": st.none() | st.decimals(-9999999999, 9999999999, places=2).map(str),
        }
    ),
    min_size=1,
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows)
def test_rows_come_back_the_same_from_json_and_from_csv(feed: Feed, given_rows: list[dict[str, Any]]) -> None:
    feed.rows("orders/1.jsonl", *given_rows)
    cells = [[_cell(value) for value in (row["id"], row["region"], row["amount"])] for row in given_rows]
    feed.write("other/1.csv", "\n".join(["id,region,amount", *map(",".join, cells)]) + "\n")
    want = [row | {"amount": Decimal(row["amount"]) if row["amount"] else None, "_weight": 1} for row in given_rows]
    schema = "id BIGINT, region STRING, amount DECIMAL(12,2)"
    assert feed.signed(schema={"orders": schema}, tables=["orders"]) == want
    assert feed.signed(schema={"other": schema}, tables=["other"]) == want


def _cell(value: object) -> str:
    return "" if value is None else '"' + str(value).replace('"', '""') + '"'
