"""Odd values in change files: each is told with its file and line, none is guessed, none hangs or breaks the reader."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING

import pytest

from runnel.errors import Terminal, Transient

if TYPE_CHECKING:
    from tests.connectors.conftest import Feed

COLUMNS = {
    "l": "BIGINT", "d": "DECIMAL(12,2)", "f": "DOUBLE", "s": "STRING", "m": "MAP<STRING,INT>", "k": "MAP<INT,INT>",
    "a": "ARRAY<INT>",
}  # fmt: skip
SCHEMA = {"t": ", ".join(f"{name} {type_}" for name, type_ in COLUMNS.items())}
ODD = [
    '{"d": 1e999999999}', '{"d": "1e999999999"}', '{"d": 1e99999999999999999999999}', '{"l": 1e99999999}',
    '{"l": "1e5"}', '{"l": 1e-99999999}', '{"f": 1e999999999}', "[" * 100_000, '{"a": ' + "[" * 100_000,
    '{"s": "\\ud800"}', '{"l": "\\ud800"}', '{"d": "\\ud800"}', '{"m": {"\\ud800": 1}}',
    '{"l": 1, "_weight": 99999999999999999999}', '{"l": 1, "_weight": 1e99999999}', '{"m": [1, 2]}', '{"m": [[null, 1]]}',
    '{"m": [["a", 1], ["a", 2]]}', '{"k": {"1": 1, "01": 2}}', '{"l": "1_000"}', '{"d": "1_000"}', '{"f": "1_000"}',
    '{"l": "\\u0663"}', '{"d": "\\u0663"}', '{"f": "\\u0663"}', '{"l": 1, "l": 2}', '{"m": {"a": 1, "a": 2}}',
    '{"l": ' + "9" * 5000 + "}", '{"d": ' + "9" * 5000 + ".5}", '{"l": "0X10"}',
]  # fmt: skip


@pytest.mark.parametrize("end", ["\n", ""], ids=["ended", "open"])
@pytest.mark.parametrize("line", ODD, ids=[line[:40] for line in ODD])
def test_an_odd_value_of_json_is_told_with_file_and_line(feed: Feed, line: str, end: str) -> None:
    feed.write("t/1.jsonl", '{"l": 1}\n' + line + end)
    with pytest.raises(Terminal) as caught:
        feed.read(schema=SCHEMA)
    assert caught.value.code == "RUNNEL-FILES-VALUE", caught.value
    assert "feed/t/1.jsonl, line 2" in caught.value.message
    assert str(caught.value.place) == "feed/t/1.jsonl:2"
    assert caught.value.hint
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize(
    ("column", "text"),
    [
        ("d", "1e999999999"), ("d", "1_000"), ("d", "\u0663"), ("l", "\u0663"), ("l", "1_000"), ("f", "1_000"),
        ("a", "[" * 100_000), ("m", "[1,2]"), ("m", "[[null,1]]"), ("m", '"{""a"":1,""a"":2}"'), ("l", "1e99999999"),
    ],
)  # fmt: skip
def test_an_odd_value_of_csv_is_told_with_file_and_line(feed: Feed, column: str, text: str) -> None:
    feed.write("t/1.csv", f"{column};s\n;a\n{text};b\n")
    with pytest.raises(Terminal, match=r"RUNNEL-FILES-VALUE: feed/t/1\.csv, line 3"):
        feed.read(schema={"t": f"{column} {COLUMNS[column]}, s STRING"}, delimiter=";")


def test_whole_numbers_may_be_written_with_an_exponent(feed: Feed) -> None:
    feed.write("t/1.jsonl", '{"l": 1e3, "d": 1e3}\n{"l": 0e99, "d": 0e99}\n{"l": -2.0, "d": "-2.50"}\n')
    assert [(row["l"], row["d"]) for row in feed.signed(schema={"t": "l BIGINT, d DECIMAL(12,2)"})] == [
        (1000, Decimal("1000.00")),
        (0, Decimal("0.00")),
        (-2, Decimal("-2.50")),
    ]


def test_a_decimal_of_38_digits_is_exact(feed: Feed) -> None:
    number = "123456789012345678901234567890123456.78"
    feed.write("t/1.jsonl", '{"d": ' + number + '}\n{"d": "' + number + '"}\n{"d": 5}\n')
    assert str(feed.signed(schema={"t": "d DECIMAL(38,2)"})[0]["d"]) == number


@pytest.mark.parametrize("name", ["1.csv", "1.csv.gz"])
@pytest.mark.parametrize("delimiter", [",", ";"])
def test_a_csv_file_that_ends_inside_quotes_waits(feed: Feed, name: str, delimiter: str) -> None:
    text = 'l,s\n1,"a"\n2,"cut\n'.replace(",", delimiter)
    feed.write(f"t/{name}", text)
    settings = {"schema": {"t": "l BIGINT, s STRING"}, "delimiter": delimiter}
    with pytest.raises(Transient, match="RUNNEL-FILES-HALF"):
        feed.read(**settings)
    feed.write(f"t/{name}", text + 'here"\n')
    assert [row["s"] for row in feed.signed(**settings)] == ["a", "cut\nhere"]


def test_a_lone_quote_inside_a_value_is_no_open_value(feed: Feed) -> None:
    feed.write("t/1.csv", 'l,s\n1,5" wide\n')
    assert [row["s"] for row in feed.signed(schema={"t": "l BIGINT, s STRING"})] == ['5" wide']


def test_two_spellings_of_a_column_in_an_envelope_are_refused(feed: Feed) -> None:
    feed.rows("t/1.jsonl", {"op": "c", "after": {"l": 1, "L": 2}})
    with pytest.raises(Terminal, match="RUNNEL-FILES-COLUMN"):
        feed.read(schema={"t": "l BIGINT"})


def test_an_error_nobody_foresaw_names_the_file(feed: Feed, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError("unforeseen")

    monkeypatch.setattr("runnel.connectors.files.decode._rows", fail)
    feed.rows("t/1.jsonl", {"l": 1})
    with pytest.raises(Terminal, match=r"RUNNEL-FILES-VALUE: feed/t/1\.jsonl .*unforeseen"):
        feed.read(schema={"t": "l BIGINT"})
