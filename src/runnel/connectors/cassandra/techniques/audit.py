"""Capture by audit columns: with U the time of the twin and T the write time of the column, in a window P < t <= N,.

    P < U <= N        insertion of the value that is there
    U <= P < T <= N   update

Twins are written by the application's wrapper (`writer`) or by a trigger; a column that was written past both and has no
twin yet counts as inserted at its own write time. After a cycle the missing twins are added, those without a column removed,
and in value mode each twin becomes the value that was told.
"""

from __future__ import annotations

import json
import struct
from dataclasses import replace
from typing import TYPE_CHECKING

from runnel.connectors.cassandra.schema.twins import PREFIX, captured_columns, remove_twin, set_twin, twin_of
from runnel.connectors.cassandra.snapshot import Cell, Wanted, read_table
from runnel.connectors.cassandra.techniques.scan import Overlap
from runnel.connectors.cassandra.techniques.triggers import check_trigger
from runnel.connectors.cassandra.techniques.writing import Writer
from runnel.connectors.deltas.kept import Lines, lines_left
from runnel.connectors.deltas.model import Operation
from runnel.connectors.deltas.technique import WRITE_TIMES, Abilities, Position, clock
from runnel.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from runnel.connectors.cassandra.client import Client
    from runnel.connectors.cassandra.schema.tables import TableSchema
    from runnel.connectors.cassandra.snapshot import SnapshotRow
    from runnel.connectors.deltas.model import Delta
    from runnel.connectors.deltas.technique import Cycle

UPKEEP = "twins"
_LONG = struct.Struct(">q")
_INT = struct.Struct(">i")
_TOLD = (Operation.INS, Operation.UPD)
_NEEDS = "twin columns, a wrapper or trigger"
BY_TIME = Abilities("audit (time)", _TOLD, WRITE_TIMES, _NEEDS)
"""Of twins that hold the time of insertion."""
BY_VALUE = Abilities("audit (value)", _TOLD, WRITE_TIMES, _NEEDS, previous=True)
"""Of twins that hold the value last analysed."""


class Audit:
    """Capture by twins; by value, an update is told with the value before."""

    def __init__(self, client: Client, tables: list[TableSchema]) -> None:
        """Read these tables, which must have twins."""
        self._client, self._tables = client, tables
        self._by_value = client.settings.audit == "value"
        check_twins(tables, client.settings.name)
        if client.settings.writer == "trigger":
            for table in tables:
                check_trigger(client, table, "audit")

    def now(self) -> Position:
        """Give this moment."""
        return clock()

    def read(self, cycle: Cycle) -> Iterator[Delta]:
        """Give an insertion or an update for each column written in the window."""
        yield from _read(self._client, self._tables, cycle, by_value=self._by_value)

    def settle(self, cycle: Cycle) -> None:
        """Add missing twins, remove those without a column; by value, make each the value that was told."""
        self._client.write(_upkeep(lines_left(cycle.kept, UPKEEP), self._tables))

    def close(self) -> None:
        """Close the connection."""
        self._client.close()


def check_twins(tables: Iterable[TableSchema], source: str) -> None:
    """Refuse a table without twins with `RUNNEL-CASSANDRA-PREPARE`."""
    for table in tables:
        if any(twin_of(c.name) not in table.by_name for c in captured_columns(table) if c.type.name != "counter"):
            raise UsageError(
                "RUNNEL-CASSANDRA-PREPARE",
                f"{table.keyspace}.{table.name} has columns without audit columns",
                hint=f"make them: runnel prepare {source} --technique audit",
            )


def _read(client: Client, tables: list[TableSchema], cycle: Cycle, *, by_value: bool) -> Iterator[Delta]:
    """Read columns with their twins; what is to be done about twins is noted for `settle`."""
    overlap = Overlap(cycle, client.settings.overlap)
    upkeep = Lines(cycle.kept, UPKEEP)
    for table in tables:
        writer = Writer(table)
        columns = tuple(c for c in captured_columns(table) if c.type.name != "counter")
        twins = tuple(table.by_name[twin_of(column.name)] for column in columns)
        for row in read_table(client, table, Wanted((*columns, *twins), ttls=True)):
            cells = {cell.column: cell for cell in row.cells}
            for name in [column.name for column in columns]:
                cell, twin = cells.get(name), cells.get(twin_of(name))
                operation = None if cell is None else _decided(cell, twin, overlap, by_value=by_value)
                care = _care(table, row, cell, twin, operation, overlap.upto, by_value=by_value)
                if care:
                    upkeep.write(care)
                if cell is not None and operation is not None:
                    delta = writer.delta(operation, row.key, row.clustering, cell)
                    if by_value and operation is Operation.UPD and twin is not None:
                        delta = replace(delta, previous=writer.value(name, twin.value))
                    yield from overlap.new(delta)
    upkeep.close()
    overlap.close()


def _care(
    table: TableSchema,
    row: SnapshotRow,
    cell: Cell | None,
    twin: Cell | None,
    operation: Operation | None,
    upto: int,
    *,
    by_value: bool,
) -> str:
    """Say what is to be done about a twin, as a line; "" where it is as it should be."""
    if cell is None:
        name = "" if twin is None else twin.column.removeprefix(PREFIX)
        return "" if twin is None else _line(table, row, name, None, twin.time or 0, None)
    if twin is None or (by_value and operation is not None):
        value = cell.value if by_value else _LONG.pack(cell.time or 0)
        return _line(table, row, cell.column, value, min(cell.time or 0, upto), cell.ttl)
    return ""


def _decided(cell: Cell, twin: Cell | None, overlap: Overlap, *, by_value: bool) -> Operation | None:
    written = cell.time or 0
    inserted = written
    if twin is not None:
        inserted = twin.time or 0 if by_value else _LONG.unpack(twin.value)[0]
    if overlap.begin < inserted <= overlap.upto:
        return Operation.INS
    if inserted <= overlap.begin < written <= overlap.upto:
        return Operation.UPD
    if overlap.after < written <= overlap.begin:  # late, or told before, which the overlap knows
        return Operation.INS if overlap.after < inserted else Operation.UPD
    return None


def _line(table: TableSchema, row: SnapshotRow, column: str, value: bytes | None, time: int, ttl: int | None) -> str:
    place = [part.hex() for part in row.key]
    place += [(part or b"").hex() for part in row.clustering or ()]
    return json.dumps([table.name, column, place, None if value is None else value.hex(), time, ttl])


def _upkeep(lines: Iterable[str], tables: list[TableSchema]) -> Iterator[tuple[str, list[bytes | None]]]:
    by_name = {table.name: table for table in tables}
    for line in lines:
        name, column, place, value, time, ttl = json.loads(line)
        row = [bytes.fromhex(part) for part in place]
        if value is None:
            yield remove_twin(by_name[name], column), [_LONG.pack(time), *row]
        else:
            yield (
                set_twin(by_name[name], column),
                [_INT.pack(ttl or 0), _LONG.pack(time), bytes.fromhex(value), *row],
            )
