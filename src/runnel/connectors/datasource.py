"""`format("runnel.STORE")`: the changes of a store's table as a Spark DataFrame, in batch and as a stream, from a source's own partitions.

A store has it by a class of two lines:

    class FilesDataSource(ChangeDataSource):
        STORE, OPEN = "files", staticmethod(open_source)

Each partition of a range is a task, which needs nothing but the partition. A source that cannot cut a range has one task, which opens it there.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition

from runnel.config import Source as SourceSettings
from runnel.connectors.base import OP, UPDATE
from runnel.connectors.guarded import GuardedSource
from runnel.errors import Place, Terminal, UsageError, nearest
from runnel.model import types
from runnel.model.relation import WEIGHT, Column

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from runnel.connectors.base import ChangeSet, Offset, Source, TableInfo

ALL = 1 << 60
"""More rows than any range has."""
MAX_ROWS = 1_000_000
"""Rows of a batch of a stream, unless the option `max_rows` says otherwise."""
OWN = ("path", "table", "max_rows", "folder")
CHANGE = (Column(WEIGHT, types.BIGINT), Column(OP, types.STRING))
"""What a change has besides its row: a weight, or what is done to its key."""


class ChangeDataSource(DataSource):
    """Register a store's own class with `spark.dataSource.register`.

    Options are the settings of a source (lists and tables as JSON), and: `table` or the path, whose changes are read; `max_rows` of a
    stream's batch; `folder`, from which relative paths start.
    """

    STORE: ClassVar[str]
    OPEN: ClassVar[staticmethod[[SourceSettings, Path], Source]]

    @classmethod
    def name(cls) -> str:
        """Give the format's name."""
        return f"runnel.{cls.STORE}"

    def schema(self) -> str:
        """Give the columns as DDL: those of the table, and what the change does."""
        opened = Opened(self._read())
        try:
            return ", ".join(f"{types.quoted(c.name)} {c.type}" for c in (*opened.info.columns, *CHANGE))
        finally:
            opened.source.close()

    def reader(self, schema: Any) -> DataSourceReader:
        """Give a reader of all changes up to now."""
        return ChangeReader(self._read())

    def streamReader(self, schema: Any) -> DataSourceStreamReader:
        """Give a reader that follows the changes."""
        return ChangeStreamReader(self._read(), int(self.options.get("max_rows", MAX_ROWS)))

    def _read(self) -> Read:
        return Read(type(self).OPEN, self._settings(), Path(self.options.get("folder", ".")).absolute(), self._table())

    def _settings(self) -> SourceSettings:
        given = {name.lower(): option_value(text) for name, text in self.options.items() if name.lower() not in OWN}
        if "path" in self.options and "table" in self.options:
            given["path"] = self.options["path"]  # the path is then a setting of the store
        return SourceSettings("spark", self.STORE, given, Place("options"))

    def _table(self) -> str:
        table = self.options.get("table") or self.options.get("path")
        if not table:
            raise UsageError(
                "RUNNEL-SPARK-TABLE",
                f"format('{self.name()}') needs the name of a table",
                hint="load('orders'), or the option 'table'",
            )
        return str(table)


def option_value(text: str) -> Any:
    """Give the setting that an option's text stands for: JSON where it is a list, a table, a number or a flag.

    >>> [option_value(text) for text in ('["a"]', "true", "9042", "shop", "007")]
    [['a'], True, 9042, 'shop', '007']
    """
    if text in ("true", "false") or text[:1] in ("[", "{") or (text.isdigit() and str(int(text)) == text):
        try:
            return json.loads(text)
        except ValueError:
            return text
    return text


@dataclass(frozen=True)
class Read:
    """What is read: a table of the store that the settings describe. It can be pickled."""

    opens: Callable[[SourceSettings, Path], Source]
    settings: SourceSettings
    folder: Path
    table: str

    def open(self) -> GuardedSource:
        """Give the source, which raises runnel's errors only."""
        return GuardedSource(self.settings.label, lambda: self.opens(self.settings, self.folder))


class Opened:
    """A source on the driver's side, and the table that is read."""

    def __init__(self, read: Read) -> None:
        """Open the source; the table has to be one of its own."""
        self._read = read
        self.source: Source = read.open()
        known = {info.name: info for info in self.source.tables()}
        if read.table not in known:
            self.source.close()
            hint = nearest(read.table, known) or f"there are {', '.join(known) or 'none'}"
            raise UsageError("RUNNEL-SPARK-TABLE", f"{read.settings.type} has no table {read.table!r}", hint=hint)
        self.info: TableInfo = known[read.table]

    def parts(self, start: Offset, end: Offset) -> list[InputPartition]:
        """Cut a range into tasks."""
        if start == end:
            return []
        found = self.source.partitions(start, end)
        if found is None:
            return [Part(partial(read_range, self._read, start, end), self.info.columns)]
        return [Part(one.read, self.info.columns) for one in found if one.table == self.info.name]


def read_range(read: Read, start: Offset, end: Offset) -> Iterator[ChangeSet]:
    """Read a whole range where this is called; for sources that cannot cut one."""
    source = read.open()
    try:
        source.tables()
        yield from (found for found in source.read(start, end) if found.table == read.table)
    finally:
        source.close()


@dataclass
class Part(InputPartition):
    """A stretch of a range, as a task reads it."""

    call: Callable[[], Iterator[ChangeSet]]
    columns: tuple[Column, ...]


class ChangeReader(DataSourceReader):
    """Reads every change up to now."""

    def __init__(self, read: Read) -> None:
        """Keep what is read; nothing is opened yet."""
        self._read = read

    def partitions(self) -> Sequence[InputPartition]:
        """Cut what is there now into tasks."""
        opened = Opened(self._read)
        try:
            start = opened.source.initial_offset()
            end = opened.source.latest_offset(start, ALL)
            return opened.parts(start, end)
        finally:
            opened.source.close()

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Give the changes of one task."""
        return batches(partition)


class ChangeStreamReader(DataSourceStreamReader):
    """Follows the changes; offsets are the source's positions."""

    def __init__(self, read: Read, max_rows: int) -> None:
        """Keep what is read; nothing is opened yet."""
        self._read, self._rows = read, max_rows
        self._opened: Opened | None = None

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_opened": None}

    @property
    def _open(self) -> Opened:
        self._opened = self._opened or Opened(self._read)
        return self._opened

    def initialOffset(self) -> dict[str, Any]:
        """Give where a new query begins."""
        return self._open.source.initial_offset()

    def latestOffset(self, start: Any = None, limit: Any = None) -> dict[str, Any]:
        """Give the end of the next batch."""
        source = self._open.source
        source.tables()
        return source.latest_offset(dict(start) if start else source.initial_offset(), self._rows)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Cut a batch into tasks."""
        return self._open.parts(start, end)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Give the changes of one task."""
        return batches(partition)

    def commit(self, end: dict[str, Any]) -> None:
        """Let the store forget what was read."""
        self._open.source.commit(end)

    def stop(self) -> None:
        """Close the source."""
        if self._opened is not None:
            self._opened.source.close()


def batches(partition: InputPartition) -> Iterator[pa.RecordBatch]:
    """Give the changes of a task, with the columns of the table, a weight and an operation."""
    assert isinstance(partition, Part)
    for changes in partition.call():
        if changes.whole or (changes.keyed is not None and UPDATE in changes.keyed.column(OP).to_pylist()):
            raise _not_a_row(changes)
        for rows in (changes.signed, changes.keyed):
            if rows is not None:
                yield from _aligned(rows, partition.columns).to_batches()


def _not_a_row(changes: ChangeSet) -> Terminal:
    """Make the error for a change that no row of a DataFrame can say; a state follows it."""
    what = "was emptied or is read again" if changes.whole else "was updated, and its large values are not in the log"
    return Terminal(
        "RUNNEL-SPARK-CHANGE",
        f"table {changes.table} {what} ({changes.place}), which is not a row of a DataFrame",
        hint="follow the table by a project; old rows that are logged whole have all values",
    )


def _aligned(rows: pa.Table, columns: Sequence[Column]) -> pa.Table:
    arrays = [
        rows.column(c.name).cast(types.to_arrow(c.type))
        if c.name in rows.column_names
        else pa.nulls(rows.num_rows, types.to_arrow(c.type))
        for c in (*columns, *CHANGE)
    ]
    return pa.table(arrays, names=[c.name for c in (*columns, *CHANGE)])
