"""Files keep values exactly, tell the truth in their statistics, and are refused by name when they are broken."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from runnel.errors import Terminal
from runnel.lake import encoding, lookup
from runnel.lake.entries import ColumnStats, Commit
from runnel.model.relation import Kind, Relation
from tests.lake.samples import BAG, NESTED, ORDERS, as_rows, change, columns, contents, create, signed

if TYPE_CHECKING:
    from runnel.lake.lake import Lake

EVERY = Relation(
    "every `type`",
    Kind.TABLE,
    columns(
        "b boolean; i1 tinyint; i2 smallint; i4 int; i8 bigint; f4 float; f8 double; s string; x binary; d date;"
        "t timestamp; n timestamp_ntz; c decimal(38,10)"
    ),
)
AT = datetime(2024, 2, 29, 23, 59, 59, 123456)
LOW = (
    False, -128, -(2**15), -(2**31), -(2**63), -1.5, -math.inf, "", b"\x00", date(1, 1, 1), datetime(1, 1, 1, tzinfo=UTC),
    datetime(1, 1, 1), Decimal("-9999999999999999999999999999.9999999999"), 1,
)  # fmt: skip
HIGH = (
    True, 127, 2**15 - 1, 2**31 - 1, 2**63 - 1, 1.5, math.inf, "é😀", b"\xff", date(9999, 12, 31), AT.replace(tzinfo=UTC), AT,
    Decimal("9999999999999999999999999999.9999999999"), 1,
)  # fmt: skip
NOTHING = (None,) * 13 + (-1,)


def test_every_type_comes_back_as_it_went(lake: Lake) -> None:
    create(lake, EVERY)
    change(lake, EVERY, LOW, HIGH, NOTHING)
    assert contents(lake, EVERY) == sorted([LOW, HIGH, NOTHING], key=repr)


def test_statistics_survive_the_catalog_with_their_types(lake: Lake) -> None:
    create(lake, EVERY)
    file = lake.write(EVERY, signed(EVERY, LOW, HIGH, NOTHING))
    lake.publish(Commit(1, add=[file]))
    (listed,) = lake.snapshot().files(EVERY.name)
    assert listed.stats == file.stats
    for i, column in enumerate(EVERY.columns):
        if column.name == "x":
            assert "x" not in listed.stats
            continue
        stats = listed.stats[column.name]
        assert (stats.minimum, stats.maximum, stats.nulls) == (LOW[i], HIGH[i], 1), column


def test_a_range_with_nan_is_left_out(lake: Lake) -> None:
    file = lake.write(BAG, signed(BAG, ("a", math.nan, 1), ("b", 1.0, 1)))
    assert file.stats["price"] == ColumnStats(None, None, 0, nan=True)
    assert lake.write(BAG, signed(BAG, ("b", 1.0, 1))).stats["price"] == ColumnStats(1.0, 1.0, 0, nan=False)


def test_a_range_of_long_text_is_left_out(lake: Lake) -> None:
    for text in ("x" * 65, "a\x00b"):
        file = lake.write(BAG, signed(BAG, (text, 1.0, 1), ("b", 1.0, 1)))
        assert file.stats["item"] == ColumnStats(None, None, 0)


def test_a_column_of_nulls_has_no_range(lake: Lake) -> None:
    assert lake.write(BAG, signed(BAG, (None, None, 1))).stats["item"] == ColumnStats(None, None, 1)


def test_nested_values_come_back_as_they_went(lake: Lake) -> None:
    rows = [
        (1, ["a", None], {"x": 1, "y": {"z": 0.5}}, [("k", [1, None]), ("l", None)], 1),
        (2, [], {"x": None, "y": None}, [], 1),
        (3, None, None, None, 2),
    ]
    create(lake, NESTED)
    change(lake, NESTED, *rows)
    assert contents(lake, NESTED) == rows


def test_files_carry_the_field_ids_of_the_catalog(lake: Lake) -> None:
    file = lake.write(NESTED, signed(NESTED, (1, ["a"], {"x": 1, "y": {"z": 0.5}}, [("k", [1])], 1)))
    written = pq.read_schema(file.path)

    def ids(field: pa.Field) -> list[tuple[str, int]]:
        here = [(field.name, int(field.metadata[b"PARQUET:field_id"]))] if field.metadata else []
        kind = field.type
        if pa.types.is_map(kind):
            return here + ids(kind.key_field) + ids(kind.item_field)
        return here + [i for n in range(kind.num_fields) for i in ids(kind.field(n))]

    assert [i for field in written for i in ids(field)] == [(f.name, f.id) for f in encoding.fields(NESTED)]


def test_a_written_table_is_cast_to_the_relation(lake: Lake) -> None:
    loose = pa.table(
        {
            "_weight": pa.array([1], pa.int8()),
            "amount": ["1.5"],
            "region": pa.array(["n"], pa.large_string()),
            "id": [7],
        }
    )
    loose = loose.set_column(1, "amount", pa.array([Decimal("1.5")]))
    file = lake.write(ORDERS, loose)
    assert as_rows(lake.read(ORDERS, [file])) == [(7, "n", Decimal("1.50"), 1)]


def test_a_table_that_does_not_fit_is_refused(lake: Lake) -> None:
    for wrong in (pa.table({"id": [1]}), signed(ORDERS, (1, "n", 1, 1)).set_column(0, "id", pa.array(["one"]))):
        with pytest.raises(Terminal, match="RUNNEL-FILE-SCHEMA"):
            lake.write(ORDERS, wrong)


def test_chosen_columns_are_read_alone(lake: Lake) -> None:
    file = lake.write(ORDERS, signed(ORDERS, (1, "n", 1, 1)))
    assert lake.read(ORDERS, [file], ["_weight", "id"]).to_pylist() == [{"_weight": 1, "id": 1}]
    assert lake.read(ORDERS, []).num_rows == 0


def test_adopted_files_are_listed_and_empty_ones_deleted(lake: Lake, tmp_path: Path) -> None:
    create(lake, BAG)
    folder = Path(lake.folder(BAG.name)) / "part"
    folder.mkdir(parents=True)
    full, empty, outside = folder / "a.parquet", folder / "b.parquet", tmp_path / "c.parquet"
    pq.write_table(signed(BAG, ("a", math.nan, 1), ("c", 2.0, 1)), full)
    pq.write_table(signed(BAG), empty)
    pq.write_table(signed(BAG, ("z", 1.0, 3)), outside)
    adopted = lake.adopt(BAG, [str(full), str(empty), str(outside)])
    assert [(f.path, f.rows, f.bytes) for f in adopted] == [
        (str(p), n, p.stat().st_size) for p, n in ((full, 2), (outside, 1))
    ]
    assert adopted[0].stats["item"] == ColumnStats("a", "c", 0)
    assert adopted[0].stats["price"] == ColumnStats(None, None, 0)
    assert not empty.exists()
    lake.publish(Commit(1, add=adopted))
    assert {f.path for f in lake.snapshot().files(BAG.name)} == {str(full), str(outside)}


def test_a_missing_file_is_named(lake: Lake) -> None:
    create(lake, ORDERS)
    change(lake, ORDERS, (1, "n", 1, 1))
    (file,) = lake.snapshot().files("orders")
    Path(file.path).unlink()
    with pytest.raises(Terminal, match=f"RUNNEL-FILE-MISSING: a file of orders.*{file.path}"):
        lake.read(ORDERS, [file])
    lookup.forget()
    with pytest.raises(Terminal, match="RUNNEL-FILE-MISSING"):
        lake.lookup(ORDERS, [file], pa.table({"id": [1]}))


def test_a_truncated_or_damaged_file_is_named(lake: Lake) -> None:
    file = lake.write(ORDERS, signed(ORDERS, *((i, "n", 1, 1) for i in range(100))))
    whole = Path(file.path).read_bytes()
    for broken in (whole[:-10], whole[: len(whole) // 2], b"", whole[:4] + b"\xff" * (len(whole) - 8) + whole[-4:]):
        Path(file.path).write_bytes(broken)
        with pytest.raises(Terminal, match=f"RUNNEL-FILE-BROKEN: a file of orders.*{file.path}"):
            lake.read(ORDERS, [file])


def test_a_file_that_vanished_before_its_commit_is_not_published(lake: Lake) -> None:
    create(lake, ORDERS)
    lake.durable = True
    files = [lake.write(ORDERS, signed(ORDERS, (i, "n", 1, 1))) for i in range(3)]
    Path(files[1].path).unlink()
    with pytest.raises(Terminal, match="RUNNEL-FILE-MISSING"):
        lake.publish(Commit(1, add=files))
    assert lake.head() == 1


def test_discarded_files_are_gone(lake: Lake) -> None:
    file = lake.write(ORDERS, signed(ORDERS, (1, "n", 1, 1)))
    lake.discard([file, file])
    assert not Path(file.path).exists()


def test_a_full_disk_is_said_plainly(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_room(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(pq.ParquetWriter, "write_table", no_room)
    with pytest.raises(Terminal, match="RUNNEL-DISK-FULL"):
        lake.write(ORDERS, signed(ORDERS, (1, "n", 1, 1)))


@pytest.mark.parametrize("name", ["orders", "shop.orders", "takings#1", "a/b", "p=1", "ü x"])
def test_folders_are_safe_names_that_stay_apart(name: str) -> None:
    folder = encoding.folder_name(name)
    assert not set(folder) & set("/#=% `")
    assert folder != encoding.folder_name(name + "_")
