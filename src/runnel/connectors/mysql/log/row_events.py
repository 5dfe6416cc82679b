"""Row events: which table, which of its columns, and the bytes of its rows.

The bytes of many events of one table are put together before they are decoded: an event has some 8 kB, too few rows for column-wise work.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from runnel.connectors.mysql.log.cursor import Cursor
from runnel.connectors.mysql.log.decode import PADDING, ZeroDate, column_array
from runnel.connectors.mysql.log.events import Kind
from runnel.connectors.mysql.log.partial_json import completed
from runnel.connectors.mysql.log.payloads import unpack_event, unpacked_size
from runnel.connectors.mysql.log.problems import BadBytes, Spot, damaged, zero_date
from runnel.connectors.mysql.log.row_walker import places, walker, width_of
from runnel.model.relation import WEIGHT

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from runnel.connectors.mysql.log.events import Event, Format
    from runnel.connectors.mysql.log.table_map import LoggedColumn, TableMap
    from runnel.connectors.mysql.log.times import Zero

WRITES = {Kind.WRITE_ROWS_V1, Kind.WRITE_ROWS, Kind.WRITE_ROWS_COMPRESSED_V1, Kind.WRITE_ROWS_COMPRESSED}
UPDATES = {Kind.UPDATE_ROWS_V1, Kind.UPDATE_ROWS, Kind.UPDATE_ROWS_COMPRESSED_V1, Kind.UPDATE_ROWS_COMPRESSED}
UPDATES |= {Kind.PARTIAL_UPDATE_ROWS}
DELETES = {Kind.DELETE_ROWS_V1, Kind.DELETE_ROWS, Kind.DELETE_ROWS_COMPRESSED_V1, Kind.DELETE_ROWS_COMPRESSED}
ROWS = WRITES | UPDATES | DELETES
_COMPRESSED = {kind for kind in ROWS if kind >= Kind.WRITE_ROWS_COMPRESSED_V1}
_SECOND = {kind for kind in ROWS if Kind.WRITE_ROWS <= kind <= Kind.PARTIAL_UPDATE_ROWS or kind >= 169}
STATEMENT_END = 0x1
NO_TABLE = 0xFFFFFF
"""The number that closes a statement without rows."""
INSERTED, DELETED, UPDATED = "inserted", "deleted", "updated"


@dataclass(slots=True)
class Rows:
    """The rows of one event: `change` says what happened, `present` and `present_after` which columns the row images have.

    The images stay in the event as it was logged until somebody asks for `data`: who only counts what there is does not unpack
    it. `maps` are the table maps that hold here, as they were logged, by number: what reading may begin with before this event.
    """

    table: TableMap
    change: str
    present: bytes
    present_after: bytes
    event: Event
    begin: int
    spot: Spot
    maps: Mapping[int, bytes]

    @property
    def whole(self) -> bool:
        """Whether old and new rows have all columns, as `binlog_row_image=FULL` has it."""
        full = (1 << len(self.table.columns)) - 1
        return all(int.from_bytes(bits, "little") & full == full for bits in (self.present, self.present_after))

    @property
    def partial(self) -> bool:
        """Whether new rows may say of JSON values only what changed in them."""
        return self.event.kind == Kind.PARTIAL_UPDATE_ROWS

    @property
    def size(self) -> int:
        """The bytes of the row images, unpacked; nothing is unpacked to say it."""
        if self.event.kind in _COMPRESSED:
            return unpacked_size(self.event.body, self.begin)
        return len(self.event.body) - self.begin

    @property
    def data(self) -> bytes:
        """The row images, for an update old and new by turns."""
        try:
            found = self.event.body[self.begin :]
            if self.event.kind in _COMPRESSED:
                return unpack_event(found)
            return completed(self.table.columns, found) if self.partial and self.whole else found
        except BadBytes as error:
            raise damaged(self.spot, error) from error


def table_number(event: Event, format_: Format) -> int:
    """Give the number of the table that a row event is about."""
    return int.from_bytes(event.body[: _id_size(event.kind, format_)], "little")


def ends_statement(event: Event, format_: Format) -> bool:
    """Say whether a row event is the last one of its statement: table maps before it do not hold any more."""
    return bool(event.body[_id_size(event.kind, format_)] & STATEMENT_END)


def _id_size(kind: int, format_: Format) -> int:
    length = format_.lengths[kind - 1] if kind <= len(format_.lengths) else 10
    return 4 if length == 6 else 6


def read_rows(event: Event, table: TableMap, format_: Format, maps: Mapping[int, bytes]) -> Rows:
    """Read a row event of a table, up to its rows."""
    cursor = Cursor(event.body)
    cursor.take(_id_size(event.kind, format_) + 2)
    if event.kind in _SECOND:
        size = cursor.number(2)
        cursor.take(size - 2)
    count = cursor.packed()
    if count != len(table.columns):
        raise BadBytes(f"rows of {count} columns follow a table map of {len(table.columns)}")
    present = cursor.take((count + 7) // 8)
    update = event.kind in UPDATES
    after = cursor.take((count + 7) // 8) if update else present
    change = UPDATED if update else INSERTED if event.kind in WRITES else DELETED
    return Rows(table, change, present, after, event, cursor.at, Spot(event.file, event.start), maps)


@dataclass
class RowBuffer:
    """Bytes of full row images of one table, to be decoded together; `columns` say what they mean."""

    columns: Sequence[LoggedColumn]
    zero: Zero = "error"
    size: int = 0
    _parts: list[bytes] = field(default_factory=list)
    _events: list[tuple[str, int, Spot]] = field(default_factory=list)

    def add(self, rows: Rows) -> None:
        """Add the rows of an event."""
        self.add_images(rows.data, rows.change, rows.spot)

    def add_images(self, data: bytes, change: str, spot: Spot) -> None:
        """Add row images to which the same happened."""
        self._parts.append(data)
        self.size += len(data)
        self._events.append((change, self.size, spot))

    def taken(self) -> pa.Table:
        """Decode what was added into a table with `_weight`, in the order of the log; the buffer is empty then."""
        data = b"".join([*self._parts, b"\0" * PADDING])
        events, size = self._events, self.size
        self._parts, self._events, self.size = [], [], 0
        try:
            widths = tuple(width_of(column) for column in self.columns)
            marks = self._walk(data, size, events)
            lines = np.frombuffer(marks, np.int64).reshape(-1, 1 + sum(width.prefix > 0 for width in widths))
            weights = _weights(lines[:, 0], events)
            raw = np.frombuffer(data, np.uint8)
            arrays = [
                column_array(raw, column, place, self.zero)
                for column, place in zip(self.columns, places(raw, widths, lines), strict=True)
            ]
        except ZeroDate as error:
            raise zero_date(events[0][2], str(error)) from error
        except (BadBytes, pa.ArrowException, IndexError, UnicodeError) as error:
            raise damaged(events[0][2], error) from error
        names = [column.name or f"column_{at + 1}" for at, column in enumerate(self.columns)]
        return pa.table([*arrays, pa.array(weights, pa.int64())], names=[*names, WEIGHT])

    def _walk(self, data: bytes, size: int, events: Sequence[tuple[str, int, Spot]]) -> array[int]:
        walk = walker(tuple(width_of(column) for column in self.columns))
        marks = array("q")
        begin = 0
        for _, end, spot in events:
            try:
                reached = walk(data, begin, end, marks)
            except IndexError:
                reached = -1
            if reached != end:
                raise damaged(spot, "the rows of an event do not end where the event ends")
            begin = end
        return marks


def _weights(starts: np.ndarray, events: Sequence[tuple[str, int, Spot]]) -> np.ndarray:
    """Give the weight of each row: inserted 1, deleted -1, of an update -1 and 1 by turns."""
    weights = np.ones(len(starts), np.int64)
    ends = np.searchsorted(starts, [end for _, end, _ in events])
    begin = 0
    for (change, _, spot), end in zip(events, ends.tolist(), strict=True):
        if change == DELETED:
            weights[begin:end] = -1
        elif change == UPDATED:
            if (end - begin) % 2:
                raise damaged(spot, "an update has an old row without a new one")
            weights[begin:end:2] = -1
        begin = end
    return weights
