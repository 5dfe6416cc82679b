"""Decodes the bodies of mutations into changes.

A body is read as a whole or not at all: a mutation that does not follow the format raises, and nothing of it is given out.
Mutations of `system_schema` and `system.local` are taken into the catalog on the way, in the order of the log, so that every
later mutation is read with the definitions of its own time.
"""

from __future__ import annotations

import struct
import uuid
from typing import TYPE_CHECKING

from runnel.connectors.cassandra.log.compiled import MOST_COLUMNS, Reader, compiled
from runnel.connectors.cassandra.log.errors import BadBody, UnknownColumn, UnknownTable
from runnel.connectors.cassandra.log.rows import Column, Update, read_rows, wrapped
from runnel.connectors.cassandra.values.vints import EXTRA, MASKS, read_unsigned

if TYPE_CHECKING:
    from runnel.connectors.cassandra.cells import ChangeTuple
    from runnel.connectors.cassandra.log.catalog import Catalog
    from runnel.connectors.cassandra.schema.tables import TableSchema

TIMESTAMP_EPOCH = 1_442_880_000_000_000
DELETION_EPOCH = 1_442_880_000

MOST_TABLES = 10_000
"""Tables whose readers are remembered."""
MOST_READERS = 256
"""Column lists of a table that are remembered."""
USES_BEFORE_COMPILING = 8
"""How often a column list has to come before a function is made for it, which takes a millisecond or two."""

UNSIGNED_FROM = 8
"""The version from which on local deletion times have no sign."""


class Decoder:
    """Decodes bodies of one version with the definitions of a catalog."""

    def __init__(self, catalog: Catalog, version: int, *, compile_readers: bool = True) -> None:
        """Begin with the catalog as it is; `compile_readers=False` reads everything by the grammar, for comparison."""
        self.catalog = catalog
        self._unsigned = version >= UNSIGNED_FROM
        self._compile = compile_readers
        self._tables: dict[bytes, TableReader | Unreadable] = {}
        self._generation = catalog.generation

    def decode(self, data: bytes) -> list[ChangeTuple]:
        """Give the changes of a body's wanted tables; raise `BadBody` or `UnknownTable` where that cannot be."""
        try:
            return self._decode_or_ask(data)
        except (IndexError, struct.error, UnicodeDecodeError, OverflowError, MemoryError) as error:
            raise BadBody("a mutation ends too early or holds an impossible length") from error

    def _decode_or_ask(self, data: bytes) -> list[ChangeTuple]:
        try:
            return self._decode(data)
        except UnknownColumn as error:
            if not self.catalog.asked_for(str(error)):
                raise
            return self._decode_or_ask(data)

    def _decode(self, data: bytes) -> list[ChangeTuple]:
        count = data[0]
        p = 1
        if count >= 0x80:
            count, p = read_unsigned(data, 0)
        out: list[ChangeTuple] = []
        own: list[ChangeTuple] = []
        while count:
            if count < 0 and p == len(data):
                break
            count -= 1
            reader = self._tables.get(data[p : p + 16])
            if self._generation != self.catalog.generation and (reader is None or not reader.system):
                self._forget_changed_tables()
                reader = self._tables.get(data[p : p + 16])
            if reader is None:
                reader = self._reader(data[p : p + 16])
            if reader.wanted:
                p = reader.read(data, p + 16, own if reader.system else out)
            elif not count:
                p = len(data)
            else:
                p = reader.read(data, p + 16, [])
                if isinstance(reader, Unreadable):
                    count = -1  # how many updates were passed over is not known
        if p != len(data):
            raise BadBody(f"{len(data) - p} bytes are left over after a mutation")
        return out + self.catalog.take(own) if own else out

    def _forget_changed_tables(self) -> None:
        self.catalog.settle()
        self._generation = self.catalog.generation
        self._tables = {
            table_id: reader
            for table_id, reader in self._tables.items()
            if isinstance(reader, TableReader) and self.catalog.table(reader.table.id) is reader.table
        }

    def _reader(self, table_id: bytes) -> TableReader | Unreadable:
        """Give the reader of a table; one of a table that is not known will do where nothing of it is wanted."""
        if len(table_id) != 16:
            raise BadBody("a mutation ends too early")
        id_ = uuid.UUID(bytes=table_id)
        table = self.catalog.table(id_)
        if table is None and self.catalog.asked_for(id_):
            table = self.catalog.table(id_)
        made: TableReader | Unreadable
        if table is not None:
            made = TableReader(table, self.catalog, unsigned=self._unsigned, compile_readers=self._compile)
        elif self.catalog.may_skip(id_):
            made = Unreadable(self.catalog)
        else:
            raise UnknownTable(table_id)
        if len(self._tables) >= MOST_TABLES:
            self._tables.clear()
        self._tables[table_id] = made
        return made


class Unreadable:
    """Stands for a table that is not known and not wanted, such as one that was dropped."""

    wanted = False
    system = False

    def __init__(self, catalog: Catalog) -> None:
        """Look out for the tables of a catalog."""
        self._catalog = catalog

    def read(self, data: bytes, p: int, out: list[ChangeTuple]) -> int:
        """Give where the next update of a known table begins, or the end.

        Where this one ends cannot be seen without its table; but all updates of a mutation have the same key.
        """
        length, at = read_unsigned(data, p)
        behind = at + length
        found = (data.find(table.id.bytes + data[p:behind], behind) for table in self._catalog.tables())
        return min((at for at in found if at >= 0), default=len(data))


class TableReader:
    """Reads the partition updates of one table, with a function per column list that comes often."""

    def __init__(self, table: TableSchema, catalog: Catalog, *, unsigned: bool, compile_readers: bool) -> None:
        """Read updates of a table as it is defined now."""
        self.table = table
        self.wanted = catalog.wants(table)
        self.system = catalog.is_system(table)
        self._compile = compile_readers
        self._update = Update(table, tuple(column.type.width for column in table.clustering), unsigned=unsigned)
        self._lists: dict[tuple[bytes, int], ColumnLists] = {}
        self._last: dict[int, tuple[bytes, ColumnLists]] = {}

    def read(self, data: bytes, p: int, out: list[ChangeTuple]) -> int:
        """Read one update that begins after the table's id; give where it ends."""
        n = data[p]
        if n < 0x80:
            a = p + 1
        else:
            n, a = read_unsigned(data, p)
        p = a + n
        flags = data[p]
        u = self._update
        u.key = data[a:p]
        u.out = out
        p += 1
        if flags & 0xE3:
            if flags == 1:
                return p
            raise BadBody(f"a partition has the impossible flags {flags:#x}")
        n = EXTRA[data[p]]
        a = p + n + 1
        base = (int.from_bytes(data[p:a], "big") & MASKS[n]) + TIMESTAMP_EPOCH
        u.ts_base = base if n < 8 else wrapped(base)
        if data[a] == 0 == data[a + 1]:
            u.ldt_base = DELETION_EPOCH
            u.ttl_base = 0
            p = a + 2
        else:
            n, a = read_unsigned(data, a)
            u.ldt_base = n + DELETION_EPOCH
            u.ttl_base, p = read_unsigned(data, a)
        last = self._last.get(flags & 8)
        if last is None or not data.startswith(last[0], p):
            last = self._column_lists(data, p, flags & 8)
        return last[1].read(u, data, p + len(last[0]), flags)

    def _column_lists(self, data: bytes, p: int, static: int) -> tuple[bytes, ColumnLists]:
        """Find the columns that are named at `p`, and remember them as the last ones."""
        end = _end_of_names(data, p)
        if static:
            end = _end_of_names(data, end)
        header = data[p:end]
        lists = self._lists.get((header, static))
        if lists is None:
            if len(self._lists) >= MOST_READERS:
                # So many different lists do not come again often enough to make functions for them.
                self._lists.clear()
                self._compile = False
            lists = self._lists[header, static] = self._new_lists(header, static)
        self._last[static] = (header, lists)
        return header, lists

    def _new_lists(self, header: bytes, static: int) -> ColumnLists:
        first, at = self._columns(header, 0)
        if not static:
            return ColumnLists(self.table, (), first, compile_readers=self._compile)
        return ColumnLists(self.table, first, self._columns(header, at)[0], compile_readers=self._compile)

    def _columns(self, header: bytes, at: int) -> tuple[tuple[Column, ...], int]:
        count, at = read_unsigned(header, at)
        columns = []
        for _ in range(count):
            length, at = read_unsigned(header, at)
            name = header[at : at + length].decode()
            at += length
            type_ = self.table.type_of(name)
            if type_ is None:
                raise UnknownColumn(self.table, name)
            columns.append(Column(name, type_))
        return tuple(columns), at


class ColumnLists:
    """The columns an update names, and the way to read it: by the grammar at first, by a function once they come often."""

    __slots__ = ("_left", "_regular", "_static", "_table", "read")

    def __init__(
        self, table: TableSchema, static: tuple[Column, ...], regular: tuple[Column, ...], *, compile_readers: bool
    ) -> None:
        """Begin with the grammar."""
        self._table = table
        self._static = static
        self._regular = regular
        self._left = USES_BEFORE_COMPILING if compile_readers and len(regular) <= MOST_COLUMNS else -1
        self.read: Reader = self._by_grammar

    def _by_grammar(self, u: Update, data: bytes, p: int, flags: int) -> int:
        self._left -= 1
        if self._left == 0:
            self.read = compiled(self._table, self._static, self._regular, u.widths)
        return read_rows(u, data, p, flags, self._static, self._regular)


def _end_of_names(data: bytes, at: int) -> int:
    count, at = read_unsigned(data, at)
    for _ in range(count):
        length, at = read_unsigned(data, at)
        at += length
    if at > len(data):
        raise BadBody("a mutation ends too early")
    return at
