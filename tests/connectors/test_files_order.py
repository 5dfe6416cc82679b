from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from runnel.errors import RunnelError, Terminal, Transient, Unreachable

if TYPE_CHECKING:
    from runnel.connectors import Source
    from tests.connectors.conftest import Feed

TWO = {"orders": "id BIGINT", "shops": "id BIGINT"}


def ids(source: Source, max_rows: int = 1_000_000, *, single: bool = False) -> list[list[tuple[str, int]]]:
    """Read to the end range by range; give each range's (table, id)."""
    position = source.initial_offset()
    ranges = []
    while (end := source.latest_offset(position, max_rows, single=single)) != position:
        sets = list(source.read(position, end))
        again = list(source.read(position, end))
        assert [s.signed for s in sets] == [s.signed for s in again]
        ranges.append([(s.table, row["id"]) for s in sets if s.signed is not None for row in s.signed.to_pylist()])
        source.commit(end)
        position = end
    return ranges


def test_files_are_read_in_the_order_of_their_names_across_tables(feed: Feed) -> None:
    feed.rows("shops/02.jsonl", {"id": 2})
    feed.rows("orders/03.jsonl", {"id": 3})
    feed.rows("orders/01.jsonl", {"id": 1})
    assert ids(feed.open(schema=TWO)) == [[("orders", 1), ("shops", 2), ("orders", 3)]]


def test_a_range_is_cut_between_files_by_the_number_of_rows(feed: Feed) -> None:
    for number in range(5):
        table = pa.table({"id": [number * 10, number * 10 + 1]})
        (feed.folder / "feed" / "orders").mkdir(exist_ok=True)
        pq.write_table(table, feed.folder / "feed" / "orders" / f"{number}.parquet")
    ranges = ids(feed.open(schema={}), max_rows=4)
    assert [len(rows) for rows in ranges] == [4, 4, 2]
    assert [len(rows) for rows in ids(feed.open(schema={}), max_rows=1)] == [2, 2, 2, 2, 2]


def test_text_files_are_cut_by_an_estimate_and_at_least_one_is_taken(feed: Feed) -> None:
    for number in range(3):
        feed.rows(f"orders/{number}.jsonl", *({"id": number} for _ in range(100)))
    assert [len(rows) for rows in ids(feed.open(schema=TWO), max_rows=200)] == [200, 100]
    assert [len(rows) for rows in ids(feed.open(schema=TWO), max_rows=99)] == [100, 100, 100]
    assert [len(rows) for rows in ids(feed.open(schema=TWO), max_rows=200, single=True)] == [100, 100, 100]


def test_unfinished_and_hidden_files_are_left_alone(feed: Feed) -> None:
    feed.rows("orders/1.jsonl", {"id": 1})
    for name in (".2.jsonl", "_SUCCESS", "3.jsonl.tmp", "4.jsonl.part", "5.inprogress", "6.jsonl.crc"):
        feed.write(f"orders/{name}", "{")
    feed.write("_old/1.jsonl", "{")
    assert ids(feed.open()) == [[("orders", 1)]]


def test_one_table_may_have_the_folder_to_itself(feed: Feed) -> None:
    feed.rows("1.jsonl", {"id": 7})
    assert ids(feed.open(table="orders", schema="id BIGINT", key=["id"])) == [[("orders", 7)]]


def test_latest_skips_what_is_there_already(feed: Feed) -> None:
    feed.rows("orders/1.jsonl", {"id": 1})
    source = feed.open(start="latest", schema=TWO)
    start = source.initial_offset()
    assert source.latest_offset(start, 10) == start
    feed.rows("orders/2.jsonl", {"id": 2})
    assert ids(source) == [[("orders", 2)]]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("2.jsonl", b'{"id": 2}\n{"id"'),
        ("2.jsonl", b""),
        ("2.csv", b"id\n12"),
        ("2.parquet", b"PAR1abc"),
        ("2.parquet", b"PAR1abcPAR1"),
    ],
)
def test_a_half_written_file_holds_back_its_table_and_no_other(feed: Feed, name: str, content: bytes) -> None:
    feed.rows("orders/1.jsonl", {"id": 1})
    feed.write(f"orders/{name}", content)
    feed.rows("orders/3.jsonl", {"id": 3})
    feed.rows("shops/4.jsonl", {"id": 4})
    source = feed.open(schema=TWO)
    end = source.latest_offset({}, 1_000)
    rows = [row["id"] for changes in source.read({}, end) for row in (changes.signed or pa.table({})).to_pylist()]
    assert rows == [1, 4]
    assert source.lag(end)["half"] == [f"feed/orders/{name}"]
    with pytest.raises(Transient, match=f"RUNNEL-FILES-HALF.*feed/orders/{name}"):
        source.latest_offset(end, 1_000)


def test_a_half_written_file_is_taken_once_it_is_whole(feed: Feed) -> None:
    feed.write("orders/1.jsonl", '{"id": 1}\n{"i')
    source = feed.open(schema=TWO)
    with pytest.raises(Transient, match="RUNNEL-FILES-HALF"):
        source.latest_offset({}, 1_000)
    feed.rows("orders/1.jsonl", {"id": 1}, {"id": 2})
    assert ids(source) == [[("orders", 1), ("orders", 2)]]


def test_a_cut_gzip_file_waits(feed: Feed) -> None:
    whole = feed.rows("orders/1.jsonl.gz", *({"id": n} for n in range(1000))).read_bytes()
    source = feed.open(schema=TWO)
    assert len(ids(source)[0]) == 1000
    (feed.folder / "feed" / "orders" / "2.jsonl.gz").write_bytes(whole[:-20])
    with pytest.raises(Transient, match=r"RUNNEL-FILES-HALF.*2\.jsonl\.gz"):
        source.latest_offset(source.latest_offset({}, 1_000), 1_000)


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(cut=st.integers(0, 60))
def test_no_beginning_of_a_csv_file_is_taken_for_the_whole_with_a_wrong_value(feed: Feed, cut: int) -> None:
    whole = b'id,region,amount\n1,"a\nb",12.50\n22,north,3.25\n333,,1.00\n'
    feed.write("orders/1.csv", whole[:cut])
    try:
        rows = feed.signed()
    except RunnelError as error:
        assert isinstance(error, Transient) or "1.csv" in str(error)
        return
    expected = [(1, "a\nb"), (22, "north"), (333, None)]
    assert [(row["id"], row["region"]) for row in rows] == expected[: len(rows)]


def test_a_late_file_is_reported_and_never_read_out_of_order(feed: Feed) -> None:
    feed.rows("orders/2.jsonl", {"id": 2})
    source = feed.open(schema=TWO)
    done = source.latest_offset({}, 10)
    feed.rows("orders/1.jsonl", {"id": 1})
    assert source.latest_offset(done, 10) == done
    assert feed.open(schema=TWO).lag(done) == {"files": 0, "bytes": 0, "half": [], "late": ["feed/orders/1.jsonl"]}
    feed.rows("orders/3.jsonl", {"id": 3})
    later = source.latest_offset(done, 10)
    assert source.lag(later)["late"] == ["feed/orders/1.jsonl"]


def test_done_files_may_be_removed(feed: Feed) -> None:
    paths = [feed.rows(f"orders/{n}.jsonl", {"id": n}) for n in range(4)]
    source = feed.open(schema=TWO)
    done = source.latest_offset({}, 1_000)
    for path in paths:
        path.unlink()
    assert source.lag(done) == {"files": 0, "bytes": 0, "half": [], "late": []}
    feed.rows("orders/5.jsonl", {"id": 5})
    end = source.latest_offset(done, 10)
    assert [changes.place for changes in source.read(done, end)] == ["feed/orders/5.jsonl:1"]
    assert source.lag(end)["late"] == []


def test_a_file_removed_under_the_reader_is_an_error(feed: Feed) -> None:
    path = feed.rows("orders/1.jsonl", {"id": 1})
    source = feed.open(schema=TWO)
    end = source.latest_offset({}, 10)
    path.unlink()
    with pytest.raises(Terminal, match="RUNNEL-FILES-GONE"):
        list(source.read({}, end))


def test_a_missing_folder_is_said(feed: Feed) -> None:
    with pytest.raises(Unreachable, match="RUNNEL-FILES-FOLDER"):
        feed.open(path="nowhere").tables()


@pytest.mark.parametrize("name", ["orders/notes.txt", "orders/1.parquet/part-0.parquet", "orders/1.parquet.gz"])
def test_a_file_of_no_known_format_is_an_error_and_not_passed_over(feed: Feed, name: str) -> None:
    feed.write(name, "x")
    with pytest.raises(Terminal, match="RUNNEL-FILES-FORMAT"):
        feed.open().latest_offset({}, 10)
