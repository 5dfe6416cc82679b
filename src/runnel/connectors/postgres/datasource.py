"""`format("runnel.postgres")`: rows of PostgreSQL's tables as of now in batch, their changes as a stream."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, cast

from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader

from runnel.connectors.datasource import (
    MAX_ROWS,
    ChangeDataSource,
    ChangeStreamReader,
    Opened,
    Part,
    Read,
    batches,
)
from runnel.connectors.guarded import GuardedSource
from runnel.connectors.postgres import open_source

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa
    from pyspark.sql.datasource import InputPartition

    from runnel.connectors.base import ChangeSet, Source
    from runnel.connectors.postgres.source import PostgresSource


class PostgresDataSource(ChangeDataSource):
    """Register with `spark.dataSource.register(PostgresDataSource)`; options are the settings of a `postgres` source.

    A stream needs a slot of its own, which stays when it ends. A batch needs none: it is read by one task, in the snapshot that it makes.
    """

    STORE, OPEN = "postgres", staticmethod(open_source)

    def reader(self, schema: Any) -> DataSourceReader:
        """Give a reader of the rows as of now."""
        return RowReader(self._read())

    def streamReader(self, schema: Any) -> DataSourceStreamReader:
        """Give a reader that follows the changes."""
        return LogReader(self._read(), int(self.options.get("max_rows", MAX_ROWS)))


class LogReader(ChangeStreamReader):
    """Follows the changes: a batch is chosen here and read by one task, and only one of the two can read the slot."""

    def latestOffset(self, start: Any = None, limit: Any = None) -> dict[str, Any]:
        """Give the end of the next batch."""
        end = super().latestOffset(start, limit)
        opened(self._open.source).let_go()
        return end


class RowReader(DataSourceReader):
    """Reads a table as of now: a snapshot ends with the connection that made it, so whoever reads has to make it."""

    def __init__(self, read: Read) -> None:
        """Keep what is read; nothing is opened yet."""
        self._read = read

    def partitions(self) -> Sequence[InputPartition]:
        """Give the one task there is."""
        described = Opened(self._read)
        described.source.close()
        return [Part(partial(rows_now, self._read), described.info.columns)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Give the rows."""
        return batches(partition)


def rows_now(read: Read) -> Iterator[ChangeSet]:
    """Open the source where this is called, and give the rows of the table."""
    source = opened(read.open())
    try:
        yield from source.rows_now(read.table)
    finally:
        source.close()


def opened(source: Source) -> PostgresSource:
    """Give the source behind the boundary that translates its errors."""
    assert isinstance(source, GuardedSource)
    return cast("PostgresSource", source.open())
