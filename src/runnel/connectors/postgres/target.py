"""Delivers views to PostgreSQL: all views of a target in one transaction, which also marks the epoch they are at.

Rows come through a temporary table by COPY; only rows that differ are written, in the order of their keys. Whoever is second to
deliver finds another mark than it expects and begins anew.
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any, ClassVar

import psycopg
from psycopg import sql

from runnel.connectors.base import Delivered
from runnel.connectors.marks import Mark, key_problem, view_problem
from runnel.connectors.postgres import tables
from runnel.connectors.postgres.client import as_runnel_error, connect, told
from runnel.connectors.postgres.stage import Stage
from runnel.connectors.postgres.types import has_nul, holds_text, sender
from runnel.connectors.sqltarget.rows import Unheld, signed_rows
from runnel.errors import Conflict, RunnelError, Terminal
from runnel.failpoints import reach

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from runnel.connectors.base import Delivery
    from runnel.connectors.marks import Shape
    from runnel.connectors.postgres.settings import Settings
    from runnel.connectors.postgres.tables import Connection, Table
    from runnel.connectors.sqltarget.difference import Difference
    from runnel.connectors.sqltarget.rows import Convert
    from runnel.model.relation import Column


class PostgresTarget:
    """Tables of one database that follow views."""

    NEEDS_KEY: ClassVar[bool] = False

    def __init__(self, settings: Settings) -> None:
        """Keep the settings; it is connected when it is first asked."""
        self._settings = settings
        self._connected: Connection | None = None

    def _connection(self) -> Connection:
        if self._connected is None or self._connected.closed or self._connected.broken:
            self._connected = connect(self._settings)
        return self._connected

    def close(self) -> None:
        """Close the connection."""
        if self._connected is not None:
            self._connected.close()
            self._connected = None

    def check(self, shape: Shape) -> None:
        """Raise if the view cannot be held; what is missing must be possible to make."""
        with told(self._settings):
            connection = self._connection()
            name, number = tables.find(connection, shape.table)
            if number is not None:
                tables.described(connection, shape)
            if number is not None and tables.has_marks(connection, name):
                return
            row = connection.execute("SELECT has_schema_privilege(%s, 'CREATE')", [name.schema]).fetchone()
            if not row or not row[0]:
                raise Terminal(
                    "RUNNEL-POSTGRES-PERMISSION",
                    f"{self._settings.label}: no table may be made in schema {name.schema!r}",
                    hint="docs/targets.md lists what must be granted",
                )

    def marks(self, shapes: Sequence[Shape]) -> dict[str, Mark]:
        """Give the marks of those views whose table is there and has one."""
        found: dict[str, Mark] = {}
        with told(self._settings):
            connection = self._connection()
            for shape in shapes:
                try:
                    name, number = tables.find(connection, shape.table)
                except Terminal:  # told when it is delivered
                    continue
                mark = _mark(connection, name) if number is not None else None
                found |= {shape.view: mark} if mark else {}
        return found

    def apply(self, deliveries: Sequence[Delivery]) -> Delivered:
        """Write deliveries in one transaction; each one that cannot be held is left out of it."""
        done = Delivered()
        with told(self._settings):
            connection = self._connection()
            with connection.transaction():
                for delivery in sorted(deliveries, key=lambda d: d.shape.table):
                    try:
                        with connection.transaction():
                            done.rows += self._apply(connection, delivery)
                    except (RunnelError, psycopg.Error) as error:
                        done.problems[delivery.shape.view] = self._problem(error)
                reach("deliver:rows-written")
        reach("deliver:marked")
        if done.problems:
            self.close()  # temporary tables may be of an older form than what is to be mended now
        return done

    def compare(self, delivery: Delivery) -> Difference:
        """Compare the table with a whole delivery, without locks; raise `Conflict` where its mark is not `since` any more."""
        with told(self._settings):
            connection = self._connection()
            connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
            try:
                with connection.transaction():
                    table = tables.described(connection, delivery.shape)
                    _check_mark(delivery, table.name, _mark(connection, table.name))
                    stage = Stage(connection, table)
                    stage.fill(_signed(delivery, table))
                    return stage.compare()
            finally:
                self.close()  # the level is the connection's, and temporary tables may be of an older form

    def _problem(self, error: RunnelError | psycopg.Error) -> RunnelError:
        """Give what is wrong with one view; raise what is wrong with more than that."""
        told = error if isinstance(error, RunnelError) else as_runnel_error(self._settings.label, error)
        return view_problem(self._settings.label, told)

    def _apply(self, connection: Connection, delivery: Delivery) -> int:
        name, number = tables.find(connection, delivery.shape.table)
        connection.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", [f"runnel {name}"])
        tables.make_marks(connection, name)
        mark = _mark(connection, name) if number is not None else None
        _check_mark(delivery, name, mark)
        table = tables.ready(connection, delivery.shape, ours=mark is not None)
        stage = Stage(connection, table)
        stage.fill(_signed(delivery, table))
        rows = stage.apply(whole=delivery.whole)
        connection.execute(
            sql.SQL(
                "INSERT INTO {} AS m VALUES (%s, %s, %s, now()) ON CONFLICT (table_name) DO UPDATE "
                "SET epoch = excluded.epoch, state = excluded.state, delivered_at = excluded.delivered_at"
            ).format(name.marks),
            [name.table, delivery.mark.epoch, delivery.mark.state],
        )
        return rows


def _check_mark(delivery: Delivery, name: tables.Name, mark: Mark | None) -> None:
    if mark != delivery.since:
        raise Conflict("RUNNEL-TARGET-OVERTAKEN", f"somebody else delivered to {name}", hint="it is tried again")


def _mark(connection: Connection, name: tables.Name) -> Mark | None:
    if not tables.has_marks(connection, name):
        return None
    found = connection.execute(
        sql.SQL("SELECT epoch, state FROM {} WHERE table_name = %s").format(name.marks), [name.table]
    ).fetchone()
    return Mark(*found) if found else None


def _sendable(table: Table) -> Convert:
    """Give the function that makes what is sent of a column's values; it raises for what the table cannot hold."""

    def convert(shape: Shape, column: Column, values: list[Any]) -> list[Any]:
        if holds_text(column.type):
            _refuse_nul(values)
        if column.name in shape.key and not table.null_keys and any(value is None for value in values):
            what = f"NULL, and {table.name} allows none there"
            hint = "use coalesce in the view, or a UNIQUE NULLS NOT DISTINCT index on nullable columns"
            raise key_problem(shape, column.name, what, hint)
        send = sender(column.type)
        return values if send is None else [None if value is None else send(value) for value in values]

    return convert


def _refuse_nul(values: list[Any]) -> None:
    at = next((at for at, value in enumerate(values) if has_nul(value)), None)
    if at is not None:
        raise Unheld(at, "a NUL character, which PostgreSQL cannot hold in text")


def _signed(delivery: Delivery, table: Table) -> Iterator[list[Any]]:
    """Give what is sent: the values of each row in the order of the table's columns, its hash where it has no key, its weight."""
    convert, keyed = _sendable(table), bool(delivery.shape.key)
    for values, hashed, weight in signed_rows(delivery, convert):
        yield [*values, weight] if keyed else [*values, uuid.UUID(bytes=hashed), weight]
