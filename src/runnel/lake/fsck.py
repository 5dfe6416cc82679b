"""Reads the whole state and lists what is damaged: every file that the catalog names, every page of it, and the catalog itself.

Nothing that an ordinary read would trust is trusted here: bytes are held against digests, rows and statistics against the values.
"""

from __future__ import annotations

import time
import zlib
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import sqlalchemy as sa

from runnel.errors import RunnelError
from runnel.lake import digests, duckdb_views, encoding, epochs, files, footers, tables
from runnel.lake.entries import ColumnStats, DataFile
from runnel.model import types
from runnel.model.relation import Kind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from runnel.lake.lake import Lake
    from runnel.model.relation import Relation

BROKEN = "RUNNEL-FILE-BROKEN"
CATALOG = "RUNNEL-CATALOG-DAMAGED"
STRUCTURE = "RUNNEL-CATALOG-BROKEN"
_BLOCK = 8 << 20
_SAY_EVERY = 2.0
_FOUND_AT_MOST = 20


@dataclass(frozen=True)
class Damage:
    """One thing that is not as it was published; `file` is None where the catalog itself is meant."""

    code: str
    what: str
    relation: str | None = None
    file: DataFile | None = None

    @property
    def live(self) -> bool:
        """Whether the newest epoch shows it."""
        return self.file is None or self.file.end is None

    def __str__(self) -> str:
        place = f" ({self.file.path})" if self.file is not None else ""
        return f"{self.relation or 'catalog'}: {self.code}: {self.what}{place}{_since(self.file)}"


def _since(file: DataFile | None) -> str:
    if file is None:
        return ""
    if file.end is None:
        return f", shown since epoch {file.begin}"
    return f", shown by epochs {file.begin} to {file.end - 1}"


@dataclass
class Checked:
    """What was read, and what is damaged of it."""

    damages: list[Damage] = field(default_factory=list)
    relations: int = 0
    files: int = 0
    bytes: int = 0
    epochs: int = 0

    def __str__(self) -> str:
        found = f"{len(self.damages)} damaged" if self.damages else "nothing is damaged"
        size = f"{self.files} files of {self.relations} relations, {self.bytes} bytes, {self.epochs} epochs"
        return f"{size}: {found}"


def check(lake: Lake, progress: Callable[[str], None] = lambda _: None) -> Checked:
    """Read everything that the catalog names and hold it against what was published."""
    done = Checked()
    progress("the catalog")
    done.damages += _structure(lake)
    try:
        with lake.catalog.read() as connection, epochs.understood(lake.catalog.name, "an entry"):
            relations = _relations(connection)
            listed = epochs.file_hashes(connection, sa.true(), has_digests=lake.catalog.has_digests)
            found = [(_data_file(lake, relations, row, hash_), row) for row, hash_ in listed]
            done.damages += _entries(lake, found)
            done.epochs, wrong = _epochs(lake, connection, found)
            done.damages += wrong
            done.damages += _changes(lake, connection, relations)
            done.damages += _for_duckdb(connection, relations, [file for file, _ in found])
            stats = _statistics(connection, relations)
    except RunnelError as error:
        done.damages.append(Damage(error.code, error.message))
        return done
    done.relations = len(relations)
    by_name = {relation.name: relation for relation, *_ in relations.values()}
    said = time.monotonic()
    for number, (file, row) in enumerate(found):
        if time.monotonic() - said > _SAY_EVERY:
            said = time.monotonic()
            progress(f"file {number + 1} of {len(found)}: {file.relation}")
        relation = relations[row.table_id][0] if row.table_id in relations else by_name.get(file.relation)
        if relation is not None:
            done.damages += _file(relation, file, stats.get(file.id, {}))
        done.files, done.bytes = done.files + 1, done.bytes + file.bytes
    return done


def _structure(lake: Lake) -> list[Damage]:
    """Have SQLite hold its trees and indexes against each other; PostgreSQL does so by itself."""
    if lake.catalog.path is None:
        return []
    try:
        with lake.catalog.read() as connection:
            said = connection.exec_driver_sql(f"PRAGMA integrity_check({_FOUND_AT_MOST})").scalars().all()
    except RunnelError as error:
        return [Damage(STRUCTURE, error.message)]
    return [Damage(STRUCTURE, line) for text in said if text != "ok" for line in str(text).splitlines()]


def _relations(connection: sa.Connection) -> dict[int, tuple[Relation, bool]]:
    """Give all relations that are listed, by their numbers, and whether the newest epoch shows them."""
    rows = connection.execute(sa.select(tables.runnel_relation)).all()
    return {
        row.table_id: (encoding.decode_relation(row.name, row.definition), row.end_snapshot is None) for row in rows
    }


def _data_file(lake: Lake, relations: dict[int, tuple[Relation, bool]], row: sa.Row[Any], hash_: int) -> DataFile:
    name = relations[row.table_id][0].name if row.table_id in relations else f"relation {row.table_id}"
    path = lake.full_path(name, row.path, relative=bool(row.path_is_relative))
    return DataFile(
        row.data_file_id, name, path, row.record_count, row.file_size_bytes, row.begin_snapshot, row.end_snapshot,
        bool(row.change), {}, row.digest, hash_,
    )  # fmt: skip


def _entries(lake: Lake, found: Iterable[tuple[DataFile, sa.Row[Any]]]) -> list[Damage]:
    wrong = []
    for file, row in found:
        if (row.entry is None and lake.catalog.needs_digests) or row.entry not in (None, f"{file.entry:016x}"):
            wrong.append(
                Damage(CATALOG, "what the catalog says of a file is not what was published", file.relation, file)
            )
    return wrong


def _epochs(
    lake: Lake, connection: sa.Connection, found: Iterable[tuple[DataFile, sa.Row[Any]]]
) -> tuple[int, list[Damage]]:
    """Add up what each kept epoch shows and hold it against its digest."""
    spans = [(file.begin, file.end, file.entry) for file, _ in found]
    for table in epochs.HASHED:
        rows = connection.execute(sa.select(table)).mappings()
        spans += [(row["begin_snapshot"], row["end_snapshot"], epochs.hash_of(table, row)) for row in rows]
    kept = connection.execute(sa.select(tables.snapshot.c.snapshot_id).order_by(tables.snapshot.c.snapshot_id))
    numbers, wrong = list(kept.scalars()), []
    moves: dict[int, int] = defaultdict(int)
    for begin, end, entry in spans:
        moves[begin] += entry
        if end is not None:
            moves[end] -= entry
    steps, at, sum_ = sorted(moves.items()), 0, 0
    for epoch in numbers:
        while at < len(steps) and steps[at][0] <= epoch:
            sum_, at = digests.total((steps[at][1],), sum_), at + 1
        try:
            own = lake.reader.epoch(connection, epoch)
        except RunnelError as error:
            wrong.append(Damage(error.code, error.message))
            continue
        if own.added_up not in (None, sum_):
            wrong.append(Damage(CATALOG, f"what epoch {epoch} shows is not what was published with it"))
    return len(numbers), wrong


def _changes(lake: Lake, connection: sa.Connection, relations: dict[int, tuple[Relation, bool]]) -> list[Damage]:
    """Hold the changes that are kept of each relation against their sum."""
    wrong = []
    for number, (relation, _) in relations.items() if lake.catalog.has_digests else ():
        try:
            epochs.kept_changes(connection, number, lake.catalog.name, needed=lake.catalog.needs_digests)
        except RunnelError as error:
            wrong.append(Damage(error.code, error.message, relation.name))
    return wrong


def _for_duckdb(
    connection: sa.Connection, relations: dict[int, tuple[Relation, bool]], found: Iterable[DataFile]
) -> list[Damage]:
    """Hold what only DuckDB reads of the catalog against what runnel would write: columns, views and totals."""
    c, v, t = tables.column, tables.view, tables.table_stats
    columns = defaultdict(list)
    for row in connection.execute(sa.select(c).order_by(c.c.column_id)):
        columns[row.table_id].append((row.column_id, row.column_name, row.column_type, row.parent_column))
    views = {row.view_name: row.sql for row in connection.execute(sa.select(v).where(v.c.end_snapshot.is_(None)))}
    totals = {row.table_id: (row.record_count, row.file_size_bytes) for row in connection.execute(sa.select(t))}
    ids = {relation.name: number for number, (relation, live) in relations.items() if live}
    sizes: dict[int, tuple[int, int]] = defaultdict(lambda: (0, 0))
    for file in found:
        if file.end is None and file.relation in ids:
            rows, size = sizes[ids[file.relation]]
            sizes[ids[file.relation]] = (rows + file.rows, size + file.bytes)
    wrong = []
    for number, (relation, live) in relations.items():
        fields = [(f.id, f.name, f.type, f.parent) for f in encoding.fields(relation)]
        parts = {"columns": columns[number] == sorted(fields)}
        if live:
            parts["totals"] = totals.get(number) == sizes[number]
            shown = relation.kind is Kind.STAGE or views.get(relation.name) == duckdb_views.view_sql(relation)
            parts["view"] = shown
        what = ", ".join(name for name, right in parts.items() if not right)
        if what:
            wrong.append(Damage(CATALOG, f"what DuckDB reads of it is not what was published: {what}", relation.name))
    return wrong


def _statistics(
    connection: sa.Connection, relations: dict[int, tuple[Relation, bool]]
) -> dict[int, dict[str, ColumnStats]]:
    found: dict[int, dict[str, ColumnStats]] = defaultdict(dict)
    for row in connection.execute(sa.select(tables.file_column_stats)):
        if row.table_id not in relations:
            continue
        relation = relations[row.table_id][0]
        named = {number: name for name, number in encoding.column_ids(relation).items()}
        decode = {column.name: encoding.decoder(column.type) for column in encoding.stored_columns(relation)}
        name = named[row.column_id]
        low, high = (None if value is None else decode[name](value) for value in (row.min_value, row.max_value))
        found[row.data_file_id][name] = ColumnStats(low, high, row.null_count, bool(row.contains_nan))
    return found


def _file(relation: Relation, file: DataFile, stats: dict[str, ColumnStats]) -> list[Damage]:
    """Read a file whole, bytes first and values then."""

    def damage(code: str, what: str) -> list[Damage]:
        return [Damage(code, what, relation.name, file)]

    try:
        with files.read_errors(relation.name, file.path):
            what = _bytes(file)
            if what:
                return damage(BROKEN, what)
            rows, found = _values(relation, file)
    except RunnelError as error:
        return damage(error.code, error.message)
    except (KeyError, ValueError) as error:
        return damage(BROKEN, f"its columns cannot be read: {error}")
    if rows != file.rows:
        what = f"it holds {rows} rows, and the catalog says {file.rows}"
        return [Damage("RUNNEL-FILE-ROWS", what, relation.name, file)]
    wrong = ", ".join(name for name, said in stats.items() if name in found and not _covers(said, found[name]))
    what = f"values are outside of the range that the catalog has for {wrong}"
    return [Damage("RUNNEL-FILE-STATISTICS", what, relation.name, file)] if wrong else []


def _bytes(file: DataFile) -> str | None:
    """Hold the bytes of a file against its digest; say what is wrong."""
    system, inside = files.filesystem(file.path)
    digest = None if file.digest is None else digests.Digest.parse(file.digest)
    with system.open_input_file(inside) as source:
        if source.size() != file.bytes:
            return f"it has {source.size()} bytes instead of {file.bytes}"
        if digest is None:
            return None
        if digests.of_tail(source, file.bytes, digest.tail_from).tail != digest.tail:
            return "its footer is not the one that was written"
        source.seek(0)
        sum_ = 0
        while digest.whole is not None and (block := source.read(_BLOCK)):
            sum_ = zlib.crc32(block, sum_)
    return "its bytes are not those that were written" if digest.whole not in (None, sum_) else None


def _values(relation: Relation, file: DataFile) -> tuple[int, dict[str, ColumnStats]]:
    """Read all pages of a file; give its rows, and the range and NULLs of each column that has statistics."""
    ranged = [c for c in encoding.stored_columns(relation) if encoding.has_statistics(c.type)]
    schema = encoding.arrow_schema(relation)
    found: dict[str, ColumnStats] = {}
    rows = 0
    system, inside = files.filesystem(file.path)
    with system.open_input_file(inside) as source:
        for batch in pq.ParquetFile(source, page_checksum_verification=True).iter_batches(columns=schema.names):
            table = files.cast(pa.Table.from_batches([batch]).select(schema.names), schema)
            rows += table.num_rows
            for column in ranged:
                found[column.name] = _wider(found.get(column.name), table[column.name], column.type)
    return rows, found


def _wider(known: ColumnStats | None, column: pa.ChunkedArray, type_: types.Type) -> ColumnStats:
    nan = type_.name in types.FLOATS and bool(pc.any(pc.is_nan(column)).as_py())
    kept = column.filter(pc.invert(pc.fill_null(pc.is_nan(column), fill_value=False))) if nan else column
    low, high = pc.min_max(kept).as_py().values()
    if known is None:
        return ColumnStats(low, high, column.null_count, nan)
    lows, highs = ([v for v in pair if v is not None] for pair in ((low, known.minimum), (high, known.maximum)))
    return ColumnStats(
        min(lows) if lows else None, max(highs) if highs else None, known.nulls + column.null_count, nan or known.nan
    )


def _covers(said: ColumnStats, found: ColumnStats) -> bool:
    """Say whether what the catalog says of a column holds for its values; what it leaves out is never wrong."""
    if said.nulls != found.nulls or (said.nan is False and found.nan and said.minimum is not None):
        return False
    if said.minimum is None or said.maximum is None or found.minimum is None:
        return True
    low, least, most, high = footers.values([said.minimum, found.minimum, found.maximum, said.maximum])
    return bool(low <= least and most <= high)
