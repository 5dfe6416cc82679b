"""A column may have any name: Arrow's paths, Parquet's dots and our own inner names mean nothing in it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import runnel
from runnel.engine.duckdb import DuckDbEngine
from runnel.lake import compaction, encoding, lookup
from runnel.lake.lake import Lake
from runnel.model import arrow, types
from runnel.model.relation import WEIGHT, Column, Kind, Relation

if TYPE_CHECKING:
    from pathlib import Path

NAMES = (
    ".a",
    "[0]",
    ".b[1]",
    "a.b",
    "a.`x`",
    "",
    "__row",
    "k0",
    "s0_sum",
    "ünï cødé",
    "c0",
    "*",
    "{x}",
    "'",
    '"',
    "\\",
)


def relation(key: tuple[str, ...]) -> Relation:
    """Give a table with all of these names, and a struct whose field has the path of one of them."""
    inner = Column("a", types.parse("struct<b:bigint>"))
    return Relation("t", Kind.TABLE, (inner, *(Column(name, types.BIGINT) for name in NAMES)), key)


def rows(count: int) -> list[dict[str, object]]:
    """Give rows that differ in each column by itself; the struct's field lies far from the column named like it."""
    return [{"a": {"b": 1_000_000 + n}} | {name: n * 100 + at for at, name in enumerate(NAMES)} for n in range(count)]


def weigh(table: Relation, listed: list[dict[str, object]], weights: list[int]) -> pa.Table:
    """Give rows as they are stored."""
    return pa.Table.from_pylist(
        [{**row, WEIGHT: weight} for row, weight in zip(listed, weights, strict=True)], encoding.arrow_schema(table)
    )


@pytest.mark.parametrize("key", [(), NAMES], ids=["bag", "keyed"])
def test_rows_that_differ_in_a_column_of_any_name_stay_two(key: tuple[str, ...]) -> None:
    """Of two rows that are equal in all columns but one, neither takes the other's place when they are added up."""
    table = relation(key)
    for name in NAMES:
        one = rows(1)[0]
        other = one | {name: -1}
        signed = weigh(table, [one, other, one], [1, 1, -1])
        assert compaction.fold(table, signed).to_pylist() == [{**other, WEIGHT: 1}]


@pytest.mark.parametrize("name", NAMES)
def test_a_row_is_found_by_a_column_of_any_name(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Statistics, row groups and values are those of the column itself, not of a field whose path is its name."""
    monkeypatch.setattr(lookup, "SMALL_FILE", 10)
    table = relation((name,))
    lake = Lake.create(f"sqlite:{tmp_path}/catalog.sqlite", f"{tmp_path}/data", durable=False)
    file = lake.write(table, weigh(table, rows(100), [1] * 100), remembered=False)
    wanted = pa.table({name: pa.array([rows(100)[42][name]], pa.int64())})
    (found,) = lake.lookup(table, [file], wanted).to_pylist()
    assert found == {**rows(100)[42], WEIGHT: 1}
    assert file.stats[name].minimum == rows(1)[0][name]


def test_groups_order_and_joins_go_by_place() -> None:
    """Each of the functions takes hostile names for nothing but names."""
    table = pa.table({"a": [1, 1, 1], ".a": [3, 2, 3], "[0]": [1, 2, 3]})
    keys, (total,) = arrow.grouped(table, ["a", ".a"], ("[0]", "sum"))
    assert sorted(zip(keys[".a"].to_pylist(), total.to_pylist(), strict=True)) == [(2, 2), (3, 4)]
    assert arrow.in_order(table, [".a", "[0]"])["[0]"].to_pylist() == [2, 1, 3]
    assert arrow.places_among(table, pa.table({".a": [3]}), [".a"]).to_pylist() == [0, 2]


def test_tables_and_views_with_names_like_paths_are_written_changed_and_compacted() -> None:
    """Insert, update, delete, a foreign key, compaction and a view over such columns give what plain names give."""
    with runnel.memory(engine=DuckDbEngine()) as project:
        project.create_table("bag", "a BIGINT, `.a` BIGINT")
        with project.transaction() as tx:
            tx.apply("bag", [{"a": 1, ".a": n, WEIGHT: 1} for n in (1, 2, 3)])
        assert sorted(row[".a"] for row in project.table("bag").to_pylist()) == [1, 2, 3]
        project.create_table("parent", "`.p` BIGINT, PRIMARY KEY (`.p`)")
        project.create_table(
            "t",
            "`.id` BIGINT, `[0]` BIGINT, `.p` BIGINT, PRIMARY KEY (`.id`), FOREIGN KEY (`.p`) REFERENCES parent (`.p`)",
        )
        project.create_view("v", "SELECT `[0]` AS `.g`, count(*) AS `.n` FROM t GROUP BY `[0]`")
        project.sql("INSERT INTO parent VALUES (1), (2)")
        project.sql("INSERT INTO t VALUES (1, 1, 1), (2, 2, 2)")
        project.sql("UPDATE t SET `[0]` = 5 WHERE `.id` = 1")
        project.sql("DELETE FROM t WHERE `.id` = 2")
        for n in range(10):
            project.sql(f"INSERT INTO t VALUES ({10 + n}, 1, 1)")
        project.compact()
        assert project.table("t").to_arrow().num_rows == 11
        assert sorted((row[".g"], row[".n"]) for row in project.view("v").to_pylist()) == [(1, 10), (5, 1)]
        assert project.verify("v").ok
