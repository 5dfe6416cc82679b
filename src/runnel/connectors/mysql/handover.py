"""From a table's rows to its log without locks: the rows as they were at one place of the log, however long they take to read.

The place is noted first. Then rows are read as they are, and what was committed meanwhile is in the log after the place, with old rows
and new: each key that was touched gets back the row that it had at the place. So a snapshot read again gives the same rows, parts of a
table are read independently, and from the place on the log alone counts.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from runnel.connectors.base import DELETE, OP, REMOVE, UPSERT, ChangeSet
from runnel.connectors.mysql.changes import signed_rows
from runnel.connectors.mysql.client import Client, quoted
from runnel.connectors.mysql.keyed import read_images
from runnel.connectors.mysql.log.row_events import DELETED, INSERTED, UPDATED, Rows
from runnel.connectors.mysql.log.transactions import Aborted, Committed, Decided, Defined
from runnel.connectors.mysql.logs import ServerLog
from runnel.connectors.mysql.snapshot import read_table
from runnel.connectors.mysql.types import type_of
from runnel.connectors.mysql.wanted import Wanted
from runnel.connectors.mysql.window import unknown_xa
from runnel.errors import Transient
from runnel.model import types
from runnel.model.relation import WEIGHT

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from runnel.connectors.mysql.definitions import Definition
    from runnel.connectors.mysql.log.problems import Spot
    from runnel.connectors.mysql.settings import Settings
    from runnel.connectors.mysql.wanted import Stretch

PART_ROWS = 500_000
"""Rows of a part that a task reads, about."""


@dataclass(frozen=True)
class Base:
    """The place of a snapshot. All that is committed up to `sure` can be seen by whoever reads now; up to `place`, in the log."""

    sure: Spot
    place: Spot


@dataclass(frozen=True)
class SnapshotPart:
    """The rows of a table, or of a range of its key, as they were at a place of the log; picklable, so a task can read it."""

    settings: Settings
    definition: Definition
    base: Base
    low: int | None = None
    high: int | None = None

    def __call__(self) -> Iterator[ChangeSet]:
        """Give the rows as upserts; then, for each key that was touched meanwhile, the row that it had."""
        for table in read_table(self.settings, self.definition, self._where()):
            yield self._keyed(table, UPSERT)
        client = Client(self.settings)
        try:
            end = client.end_of_log()
        finally:
            client.close()
        yield from self._completed(end) if self.settings.row_image == "minimal" else self._corrected(end)

    def _where(self) -> str:
        name = quoted(self.definition.key[0])
        parts = [f"{name} >= {self.low}"] if self.low is not None else []
        parts += [f"{name} < {self.high}"] if self.high is not None else []
        return " AND ".join(parts)

    def _keyed(self, table: pa.Table, op: str) -> ChangeSet:
        ops = pa.repeat(pa.scalar(op, pa.string()), table.num_rows)
        place = f"table {self.definition.name} as of {self.base.place}"
        return ChangeSet(self.definition.name, keyed=table.append_column(OP, ops), place=place)

    def _corrected(self, end: Spot) -> Iterator[ChangeSet]:
        """Give back to each touched key what it had: its last row up to the place, else its first old row after it."""
        known: dict[tuple[Any, ...], pa.Table] = {}
        gone: dict[tuple[Any, ...], pa.Table] = {}
        for key, row, weight, before in self._touched(end):
            if before:  # committed before the place, and perhaps not seen: the last image counts
                (known if weight > 0 else gone)[key] = row
                (gone if weight > 0 else known).pop(key, None)
            elif key not in known and key not in gone:
                (known if weight < 0 else gone)[key] = row
        for key, row in gone.items():
            yield self._keyed(row, UPSERT)  # a key can be deleted only where it exists
            yield self._keyed(row.select(list(self.definition.key)), DELETE)
            del key
        if known:
            yield self._keyed(pa.concat_tables(known.values()), UPSERT)

    def _completed(self, end: Spot) -> Iterator[ChangeSet]:
        """Prepare each touched key for the log, which has no old rows: what is changed next must be there, what is inserted must not.

        Rows that were changed meanwhile stay as they were read, and the log changes them once more. Of those that were deleted, nothing
        is left but the key.
        """
        first: dict[tuple[Any, ...], str] = {}
        gone: dict[tuple[Any, ...], None] = {}
        for key, change in self._changed_keys(end):
            first.setdefault(key, change)
            if change == DELETED:
                gone[key] = None
        yield from self._keys([key for key, change in first.items() if change == INSERTED], REMOVE)
        yield from self._keys([key for key in gone if first[key] != INSERTED], UPSERT)

    def _keys(self, keys: Sequence[tuple[Any, ...]], op: str) -> Iterator[ChangeSet]:
        kinds = {column.name: types.to_arrow(type_of(column)) for column in self.definition.columns}
        names = self.definition.key
        values = zip(*keys, strict=True) if keys else ((),) * len(names)
        rows = {name: pa.array(list(some), kinds[name]) for name, some in zip(names, values, strict=True)}
        if keys and op == UPSERT:
            rows |= {name: pa.nulls(len(keys), kind) for name, kind in kinds.items() if name not in names}
        if keys:
            yield self._keyed(pa.table(rows), op)

    def _changed_keys(self, end: Spot) -> Iterator[tuple[tuple[Any, ...], str]]:
        """Give the keys that the log changes after the place: inserted, updated, deleted; one that moves goes and comes."""
        names = list(self.definition.key)
        for rows in self._committed(end):
            images = read_images([rows], self.definition, self.settings.zero_dates)
            whole = images.new.num_columns >= len(self.definition.columns)
            if images.has_moved and not whole:
                raise Transient(
                    "RUNNEL-MYSQL-MOVED",
                    f"{self.settings.label}: a key of table {self.definition.name} changed while the table was read",
                    hint="the table is read again; with binlog_row_image = FULL the log has what is needed",
                )
            old, new = (
                list(zip(*(table.column(name).to_pylist() for name in names), strict=True))
                for table in (
                    images.old if images.change != INSERTED else images.new,
                    images.new if images.change != DELETED else images.old,
                )
            )
            moved = images.moved.to_pylist() if images.change == UPDATED else [False] * len(old)
            for was, now, has_moved in zip(old, new, moved, strict=True):
                found = ((was, DELETED), (now, INSERTED)) if has_moved else ((now, images.change),)
                yield from ((key, change) for key, change in found if self._is_mine(key))

    def _touched(self, end: Spot) -> Iterator[tuple[tuple[Any, ...], pa.Table, int, bool]]:
        """Give the rows of the log since the snapshot: key, row, weight, and whether it was committed before the place."""
        for rows in self._committed(end):
            table = signed_rows(rows, self.definition, self.settings.zero_dates)
            plain = table.drop_columns([WEIGHT])
            before = rows.spot.order < self.base.place.order
            keys = zip(*(table.column(name).to_pylist() for name in self.definition.key), strict=True)
            for at, (key, weight) in enumerate(zip(keys, table.column(WEIGHT).to_pylist(), strict=True)):
                if self._is_mine(key):
                    yield key, plain.slice(at, 1), weight, before

    def _is_mine(self, key: tuple[Any, ...]) -> bool:
        return (self.low is None or key[0] >= self.low) and (self.high is None or key[0] < self.high)

    def _committed(self, end: Spot) -> Iterator[Rows]:
        log = ServerLog(self.settings)
        wanted = Wanted(self.settings.database, (self.definition.name,), (self.definition.name,))
        pending: list[Rows] = []
        prepared: dict[str, Stretch] = {}
        for item in log.items(self.base.sure, end, wanted.rows):
            match item:
                case Rows():
                    pending.append(item)
                case Aborted():
                    pending = []
                case Committed(prepared=""):
                    yield from pending
                    pending = []
                case Committed():
                    prepared[item.prepared] = (item.begin.file, item.begin.position, item.spot.position)
                    pending = []
                case Decided(committed=True):
                    if item.xid not in prepared:
                        raise unknown_xa(item.spot, item.xid)
                    again = log.stretch(prepared.pop(item.xid), wanted.rows)
                    pending += [replace(rows, spot=item.spot) for rows in again]
                case Defined() if wanted.defined(item.statement, item.spot):
                    raise Transient(
                        "RUNNEL-MYSQL-REDEFINED",
                        f"{self.settings.label}: table {self.definition.name} was redefined while it was read",
                        hint="it is read again",
                    )


def parts(client: Client, definition: Definition, base: Base) -> Iterator[tuple[SnapshotPart, int]]:
    """Cut a table into ranges of its key where that is a number; give each with an estimate of its rows."""
    settings = client.settings
    table = quoted(settings.database, definition.name)
    rows = int(
        client.rows(
            "SELECT COALESCE(TABLE_ROWS, 0) FROM information_schema.TABLES WHERE"
            f" CONCAT('`', REPLACE(TABLE_SCHEMA, '`', '``'), '`.`', REPLACE(TABLE_NAME, '`', '``'), '`') = '{table}'"
        )[0][0]
    )
    whole = SnapshotPart(settings, definition, base)
    column = next(column for column in definition.columns if column.name == definition.key[0])
    if rows < 2 * PART_ROWS or column.word not in ("tinyint", "smallint", "mediumint", "int", "bigint"):
        yield whole, rows
        return
    name = quoted(column.name)
    ((least, most),) = client.rows(f"SELECT MIN({name}), MAX({name}) FROM {table}")
    count = rows // PART_ROWS
    bounds: list[int | None] = [None]
    if least is not None:
        bounds += sorted({int(least) + (int(most) - int(least)) * n // count for n in range(1, count)})
    bounds.append(None)
    for low, high in pairwise(bounds):
        yield SnapshotPart(settings, definition, base, low, high), rows // max(1, len(bounds) - 1)
