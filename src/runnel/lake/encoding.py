"""How relations, types, field ids and column statistics are written in the catalog. Every function has its inverse or needs none."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal as Number
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from runnel.model import types
from runnel.model.relation import WEIGHT, Column, Final, ForeignKey, Kind, Merged, Relation, Trust

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from runnel.model.types import Type

DUCKLAKE_TYPES = {
    "boolean": "boolean",
    "tinyint": "int8",
    "smallint": "int16",
    "int": "int32",
    "bigint": "int64",
    "float": "float32",
    "double": "float64",
    "string": "varchar",
    "binary": "blob",
    "date": "date",
    "timestamp": "timestamptz",
    "timestamp_ntz": "timestamp",
}
LONGEST_TEXT = 64
LONGEST_FOLDER = 255
"""Bytes of a file's name, as file systems have it."""
_LEFT_OF_LONG = 64


def encode_relation(relation: Relation) -> str:
    """Write a relation as JSON."""
    final = relation.final
    return json.dumps(
        {
            "kind": relation.kind.value,
            "columns": [[c.name, str(c.type)] for c in relation.columns],
            "key": list(relation.key),
            "final": final
            and {
                "columns": [[c.name, str(c.type)] for c in final.columns],
                "spark": list(final.spark),
                "duckdb": list(final.duckdb),
                "bands": list(final.bands),
                "merged": [[m.name, m.spark, m.duckdb, m.window] for m in final.merged],
            },
            "references": [[list(key.columns), key.table, key.trust.value] for key in relation.references],
        }
    )


def decode_relation(name: str, text: str) -> Relation:
    """Read what `encode_relation` wrote."""
    facts = json.loads(text)
    final = facts["final"]
    return Relation(
        name,
        Kind(facts["kind"]),
        _columns(facts["columns"]),
        tuple(facts["key"]),
        final and _final(final),
        tuple(ForeignKey(tuple(own), table, Trust(trust)) for own, table, trust in facts.get("references", ())),
    )


def _final(facts: dict[str, Any]) -> Final:
    return Final(
        _columns(facts["columns"]),
        tuple(facts["spark"]),
        tuple(facts["duckdb"]),
        tuple(facts.get("bands", ())),
        tuple(Merged(*merged) for merged in facts.get("merged", ())),
    )


def _columns(pairs: list[list[str]]) -> tuple[Column, ...]:
    return tuple(Column(name, types.parse(type_)) for name, type_ in pairs)


@dataclass(frozen=True)
class Field:
    """One column or nested field as the catalog lists it."""

    id: int
    name: str
    type: str
    parent: int | None


@lru_cache(maxsize=1024)
def stored_columns(relation: Relation) -> tuple[Column, ...]:
    """Give the columns that a relation's files hold: its own and `_weight`."""
    return (*relation.columns, Column(WEIGHT, types.BIGINT))


def fields(relation: Relation) -> list[Field]:
    """List a relation's columns and nested fields, numbered from 1 in the order they are written."""
    found: list[Field] = []
    for column in stored_columns(relation):
        _add_field(found, column.name, column.type, None)
    return found


def _add_field(found: list[Field], name: str, type_: Type, parent: int | None) -> None:
    number = len(found) + 1
    found.append(Field(number, name, _ducklake_type(type_), parent))
    for child_name, child in _children(type_):
        _add_field(found, child_name, child, number)


def _children(type_: Type) -> tuple[tuple[str, Type], ...]:
    match type_:
        case types.Array(_, element):
            return (("element", element),)
        case types.Map(_, key, value):
            return (("key", key), ("value", value))
        case types.Struct(_, inner):
            return inner
        case _:
            return ()


def _ducklake_type(type_: Type) -> str:
    match type_:
        case types.Array():
            return "list"
        case types.Map() | types.Struct():
            return type_.name
        case types.Decimal():
            return str(type_)
        case _:
            return DUCKLAKE_TYPES[type_.name]


@lru_cache(maxsize=1024)
def column_ids(relation: Relation) -> dict[str, int]:
    """Give the field id of each top-level column."""
    return {field.name: field.id for field in fields(relation) if field.parent is None}


@lru_cache(maxsize=1024)
def leaves(relation: Relation) -> tuple[str | None, ...]:
    """List the columns of a relation's Parquet files in their order: flat ones by name, the parts of nested ones as None.

    Parquet names a part of a nested column by a path with dots, which a flat column may have for a name: only its place is sure.
    """
    listed = fields(relation)
    return tuple(
        None if field.parent is not None else field.name
        for field in listed
        if field.type not in ("list", "struct", "map")
    )


@lru_cache(maxsize=1024)
def arrow_schema(relation: Relation) -> pa.Schema:
    """Give the Arrow schema of a relation's files, each field (nested ones too) with its `PARQUET:field_id`."""
    numbers = iter(range(1, 1 << 31))
    return pa.schema([_arrow_field(c.name, c.type, numbers) for c in stored_columns(relation)])


def _arrow_field(name: str, type_: Type, numbers: Iterator[int], *, nullable: bool = True) -> pa.Field:
    number = next(numbers)
    match type_:
        case types.Array(_, element):
            arrow = pa.list_(_arrow_field("element", element, numbers))
        case types.Map(_, key, value):
            arrow = pa.map_(_arrow_field("key", key, numbers, nullable=False), _arrow_field("value", value, numbers))
        case types.Struct(_, inner):
            arrow = pa.struct([_arrow_field(child, child_type, numbers) for child, child_type in inner])
        case _:
            arrow = types.to_arrow(type_)
    return pa.field(name, arrow, nullable=nullable, metadata={"PARQUET:field_id": str(number)})


def has_statistics(type_: Type) -> bool:
    """Say whether minimum and maximum of this type are kept: nested values and bytes have none."""
    return isinstance(type_, types.Decimal) or (type_.name in DUCKLAKE_TYPES and type_.name != "binary")


def encode_value(value: Any) -> str | None:
    """Write a statistic as DuckDB reads it; None where it could not be read back exactly."""
    match value:
        case None:
            return None
        case bool():
            return str(int(value))
        case str():
            return value if len(value) <= LONGEST_TEXT and "\x00" not in value else None
        case datetime():
            return value.isoformat(sep=" ")
        case Number():
            return format(value, "f")
        case float():
            return repr(value)
        case int() | date():
            return str(value)
        case _:
            return None


def decoder(type_: Type) -> Callable[[str], Any]:
    """Give the function that reads what `encode_value` wrote for a value of this type."""
    if isinstance(type_, types.Decimal):
        return Number
    if type_.name == "boolean":
        return lambda text: text == "1"
    if type_.name in types.INTEGERS:
        return int
    if type_.name in types.FLOATS:
        return float
    if type_.name == "date":
        return date.fromisoformat
    if type_.name in ("timestamp", "timestamp_ntz"):
        return datetime.fromisoformat
    return str


def folder_name(relation: str) -> str:
    """Give the folder of a relation's files: its name, with what file systems or Spark would misread written in hex.

    It is one folder, never `.` or `..`; a name that would be too long for a file system is cut, and has a hash instead.

    >>> folder_name("shop.a/b"), folder_name("..")
    ('shop.a~2f~b', '~2e~~2e~')
    """
    if relation in (".", ".."):
        return "~2e~" * len(relation)
    name = re.sub(r"[^A-Za-z0-9_.-]", lambda found: f"~{ord(found.group()):x}~", relation)
    if len(name) <= LONGEST_FOLDER:
        return name
    digest = hashlib.blake2b(relation.encode(errors="surrogatepass"), digest_size=16).hexdigest()
    # No name that is not cut begins like this: between two ~ there is always a number.
    return f"~~{digest}~{name[:_LEFT_OF_LONG]}"
