"""The tables of a PostgreSQL target: made where they are missing, else held against the view they are to follow.

Where no key is known, two columns of runnel's own make one: `_runnel_row`, a hash of the row, and `_runnel_copy`, which numbers
equal rows from 1.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from psycopg import sql

from runnel.connectors.marks import column_there
from runnel.connectors.postgres.types import column_type, fits
from runnel.connectors.sqltarget.tables import (
    COPY,
    MARKS,
    ROW,
    There,
    Types,
    held_against,
    name_parts,
    no_index,
)
from runnel.errors import Terminal

if TYPE_CHECKING:
    from collections.abc import Mapping

    import psycopg

    from runnel.connectors.marks import Shape

    Connection = psycopg.Connection[tuple[Any, ...]]

OWN = {ROW: "uuid", COPY: "integer"}
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

    @property
    def shown(self) -> list[str]:
        """The view's columns by which a row is named: those of the key, or all."""
        return [column for column, there in self.columns.items() if not self.keyed or there in self.key]


def split_name(text: str) -> tuple[str | None, str]:
    """Cut a table's name into schema and table; names with dots or upper case may stand in double quotes.

    >>> split_name("public.revenue"), split_name('"my.schema"."t"'), split_name("revenue")
    (('public', 'revenue'), ('my.schema', 't'), (None, 'revenue'))
    """
    return name_parts(text, '"', _LONGEST)


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
    held = held_against(shape, name, _columns(connection, number), Types(column_type, fits, OWN))
    return _with_index(connection, shape, Table(name, held.columns, held.key, null_keys=False), number)


def _with_index(connection: Connection, shape: Shape, table: Table, number: int) -> Table:
    """Find the index that rows are told apart by."""
    for names, nulls_equal in connection.execute(_INDEXES, [number]).fetchall():
        if set(names) == set(table.key):
            return replace(table, null_keys=nulls_equal)
    raise no_index(shape, table.name, table.key)


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
FROM pg_attribute WHERE attrelid = %s AND attnum > 0 AND NOT attisdropped ORDER BY attnum
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
