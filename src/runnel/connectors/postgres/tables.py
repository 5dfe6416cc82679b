"""The tables of a PostgreSQL target: made where they are missing, else held against the view they are to follow.

Where no key is known, two columns of runnel's own make one: `_runnel_row`, a hash of the row, and `_runnel_copy`, which numbers
equal rows from 1.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from psycopg import sql

from runnel.connectors.marks import column_misfit, column_there, misfit
from runnel.connectors.postgres.types import column_type, fits
from runnel.errors import Terminal, UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    import psycopg

    from runnel.connectors.marks import Shape

    Connection = psycopg.Connection[tuple[Any, ...]]

ROW, COPY = "_runnel_row", "_runnel_copy"
OWN = {ROW: "uuid", COPY: "integer"}
MARKS = "_runnel"
_PART = re.compile(r'(?:"((?:[^"]|"")+)"|([^".]+))(\.|$)')
_NULLS_NOT_DISTINCT = 150000
_LONGEST = 63


@dataclass(frozen=True)
class Name:
    """A table's name; without a schema it is looked for where the connection's search path begins."""

    schema: str
    table: str

    @property
    def quoted(self) -> sql.Identifier:
        """The name in quotes."""
        return sql.Identifier(self.schema, self.table)

    @property
    def marks(self) -> sql.Identifier:
        """The table of marks beside it."""
        return sql.Identifier(self.schema, MARKS)

    def __str__(self) -> str:
        return f"{self.schema}.{self.table}"


@dataclass(frozen=True)
class There:
    """A column that is there."""

    type: str
    required: bool
    """Whether it is NOT NULL and has no default."""


@dataclass(frozen=True)
class Table:
    """A table that fits its view: what each column of the view is called there, and the columns of its key.

    `null_keys` says whether a key may have NULLs: its index must take them for equal.
    """

    name: Name
    columns: Mapping[str, str]
    key: tuple[str, ...]
    null_keys: bool

    @property
    def others(self) -> list[str]:
        """The columns beside the key."""
        return [column for column in self.columns.values() if column not in self.key]

    @property
    def keyed(self) -> bool:
        """Whether the key is the view's own."""
        return ROW not in self.key


def split_name(text: str) -> tuple[str | None, str]:
    """Cut a table's name into schema and table; names with dots or upper case may stand in double quotes.

    >>> split_name("public.revenue"), split_name('"my.schema"."t"'), split_name("revenue")
    (('public', 'revenue'), ('my.schema', 't'), (None, 'revenue'))
    """
    parts, at = [], 0
    while at < len(text) and (found := _PART.match(text, at)):
        parts.append(found[1].replace('""', '"') if found[1] else found[2])
        at = found.end()
    long = any(len(part.encode()) > _LONGEST for part in parts)
    if at < len(text) or not 1 <= len(parts) <= 2 or text.endswith(".") or long:
        hint = f"write schema.table, each of {_LONGEST} bytes at most"
        raise UsageError("RUNNEL-TARGET-NAME", f"{text!r} is no name of a table", hint=hint)
    return (parts[0] if len(parts) == 2 else None), parts[-1]


def find(connection: Connection, text: str) -> tuple[Name, int | None]:
    """Give a table's full name and the server's number for it, None where it is not there yet."""
    schema, table = split_name(text)
    if schema is None:
        row = connection.execute("SELECT current_schema()").fetchone()
        schema = str(row[0]) if row and row[0] else "public"
    there = connection.execute("SELECT oid FROM pg_namespace WHERE nspname = %s", [schema]).fetchone()
    if there is None:
        raise Terminal(
            "RUNNEL-POSTGRES-SCHEMA", f"there is no schema {schema!r}", hint=f'create it: CREATE SCHEMA "{schema}"'
        )
    found = connection.execute(
        "SELECT oid, relkind FROM pg_class WHERE relnamespace = %s AND relname = %s", [there[0], table]
    ).fetchone()
    if found is not None and found[1] not in ("r", "p"):
        raise Terminal(
            "RUNNEL-POSTGRES-TABLE", f"{schema}.{table} is there and is no table", hint="choose another name"
        )
    return Name(schema, table), None if found is None else found[0]


def ready(connection: Connection, shape: Shape, *, ours: bool) -> Table:
    """Give the table of a view, made where it is missing; one that is `ours` gets the columns that are new in the view."""
    name, number = find(connection, shape.table)
    if number is None:
        make(connection, shape, name)
    elif ours:
        add_columns(connection, shape, name, number)
    return described(connection, shape)


def described(connection: Connection, shape: Shape) -> Table:
    """Hold the table that is there against its view; raise `RUNNEL-TARGET-COLUMN` or `RUNNEL-TARGET-KEY-INDEX`."""
    name, number = find(connection, shape.table)
    assert number is not None, shape.table
    there = _columns(connection, number)
    columns = {column.name: column_there(column.name, there) for column in shape.columns}
    for column in shape.columns:
        found = there.get(columns[column.name])
        if found is None or not fits(column.type, found.type):
            is_there = found.type if found else None
            raise column_misfit(shape, name, column.name, is_there, column_type(column.type))
    wanted = tuple(columns[part] for part in shape.key) or (ROW, COPY)
    for own, type_ in OWN.items() if not shape.key else ():
        if own not in there or there[own].type != type_:
            raise misfit(shape, name, f"it has no column {own} {type_}, which rows without a key need")
    for extra in set(there) - set(columns.values()) - set(wanted):
        if there[extra].required:
            raise misfit(shape, name, f"its column {extra!r} is not the view's, and must not be NULL")
    return _with_index(connection, shape, Table(name, columns, wanted, null_keys=False), number, there)


def _with_index(connection: Connection, shape: Shape, table: Table, number: int, there: Mapping[str, There]) -> Table:
    """Find the index that rows are told apart by."""
    for names, nulls_equal in connection.execute(_INDEXES, [number]).fetchall():
        if set(names) == set(table.key):
            return replace(table, null_keys=nulls_equal)
    key = ", ".join(table.key)
    raise Terminal(
        "RUNNEL-TARGET-KEY-INDEX",
        f"{table.name} has no unique index on ({key}), by which the rows of {shape.view} are told apart",
        hint="create it, or drop the table: it is then made anew",
    )


_INDEXES = """
SELECT array(SELECT a.attname::text FROM unnest(i.indkey::int2[]) WITH ORDINALITY AS k (number, place)
             JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.number WHERE k.place <= i.indnkeyatts),
       coalesce((to_jsonb(i) ->> 'indnullsnotdistinct')::boolean, false)
       AND NOT EXISTS (SELECT FROM unnest(i.indkey::int2[]) AS k (number)
                       JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.number WHERE a.attnotnull)
FROM pg_index i
WHERE i.indrelid = %s AND i.indisunique AND i.indisvalid AND i.indimmediate AND i.indpred IS NULL AND i.indexprs IS NULL
ORDER BY 2 DESC
"""

_COLUMNS = """
SELECT attname, format_type(atttypid, atttypmod),
       attnotnull AND NOT atthasdef AND attidentity = ''
FROM pg_attribute WHERE attrelid = %s AND attnum > 0 AND NOT attisdropped
"""


def _columns(connection: Connection, number: int) -> dict[str, There]:
    rows = connection.execute(_COLUMNS, [number]).fetchall()
    return {name: There(type_, required) for name, type_, required in rows}


def make(connection: Connection, shape: Shape, name: Name) -> None:
    """Create the table of a view, with an index that takes NULLs for equal where the server knows such."""
    wanted = {column.name: column_type(column.type) for column in shape.columns} | ({} if shape.key else OWN)
    columns = [sql.SQL("{} ").format(sql.Identifier(n)) + sql.SQL(type_) for n, type_ in wanted.items()]
    key = sql.SQL(", ").join(map(sql.Identifier, shape.key or (ROW, COPY)))
    nulls = shape.key and connection.info.server_version >= _NULLS_NOT_DISTINCT
    unique = sql.SQL("UNIQUE NULLS NOT DISTINCT ({})" if nulls else "PRIMARY KEY ({})").format(key)
    connection.execute(sql.SQL("CREATE TABLE {} ({}, {})").format(name.quoted, sql.SQL(", ").join(columns), unique))


def add_columns(connection: Connection, shape: Shape, name: Name, number: int) -> None:
    """Add the columns that the view has got since."""
    there = _columns(connection, number)
    for column in shape.columns:
        if column_there(column.name, there) not in there:
            adding = sql.SQL("ALTER TABLE {} ADD COLUMN {} ").format(name.quoted, sql.Identifier(column.name))
            connection.execute(adding + sql.SQL(column_type(column.type)))


def make_marks(connection: Connection, name: Name) -> None:
    """Create the table of marks in a schema that has none."""
    if not has_marks(connection, name):
        connection.execute(
            sql.SQL(
                "CREATE TABLE {} (table_name text PRIMARY KEY, epoch bigint NOT NULL, state text NOT NULL, "
                "delivered_at timestamptz NOT NULL)"
            ).format(name.marks)
        )


def has_marks(connection: Connection, name: Name) -> bool:
    """Say whether a schema has a table of marks."""
    found = connection.execute(
        "SELECT 1 FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = %s AND c.relname = %s",
        [name.schema, MARKS],
    )
    return found.fetchone() is not None
