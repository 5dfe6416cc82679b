"""Definitions of tables: read from information_schema, kept in positions of the log, changed by definitions in the log."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from runnel.connectors.base import TableInfo
from runnel.connectors.mysql.client import listed, text
from runnel.connectors.mysql.types import SqlColumn, default_is_known, type_of
from runnel.errors import RunnelError, Terminal, UsageError, nearest
from runnel.model.relation import Column, check_columns

if TYPE_CHECKING:
    from collections.abc import Mapping

    from runnel.connectors.mysql.client import Client


@dataclass(frozen=True)
class Definition:
    """A table as it was at a position of the log; `key` is its primary key, or its first unique one without NULLs."""

    name: str
    columns: tuple[SqlColumn, ...]
    key: tuple[str, ...]

    def info(self) -> TableInfo:
        """Describe it to the pipeline."""
        columns = tuple(Column(column.name, self._type(column)) for column in self.columns)
        check_columns(self.name, columns, self.key)
        return TableInfo(self.name, columns, self.key, grows=True)

    def _type(self, column: SqlColumn) -> Any:
        try:
            return type_of(column)
        except RunnelError as error:
            error.message = f"table {self.name}: {error.message}"
            raise

    def as_position(self) -> dict[str, Any]:
        """Give it as a position keeps it."""
        columns = [[c.name, c.sql, c.charset, *([c.default, True] if c.has_default else [])] for c in self.columns]
        return {"columns": columns, "key": list(self.key)}

    @classmethod
    def of(cls, name: str, kept: Mapping[str, Any]) -> Definition:
        """Read it out of a position."""
        return cls(name, tuple(SqlColumn(*column) for column in kept["columns"]), tuple(kept["key"]))


def read_definitions(client: Client) -> dict[str, Definition]:
    """Read the definitions of the followed tables as they are now."""
    settings = client.settings
    where = f"TABLE_SCHEMA = {text(settings.database)}"
    if settings.tables:
        where += f" AND TABLE_NAME IN ({listed(settings.tables)})"
    tables = client.rows(
        f"SELECT TABLE_NAME FROM information_schema.TABLES WHERE {where} AND TABLE_TYPE = 'BASE TABLE' ORDER BY 1"
    )
    names = [name for (name,) in tables]
    _check_names(client, names)
    columns: dict[str, list[SqlColumn]] = {name: [] for name in names}
    for table, name, sql, charset, *default in client.rows(
        "SELECT TABLE_NAME, COLUMN_NAME, COLUMN_TYPE, CHARACTER_SET_NAME, COLUMN_DEFAULT, IS_NULLABLE, EXTRA"
        f" FROM information_schema.COLUMNS WHERE {where} ORDER BY TABLE_NAME, ORDINAL_POSITION"
    ):
        if table in columns:
            column = SqlColumn(name, sql, charset)
            if settings.row_image == "minimal" and default_is_known(column.word, *default):
                column = replace(column, default=default[0], has_default=True)
            columns[table].append(column)
    keys = _keys(client, where)
    return {name: Definition(name, tuple(columns[name]), keys.get(name, ())) for name in names}


def _check_names(client: Client, names: list[str]) -> None:
    settings = client.settings
    missing = [name for name in settings.tables if name not in names]
    if missing:
        named = f"SELECT TABLE_NAME FROM information_schema.TABLES WHERE TABLE_SCHEMA = {text(settings.database)}"
        names = [name for (name,) in client.rows(named)]
        raise UsageError(
            "RUNNEL-MYSQL-TABLE",
            f"{settings.label}: database {settings.database} has no table {missing[0]!r}",
            hint=nearest(missing[0], names) or "see `database` and `tables`, and that the user may SELECT it",
        )
    if not names:
        raise UsageError(
            "RUNNEL-MYSQL-TABLE",
            f"{settings.label}: database {settings.database} has no tables that user {settings.user!r} can see",
            hint="see `database`, and that the user may SELECT its tables",
        )


def _keys(client: Client, where: str) -> dict[str, tuple[str, ...]]:
    """Give the primary key of each table, else the first unique key of columns that are never NULL and whole."""
    found: dict[str, dict[str, list[tuple[str, bool]]]] = {}
    rows = client.rows(
        "SELECT TABLE_NAME, INDEX_NAME, COLUMN_NAME, NULLABLE, SUB_PART FROM information_schema.STATISTICS"
        f" WHERE {where} AND NON_UNIQUE = 0 ORDER BY TABLE_NAME, INDEX_NAME <> 'PRIMARY', INDEX_NAME, SEQ_IN_INDEX"
    )
    for table, index, column, nullable, part in rows:
        whole = nullable != "YES" and part is None and column is not None
        found.setdefault(table, {}).setdefault(index, []).append((column, whole))
    keys = {}
    for table, indexes in found.items():
        whole_ones = [columns for columns in indexes.values() if all(whole for _, whole in columns)]
        if whole_ones:
            keys[table] = tuple(column for column, _ in whole_ones[0])
    return keys


def need_key(label: str, definition: Definition) -> None:
    """Refuse a table whose rows cannot be told apart."""
    if not definition.key:
        raise Terminal(
            "RUNNEL-MYSQL-KEY",
            f"{label}: table {definition.name} has neither a primary key nor a unique one without NULLs",
            hint="give it one, or name the other tables: tables = [...]",
        )
