"""The tables of a Cassandra target: made where they are missing, else held against the view they are to follow.

The columns of the view's key make up the primary key; in a table that runnel makes, all of them are its partition key. Arrays, maps
and structs are frozen lists, maps and user-defined types.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from runnel.connectors.cassandra.schema.tables import name_of
from runnel.connectors.cassandra.values.types import CqlType, ListOf, MapOf, SetOf, Udt, quoted
from runnel.connectors.marks import column_misfit, column_there
from runnel.errors import Terminal, UsageError
from runnel.model import types

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from runnel.connectors.cassandra.client import Client
    from runnel.connectors.cassandra.schema.tables import ColumnSchema, TableSchema
    from runnel.connectors.marks import Shape
    from runnel.model.types import Type

_MADE = {"string": "text", "binary": "blob", "timestamp_ntz": "timestamp", "decimal": "decimal"}
_FITTING = {
    "tinyint": ("tinyint", "smallint", "int", "bigint", "varint"),
    "smallint": ("smallint", "int", "bigint", "varint"),
    "int": ("int", "bigint", "varint"),
    "bigint": ("bigint", "varint", "time"),
    "float": ("float",),
    "string": ("text", "ascii", "uuid", "timeuuid", "inet"),
    "decimal": ("decimal", "varint"),
}


@dataclass(frozen=True)
class Table:
    """A table that fits its view: which column there holds each column of the view."""

    schema: TableSchema
    columns: Mapping[str, ColumnSchema]

    @property
    def key(self) -> tuple[ColumnSchema, ...]:
        """The primary key."""
        return (*self.schema.partition_key, *self.schema.clustering)

    @property
    def source(self) -> dict[str, str]:
        """The view's name of each column."""
        return {column.name: name for name, column in self.columns.items()}


def table_name(text: str, keyspace: str, label: str) -> str:
    """Give the table's own name; a keyspace before it must be the target's."""
    first, dot, rest = text.partition(".")
    if dot and first != keyspace:
        raise UsageError(
            "RUNNEL-TARGET-NAME",
            f"{label}: {text!r} names another keyspace than {keyspace!r}",
            hint="write the table's name alone, and make another target for another keyspace",
        )
    return rest if dot else text


def ready(client: Client, shape: Shape, name: str, *, ours: bool) -> Table:
    """Give the table of a view, made where it is missing; one that is `ours` gets the columns that are new in the view."""
    there = client.tables().get(name)
    keyspace = quoted(client.settings.keyspace)
    if there is None:
        for statement in made(shape, keyspace, name):
            client.execute(statement)
    elif ours:
        for column in shape.columns:
            if column_there(column.name, there.by_name) not in there.by_name:
                *before, text = _type(column.type, keyspace, f"{name}_{column.name}")
                for statement in before:
                    client.execute(statement)
                client.execute(f"ALTER TABLE {name_of(there)} ADD {quoted(column.name)} {text}")
    return fitting(client.tables()[name], shape)


def made(shape: Shape, keyspace: str, name: str) -> Iterator[str]:
    """Give the statements that make the table of a view, and the types of its structs.

    >>> from runnel.connectors.marks import Shape
    >>> from runnel.model.relation import Column
    >>> columns = (Column("id", types.BIGINT), Column("at", types.parse("struct<x:int>")))
    >>> for statement in made(Shape("v", "t", columns, ("id",)), "k", "t"):
    ...     print(statement)
    CREATE TYPE IF NOT EXISTS k.t_at (x int)
    CREATE TABLE IF NOT EXISTS k.t (id bigint, at frozen<t_at>, PRIMARY KEY ((id)))
    """
    columns = []
    for column in shape.columns:
        *before, text = _type(column.type, keyspace, f"{name}_{column.name}")
        yield from before
        columns.append(f"{quoted(column.name)} {text}")
    key = ", ".join(quoted(part) for part in shape.key)
    yield f"CREATE TABLE IF NOT EXISTS {keyspace}.{quoted(name)} ({', '.join(columns)}, PRIMARY KEY (({key})))"


def _type(type_: Type, keyspace: str, name: str) -> list[str]:
    """Give the statements that make the types a column needs, then the column's type; `name` is for a struct."""
    match type_:
        case types.Array(_, element):
            *before, text = _type(element, keyspace, name)
            return [*before, f"frozen<list<{text}>>"]
        case types.Map(_, key, value):
            *keys, key_text = _type(key, keyspace, f"{name}_key")
            *values, value_text = _type(value, keyspace, name)
            return [*keys, *values, f"frozen<map<{key_text}, {value_text}>>"]
        case types.Struct(_, fields):
            statements, texts = [], []
            for field, inner in fields:
                *before, text = _type(inner, keyspace, f"{name}_{field}")
                statements += before
                texts.append(f"{quoted(field)} {text}")
            making = f"CREATE TYPE IF NOT EXISTS {keyspace}.{quoted(name)} ({', '.join(texts)})"
            return [*statements, making, f"frozen<{quoted(name)}>"]
    return [_MADE.get(type_.name, type_.name)]


def fitting(table: TableSchema, shape: Shape) -> Table:
    """Hold a table against its view; raise `RUNNEL-TARGET-COLUMN` or `RUNNEL-TARGET-KEY-INDEX`."""
    columns: dict[str, ColumnSchema] = {}
    for column in shape.columns:
        found = table.by_name.get(column_there(column.name, table.by_name))
        if found is None or found.kind == "static" or not _fits(column.type, found.type):
            *_, wanted = _type(column.type, table.keyspace, f"{table.name}_{column.name}")
            is_there = None if found is None else f"{found.kind} {found.type}"
            raise column_misfit(shape, name_of(table), column.name, is_there, wanted)
        columns[column.name] = found
    made = Table(table, columns)
    if {columns[part].name for part in shape.key} != {column.name for column in made.key}:
        raise Terminal(
            "RUNNEL-TARGET-KEY-INDEX",
            f"the primary key of {name_of(table)} is ({', '.join(c.name for c in made.key)}), "
            f"and the rows of {shape.view} are told apart by ({', '.join(shape.key)})",
            hint="name that key in the target's keys, or drop the table: it is then made anew",
        )
    return made


def _fits(type_: Type, there: CqlType) -> bool:
    match type_, there:
        case types.Array(_, element), ListOf(_, _, inner) if not isinstance(there, SetOf):
            return _fits(element, inner)
        case types.Map(_, key, value), MapOf(_, _, inner_key, inner_value):
            return _fits(key, inner_key) and _fits(value, inner_value)
        case types.Struct(_, fields), Udt(_, _, inner_fields):
            known = {name.lower(): inner for name, inner in inner_fields}
            return all(name.lower() in known and _fits(field, known[name.lower()]) for name, field in fields)
        case types.Decimal(_, _, scale), CqlType("varint"):
            return scale == 0
        case ((types.Array() | types.Map() | types.Struct()), _):
            return False
    return there.name in (_MADE.get(type_.name, type_.name), *_FITTING.get(type_.name, ()))
