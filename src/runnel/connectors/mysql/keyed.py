"""Row images that lack columns, as changes by key: what the log leaves out stays as the state has it.

An insert lacks columns that got their default, an update those that it did not set, and of old rows there is the key alone. Images that
are whole come in the same form, so that the changes of a table have one.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from runnel.connectors.base import DELETE, OP, UPDATE, UPSERT, ChangeSet
from runnel.connectors.mysql.changes import BATCH, Gathered, columns_of
from runnel.connectors.mysql.log.problems import damaged, refused
from runnel.connectors.mysql.log.row_events import DELETED, INSERTED, UPDATED, RowBuffer, Rows
from runnel.connectors.mysql.log.row_walker import walker, width_of
from runnel.connectors.mysql.types import default_array
from runnel.model.relation import WEIGHT

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from runnel.connectors.mysql.definitions import Definition
    from runnel.connectors.mysql.log.table_map import LoggedColumn
    from runnel.connectors.mysql.log.times import Zero
    from runnel.connectors.mysql.settings import Settings

_MEND = "set binlog_row_image = FULL on the server, for all sessions, then `runnel rebuild SOURCE`: all tables are read again"


def gathering(
    settings: Settings, definitions: Mapping[str, Definition], trusted: Collection[str] = ()
) -> Gathered | GatheredByKey:
    """Give what turns rows into change sets: signed ones, or by key where images may lack columns."""
    if settings.row_image == "minimal":
        return GatheredByKey(definitions, settings.zero_dates)
    return Gathered(definitions, settings.zero_dates, trusted)


@dataclass
class GatheredByKey:
    """Rows of the log by table; those that follow one another with the same columns are decoded together."""

    definitions: Mapping[str, Definition]
    zero: Zero
    _runs: dict[str, list[Rows]] = field(default_factory=dict)
    _sizes: dict[str, int] = field(default_factory=dict)

    def add(self, rows: Rows) -> Iterator[ChangeSet]:
        """Add the rows of an event; give what is complete of its table."""
        name = rows.table.table
        run = self._runs.get(name)
        if run is not None and (_form(run[0]) != _form(rows) or self._sizes[name] >= BATCH):
            yield from self._taken(name)
        self._runs.setdefault(name, []).append(rows)
        self._sizes[name] = self._sizes.get(name, 0) + rows.size

    def rest(self) -> Iterator[ChangeSet]:
        """Give what was gathered and not given yet."""
        for name in list(self._runs):
            yield from self._taken(name)

    def _taken(self, name: str) -> Iterator[ChangeSet]:
        run = self._runs.pop(name)
        del self._sizes[name]
        definition, place = self.definitions[name], str(run[0].spot)
        images = read_images(run, definition, self.zero)
        if images.change == INSERTED:
            yield ChangeSet(name, keyed=_does(images.new, UPSERT), place=place)
        elif images.change == DELETED:
            yield ChangeSet(name, keyed=_does(images.old.select(list(definition.key)), DELETE), place=place)
        elif images.new.num_columns >= len(definition.columns):
            yield ChangeSet(name, keyed=_replaced(images, definition), place=place)
        elif not images.has_moved:
            yield ChangeSet(name, keyed=_does(images.new, UPDATE), place=place)
        else:
            yield from _moved(images, definition, place)


def _form(rows: Rows) -> tuple[object, ...]:
    return id(rows.table), rows.change, rows.present, rows.present_after, rows.partial


@dataclass(frozen=True)
class Images:
    """Old and new rows as far as the log has them; new ones have their key, and of an insert all columns.

    `moved` says of each row whether its key changed.
    """

    change: str
    old: pa.Table
    new: pa.Table
    moved: pa.Array

    @property
    def has_moved(self) -> bool:
        """Whether the key of any row changed."""
        return bool(pc.any(self.moved).as_py())


def read_images(run: Sequence[Rows], definition: Definition, zero: Zero) -> Images:
    """Decode events that have the same columns."""
    first = run[0]
    logged = columns_of(first.table, definition, first)
    if first.partial and not first.whole:
        said = f"JSON values of table {definition.name} are logged in part, in rows without all of their columns"
        raise refused("RUNNEL-BINLOG-IMAGE", first.spot, said, _MEND)
    present, after = _of(logged, first.present), _of(logged, first.present_after)
    if first.change == UPDATED:
        old, new = _both(run, present, after, zero)
    else:
        buffer = RowBuffer(present, zero)
        for rows in run:
            buffer.add(rows)
        old = new = buffer.taken().drop_columns([WEIGHT])
    if first.change == INSERTED:
        return Images(INSERTED, new, _with_defaults(new, definition, first, zero), pa.nulls(0, pa.bool_()))
    for name in definition.key:
        if name not in old.column_names:
            said = f"rows of table {definition.name} are logged without the column {name} of their key"
            raise refused(
                "RUNNEL-BINLOG-IMAGE", first.spot, said, "give the table a primary key, then `runnel rebuild SOURCE`"
            )
    moved = pa.array([False] * old.num_rows)
    if first.change == UPDATED:
        for name in definition.key:
            if name not in new.column_names:
                new = new.append_column(name, old.column(name))
            elif not new.column(name).equals(old.column(name)):
                moved = pc.or_(moved, pc.not_equal(new.column(name), old.column(name)).combine_chunks())
    return Images(first.change, old, new, moved)


def _of(logged: Sequence[LoggedColumn], present: bytes) -> list[LoggedColumn]:
    bits = int.from_bytes(present, "little")
    return [column for at, column in enumerate(logged) if bits >> at & 1]


def _both(
    run: Sequence[Rows], present: Sequence[LoggedColumn], after: Sequence[LoggedColumn], zero: Zero
) -> tuple[pa.Table, pa.Table]:
    """Decode old and new rows of updates, which follow one another by turns and have different columns."""
    old, new = RowBuffer(present, zero), RowBuffer(after, zero)
    for rows in run:
        if not present or not after:
            raise damaged(rows.spot, "an update has rows without columns")
        data, at = rows.data, 0
        walks = [walker(tuple(width_of(column) for column in columns)) for columns in (present, after)]
        parts: tuple[list[bytes], list[bytes]] = ([], [])
        marks = array("q")
        while at < len(data):
            for walk, part in zip(walks, parts, strict=True):
                try:
                    end = walk(
                        data, at, at + 1, marks
                    )  # one row: the walk stops at the first one that begins after the end
                except IndexError:
                    end = len(data) + 1
                if end > len(data):
                    raise damaged(rows.spot, "the rows of an event do not end where the event ends")
                part.append(data[at:end])
                at = end
        old.add_images(b"".join(parts[0]), DELETED, rows.spot)
        new.add_images(b"".join(parts[1]), INSERTED, rows.spot)
    return old.taken().drop_columns([WEIGHT]), new.taken().drop_columns([WEIGHT])


def _with_defaults(rows: pa.Table, definition: Definition, first: Rows, zero: Zero) -> pa.Table:
    """Put the defaults of the definition where an insert has no value."""
    for column in definition.columns:
        if column.name in rows.column_names:
            continue
        if not column.has_default:
            said = f"a row of table {definition.name} is inserted without column {column.name}, whose value the log does not have"
            raise refused("RUNNEL-BINLOG-IMAGE", first.spot, said, _MEND)
        value = default_array(column, zero)
        rows = rows.append_column(column.name, pa.repeat(value[0], rows.num_rows))
    return rows


def _does(rows: pa.Table, operation: str) -> pa.Table:
    return rows.append_column(OP, pa.repeat(pa.scalar(operation, pa.string()), rows.num_rows))


def _replaced(images: Images, definition: Definition) -> pa.Table:
    """Give updates that have all columns as upserts, each behind the delete of its old key where that changed."""
    put = _does(images.new, UPSERT)
    if not images.has_moved:
        return put
    key = list(definition.key)
    gone = _does(images.old.select(key), DELETE)
    both = pa.concat_tables([gone, put], promote_options="default")
    count = put.num_rows
    order = [
        at
        for row, moved in enumerate(images.moved.to_pylist())
        for at in ((row, row + count) if moved else (row + count,))
    ]
    return both.take(pa.array(order, pa.int64()))


def _moved(images: Images, definition: Definition, place: str) -> Iterator[ChangeSet]:
    """Give updates of some columns of which some change keys, row by row: one may go where another one was."""
    was = images.old.select(list(definition.key))
    for at, moved in enumerate(images.moved.to_pylist()):
        row = _does(images.new.slice(at, 1), UPDATE)
        yield ChangeSet(definition.name, keyed=row, place=place, was=was.slice(at, 1) if moved else None)
