"""From rows of the log to change sets: rows are gathered by table, decoded together, and checked against the table's definition."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from runnel.connectors.base import ChangeSet
from runnel.connectors.mysql.log.problems import refused
from runnel.connectors.mysql.log.row_events import RowBuffer, Rows
from runnel.connectors.mysql.types import described, fits

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    import pyarrow as pa

    from runnel.connectors.mysql.definitions import Definition
    from runnel.connectors.mysql.log.table_map import LoggedColumn, TableMap
    from runnel.connectors.mysql.log.times import Zero

BATCH = 32 << 20
"""Bytes of rows that are decoded together."""
LARGEST_BATCH = 1 << 31
"""Arrow's offsets have 31 bits."""


@dataclass
class Gathered:
    """Rows of the log by table; `definitions` are those that hold for them, `trusted` tables whose old rows are surely in the copy."""

    definitions: Mapping[str, Definition]
    zero: Zero
    trusted: Collection[str] = ()
    _buffers: dict[str, tuple[TableMap, RowBuffer, str]] = field(default_factory=dict)

    def add(self, rows: Rows) -> Iterator[ChangeSet]:
        """Add the rows of an event; give what is complete of its table."""
        table = rows.table
        if not rows.whole:
            raise refused(
                "RUNNEL-BINLOG-IMAGE",
                rows.spot,
                f"rows of table {table.table} are logged without all of their columns",
                "set binlog_row_image = FULL on the server, for all sessions, then `runnel rebuild SOURCE`: all tables are read again",
            )
        known = self._buffers.get(table.table)
        if known is not None and (known[0] is not table or known[1].size + rows.size >= BATCH):
            yield from self._taken(table.table)
            known = None
        if known is None:
            buffer = RowBuffer(columns_of(table, self.definitions[table.table], rows), self.zero)
            known = self._buffers[table.table] = (table, buffer, str(rows.spot))
        known[1].add(rows)

    def rest(self) -> Iterator[ChangeSet]:
        """Give what was gathered and not given yet."""
        for name in list(self._buffers):
            yield from self._taken(name)

    def _taken(self, name: str) -> Iterator[ChangeSet]:
        _, buffer, place = self._buffers.pop(name)
        yield ChangeSet(name, signed=buffer.taken(), place=place, trusted=name in self.trusted)


def columns_of(table: TableMap, definition: Definition, rows: Rows) -> list[LoggedColumn]:
    """Say what the columns of a table map mean: by their own names, or by the kept definition where the log has none.

    A column has to be logged as its definition has it. Definitions in the log end a window, so another type is one that no
    definition in the log explains, and its values would be taken for something else.
    """
    if table.described:
        named = {column.name: column for column in definition.columns}
        pairs = [(one, named.get(one.name or "")) for one in table.columns]
        for one, two in pairs:
            if two is not None and not fits(one, two):
                what = (
                    f"column {two.name} of table {table.table} is logged with another type than {two.sql}, which it has"
                )
                hint = "its definition was changed past the log (SET sql_log_bin = 0): `runnel rebuild SOURCE`"
                raise refused("RUNNEL-BINLOG-DEFINITION", rows.spot, what, hint)
        return [one if two is None else described(one, two) for one, two in pairs]
    same = len(table.columns) == len(definition.columns)
    if not same or not all(fits(one, two) for one, two in zip(table.columns, definition.columns, strict=True)):
        raise refused(
            "RUNNEL-BINLOG-DEFINITION",
            rows.spot,
            f"the rows of table {table.table} do not fit its definition as runnel knows it",
            "set binlog_row_metadata = FULL on the server, so that the log names its columns, then `runnel rebuild SOURCE`",
        )
    return [described(one, two) for one, two in zip(table.columns, definition.columns, strict=True)]


def signed_rows(rows: Rows, definition: Definition, zero: Zero) -> pa.Table:
    """Decode the rows of one event."""
    buffer = RowBuffer(columns_of(rows.table, definition, rows), zero)
    buffer.add(rows)
    return buffer.taken()
