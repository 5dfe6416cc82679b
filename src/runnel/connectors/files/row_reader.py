"""Rows of a Parquet file from any row on, in batches; a reader can stop anywhere and go on later."""

from __future__ import annotations

import os
import struct
import zlib
from typing import TYPE_CHECKING

import pyarrow.parquet as pq

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import pyarrow as pa

BATCH = 50_000


class RowReader:
    """Reads on from `at`, the number of rows before it. Rows before that in the same row group have to be decoded once."""

    def __init__(self, path: Path, at: int = 0) -> None:
        """Open the file and find the row group."""
        self.file = pq.ParquetFile(path)
        self.schema: pa.Schema = self.file.schema_arrow
        self.rows: int = self.file.metadata.num_rows
        self.at = at
        group, before = 0, 0
        while (
            group < self.file.num_row_groups and before + (rows := self.file.metadata.row_group(group).num_rows) <= at
        ):
            group, before = group + 1, before + rows
        groups = list(range(group, self.file.num_row_groups))
        self._batches: Iterator[pa.RecordBatch] = (
            self.file.iter_batches(batch_size=BATCH, row_groups=groups) if groups else iter(())
        )
        self._skip = at - before
        self._rest: pa.RecordBatch | None = None

    def upto(self, stop: int) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Give the rows up to `stop` in batches, each with the number (from 1) of its first row."""
        while self.at < stop:
            batch = self._rest if self._rest is not None else next(self._batches, None)
            if batch is None:
                return
            skipped, wanted = min(self._skip, batch.num_rows), stop - self.at
            self._skip, batch = self._skip - skipped, batch.slice(skipped)
            self._rest = batch.slice(wanted) if batch.num_rows > wanted else None
            given = batch.slice(0, wanted)
            if given.num_rows:
                first, self.at = self.at + 1, self.at + given.num_rows
                yield first, given

    def close(self) -> None:
        """Close the file."""
        self.file.close()


def footer_checksum(path: Path) -> int:
    """Give a checksum of a Parquet file's footer, which has the places, sizes and statistics of all its columns."""
    with path.open("rb") as stream:
        stream.seek(-8, os.SEEK_END)
        (length,) = struct.unpack("<I", stream.read(4))
        stream.seek(-8 - length, os.SEEK_END)
        return zlib.crc32(stream.read(length))
