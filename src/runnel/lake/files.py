"""Parquet files: writing them with field ids, taking statistics from their footers, reading them back or saying what is wrong.

Files are written once under a name of their own and never changed, so nobody who reads can see half of one: a file counts
only when the catalog lists it, and it is on the disk (`sync`) before the catalog does.
"""

from __future__ import annotations

import errno
import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import fs

from runnel.errors import Place, Terminal
from runnel.lake import digests, encoding, kept
from runnel.lake.entries import ColumnStats, DataFile, NewFile
from runnel.model import types
from runnel.model.relation import WEIGHT

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from runnel.model.relation import Column, Relation

ROW_GROUP = 8_192
HINT = "`runnel fsck --repair` rebuilds what can be rebuilt; else bring the file back from a copy"
_SYNC_THREADS = 8
_CHECK_THREADS = 8
_CHECKED_FILES = 200_000
# Schemes as Spark writes them, and as Arrow does.
_SCHEMES = {"s3a": "s3", "s3n": "s3", "gs": "gs", "hdfs": "hdfs", "abfss": "abfss"}


def is_local(path: str) -> bool:
    """Say whether a path is in this machine's file system."""
    return "://" not in path


def filesystem(path: str) -> tuple[fs.FileSystem, str]:
    """Give the file system of a path or URI, and the path inside it."""
    if is_local(path):
        return fs.LocalFileSystem(), path
    scheme, _, rest = path.partition("://")
    system, inside = fs.FileSystem.from_uri(f"{_SCHEMES.get(scheme, scheme)}://{rest}")
    return system, inside


def write(relation: Relation, path: str, table: pa.Table) -> NewFile:
    """Write signed rows as one Parquet file of the relation, cast to its schema."""
    shaped = shape(relation, table)
    system, inside = filesystem(path)
    footers: list[pq.FileMetaData] = []
    with_nan = _columns_with_nan(relation, shaped)
    options: dict[str, Any] = {
        "compression": "zstd",
        "version": "2.6",
        "store_schema": False,
        "write_page_checksum": True,
        # In row groups as small as these, a dictionary of numbers is larger than the numbers, and slower.
        "use_dictionary": [field.name for field in shaped.schema if pa.types.is_string(field.type)],
        # Footers leave NaN out of a range, and readers that sort NaN last would then skip its rows: no range is better.
        "write_statistics": [c.name for c in _ranged(relation) if c.name not in with_nan],
    }
    with disk_errors(relation.name, path):
        system.create_dir(str(Path(inside).parent), recursive=True)
        sink = pa.BufferOutputStream()
        with pq.ParquetWriter(sink, shaped.schema, metadata_collector=footers, **options) as writer:
            writer.write_table(shaped, row_group_size=ROW_GROUP)
        data = sink.getvalue()
        with system.open_output_stream(inside) as out:
            out.write(data)
    if footers[0].num_rows != table.num_rows:
        raise incomplete(relation.name, footers[0].num_rows, table.num_rows, path)
    found = statistics(relation, footers[0], nan_known=True)
    found |= {name: ColumnStats(None, None, shaped[name].null_count, nan=True) for name in with_nan}
    return NewFile(relation.name, path, shaped.num_rows, data.size, found, str(digests.of_whole(data)))


def _ranged(relation: Relation) -> list[Column]:
    return [column for column in encoding.stored_columns(relation) if encoding.has_statistics(column.type)]


def _columns_with_nan(relation: Relation, table: pa.Table) -> set[str]:
    floats = [column.name for column in _ranged(relation) if column.type.name in types.FLOATS]
    return {name for name in floats if pc.any(pc.is_nan(table[name])).as_py()}


def shape(relation: Relation, table: pa.Table) -> pa.Table:
    """Bring a table's columns into the order and types in which the relation is stored."""
    schema = encoding.arrow_schema(relation)
    try:
        ordered = table.select(schema.names)
        return ordered if ordered.schema.equals(schema, check_metadata=True) else cast(ordered, schema)
    except (KeyError, pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise Terminal(
            "RUNNEL-FILE-SCHEMA",
            f"rows of {relation.name} do not fit its columns: {error}",
            hint=f"it stores {', '.join(map(str, encoding.stored_columns(relation)))}",
        ) from error


def cast(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Give the columns their types, and the metadata that carries the field ids."""
    columns = [
        column if column.type.equals(field.type) else column.cast(field.type)
        for column, field in zip(table.columns, schema, strict=True)
    ]
    return pa.table(columns, schema=schema)


@contextmanager
def disk_errors(relation: str, path: str) -> Iterator[None]:
    """Say plainly that a disk is full or a folder closed to us."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise Terminal(
                "RUNNEL-DISK-FULL",
                f"no room to write {relation}",
                place=Place(path),
                hint="make room; nothing of this epoch was published",
            ) from error
        raise Terminal(
            "RUNNEL-FILE-WRITE",
            f"a file of {relation} cannot be written: {error.strerror or error}",
            place=Place(path),
            hint="see that the data folder is there and may be written; nothing of this epoch was published",
        ) from error


def statistics(relation: Relation, footer: pq.FileMetaData, *, nan_known: bool = False) -> dict[str, ColumnStats]:
    """Take each flat column's range and NULL count from a footer; what is not certain is left out.

    Footers do not tell of NaN, so floats have a range only where it is known (`nan_known`) that a column with NaN has no
    statistics there.
    """
    found: dict[str, ColumnStats] = {}
    for name, type_, at in _placed(relation, footer):
        is_float = type_.name in types.FLOATS
        stats = _column_statistics(footer, at, range(footer.num_row_groups), ranged=nan_known or not is_float)
        if stats is not None:
            found[name] = replace(stats, nan=False) if is_float and nan_known else stats
    return found


def group_statistics(relation: Relation, footer: pq.FileMetaData, group: int) -> dict[str, ColumnStats]:
    """Take the ranges of one row group's columns; floats have none, for they may hold NaN."""
    found = {
        name: _column_statistics(footer, at, (group,), ranged=type_.name not in types.FLOATS)
        for name, type_, at in _placed(relation, footer)
    }
    return {name: stats for name, stats in found.items() if stats is not None}


def _placed(relation: Relation, footer: pq.FileMetaData) -> list[tuple[str, types.Type, int]]:
    """Find the flat columns in a footer."""
    places = places_of(relation, footer)
    return [(column.name, column.type, places[column.name]) for column in _ranged(relation) if column.name in places]


def places_of(relation: Relation, footer: pq.FileMetaData) -> dict[str, int]:
    """Give the place of each flat column among a file's columns; empty where the file has other columns than the relation."""
    leaves = encoding.leaves(relation)
    if not footer.num_row_groups or footer.num_columns != len(leaves):
        return {}
    return {name: at for at, name in enumerate(leaves) if name is not None}


def _column_statistics(footer: pq.FileMetaData, at: int, groups: Iterable[int], *, ranged: bool) -> ColumnStats | None:
    lows: list[Any] = []
    highs: list[Any] = []
    nulls = 0
    for group in groups:
        stats = footer.row_group(group).column(at).statistics
        if stats is None or not stats.has_null_count:
            return None
        nulls += stats.null_count
        if stats.null_count < footer.row_group(group).num_rows:
            low, high = range_of(stats) if ranged and stats.has_min_max else (None, None)
            lows.append(low)
            highs.append(high)
    if not lows or None in lows or None in highs:
        return ColumnStats(None, None, nulls)
    return ColumnStats(min(lows), max(highs), nulls)


def range_of(stats: pq.Statistics) -> tuple[Any | None, Any | None]:
    """Give a row group's minimum and maximum as Python values; None where they cannot be kept exactly."""
    try:
        low, high = stats.min, stats.max
    except (OverflowError, ValueError, pa.ArrowException):
        return None, None
    if encoding.encode_value(low) is None or encoding.encode_value(high) is None:
        return None, None
    return low, high


def adopt(relation: Relation, paths: Sequence[str], rows: int | None = None) -> list[NewFile]:
    """Take over files somebody else wrote; empty ones are deleted and left out.

    Where they do not hold as many `rows` as their writer was given, all are deleted and it is an error.
    """
    try:
        adopted = _adopted(relation, paths)
        held = sum(file.rows for file in adopted)
        if rows is not None and held != rows:
            raise incomplete(relation.name, held, rows, str(Path(paths[0]).parent) if paths else None)
    except BaseException:
        for path in paths:
            delete(path)
        raise
    return adopted


def _adopted(relation: Relation, paths: Sequence[str]) -> list[NewFile]:
    with ThreadPoolExecutor(_CHECK_THREADS) as pool:
        found = pool.map(lambda path: _adopted_one(relation, path), paths)
        return [file for file in found if file is not None]


def _adopted_one(relation: Relation, path: str) -> NewFile | None:
    system, inside = filesystem(path)
    with read_errors(relation.name, path), system.open_input_file(inside) as source:
        size = source.size()
        small = source.read(size) if size <= digests.WHOLE_BYTES else None
        footer = pq.ParquetFile(source if small is None else pa.BufferReader(small)).metadata
        if footer.num_rows:
            end = digests.pages_end(footer, size)
            digest = digests.of_whole(small, end) if small is not None else digests.of_tail(source, size, end)
            return NewFile(relation.name, path, footer.num_rows, size, statistics(relation, footer), str(digest))
    delete(path)
    return None


def sync(files: Sequence[NewFile]) -> None:
    """Force local files and their folders to the disk; raise if one is not there (any more)."""
    local = [file for file in files if is_local(file.path)]
    folders = {str(Path(file.path).parent) for file in local}
    folders |= {str(Path(folder).parent) for folder in folders}
    if len(local) < 2:
        for file in local:
            _sync_file(file)
    else:
        with ThreadPoolExecutor(_SYNC_THREADS) as pool:
            list(pool.map(_sync_file, local))
    for folder in sorted(folders):
        _sync_path(folder)


def _sync_file(file: NewFile) -> None:
    try:
        _sync_path(file.path)
    except FileNotFoundError as error:
        raise missing(file.relation, file.path) from error
    except OSError as error:
        raise broken(file.relation, file.path, error.strerror or error) from error


def _sync_path(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def delete(path: str) -> bool:
    """Delete a file, and what is kept of it in memory; say whether it was there."""
    kept.drop(path)
    system, inside = filesystem(path)
    try:
        system.delete_file(inside)
    except FileNotFoundError:
        return False
    except OSError as error:
        raise Terminal(
            "RUNNEL-FILE-DELETE",
            f"a file that is no longer needed cannot be deleted: {error.strerror or error}",
            place=Place(path),
            hint="see that the data folder may be written",
        ) from error
    return True


def incomplete(relation: str, held: int, given: int, place: str | None) -> Terminal:
    """Give the error for files that do not hold the rows that were given to their writer."""
    return Terminal(
        "RUNNEL-WRITE-INCOMPLETE",
        f"the files written of {relation} hold {held} rows, and {given} were given to be written: nothing was published",
        place=Place(place) if place else None,
        hint="find out who deletes or changes files below the data folder; the next epoch writes them again",
    )


def missing(relation: str, path: str) -> Terminal:
    """Give the error for a file that is listed and not there."""
    return Terminal(
        "RUNNEL-FILE-MISSING",
        f"a file of {relation} is missing",
        place=Place(path),
        hint=HINT,
    )


def broken(relation: str, path: str, why: object) -> Terminal:
    """Give the error for a file that cannot be read as it was written."""
    return Terminal(
        "RUNNEL-FILE-BROKEN",
        f"a file of {relation} cannot be read: {why}",
        place=Place(path),
        hint=HINT,
    )


@contextmanager
def read_errors(relation: str, path: str) -> Iterator[None]:
    """Say plainly that a file is missing, or cannot be read as it was written."""
    try:
        yield
    except FileNotFoundError as error:
        raise missing(relation, path) from error
    except (OSError, pa.ArrowException) as error:
        raise broken(relation, path, error) from error


_checked: kept.Kept[bool] = kept.Kept(_CHECKED_FILES)


def forget_checks() -> None:
    """Have each file held against its digest again when it is read next."""
    _checked.clear()


def _checked_source(relation: str, file: DataFile | NewFile, source: pa.NativeFile) -> pa.NativeFile:
    """Hold a file against its digest when this process reads it for the first time; give what to read it from."""
    if source.size() != file.bytes:
        raise broken(relation, file.path, f"it has {source.size()} bytes instead of {file.bytes}")
    if file.digest is None or file.path in _checked:
        return source
    digest = digests.Digest.parse(file.digest)
    if digest.whole is not None and file.bytes <= digests.WHOLE_BYTES:
        data = source.read(file.bytes)
        if digests.of_whole(data, digest.tail_from) != digest:
            raise broken(relation, file.path, "its bytes are not those that were written")
        source = pa.BufferReader(data)
    elif digests.of_tail(source, file.bytes, digest.tail_from).tail != digest.tail:
        raise broken(relation, file.path, "its footer is not the one that was written")
    _checked.put(file.path, value=True, size=1)
    return source


def open_file(relation: str, file: DataFile | NewFile, footer: pq.FileMetaData | None = None) -> pq.ParquetFile:
    """Open a data file, checked against its digest the first time; `footer` is its footer where it is known."""
    system, inside = filesystem(file.path)
    with read_errors(relation, file.path):
        source = _checked_source(relation, file, system.open_input_file(inside))
        return pq.ParquetFile(source, metadata=footer, page_checksum_verification=True)


def verify(relation: str, files: Sequence[DataFile | NewFile]) -> None:
    """Hold files against their digests, before somebody else reads them who does not know these; each once in a process."""
    unchecked = [file for file in files if file.digest is not None and file.path not in _checked]

    def check_one(file: DataFile | NewFile) -> None:
        system, inside = filesystem(file.path)
        with read_errors(relation, file.path), system.open_input_file(inside) as source:
            _checked_source(relation, file, source)

    if len(unchecked) < 4:
        for file in unchecked:
            check_one(file)
    else:
        with ThreadPoolExecutor(_CHECK_THREADS) as pool:
            list(pool.map(check_one, unchecked))


def check(relation: str, path: str) -> None:
    """Read a whole file; raise if it is missing, or one of its pages is not as it was written."""
    system, inside = filesystem(path)
    with read_errors(relation, path), system.open_input_file(inside) as source:
        for _ in pq.ParquetFile(source, page_checksum_verification=True).iter_batches():
            pass


def read(relation: Relation, files: Sequence[DataFile | NewFile], columns: Sequence[str] | None = None) -> pa.Table:
    """Read stored rows (all columns, or those named in that order) of these files."""
    schema = encoding.arrow_schema(relation)
    if columns is not None:
        schema = pa.schema([schema.field(name) for name in columns])
    tables = [_read_one(relation, file, schema) for file in files]
    return pa.concat_tables(tables) if tables else schema.empty_table()


def read_groups(
    relation: Relation,
    file: DataFile | NewFile,
    footer: pq.FileMetaData,
    groups: list[int],
    schema: pa.Schema | None = None,
) -> pa.Table:
    """Read row groups of a file whose footer is known: all columns, or those of a schema."""
    schema = schema or encoding.arrow_schema(relation)
    if not groups:
        return schema.empty_table()
    with read_errors(relation.name, file.path):
        parquet = open_file(relation.name, file, footer)
        rows = sum(footer.row_group(group).num_rows for group in groups)
        return _as_wanted(relation, file, parquet.read_row_groups(groups, columns=schema.names), schema, rows)


def _read_one(relation: Relation, file: DataFile | NewFile, schema: pa.Schema) -> pa.Table:
    with read_errors(relation.name, file.path):
        table = open_file(relation.name, file).read(columns=schema.names or [WEIGHT])
        return _as_wanted(relation, file, table, schema, file.rows)


def _as_wanted(relation: Relation, file: DataFile | NewFile, table: pa.Table, schema: pa.Schema, rows: int) -> pa.Table:
    # A damaged page header can say that a page has fewer values.
    if table.num_rows != rows:
        raise broken(relation.name, file.path, f"it gives {table.num_rows} rows instead of {rows}")
    try:
        return cast(table.select(schema.names), schema)
    except KeyError as error:
        raise broken(relation.name, file.path, error) from error
