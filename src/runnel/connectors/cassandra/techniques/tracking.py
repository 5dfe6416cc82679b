"""Capture by a tracking table: a trigger or the application writes each change into a journal, beside the change itself.

What a change is follows from the value that was told last, the *old value*. Each column goes through these rules:

    delete   in Old Value? it goes to Deletion;  always: out of Insertion and Update
    set      in Insertion? overwritten there;  else in Old Value? Update;  else Insertion;  always: out of Deletion

At the end of a window Insertion, Update and Deletion are told, and what is told is the old value of the next one. The rules are
applied here and not where the change is written, so that a write does not have to read.
"""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any

from runnel.connectors.cassandra.cells.live_rows import compare
from runnel.connectors.cassandra.schema.twins import captured_columns, where
from runnel.connectors.cassandra.snapshot import Cell, Wanted, read_partition
from runnel.connectors.cassandra.techniques.journal import OLD, old_name, read_journal, remove_page
from runnel.connectors.cassandra.techniques.triggers import check_trigger
from runnel.connectors.cassandra.techniques.writing import Writer
from runnel.connectors.cassandra.values.types import quoted
from runnel.connectors.deltas.kept import Lines, lines_left
from runnel.connectors.deltas.model import Delta, Operation
from runnel.connectors.deltas.technique import Abilities, NetEffect, Position, after_time, clock
from runnel.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from runnel.connectors.cassandra.client import Client
    from runnel.connectors.cassandra.schema.tables import TableSchema
    from runnel.connectors.cassandra.techniques.journal import Page
    from runnel.connectors.deltas.technique import Cycle

UPKEEP = "tracked"
LATE_MICROSECONDS = 3_600_000_000
"""How late a page may come: what was told is removed from the journal, so what is left there was not told yet."""
_LONG = struct.Struct(">q")
_INT = struct.Struct(">i")
Place = tuple[tuple[bytes | None, ...] | None, str]
ABILITIES = Abilities(
    "trigger",
    (Operation.INS, Operation.UPD, Operation.DEL),
    frozenset(NetEffect) - {NetEffect.DELETION},
    "two tables, a trigger or wrapper",
    previous=True,
)


class Tracking:
    """Capture by a journal of changes."""

    def __init__(self, client: Client, tables: list[TableSchema]) -> None:
        """Read the journals of these tables."""
        self._client, self._tables = client, tables
        there = client.tables()
        for table in tables:
            if table.name + OLD not in there:
                raise UsageError(
                    "RUNNEL-CASSANDRA-PREPARE",
                    f"{table.keyspace}.{table.name} has no journal",
                    hint=f"make it: runnel prepare {client.settings.name} --technique trigger",
                )
            if client.settings.writer != "application":
                check_trigger(client, table, "trigger")
        self._old = {table.name: there[table.name + OLD] for table in tables}

    def now(self) -> Position:
        """Give this moment."""
        return clock()

    def read(self, cycle: Cycle) -> Iterator[Delta]:
        """Give the net change of each column that the journal speaks of."""
        after = max(0, after_time(cycle) - LATE_MICROSECONDS)
        upkeep = Lines(cycle.kept, UPKEEP)
        for table in self._tables:
            pages = sorted(
                read_journal(self._client, table, after, int(cycle.upto["time"])),
                key=lambda page: (page.key, page.time, page.deletes, page.at),
            )
            for key, of_key in groupby(pages, key=lambda page: page.key):
                tracked = self._tracked(table, key, list(of_key))
                for line in tracked.upkeep():
                    upkeep.write(json.dumps(line))
                yield from tracked.deltas()
            for page in pages:
                upkeep.write(json.dumps(["page", table.name, page.shard, page.at.hex()]))
        upkeep.close()

    def _tracked(self, table: TableSchema, key: bytes, pages: list[Page]) -> _Partition:
        parts = table.key_parts(key)
        partition = _Partition(table, parts)
        old = self._old[table.name]
        for row in read_partition(self._client, old, Wanted(captured_columns(old)), parts):
            for cell in row.cells:
                partition.groups[row.clustering, cell.column] = _Groups(old=cell)
        now: dict[Place, Cell] = {}
        touched = {page.name for page in pages if page.kind == "touched"}
        if touched:
            columns = tuple(column for column in captured_columns(table) if column.name in touched)
            for row in read_partition(self._client, table, Wanted(columns), parts):
                now |= {(row.clustering, cell.column): cell for cell in row.cells}
        for page in pages:
            partition.take(page, now)
        return partition

    def settle(self, cycle: Cycle) -> None:
        """Make what was told the old values, and remove it from the journal."""
        tables = {table.name: table for table in self._tables}
        self._client.write(_upkeep(lines_left(cycle.kept, UPKEEP), tables))

    def close(self) -> None:
        """Close the connection."""
        self._client.close()


@dataclass
class _Groups:
    """Where one column stands in a window."""

    old: Cell | None = None
    insertion: Cell | None = None
    update: Cell | None = None
    deletion: int | None = None

    def set(self, cell: Cell) -> None:
        if self.old is not None and (cell.time or 0) <= (self.old.time or 0):
            return  # an older write, which the store does not show either, or one that was told before
        if self.insertion is not None or self.old is None:
            self.insertion = cell
        else:
            self.update = cell
        self.deletion = None

    def delete(self, time: int) -> None:
        if self.old is not None:
            if time < (self.old.time or 0):
                return
            self.deletion = time
        self.insertion = self.update = None


class _Partition:
    """The columns of one key in a window."""

    def __init__(self, table: TableSchema, key: tuple[bytes, ...]) -> None:
        self.table, self.key = table, key
        self.groups: dict[Place, _Groups] = {}
        self._names = {column.name for column in captured_columns(table)}

    def take(self, page: Page, now: dict[Place, Cell]) -> None:
        if page.deletes and page.kind != "cell-delete":
            for place in [place for place in self.groups if self._below(page, place[0])]:
                self.groups[place].delete(page.time)
        elif page.name in self._names:
            place = (page.cluster, page.name)
            group = self.groups.setdefault(place, _Groups())
            if page.kind == "set":
                group.set(Cell(page.name, page.value, page.time, page.ttl))
            elif page.kind == "touched" and place in now:
                group.set(now[place])
            else:
                group.delete(page.time)

    def _below(self, page: Page, clustering: tuple[bytes | None, ...] | None) -> bool:
        """Say whether a coarse delete takes a row in; only that of the whole key takes the static row."""
        if page.kind == "partition-delete":
            return True
        if clustering is None or page.cluster is None:
            return clustering is page.cluster
        if page.kind == "row-delete":
            return clustering == page.cluster
        after, before = compare(self.table, clustering, page.cluster), compare(self.table, clustering, page.until or ())
        return (after > 0 or (after == 0 and page.bounds[0] == "[")) and (
            before < 0 or (before == 0 and page.bounds[1] == "]")
        )

    def deltas(self) -> list[Delta]:
        writer = Writer(self.table)
        told = [self._delta(writer, clustering, name, group) for (clustering, name), group in self.groups.items()]
        return sorted((delta for delta in told if delta is not None), key=lambda delta: delta.time or 0)

    def _delta(self, writer: Writer, clustering: Any, name: str, group: _Groups) -> Delta | None:
        previous = None if group.old is None else writer.value(name, group.old.value)
        place = (self.table.keyspace, self.table.name, writer.key(self.key), writer.cluster(clustering), name)
        cell = group.insertion or group.update
        if cell is not None:
            operation = Operation.INS if group.insertion is not None else Operation.UPD
            before = None if group.insertion is not None else previous
            return Delta(operation, *place, writer.value(name, cell.value), cell.time, before, cell.ttl)
        if group.deletion is not None:
            return Delta(Operation.DEL, *place, None, group.deletion, previous)
        return None

    def upkeep(self) -> Iterator[list[Any]]:
        """Say what the old values become."""
        for (clustering, name), group in self.groups.items():
            row = [part.hex() for part in self.key] + [(part or b"").hex() for part in clustering or ()]
            cell = group.insertion or group.update
            if cell is not None:
                yield ["set", self.table.name, name, row, cell.value.hex(), cell.time, cell.ttl]
            elif group.deletion is not None:
                yield ["delete", self.table.name, name, row, group.deletion]


def set_old(table: TableSchema, column: str) -> str:
    """Write the statement that sets an old value: time to live, timestamp, value, then the row's key."""
    static = column in {c.name for c in table.static}
    return f"UPDATE {old_name(table)} USING TTL ? AND TIMESTAMP ? SET {quoted(column)} = ? WHERE {where(table, static=static)}"


def _remove_old(table: TableSchema, column: str) -> str:
    static = column in {c.name for c in table.static}
    return f"DELETE {quoted(column)} FROM {old_name(table)} USING TIMESTAMP ? WHERE {where(table, static=static)}"


def _upkeep(told: Iterable[str], tables: dict[str, TableSchema]) -> Iterator[tuple[str, list[bytes | None]]]:
    """Give the writes of a window, which may be done twice."""
    lines: Iterable[list[Any]] = map(json.loads, told)
    for kind, table, *rest in lines:
        if kind == "page":
            yield remove_page(tables[table]), [_INT.pack(rest[0]), bytes.fromhex(rest[1])]
        elif kind == "set":
            name, row, value, time, ttl = rest
            values = [_INT.pack(ttl or 0), _LONG.pack(time), bytes.fromhex(value), *map(bytes.fromhex, row)]
            yield set_old(tables[table], name), [*values]
        else:
            name, row, time = rest
            yield _remove_old(tables[table], name), [_LONG.pack(time), *map(bytes.fromhex, row)]
