"""Tables and user-defined types of Cassandra, made from the rows of `system_schema`.

The rows may come from a query, from the log's own mutations of `system_schema`, or from CQL text (`text`): all three
give the same dictionaries. A `TableSchema` never changes; an altered table is a new one with the same id.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from runnel.connectors.cassandra.values.decode import decoder
from runnel.connectors.cassandra.values.equality import Canonical, canonical
from runnel.connectors.cassandra.values.order import sort_key
from runnel.connectors.cassandra.values.types import CqlType, ListOf, MapOf, SetOf, Udt, parse, quoted
from runnel.errors import Terminal

Row = Mapping[str, Any]


@dataclass(frozen=True)
class ColumnSchema:
    """A column: `kind` is partition_key, clustering, static or regular; `descending` is said of clustering columns."""

    name: str
    type: CqlType
    kind: str = "regular"
    descending: bool = False


@dataclass(frozen=True)
class DroppedColumn:
    """A column that was dropped: cells written up to `dropped_at` (µs) are gone, also when the name comes back."""

    name: str
    type: CqlType
    dropped_at: int
    kind: str = "regular"


@dataclass(frozen=True)
class TableSchema:
    """A table as it is defined at one moment; every change of the table carries it along."""

    keyspace: str
    name: str
    id: uuid.UUID
    partition_key: tuple[ColumnSchema, ...]
    clustering: tuple[ColumnSchema, ...] = ()
    static: tuple[ColumnSchema, ...] = ()
    regular: tuple[ColumnSchema, ...] = ()
    dropped: tuple[DroppedColumn, ...] = ()
    is_counter: bool = False
    cdc: bool = False
    gc_grace_seconds: int = 864_000
    strict_liveness: bool = False
    """Said of a server's view with a key column that is none of its table's: its rows are there by their liveness alone."""

    def __hash__(self) -> int:
        return hash(self.id)

    def __repr__(self) -> str:
        return f"<table {self.keyspace}.{self.name}>"

    @property
    def columns(self) -> tuple[ColumnSchema, ...]:
        """All columns, in the order of `SELECT *`: key, clustering, then static and regular ones by name."""
        static = sorted(self.static, key=lambda column: column.name)
        regular = sorted(self.regular, key=lambda column: column.name)
        return (*self.partition_key, *self.clustering, *static, *regular)

    @cached_property
    def by_name(self) -> dict[str, ColumnSchema]:
        """The columns by name."""
        return {column.name: column for column in self.columns}

    @cached_property
    def dropped_at(self) -> dict[str, int]:
        """When a name was last dropped, in µs."""
        return {column.name: column.dropped_at for column in self.dropped}

    def type_of(self, column: str) -> CqlType | None:
        """Give the type of a column, of one that was dropped too, or None for a name that never was."""
        found = self.by_name.get(column)
        if found is not None:
            return found.type
        return next((dropped.type for dropped in self.dropped if dropped.name == column), None)

    def key_parts(self, key: bytes) -> tuple[bytes, ...]:
        """Cut a partition key into the bytes of its columns."""
        if len(self.partition_key) == 1:
            return (key,)
        parts, at = [], 0
        for _ in self.partition_key:
            length = int.from_bytes(key[at : at + 2], "big")
            parts.append(key[at + 2 : at + 2 + length])
            at += length + 3
        if at != len(key):
            raise Terminal("RUNNEL-CASSANDRA-KEY", f"{self!r}: {key[:16].hex()} is no partition key of it")
        return tuple(parts)

    def key_values(self, key: bytes) -> tuple[Any, ...]:
        """Give the Python values of a partition key."""
        decoders = self._key_decoders
        if len(decoders) == 1:
            return (decoders[0](key),)
        return tuple(decode(part) for decode, part in zip(decoders, self.key_parts(key), strict=True))

    def clustering_values(self, clustering: tuple[bytes | None, ...]) -> tuple[Any, ...]:
        """Give the Python values of a clustering, or of a bound that has fewer of them."""
        return tuple(
            None if part is None else decode(part)
            for decode, part in zip(self._clustering_decoders, clustering, strict=False)
        )

    def cell_values(self, column: str, path: bytes | None, value: bytes) -> tuple[Any, Any]:
        """Give which element of a column a cell is, and its Python value.

        The element is a map's key, a set's element (which has no value), a list's time UUID, the name of a field; of a column
        that is one cell it is None.
        """
        type_ = self.type_of(column)
        if type_ is None:
            raise Terminal("RUNNEL-CASSANDRA-COLUMN", f"{self!r} has no column {column!r}")
        match type_:
            case _ if path is None:
                return None, decoder(type_)(value)
            case MapOf(_, _, key, item):
                return decoder(key)(path), decoder(item)(value)
            case SetOf(_, _, element):
                return decoder(element)(path), None
            case ListOf(_, _, element):
                return decoder(CqlType("timeuuid"))(path), decoder(element)(value)
            case Udt(_, _, fields) if int.from_bytes(path, "big") < len(fields):
                name, field_type = fields[int.from_bytes(path, "big")]
                return name, decoder(field_type)(value)
        raise Terminal("RUNNEL-CASSANDRA-COLUMN", f"{self!r}: {column!r} has no element {path[:16].hex()}")

    @cached_property
    def _key_decoders(self) -> tuple[Any, ...]:
        return tuple(decoder(column.type) for column in self.partition_key)

    @cached_property
    def _clustering_decoders(self) -> tuple[Any, ...]:
        return tuple(decoder(column.type) for column in self.clustering)

    @cached_property
    def has_equal_forms(self) -> bool:
        """Whether values of clustering columns or elements can be equal though their bytes differ."""
        return any(map(self.path_form, self.by_name)) or any(canonical(column.type) for column in self.clustering)

    def path_form(self, column: str) -> Canonical | None:
        """Give the function that makes equal elements of a column equal bytes, or None where they always are."""
        match self.type_of(column):
            case SetOf(_, False, element):
                return canonical(element)
            case MapOf(_, False, key):
                return canonical(key)
        return None

    def canonical_clustering(self, clustering: tuple[bytes | None, ...]) -> tuple[bytes | None, ...]:
        """Give a clustering in the one form of all that are equal to it."""
        forms = [canonical(column.type) for column in self.clustering]
        return tuple(
            part if form is None or part is None else form(part) for form, part in zip(forms, clustering, strict=False)
        )

    @cached_property
    def clustering_keys(self) -> tuple[tuple[Any, bool], ...]:
        """Per clustering column the function that makes sort keys, and whether the order is reversed."""
        return tuple((sort_key(column.type), column.descending) for column in self.clustering)


def name_of(table: TableSchema) -> str:
    """Write a table's full name in CQL."""
    return f"{quoted(table.keyspace)}.{quoted(table.name)}"


@dataclass
class SchemaRows:
    """The rows of `system_schema` that describe tables, as dictionaries."""

    tables: list[Row] = field(default_factory=list)
    columns: list[Row] = field(default_factory=list)
    dropped_columns: list[Row] = field(default_factory=list)
    types: list[Row] = field(default_factory=list)
    views: list[Row] = field(default_factory=list)


Problems = dict[uuid.UUID, Terminal]
"""Why tables could not be made, by their ids."""


def build_tables(rows: SchemaRows, problems: Problems | None = None) -> list[TableSchema]:
    """Make the tables, and the server's own views, that these rows describe; a table without columns is left out.

    With `problems` a table that has a type which is not known is noted there and left out; else it raises.
    """
    udts = {name: build_types(found, lenient=True) for name, found in _by(rows.types, "keyspace_name").items()}
    columns = _by(rows.columns, "keyspace_name", "table_name")
    dropped = _by(rows.dropped_columns, "keyspace_name", "table_name")
    made = []
    for row in [*rows.tables, *rows.views]:
        keyspace = row["keyspace_name"]
        name = row["table_name"] if row.get("table_name") is not None else row["view_name"]
        if (keyspace, name) in columns and row.get("id") is not None:
            try:
                table = _table(
                    row, name, columns[keyspace, name], dropped.get((keyspace, name), []), udts.get(keyspace, {})
                )
                base = columns.get((keyspace, row.get("base_table_name")))
                made.append(table if base is None else replace(table, strict_liveness=_has_own_key_column(table, base)))
            except Terminal as problem:
                if problems is None:
                    raise
                problems[_id(row)] = problem
    return made


_NEEDED = ("type", "kind", "position")
"""What a row of `system_schema.columns` has to say."""


def _complete(row: Row, name: str, columns: list[Row], dropped: list[Row]) -> None:
    """Refuse a table that is described in part only, as by a log that begins after its CREATE."""
    lacking = [column["column_name"] for column in columns if any(column.get(part) is None for part in _NEEDED)]
    lacking += [d["column_name"] for d in dropped if d.get("type") is None or d.get("dropped_time") is None]
    if lacking or not any(column["kind"] == "partition_key" for column in columns):
        raise Terminal(
            "RUNNEL-CASSANDRA-SCHEMA",
            f"the definition of {row['keyspace_name']}.{name} is not complete",
            hint="read it from the server, or give it as schema = 'x.cql'",
        )


def _has_own_key_column(view: TableSchema, base: list[Row]) -> bool:
    key = {row["column_name"] for row in base if row["kind"] in ("partition_key", "clustering")}
    return any(column.name not in key for column in (*view.partition_key, *view.clustering))


def _id(row: Row) -> uuid.UUID:
    return row["id"] if isinstance(row["id"], uuid.UUID) else uuid.UUID(str(row["id"]))


def _table(row: Row, name: str, columns: list[Row], dropped: list[Row], udts: Mapping[str, Udt]) -> TableSchema:
    flags = row.get("flags") or ()
    if row.get("flags") is not None and ("compound" not in flags or "dense" in flags or "super" in flags):
        raise Terminal(
            "RUNNEL-CASSANDRA-COMPACT",
            f"{row['keyspace_name']}.{name} has COMPACT STORAGE, which is not read",
            hint=f"ALTER TABLE {row['keyspace_name']}.{name} DROP COMPACT STORAGE, or name the other tables only",
        )
    _complete(row, name, columns, dropped)
    made = [_column(column, udts) for column in sorted(columns, key=lambda column: column["position"])]
    of = {
        kind: tuple(c for c in made if c.kind == kind) for kind in ("partition_key", "clustering", "static", "regular")
    }
    return TableSchema(
        row["keyspace_name"],
        name,
        _id(row),
        of["partition_key"],
        of["clustering"],
        of["static"],
        of["regular"],
        tuple(
            DroppedColumn(
                d["column_name"], parse(d["type"], udts), _microseconds(d["dropped_time"]), d.get("kind") or "regular"
            )
            for d in dropped
        ),
        is_counter="counter" in flags or any(c.type.name == "counter" for c in made),
        cdc=bool(row.get("cdc")),
        gc_grace_seconds=864_000 if row.get("gc_grace_seconds") is None else row["gc_grace_seconds"],
    )


def _column(row: Row, udts: Mapping[str, Udt]) -> ColumnSchema:
    return ColumnSchema(
        row["column_name"], parse(row["type"], udts), row["kind"], str(row.get("clustering_order")).lower() == "desc"
    )


def build_types(rows: Iterable[Row], *, lenient: bool = False) -> dict[str, Udt]:
    """Make the user-defined types of one keyspace; they may name each other in any order.

    One that names a type which is not known raises, or is left out when `lenient`.
    """
    waiting = list(rows)
    made: dict[str, Udt] = {}
    while waiting:
        left: list[Row] = []
        problem: Terminal | None = None
        for row in waiting:
            names, types = row.get("field_names") or (), row.get("field_types") or ()
            try:
                if len(names) != len(types) or None in (*names, *types):
                    raise Terminal("RUNNEL-CASSANDRA-SCHEMA", f"the type {row['type_name']} is not complete")
                fields = [(field_name, parse(type_, made)) for field_name, type_ in zip(names, types, strict=True)]
            except Terminal as error:
                problem = error
                left.append(row)
            else:
                made[row["type_name"]] = Udt(row["type_name"], fields=tuple(fields))
        if problem is not None and len(left) == len(waiting):
            if lenient:
                break
            raise problem
        waiting = left
    return made


def _by(rows: Iterable[Row], *names: str) -> dict[Any, list[Row]]:
    grouped: dict[Any, list[Row]] = {}
    for row in rows:
        key = row[names[0]] if len(names) == 1 else tuple(row[name] for name in names)
        grouped.setdefault(key, []).append(row)
    return grouped


def _microseconds(when: Any) -> int:
    """Give a time in µs; drivers give datetimes, with or without a zone, or milliseconds."""
    if isinstance(when, dt.datetime):
        moment = when if when.tzinfo else when.replace(tzinfo=dt.UTC)
        return (moment - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)) // dt.timedelta(microseconds=1)
    return int(when) * 1000


def system_table_id(keyspace: str, table: str) -> uuid.UUID:
    """Give the id of one of the server's own tables, which follows from its name.

    >>> str(system_table_id("system_schema", "tables"))
    'afddfb9d-bc1e-3068-8056-eed6c302ba09'
    """
    digest = hashlib.md5((keyspace + table).encode(), usedforsecurity=False).digest()
    return uuid.UUID(bytes=digest, version=3)
