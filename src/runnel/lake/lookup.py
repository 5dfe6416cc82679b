"""Point look-ups: the signed rows of a few keys, reading only the files and row groups that can hold them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from runnel.errors import Terminal, nearest
from runnel.lake import encoding, files, footers
from runnel.lake.kept import Kept
from runnel.model import arrow
from runnel.model.relation import WEIGHT

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from runnel.lake.entries import ColumnStats, DataFile, NewFile
    from runnel.lake.footers import Footer
    from runnel.model.relation import Relation

SMALL_FILE = 50_000
KEPT_ROWS = 2_000_000
KEPT_BYTES = 512 << 20
TABLE_BYTES = 20_000
"""What a table takes beside its values, as measured: of a small change that is nearly all."""
PAIRS = 50_000_000
GROUPS_AT_ONCE = 256
"""Row groups that are read before it is seen how much of them is asked for: two million rows."""
KEPT_VALUES = 12_000_000
"""Where most of a relation's row groups are asked for, its columns are kept for the next look-up, if they have no more values;
or at least those it is looked up by, which say in which row groups the few rows are."""


@dataclass(frozen=True)
class _Wanted:
    """The values one key column is looked up by; `ordered` is None where they have no order to prune by."""

    name: str
    values: pa.Array
    ordered: np.ndarray | None
    each: np.ndarray | None
    null: bool

    def may_be_in(self, stats: ColumnStats | None) -> bool:
        if stats is None or self.ordered is None or stats.nan:
            return True
        if (self.null and stats.nulls) or stats.minimum is None or stats.maximum is None:
            return True
        low, high = footers.values([stats.minimum, stats.maximum])
        at = int(np.searchsorted(self.ordered, low))
        return at < len(self.ordered) and bool(self.ordered[at] <= high)


@dataclass
class Reading:
    """What a look-up read: bytes of files, rows of row groups, bytes of rows found.

    It gives up (`TooMuch`) beyond `most` rows, or where it finds more than `most_found` bytes: a key may have millions of rows.
    """

    bytes: int = 0
    rows: int = 0
    found: int = 0
    most: int | None = None
    most_found: int | None = None

    def add(self, table: pa.Table) -> pa.Table:
        """Count rows that were found."""
        self.found += table.nbytes
        if self.most_found is not None and self.found > self.most_found:
            raise TooMuch
        return table


class TooMuch(Exception):
    """So many row groups can hold the keys, or so many rows have them, that a job is the better place for them."""


def find(
    relation: Relation,
    candidates: Sequence[DataFile | NewFile],
    keys: pa.Table,
    columns: Sequence[str] | None = None,
    *,
    exact: bool = True,
    reading: Reading | None = None,
) -> pa.Table:
    """Give the stored rows (not netted) whose columns equal a row of `keys`; NULL equals NULL.

    Of several key columns, each is matched by itself unless `exact`: more rows may come than are asked for.
    """
    schema = encoding.arrow_schema(relation)
    keys = _cast_keys(relation, schema, keys)
    wanted = [_wanted(relation, name, keys[name]) for name in keys.column_names]
    if columns is not None:
        schema = pa.schema([field for field in schema if field.name in {*columns, *keys.column_names, WEIGHT}])
    reading = reading or Reading()
    work: list[tuple[DataFile | NewFile, Footer | None, list[int]]] = []
    for file in candidates if keys.num_rows else ():
        if all(part.may_be_in(file.stats.get(part.name)) for part in wanted):
            work.append((file, *_chosen(relation, file, wanted, reading)))
    found = [schema.empty_table()]
    kept = _worth_keeping(work, len(schema))
    few = not kept and _worth_keeping(work, len(wanted)) and keys.num_rows < sum(len(groups) for _, _, groups in work)
    for file, footer, groups in work:
        if few and footer is not None:
            groups = _with_rows(relation, file, footer, schema, wanted)
        for table in _of_file(relation, file, footer, groups, schema, kept=kept):
            found.append(reading.add(_matching(table, wanted)))
    rows = pa.concat_tables(found)
    # One flat column was matched exactly; of several, each was matched by itself.
    matched = len(wanted) == 1 and not pa.types.is_nested(wanted[0].values.type)
    return rows if matched or not exact or not rows.num_rows else _exact(rows, keys)


def _chosen(
    relation: Relation, file: DataFile | NewFile, wanted: list[_Wanted], reading: Reading
) -> tuple[Footer | None, list[int]]:
    """Choose the row groups to read; a small file is taken whole, from memory where it was read before."""
    if file.rows <= SMALL_FILE or file.path in _memory:
        reading.rows += file.rows
        reading.bytes += file.bytes
        return None, []
    footer = footers.footer(relation.name, file)
    hit = _hit(relation, footer, wanted)
    groups = [int(group) for group in np.flatnonzero(hit)]
    reading.rows += int(footer.rows[hit].sum())
    reading.bytes += file.bytes * len(groups) // max(1, len(hit))
    if reading.most is not None and reading.rows > reading.most:
        raise TooMuch
    return footer, groups


def _worth_keeping(work: Sequence[tuple[DataFile | NewFile, Footer | None, list[int]]], columns: int) -> bool:
    """Say whether so much of a relation is asked for, and the relation so small, that its columns are better kept in memory."""
    large = [(file.rows, footer.metadata.num_row_groups, len(groups)) for file, footer, groups in work if footer]
    rows, all_groups, asked = (sum(part) for part in zip(*large, strict=True)) if large else (0, 0, 0)
    return 2 * asked > all_groups and rows * columns <= KEPT_VALUES


def _hit(relation: Relation, footer: Footer, wanted: list[_Wanted]) -> np.ndarray:
    """Say of each row group whether it can hold a key: by all columns together where that is not too many comparisons."""
    count = footer.metadata.num_row_groups
    hit = np.ones(count, dtype=bool)
    boxed: np.ndarray | None = None
    for part in wanted:
        ranges = footers.ranges(relation, footer, part.name)
        if ranges is None or part.ordered is None or part.each is None:
            continue
        begin = np.searchsorted(part.ordered, ranges.low, "left")
        end = np.searchsorted(part.ordered, ranges.high, "right")
        loose = ranges.open | (ranges.nulls & part.null)
        hit &= (begin < end) | loose
        if len(wanted) > 1 and not part.null and len(part.each) * count <= PAIRS and part.each.dtype != object:
            low, high = ranges.low[:, None], ranges.high[:, None]
            inside = ((part.each >= low) & (part.each <= high)) | loose[:, None]
            boxed = inside if boxed is None else boxed & inside
    return hit if boxed is None else hit & boxed.any(axis=1)


def _cast_keys(relation: Relation, schema: pa.Schema, keys: pa.Table) -> pa.Table:
    for name in keys.column_names:
        if name not in schema.names or name == WEIGHT:
            raise Terminal(
                "RUNNEL-COLUMN-UNKNOWN", f"{relation.name} stores no column {name!r}", hint=nearest(name, schema.names)
            )
    try:
        return keys.cast(pa.schema([pa.field(name, schema.field(name).type) for name in keys.column_names]))
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise Terminal("RUNNEL-KEY-TYPE", f"the keys do not have the types of {relation.name}: {error}") from error


def _wanted(relation: Relation, name: str, values: pa.ChunkedArray) -> _Wanted:
    type_ = next(c.type for c in relation.columns if c.name == name)
    whole = arrow.plain_floats(values.combine_chunks())
    unique = whole.unique() if not pa.types.is_nested(values.type) else whole
    ordered = each = None
    if footers.ordered(type_):
        ordered = np.sort(_array(unique.drop_null()))
        each = _array(whole) if whole.null_count == 0 else None
    return _Wanted(name, unique, ordered, each, null=unique.null_count > 0)


def _array(values: pa.Array) -> np.ndarray:
    return (
        np.asarray(values.to_numpy(zero_copy_only=False))
        if pa.types.is_integer(values.type)
        else footers.values(values.to_pylist())
    )


_memory: Kept[pa.Table] = Kept(KEPT_BYTES)


def remember(path: str, table: pa.Table, part: str = "") -> None:
    """Keep a small file's rows in memory, within a bound: the newest changes are what is asked for next."""
    _memory.put(path, table, table.get_total_buffer_size() + TABLE_BYTES, part)


def forget() -> None:
    """Let go of everything kept in memory."""
    _memory.clear()


def whole(relation: Relation, file: DataFile | NewFile) -> pa.Table:
    """Give all rows of a small file, from memory where it was read before."""
    known = _memory.get(file.path)
    if known is not None:
        return known
    table = files.read(relation, [file])
    remember(file.path, table)
    return table


def _columns(relation: Relation, file: DataFile | NewFile, schema: pa.Schema) -> pa.Table:
    """Give whole columns of a file, from memory where they were read before."""
    kept = {name: _memory.get(file.path, f"column {name}") for name in schema.names}
    known = {name: table for name, table in kept.items() if table is not None}
    missing = [name for name in schema.names if name not in known]
    if missing:
        read = files.read(relation, [file], missing)
        for name in missing:
            known[name] = read.select([name])
            remember(file.path, known[name], f"column {name}")
    return pa.table([known[name][name] for name in schema.names], schema=schema)


def _with_rows(
    relation: Relation, file: DataFile | NewFile, footer: Footer, schema: pa.Schema, wanted: list[_Wanted]
) -> list[int]:
    """Find the row groups that do have rows of the keys, by whole columns that stay in memory."""
    names = [part.name for part in wanted]
    columns = _columns(relation, file, pa.schema([field for field in schema if field.name in names]))
    places = _places(columns, wanted)
    if places is None:
        mask = _mask(columns, wanted)
        if mask is None:
            return list(range(footer.metadata.num_row_groups))
        places = pc.indices_nonzero(mask)
    groups = np.searchsorted(np.cumsum(footer.rows), places.to_numpy(zero_copy_only=False), "right")
    return [int(group) for group in np.unique(groups)]


def _of_file(
    relation: Relation,
    file: DataFile | NewFile,
    footer: Footer | None,
    groups: list[int],
    schema: pa.Schema,
    *,
    kept: bool,
) -> Iterator[pa.Table]:
    if footer is None:
        yield whole(relation, file).select(schema.names)
    elif kept:
        yield _columns(relation, file, schema)
    else:
        for at in range(0, len(groups), GROUPS_AT_ONCE):
            part = groups[at : at + GROUPS_AT_ONCE]
            yield files.read_groups(relation, file, footer.metadata, part, schema)


def _matching(table: pa.Table, wanted: list[_Wanted]) -> pa.Table:
    places = _places(table, wanted)
    if places is not None:
        return table.take(places)
    mask = _mask(table, wanted)
    return table if mask is None else table.filter(mask)


def _places(table: pa.Table, wanted: list[_Wanted]) -> pa.Array | None:
    """Find rows by bisection, where the one column they are looked up by is whole numbers in order; else None.

    A few keys in millions of rows are found at once, where a comparison of all rows takes longer than to read them.
    """
    if len(wanted) != 1 or wanted[0].ordered is None or wanted[0].null:
        return None
    keys, column = wanted[0].ordered, table[wanted[0].name]
    if column.null_count or not pa.types.is_integer(column.type):
        return None
    values = column.to_numpy()
    if not bool((values[1:] >= values[:-1]).all()):
        return None
    begin, end = np.searchsorted(values, keys, "left"), np.searchsorted(values, keys, "right")
    counts = end - begin
    first = np.repeat(begin - np.concatenate(([0], np.cumsum(counts)[:-1])), counts) if len(keys) else begin
    return pa.array(first + np.arange(counts.sum()), pa.int64())


def _mask(table: pa.Table, wanted: list[_Wanted]) -> pa.ChunkedArray | None:
    """Mark the rows where each column by itself has one of its values; None = all rows may have."""
    mask = None
    for part in wanted:
        if pa.types.is_nested(part.values.type):
            continue
        # Of -0.0 and 0.0, and of two NaN, Arrow says that one is not in the other.
        column = arrow.plain_floats(table[part.name].cast(part.values.type))
        one = pc.is_in(column, value_set=part.values)
        mask = one if mask is None else pc.and_(mask, one)
    return mask


def _exact(rows: pa.Table, keys: pa.Table) -> pa.Table:
    asked = {tuple(map(hashable, row.values())) for row in keys.to_pylist()}
    have = rows.select(keys.column_names).to_pylist()
    return rows.filter(pa.array([tuple(map(hashable, row.values())) in asked for row in have], pa.bool_()))


def hashable(value: Any) -> Any:
    """Give a value that is equal for equal values of SQL: nested ones by content, NaN like NaN."""
    if isinstance(value, dict):
        return tuple((name, hashable(inner)) for name, inner in value.items())
    if isinstance(value, (list, tuple)):
        return tuple(hashable(inner) for inner in value)
    if isinstance(value, float) and value != value:
        return "NaN"
    return value
