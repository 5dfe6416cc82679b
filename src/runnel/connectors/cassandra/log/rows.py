"""Reads the rows and deletions of one partition update, whatever they hold, straight from the format's grammar.

`reader` makes faster functions for the usual rows of a table; they come back here for everything else. Lengths need no
check of their own: they are never negative, and every update ends with a byte that has to be there, so that a length beyond
the end is found before anything is given out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from runnel.connectors.cassandra import cells
from runnel.connectors.cassandra.log.errors import BadBody
from runnel.connectors.cassandra.values.vints import read_unsigned

if TYPE_CHECKING:
    from collections.abc import Sequence

    from runnel.connectors.cassandra.cells import ChangeTuple, Clustering
    from runnel.connectors.cassandra.schema.tables import TableSchema
    from runnel.connectors.cassandra.values.types import CqlType

NOT_DELETED = -(1 << 63)
BATCH = 32
"""Clustering values that share one header."""
MANY = 64
"""Columns from which on a subset is a list instead of bits."""

END, MARKER, TIMESTAMP, TTL, DELETION, ALL, COMPLEX, EXTENDED = (1 << bit for bit in range(8))
STATIC, SHADOWABLE = 1, 2
CELL_DELETED, CELL_EXPIRING, CELL_EMPTY, CELL_ROW_TIMESTAMP, CELL_ROW_TTL = (1 << bit for bit in range(5))

EXCL_END, INCL_START, EXCL_END_INCL_START, INCL_END_EXCL_START, INCL_END, EXCL_START = 0, 1, 2, 5, 6, 7


class Column:
    """A column of an update's header: what the reader has to know of it."""

    __slots__ = ("counter", "multicell", "name", "width")

    def __init__(self, name: str, type_: CqlType) -> None:
        """Take what matters from the type."""
        self.name = name
        self.multicell = type_.multicell
        self.width = type_.width
        self.counter = type_.name == "counter"


class Update:
    """What the parts of one partition update share: the table, the key, the bases of times, and where changes go."""

    __slots__ = ("key", "ldt_base", "out", "table", "ts_base", "ttl_base", "unsigned", "widths")

    def __init__(self, table: TableSchema, widths: tuple[int | None, ...], *, unsigned: bool) -> None:
        """Begin an update; `unsigned` says that local deletion times have 32 bits without a sign (from version 8 on)."""
        self.table = table
        self.widths = widths
        self.unsigned = unsigned
        self.key = b""
        self.ts_base = self.ldt_base = self.ttl_base = 0
        self.out: list[ChangeTuple] = []

    def timestamp(self, data: bytes, at: int) -> tuple[int, int]:
        """Read a timestamp and where it ends."""
        delta, at = read_unsigned(data, at)
        return wrapped(self.ts_base + delta), at

    def local_deletion_time(self, data: bytes, at: int) -> tuple[int, int]:
        """Read a local deletion time and where it ends."""
        delta, at = read_unsigned(data, at)
        seconds = (self.ldt_base + delta) & 0xFFFFFFFF
        return seconds if self.unsigned or seconds < 1 << 31 else seconds - (1 << 32), at

    def ttl(self, data: bytes, at: int) -> tuple[int, int]:
        """Read a time to live and where it ends."""
        delta, at = read_unsigned(data, at)
        return (self.ttl_base + delta) & 0x7FFFFFFF, at

    def deletion(self, data: bytes, at: int) -> tuple[int, int, int]:
        """Read a deletion's timestamp and local deletion time and where they end."""
        timestamp, at = self.timestamp(data, at)
        ldt, at = self.local_deletion_time(data, at)
        return timestamp, ldt, at


def wrapped(number: int) -> int:
    """Bring a sum back into 64 bits with a sign, as the server's arithmetic does."""
    return ((number + (1 << 63)) & 0xFFFFFFFFFFFFFFFF) - (1 << 63)


def read_rows(u: Update, data: bytes, at: int, flags: int, static: Sequence[Column], regular: Sequence[Column]) -> int:
    """Read what follows the header of a partition update; give where it ends."""
    at = read_head(u, data, at, flags, static)
    opened: tuple[Clustering, bool, int, int] | None = None
    while True:
        first = data[at]
        at += 1
        if first & END:
            if opened is not None:
                raise BadBody("a deleted range has no end")
            return at
        if first & MARKER:
            opened, at = read_marker(u, data, at, first, opened)
        else:
            at = read_row(u, data, at, first, regular)


def read_head(u: Update, data: bytes, at: int, flags: int, static: Sequence[Column]) -> int:
    """Read what stands before the first row: the partition's deletion, the static row, the number of rows."""
    if flags & 0x04:
        timestamp, ldt, at = u.deletion(data, at)
        if timestamp != NOT_DELETED:
            u.out.append((cells.PARTITION_DELETE, u.table, u.key, None, None, None, None, timestamp, 0, ldt))
    if flags & 0x08:
        first, extended = data[at], data[at + 1]
        if not first & EXTENDED or extended != STATIC or first & (END | MARKER):
            raise BadBody("a static row was expected")
        at = read_contents(u, data, at + 2, first, static, (None, 0))
    if flags & 0x10:
        at = read_unsigned(data, at)[1]
    return at


def read_row(u: Update, data: bytes, at: int, first: int, columns: Sequence[Column]) -> int:
    """Read a row that begins with the flags `first`; give where it ends."""
    extended = 0
    if first & EXTENDED:
        extended = data[at]
        at += 1
        if extended & ~SHADOWABLE:
            raise BadBody(f"a row has the unknown flags {extended:#x}")
    clustering, at = read_clustering(data, at, u.widths)
    return read_contents(u, data, at, first, columns, (clustering, extended))


def read_contents(
    u: Update, data: bytes, at: int, first: int, columns: Sequence[Column], place: tuple[Clustering | None, int]
) -> int:
    """Read a row after its clustering; `place` is the clustering and the extended flags."""
    clustering, extended = place
    row = RowTimes()
    if first & TIMESTAMP:
        row.timestamp, at = u.timestamp(data, at)
        if first & TTL:
            row.ttl, at = u.ttl(data, at)
            row.ldt, at = u.local_deletion_time(data, at)
        change = (cells.LIVENESS, u.table, u.key, clustering, None, None, None, row.timestamp, row.ttl, row.ldt)
        u.out.append(change)
    elif first & TTL:
        raise BadBody("a row has a time to live without a timestamp")
    row.has_timestamp, row.has_ttl = bool(first & TIMESTAMP), bool(first & TTL)
    if first & DELETION:
        timestamp, ldt, at = u.deletion(data, at)
        kind = cells.SHADOWABLE_DELETE if extended & SHADOWABLE else cells.ROW_DELETE
        if timestamp != NOT_DELETED:
            u.out.append((kind, u.table, u.key, clustering, None, None, None, timestamp, 0, ldt))
    present, at = (columns, at) if first & ALL else read_subset(data, at, columns)
    for column in present:
        if column.multicell:
            at = read_complex(u, data, at, column, clustering, row, deletion=first & COMPLEX)
        else:
            at = read_cell(u, data, at, column, clustering, row)
    return at


class RowTimes:
    """The times that cells may take from their row."""

    __slots__ = ("has_timestamp", "has_ttl", "ldt", "timestamp", "ttl")

    def __init__(self) -> None:
        """Begin with a row that has none."""
        self.timestamp = self.ttl = self.ldt = 0
        self.has_timestamp = self.has_ttl = False


def read_cell(
    u: Update, data: bytes, at: int, column: Column, clustering: Clustering | None, row: RowTimes, *, path: bool = False
) -> int:
    """Read a cell; one of a complex column has a path before its value."""
    flags = data[at]
    at += 1
    if flags > 0x1F or (flags & CELL_ROW_TIMESTAMP and not row.has_timestamp) or flags & 3 == 3:
        raise BadBody(f"a cell has the impossible flags {flags:#x}")
    if flags & CELL_ROW_TIMESTAMP:
        timestamp = row.timestamp
    else:
        timestamp, at = u.timestamp(data, at)
    ttl = ldt = 0
    if flags & CELL_ROW_TTL:
        if not row.has_ttl or not flags & CELL_EXPIRING:
            raise BadBody(f"a cell has the impossible flags {flags:#x}")
        ttl, ldt = row.ttl, row.ldt
    else:
        if flags & (CELL_DELETED | CELL_EXPIRING):
            ldt, at = u.local_deletion_time(data, at)
        if flags & CELL_EXPIRING:
            ttl, at = u.ttl(data, at)
    element = None
    if path:
        element, at = read_value(data, at, None)
    value: bytes | None = b""
    if not flags & CELL_EMPTY:
        value, at = read_value(data, at, None if path else column.width)
    kind = cells.COUNTER if column.counter else cells.SET
    if flags & CELL_DELETED:
        kind, value, ttl = cells.CELL_DELETE, None, 0
    u.out.append((kind, u.table, u.key, clustering, column.name, element, value, timestamp, ttl, ldt))
    return at


def read_complex(
    u: Update, data: bytes, at: int, column: Column, clustering: Clustering | None, row: RowTimes, *, deletion: int
) -> int:
    """Read the cells of a collection or user-defined type, and what was deleted of it before."""
    if deletion:
        timestamp, ldt, at = u.deletion(data, at)
        if timestamp != NOT_DELETED:
            change = (cells.COMPLEX_DELETE, u.table, u.key, clustering, column.name, None, None, timestamp, 0, ldt)
            u.out.append(change)
    count, at = read_unsigned(data, at)
    for _ in range(count):
        at = read_cell(u, data, at, column, clustering, row, path=True)
    return at


def read_value(data: bytes, at: int, width: int | None) -> tuple[bytes, int]:
    """Read a value of a known width, or one with its length before it."""
    if width is None:
        width, at = read_unsigned(data, at)
    end = at + width
    if end > len(data):
        raise BadBody("a value is longer than what is left")
    return data[at:end], end


def read_clustering(data: bytes, at: int, widths: Sequence[int | None]) -> tuple[Clustering, int]:
    """Read as many clustering values as there are widths; None is a NULL."""
    values: list[bytes | None] = []
    header = 0
    for n, width in enumerate(widths):
        if n % BATCH == 0:
            header, at = read_unsigned(data, at)
        state = header >> (2 * (n % BATCH)) & 3
        if state == 0:
            value, at = read_value(data, at, width)
            values.append(value)
        elif state == 3:
            raise BadBody("a clustering value is both empty and NULL")
        else:
            values.append(b"" if state == 1 else None)
    return tuple(values), at


def read_subset(data: bytes, at: int, columns: Sequence[Column]) -> tuple[Sequence[Column], int]:
    """Read which of the header's columns a row has."""
    bits, at = read_unsigned(data, at)
    total = len(columns)
    if bits == 0:
        return columns, at
    if total < MANY:
        if bits >> total:
            raise BadBody("a row misses columns that there are not")
        return [column for n, column in enumerate(columns) if not bits >> n & 1], at
    if bits > total:
        raise BadBody("a row misses more columns than there are")
    present = total - bits
    named = present if present < total // 2 else bits
    indexes = []
    for _ in range(named):
        index, at = read_unsigned(data, at)
        indexes.append(index)
    if any(index >= total for index in indexes) or sorted(set(indexes)) != indexes:
        raise BadBody("a row names columns that there are not")
    chosen = set(indexes)
    takes_named = present < total // 2
    return [column for n, column in enumerate(columns) if (n in chosen) == takes_named], at


def read_marker(
    u: Update, data: bytes, at: int, first: int, opened: tuple[Clustering, bool, int, int] | None
) -> tuple[tuple[Clustering, bool, int, int] | None, int]:
    """Read one bound of a deleted range; give the range that is open after it, and where it ends."""
    if first & ~(MARKER | EXTENDED) or (first & EXTENDED and data[at]):
        raise BadBody(f"a deleted range has the unknown flags {first:#x}")
    at += bool(first & EXTENDED)
    kind = data[at]
    count = int.from_bytes(data[at + 1 : at + 3], "big")
    if count > len(u.widths):
        raise BadBody("a deleted range has more values than there are clustering columns")
    bound, at = read_clustering(data, at + 3, u.widths[:count])
    closes = kind in (EXCL_END, INCL_END, EXCL_END_INCL_START, INCL_END_EXCL_START)
    opens = kind in (INCL_START, EXCL_START, EXCL_END_INCL_START, INCL_END_EXCL_START)
    if not (closes or opens) or closes != (opened is not None):
        raise BadBody("the bounds of deleted ranges do not match")
    if opened is not None:
        timestamp, ldt, at = u.deletion(data, at)
        start, inclusive, from_timestamp, from_ldt = opened
        if (timestamp, ldt) != (from_timestamp, from_ldt):
            raise BadBody("the two bounds of a deleted range say different times")
        range_ = cells.Range(start, inclusive, bound, kind in (INCL_END, INCL_END_EXCL_START))
        u.out.append((cells.RANGE_DELETE, u.table, u.key, None, None, None, range_, timestamp, 0, ldt))
    if not opens:
        return None, at
    timestamp, ldt, at = u.deletion(data, at)
    return (bound, kind in (INCL_START, EXCL_END_INCL_START), timestamp, ldt), at
