"""Relations and rows that the lake tests share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from runnel.lake import compaction, encoding
from runnel.lake.entries import Commit, ViewEntry
from runnel.model import types
from runnel.model.relation import Column, Final, Kind, Relation

if TYPE_CHECKING:
    from runnel.lake.lake import Lake


def columns(text: str) -> tuple[Column, ...]:
    pairs = (part.strip().split(" ", 1) for part in text.split(";"))
    return tuple(Column(name, types.parse(type_)) for name, type_ in pairs)


ORDERS = Relation("orders", Kind.TABLE, columns("id bigint; region string; amount decimal(12,2)"), ("id",))
BAG = Relation("shop.lines", Kind.TABLE, columns("item string; price double"))
NESTED = Relation(
    "nested",
    Kind.TABLE,
    columns("id int; tags array<string>; at struct<x:int,y:struct<z:double>>; m map<string,array<int>>"),
)
TAKINGS = Relation(
    "takings",
    Kind.VIEW,
    columns("region string; s decimal(22,2); n bigint"),
    ("region",),
    Final(
        columns("region string; total decimal(22,2); rows bigint"),
        ("region", "s", "_weight"),
        ("region", "s", "_weight"),
    ),
)
TOTAL = Relation(
    "total",
    Kind.VIEW,
    columns("s bigint; n bigint"),
    (),
    Final(
        columns("total bigint; rows bigint"),
        ("IF(n = 0, NULL, s)", "_weight"),
        ("CASE WHEN n = 0 THEN NULL ELSE s END", "_weight"),
    ),
)


def signed(relation: Relation, *rows: tuple[Any, ...]) -> pa.Table:
    """Make stored rows: the values of the columns, then the weight."""
    schema = encoding.arrow_schema(relation)
    return pa.table([pa.array([row[i] for row in rows], field.type) for i, field in enumerate(schema)], schema=schema)


def create(lake: Lake, *relations: Relation) -> int:
    return lake.publish(Commit(lake.head(), create=list(relations), kind="define"))


def change(lake: Lake, relation: Relation, *rows: tuple[Any, ...], **more: Any) -> int:
    """Publish one epoch in which just this relation changes."""
    return lake.publish(Commit(lake.head(), add=[lake.write(relation, signed(relation, *rows))], **more))


def contents(lake: Lake, relation: Relation, at: int | None = None) -> list[tuple[Any, ...]]:
    """Give the netted stored rows as of an epoch."""
    table = lake.read(relation, lake.snapshot(at).files(relation.name))
    return as_rows(compaction.fold(relation, table))


def as_rows(table: pa.Table) -> list[tuple[Any, ...]]:
    return sorted((tuple(row.values()) for row in table.to_pylist()), key=repr)


def compact(lake: Lake, relation: Relation) -> int | None:
    """Fold all files of a relation into one."""
    files = lake.snapshot().files(relation.name)
    folded = compaction.fold(relation, lake.read(relation, files), from_start=True)
    return compaction.publish(lake, relation, files, [lake.write(relation, folded)])


def view(name: str, *inputs: str, frontier: int = 0) -> ViewEntry:
    return ViewEntry(name, f"SELECT * FROM {inputs[0]}", {"refresh": "manual"}, "{}", inputs, (), frontier)
