"""The tables of a MariaDB or MySQL target: made where they are missing, else held against the view they are to follow.

Indexes of these servers ignore case and spaces at the end under most collations, know no equal NULLs and cannot have whole texts.
Tables that are made here therefore have a column of runnel's own, a hash of the exact key, by which rows are told apart.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from runnel.connectors.marks import column_there, misfit
from runnel.connectors.mysql.client import quoted, text
from runnel.connectors.mysql.target.values import (
    INTEGERS,
    TEXTS,
    check_columns,
    column_type,
    fits,
    nameable,
    plain_type,
)
from runnel.connectors.sqltarget.rows import hashed_key
from runnel.connectors.sqltarget.tables import COPY, MARKS, ROW, There, Types, held_against, name_parts, no_index
from runnel.errors import Terminal, UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from runnel.connectors.marks import Shape
    from runnel.connectors.mysql.target.session import Session

KEY = "_runnel_key"
"""The column with the hash of a key; its comment says which columns it is of."""
OWN = {ROW: "binary(16)", COPY: "bigint"}
_LONGEST = 256
_COMMENT = 1024
_INDEXED, _PREFIX = 8, 64
"""How many key columns get an index for readers, and how many characters of each: 8 x 64 x 4 bytes fit into an index."""
_UNIQUE = "DEFAULT (unhex(replace(uuid(), '-', '')))"
"""Rows of others are unlike all of runnel's."""


@dataclass(frozen=True)
class Name:
    """A table's name, with its database."""

    database: str
    table: str

    @property
    def quoted(self) -> str:
        """The name in quotes."""
        return quoted(self.database, self.table)

    @property
    def marks(self) -> str:
        """The table of marks of the same database."""
        return quoted(self.database, MARKS)

    def __str__(self) -> str:
        return f"{self.database}.{self.table}"


@dataclass(frozen=True)
class Found:
    """A column that exists: `sql` defines one like it, which may be NULL."""

    type: str
    sql: str
    required: bool
    comment: str


@dataclass(frozen=True)
class Table:
    """A table that fits its view: what each column of the view is called there, and the columns rows are told apart by.

    `view_key` is the view's key by the view's names, which the `key` of a table may be a hash of.
    """

    name: Name
    columns: Mapping[str, str]
    key: tuple[str, ...]
    view_key: tuple[str, ...]
    found: Mapping[str, Found]

    @property
    def staged(self) -> list[str]:
        """The columns that are sent: those of the view, and a hash where the table has one."""
        own = [part for part in self.key if part in (KEY, ROW)]
        return [*self.columns.values(), *own]

    @property
    def others(self) -> list[str]:
        """The columns beside the key."""
        return [column for column in self.columns.values() if column not in self.key]

    @property
    def keyed(self) -> bool:
        """Whether the key is the view's own."""
        return ROW not in self.key

    @property
    def hashed(self) -> bool:
        """Whether rows are told apart by the hash of their key."""
        return KEY in self.key

    def text(self, column: str) -> bool:
        """Say whether a column is compared under a collation."""
        return plain_type(self.found[column].type) in TEXTS

    def indexed(self, column: str) -> str:
        """Write a column as part of an index."""
        return _indexed(column, plain_type(self.found[column].type))

    def whole_number(self, column: str) -> bool:
        """Say whether a column holds whole numbers."""
        return plain_type(self.found[column].type) in INTEGERS


def find(session: Session, written: str) -> tuple[Name, bool]:
    """Give a table's full name and whether it exists; raise for a database that does not, and for what is not a table."""
    database, table = name_parts(written, "`", _LONGEST)
    name = Name(database or session.settings.database, table)
    if not nameable(table):
        raise UsageError(
            "RUNNEL-TARGET-NAME", f"no table can be named {table!r}", hint="characters up to U+FFFF, 64 of them"
        )
    known = f"SELECT SCHEMA_NAME FROM information_schema.SCHEMATA WHERE SCHEMA_NAME = {text(name.database)}"
    if not session.rows(known):
        said = f"there is no database {name.database!r}, or user {session.settings.user!r} has no rights in it"
        raise Terminal("RUNNEL-MYSQL-DATABASE", said, hint=f"CREATE DATABASE {quoted(name.database)}")
    kind = _kind(session, name)
    if kind not in (None, "BASE TABLE", "SYSTEM VERSIONED"):
        raise Terminal("RUNNEL-MYSQL-TABLE", f"{name} is a {kind.lower()}, not a table", hint="choose another name")
    return name, kind is not None


def _kind(session: Session, name: Name) -> str | None:
    found = session.rows(
        "SELECT TABLE_TYPE, TABLE_NAME, @@lower_case_table_names FROM information_schema.TABLES"
        f" WHERE TABLE_SCHEMA = {text(name.database)} AND TABLE_NAME = {text(name.table)}"
    )
    return next((str(kind) for kind, there, any_case in found if any_case != "0" or there == name.table), None)


def has_marks(session: Session, name: Name) -> bool:
    """Say whether a database has a table of marks."""
    return _kind(session, Name(name.database, MARKS)) is not None


def make_marks(session: Session, name: Name) -> None:
    """Create the table of marks in a database that has none."""
    if not has_marks(session, name):
        session.run(
            f"CREATE TABLE IF NOT EXISTS {name.marks} (table_name varchar(64) NOT NULL PRIMARY KEY, epoch bigint NOT NULL, "
            f"state text NOT NULL, delivered_at datetime(6) NOT NULL) {_OPTIONS}"
        )


_OPTIONS = "ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin"


def make(session: Session, shape: Shape, name: Name) -> None:
    """Create the table of a view."""
    check_columns(shape, name)
    columns = [f"{quoted(column.name)} {column_type(column.type)} NULL" for column in shape.columns]
    if shape.key:
        own = [f"{quoted(KEY)} binary(16) NOT NULL {_UNIQUE} COMMENT {text(key_comment(shape))}"]
        keys = [f"PRIMARY KEY ({quoted(KEY)})", _readers_index(shape)]
    else:
        own = [f"{quoted(part)} {type_} NOT NULL" for part, type_ in OWN.items()]
        keys = [f"PRIMARY KEY ({', '.join(map(quoted, OWN))})"]
    session.run(f"CREATE TABLE IF NOT EXISTS {name.quoted} ({', '.join([*columns, *own, *keys])}) {_OPTIONS}")


def _readers_index(shape: Shape) -> str:
    """Write the index by which readers find rows by their key."""
    by_name = {column.name: column_type(column.type) for column in shape.columns}
    return f"KEY ({', '.join(_indexed(part, by_name[part]) for part in shape.key[:_INDEXED])})"


def _indexed(column: str, type_: str) -> str:
    return quoted(column) + (f"({_PREFIX})" if type_.endswith(("text", "blob")) else "")


def key_comment(shape: Shape) -> str:
    """Say which columns a hash is of, so that a hash of others is never taken for it."""
    said = "hash of " + ", ".join(column.name.lower() for column in hashed_key(shape))
    return said if len(said) < _COMMENT else "hash of columns " + hashlib.sha256(said.encode()).hexdigest()


def add_columns(session: Session, shape: Shape, name: Name) -> None:
    """Add the columns that the view has got since."""
    check_columns(shape, name)
    there = _columns(session, name)
    for column in shape.columns:
        if column_there(column.name, there) not in there:
            session.run(f"ALTER TABLE {name.quoted} ADD COLUMN {quoted(column.name)} {column_type(column.type)} NULL")


def described(session: Session, shape: Shape, name: Name) -> Table:
    """Hold the table that exists against its view; raise `RUNNEL-TARGET-COLUMN` or `RUNNEL-TARGET-KEY-INDEX`."""
    check_columns(shape, name)
    _check_engine(session, shape, name)
    found = _columns(session, name)
    hashed = bool(shape.key) and KEY in found
    own = {KEY} if hashed else set[str]()
    there = {column: There(plain_type(f.type), f.required) for column, f in found.items() if column not in own}
    held = held_against(shape, name, there, Types(column_type, fits, OWN))
    table = Table(name, held.columns, (KEY,) if hashed else held.key, shape.key, found)
    if set(table.key) not in _unique_indexes(session, name):
        raise no_index(shape, name, table.key)
    if hashed and found[KEY].comment != key_comment(shape):
        raise no_index(shape, name, shape.key, f"tells rows apart by another key ({found[KEY].comment}) than")
    return table


def _check_engine(session: Session, shape: Shape, name: Name) -> None:
    ((engine, transactions),) = session.rows(
        "SELECT t.ENGINE, e.TRANSACTIONS = 'YES' AND e.SAVEPOINTS = 'YES' FROM information_schema.TABLES AS t "
        "LEFT JOIN information_schema.ENGINES AS e ON e.ENGINE = t.ENGINE "
        f"WHERE t.TABLE_SCHEMA = {text(name.database)} AND t.TABLE_NAME = {text(name.table)}"
    )
    if transactions != "1":
        hint = f"ALTER TABLE {name.quoted} ENGINE = InnoDB"
        raise misfit(shape, name, f"its engine is {engine}, which has no transactions", hint=hint)


def _columns(session: Session, name: Name) -> dict[str, Found]:
    rows = session.rows(
        "SELECT COLUMN_NAME, COLUMN_TYPE, CHARACTER_SET_NAME, COLLATION_NAME, COLUMN_COMMENT, IS_NULLABLE = 'NO' "
        "AND COLUMN_DEFAULT IS NULL AND EXTRA NOT LIKE '%auto_increment%' AND EXTRA NOT LIKE '%GENERATED%' "
        f"FROM information_schema.COLUMNS WHERE TABLE_SCHEMA = {text(name.database)} "
        f"AND TABLE_NAME = {text(name.table)} ORDER BY ORDINAL_POSITION"
    )
    return {column: _found(*further) for column, *further in rows}


def _found(type_: str, charset: str | None, collation: str | None, comment: str, required: Any) -> Found:
    words = f"{type_} CHARACTER SET {charset} COLLATE {collation} NULL" if charset else f"{type_} NULL"
    return Found(type_.lower(), words, required == "1", comment)


def _unique_indexes(session: Session, name: Name) -> list[set[str | None]]:
    """Give the columns of each unique index over whole columns."""
    rows = session.rows(
        "SELECT INDEX_NAME, COLUMN_NAME, SUB_PART FROM information_schema.STATISTICS WHERE NON_UNIQUE = 0 "
        f"AND TABLE_SCHEMA = {text(name.database)} AND TABLE_NAME = {text(name.table)}"
    )
    indexes: dict[str, set[str | None]] = {}
    for index, column, part in rows:
        indexes.setdefault(index, set()).add(column if part is None else None)
    return list(indexes.values())
