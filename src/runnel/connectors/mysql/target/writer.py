"""Delivers views to MariaDB and MySQL: all views of a target in one transaction, which also marks the epoch they are at.

1. Tables are created or get columns, for a definition commits by itself. A mark is taken back before the table it is of is created.
2. Rows are sent to temporary tables.
3. In one transaction: each mark is locked and compared, the rows that differ are written in the order of their keys, the mark is set.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ClassVar

import pymysql

from runnel.connectors.base import Delivered
from runnel.connectors.marks import Mark, key_problem, view_problem
from runnel.connectors.mysql.client import quoted, text, translate_errors, translated
from runnel.connectors.mysql.target import tables
from runnel.connectors.mysql.target.session import Session
from runnel.connectors.mysql.target.stage import Stage
from runnel.connectors.mysql.target.values import check_columns, literals
from runnel.connectors.sqltarget.rows import signed_rows
from runnel.errors import Conflict, RunnelError, Terminal
from runnel.failpoints import reach

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from runnel.connectors.base import Delivery
    from runnel.connectors.marks import Shape
    from runnel.connectors.mysql.settings import Settings
    from runnel.connectors.mysql.target.tables import Name, Table
    from runnel.connectors.sqltarget.difference import Difference
    from runnel.connectors.sqltarget.rows import Convert
    from runnel.model.relation import Column

_NO_EPOCH = -1
"""The epoch of a mark that says nothing: of a table that is new."""
_MISSING = 1146


class MysqlTarget:
    """Tables of one server that follow views."""

    NEEDS_KEY: ClassVar[bool] = False

    def __init__(self, settings: Settings) -> None:
        """Keep the settings; it is connected when it is first asked."""
        self._settings = settings
        self._connected: Session | None = None

    def close(self) -> None:
        """Close the connection."""
        session, self._connected = self._connected, None
        if session is not None:
            session.close()

    @contextmanager
    def _session(self) -> Iterator[Session]:
        """Give the connection; it is closed after whatever goes wrong."""
        with translate_errors(self._settings):
            if self._connected is None or not self._connected.open:
                self._connected = Session(self._settings)
            try:
                yield self._connected
            except BaseException:
                self.close()
                raise

    def check(self, shape: Shape) -> None:
        """Raise if the view cannot be held; what is missing must be possible to make."""
        with self._session() as session:
            name, exists = tables.find(session, shape.table)
            check_columns(shape, name)
            if exists:
                tables.described(session, shape, name)
            if not exists or not tables.has_marks(session, name):
                _check_may_create(session, name)
            session.run(f"CREATE TEMPORARY TABLE {quoted(name.database, '_runnel_probe')} (n int PRIMARY KEY)")
            session.run(f"DROP TEMPORARY TABLE {quoted(name.database, '_runnel_probe')}")

    def marks(self, shapes: Sequence[Shape]) -> dict[str, Mark]:
        """Give the marks of those views whose table is there and has one."""
        found: dict[str, Mark] = {}
        with self._session() as session:
            for shape in shapes:
                try:
                    name, exists = tables.find(session, shape.table)
                except Terminal:  # reported when it is delivered
                    continue
                mark = _mark(session, name) if exists and tables.has_marks(session, name) else None
                found |= {shape.view: mark} if mark else {}
        return found

    def apply(self, deliveries: Sequence[Delivery]) -> Delivered:
        """Write deliveries in one transaction; each one that cannot be held is left out of it."""
        done = Delivered()
        staged: list[tuple[Delivery, Stage, Name]] = []
        with self._session() as session:
            for number, delivery in enumerate(sorted(deliveries, key=lambda d: d.shape.table)):
                with self._apart(delivery, done):
                    table = _ready(session, delivery.shape)
                    reach("deliver:table-made")
                    stage = Stage(session, table, number)
                    stage.fill(signed_rows(delivery, _convert(table), hash_keys=table.hashed))
                    staged.append((delivery, stage, table.name))
            reach("deliver:sent")
            with session.transaction():
                for delivery, stage, name in staged:
                    session.run("SAVEPOINT view")
                    with self._apart(delivery, done):
                        done.rows += _write(session, delivery, stage, name)
                    if delivery.shape.view in done.problems:
                        session.run("ROLLBACK TO SAVEPOINT view")
                reach("deliver:rows-written")
            reach("deliver:marked")
            if staged:
                session.run(f"DROP TEMPORARY TABLE {', '.join(stage.name for _, stage, _ in staged)}")
        if done.problems:
            self.close()  # a temporary table may be left
        return done

    def compare(self, delivery: Delivery) -> Difference:
        """Compare the table with a whole delivery, without locks; raise `Conflict` where its mark is not `since` any more."""
        with self._session() as session:
            name, _ = tables.find(session, delivery.shape.table)
            table = tables.described(session, delivery.shape, name)
            stage = Stage(session, table, 0)
            stage.fill(signed_rows(delivery, _convert(table), hash_keys=table.hashed))
            with session.snapshot():
                _check_mark(session, delivery, name)
                found = stage.compare()
            session.run(f"DROP TEMPORARY TABLE {stage.name}")
            return found

    @contextmanager
    def _apart(self, delivery: Delivery, done: Delivered) -> Iterator[None]:
        """Note what is wrong with one view; raise what is wrong with more than that."""
        try:
            yield
        except RunnelError as error:
            done.problems[delivery.shape.view] = view_problem(self._settings.label, error)
        except pymysql.MySQLError as error:
            said = translated(self._settings, error)
            done.problems[delivery.shape.view] = view_problem(self._settings.label, said)


def _check_may_create(session: Session, name: Name) -> None:
    """Raise unless tables may be created in a database: rights come before the table that is missing, so that nothing is made."""
    probe, nothing = quoted(name.database, "_runnel_probe"), quoted(name.database, "_runnel_nothing")
    try:
        session.run(f"CREATE TABLE {probe} LIKE {nothing}")
    except pymysql.MySQLError as error:
        if error.args[0] != _MISSING:
            raise


def _ready(session: Session, shape: Shape) -> Table:
    """Give the table of a view, made where it is missing; one that was delivered to gets the columns that are new in the view."""
    name, exists = tables.find(session, shape.table)
    tables.make_marks(session, name)
    if not exists:
        check_columns(shape, name)
        _take_mark_back(session, name)
        tables.make(session, shape, name)
    elif _mark_row(session, name) is not None:
        tables.add_columns(session, shape, name)
    return tables.described(session, shape, name)


def _take_mark_back(session: Session, name: Name) -> None:
    """Make a missing table's mark say nothing, before the table is created: it would vouch for an empty one after a crash."""
    with session.transaction():
        _lock_mark(session, name)
        if not tables.find(session, name.quoted)[1]:
            session.run(f"UPDATE {name.marks} SET epoch = {_NO_EPOCH} WHERE table_name = {text(name.table)}")


def _lock_mark(session: Session, name: Name) -> None:
    """Keep others from delivering to a table until the transaction ends, whether it has a mark or not."""
    session.run(
        f"INSERT INTO {name.marks} VALUES ({text(name.table)}, {_NO_EPOCH}, '', UTC_TIMESTAMP(6)) "
        "ON DUPLICATE KEY UPDATE table_name = VALUES(table_name)"
    )


def _mark_row(session: Session, name: Name) -> tuple[Any, ...] | None:
    found = session.rows(f"SELECT epoch, state FROM {name.marks} WHERE table_name = {text(name.table)}")
    return found[0] if found else None


def _mark(session: Session, name: Name) -> Mark | None:
    found = _mark_row(session, name)
    return Mark(int(found[0]), found[1]) if found and int(found[0]) != _NO_EPOCH else None


def _write(session: Session, delivery: Delivery, stage: Stage, name: Name) -> int:
    _lock_mark(session, name)
    _check_mark(session, delivery, name)
    rows = stage.apply(whole=delivery.whole)
    session.run(
        f"UPDATE {name.marks} SET epoch = {delivery.mark.epoch}, state = {text(delivery.mark.state)}, "
        f"delivered_at = UTC_TIMESTAMP(6) WHERE table_name = {text(name.table)}"
    )
    return rows


def _check_mark(session: Session, delivery: Delivery, name: Name) -> None:
    if _mark(session, name) != delivery.since:
        raise Conflict("RUNNEL-TARGET-OVERTAKEN", f"somebody else delivered to {name}", hint="it is tried again")


def _convert(table: Table) -> Convert:
    """Give the function that writes a column's values as SQL."""

    def convert(shape: Shape, column: Column, values: list[Any]) -> list[Any]:
        if column.name in shape.key and not table.hashed and any(value is None for value in values):
            what = f"NULL, and {table.name} cannot tell such rows apart"
            hint = f"use coalesce in the view, or drop the table: it is then created with {tables.KEY}, which can"
            raise key_problem(shape, column.name, what, hint)
        return literals(column, values)

    return convert
