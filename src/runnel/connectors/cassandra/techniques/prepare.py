"""Makes, fills and removes what the audit and trigger techniques need in the store. Doing it twice changes nothing.

Audit columns are filled with the column's own write time, so that old rows do not look new. Old values of tracked tables are
those that are there. The first cycle begins at the moment of preparation.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from runnel.connectors.cassandra.schema.tables import name_of
from runnel.connectors.cassandra.schema.twins import captured_columns, is_twin, set_twin, twin_of, twin_type
from runnel.connectors.cassandra.snapshot import Wanted, read_table
from runnel.connectors.cassandra.techniques.journal import create_statements, drop_statements
from runnel.connectors.cassandra.techniques.tracking import set_old
from runnel.connectors.cassandra.techniques.triggers import NAMES
from runnel.connectors.cassandra.values.types import parse, quoted
from runnel.connectors.deltas.technique import clock
from runnel.errors import Terminal, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from runnel.connectors.cassandra.client import Client
    from runnel.connectors.cassandra.schema.tables import ColumnSchema, TableSchema
    from runnel.connectors.deltas.cycles import Cycles

TECHNIQUES = ("audit", "trigger")
MILLISECOND = 1000
_LONG = struct.Struct(">q")
_INT = struct.Struct(">i")
_CLASSES = {"time": "runnel.AuditTimeTrigger", "value": "runnel.AuditValueTrigger", "trigger": "runnel.JournalTrigger"}


def prepare(client: Client, technique: str, cycles: Cycles, say: Callable[[str], None]) -> None:
    """Make what a technique needs, in every chosen table."""
    begin = clock()
    for table in client.chosen_tables():
        _refuse_counters(table, technique)
        if technique == "audit":
            _prepare_audit(client, table, say)
        else:
            _prepare_journal(client, table, say, filled=cycles.state() is not None)
    cycles.begin_at(begin)


def undo(client: Client, technique: str, cycles: Cycles, say: Callable[[str], None]) -> None:
    """Remove what `prepare` has made, and forget where the technique had got to."""
    for table in client.chosen_tables():
        client.execute(f"DROP TRIGGER IF EXISTS {NAMES[technique]} ON {name_of(table)}")
        if technique == "trigger":
            for statement in drop_statements(table):
                client.execute(statement)
            say(f"{table.name}: trigger, journal and old values are removed")
            continue
        twins = [quoted(column.name) for column in table.columns if is_twin(table, column.name)]
        if twins:
            client.execute(f"ALTER TABLE {name_of(table)} DROP ({', '.join(twins)})")
        say(f"{table.name}: {len(twins)} audit columns are removed")
    cycles.forget()


def _refuse_counters(table: TableSchema, technique: str) -> None:
    if table.is_counter:
        raise UsageError(
            "RUNNEL-CASSANDRA-COUNTERS",
            f"{table.keyspace}.{table.name} has counters, which {technique} cannot follow",
            hint="name the other tables in 'tables', or capture this one with log or snapshot",
        )


def _prepare_audit(client: Client, table: TableSchema, say: Callable[[str], None]) -> None:
    mode = client.settings.audit
    missing = []
    for column in captured_columns(table):
        twin = table.by_name.get(twin_of(column.name))
        if twin is None:
            missing.append(_twin_definition(table, column, mode))
        elif twin.type != parse_like(table, twin_type(column, mode)):
            raise UsageError(
                "RUNNEL-CASSANDRA-TWIN",
                f"{table.keyspace}.{table.name}: {twin.name!r} is {twin.type}, as {_other(mode)} mode has it",
                hint=f"set audit = {_other(mode)!r}, or remove them: runnel prepare {client.settings.name} --technique audit --undo",
            )
    if missing:
        client.execute(f"ALTER TABLE {name_of(table)} ADD ({', '.join(missing)})")
        table = client.tables()[table.name]
    if client.settings.writer == "trigger":
        create_trigger(client, table, "audit", _CLASSES[mode])
    filled = client.write(_twins_to_fill(client, table, mode))
    say(f"{table.name}: {len(missing)} audit columns made, {filled} filled")


def _other(mode: str) -> str:
    return "value" if mode == "time" else "time"


def parse_like(table: TableSchema, text: str) -> object:
    """Read a type that may name the user-defined types of a table's columns."""
    udts = {column.type.name: column.type for column in table.columns}
    return parse(text, udts)  # type: ignore[arg-type]


def _twin_definition(table: TableSchema, column: ColumnSchema, mode: str) -> str:
    """Write the definition of a twin; a name that was dropped before may only come back with a type like it had."""
    type_ = twin_type(column, mode)
    for dropped in table.dropped:
        if dropped.name == twin_of(column.name) and str(dropped.type) != type_:
            raise Terminal(
                "RUNNEL-CASSANDRA-TWIN",
                f"{table.keyspace}.{table.name}: {dropped.name!r} was {dropped.type} once and the server lets it be nothing else",
                hint=f"use audit = {_other(mode)!r} as before",
            )
    static = " static" if column.kind == "static" else ""
    return f"{quoted(twin_of(column.name))} {type_}{static}"


def _twins_to_fill(client: Client, table: TableSchema, mode: str) -> Iterator[tuple[str, list[bytes | None]]]:
    """Give a write for each column without a twin.

    Cells of a column that was dropped before are hidden up to that moment, also when the column is back: they are written
    just after it. The server tells that moment in milliseconds.
    """
    columns = captured_columns(table)
    twins = tuple(table.by_name[twin_of(column.name)] for column in columns)
    for row in read_table(client, table, Wanted((*columns, *twins), ttls=True)):
        cells = {cell.column: cell for cell in row.cells}
        for column in columns:
            cell, name = cells.get(column.name), twin_of(column.name)
            if cell is None or name in cells:
                continue
            written = cell.time or 0
            value = _LONG.pack(written) if mode == "time" else cell.value
            time = max(written, table.dropped_at.get(name, written - MILLISECOND) + MILLISECOND)
            place = [*row.key, *(part or b"" for part in row.clustering or ())]
            yield set_twin(table, column.name), [_INT.pack(cell.ttl or 0), _LONG.pack(time), value, *place]


def _prepare_journal(client: Client, table: TableSchema, say: Callable[[str], None], *, filled: bool) -> None:
    for statement in create_statements(table):
        client.execute(statement)
    if client.settings.writer != "application":
        create_trigger(client, table, "trigger", _CLASSES["trigger"])
    # What is there now is what the first change is compared with. Later it would hide changes that wait in the journal.
    count = 0 if filled else client.write(_old_values(client, table))
    say(f"{table.name}: journal and old values are there, {count} filled")


def _old_values(client: Client, table: TableSchema) -> Iterator[tuple[str, list[bytes | None]]]:
    for row in read_table(client, table, Wanted(captured_columns(table), ttls=True)):
        place = [*row.key, *(part or b"" for part in row.clustering or ())]
        for cell in row.cells:
            yield (
                set_old(table, cell.column),
                [_INT.pack(cell.ttl or 0), _LONG.pack(cell.time or 0), cell.value, *place],
            )


def create_trigger(client: Client, table: TableSchema, technique: str, class_: str) -> None:
    """Create a trigger; raise `RUNNEL-CASSANDRA-TRIGGER` where the server does not have its class."""
    try:
        client.execute(f"CREATE TRIGGER IF NOT EXISTS {NAMES[technique]} ON {name_of(table)} USING '{class_}'")
    except Terminal as error:
        if "loaded" not in error.message:
            raise
        raise UsageError(
            "RUNNEL-CASSANDRA-TRIGGER",
            f"sources.{client.settings.name}: the server does not have runnel's triggers ({class_})",
            hint="build them with --build-triggers and put the jar into each node's triggers folder before it starts, "
            "or set writer = 'application'",
        ) from error
