"""Point look-ups: the signed rows of a few keys, reading only the files and row groups that can hold them."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from runnel.errors import Terminal, nearest
from runnel.lake import encoding, files
from runnel.model.relation import WEIGHT

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow.parquet as pq

    from runnel.lake.entries import ColumnStats, DataFile, NewFile
    from runnel.model.relation import Relation


@dataclass(frozen=True)
class _Wanted:
    """The values one key column is looked up by; `ordered` is None where they have no order to prune by."""

    name: str
    values: pa.Array
    ordered: list[Any] | None
    null: bool

    def may_be_in(self, stats: ColumnStats | None) -> bool:
        if stats is None or self.ordered is None or stats.nan:
            return True
        if self.null and stats.nulls:
            return True
        if stats.minimum is None or stats.maximum is None:
            return True
        at = bisect_left(self.ordered, stats.minimum)
        return at < len(self.ordered) and bool(self.ordered[at] <= stats.maximum)


def find(relation: Relation, candidates: Sequence[DataFile | NewFile], keys: pa.Table) -> pa.Table:
    """Give the stored rows (not netted) whose columns equal a row of `keys`; NULL equals NULL."""
    schema = encoding.arrow_schema(relation)
    keys = _cast_keys(relation, schema, keys)
    wanted = [_wanted(relation, name, keys[name]) for name in keys.column_names]
    found = [schema.empty_table()]
    if keys.num_rows:
        for file in candidates:
            if all(part.may_be_in(file.stats.get(part.name)) for part in wanted):
                found.extend(_in_file(relation, file, schema, wanted))
    rows = pa.concat_tables(found)
    # One flat column was matched exactly; of several, each was matched by itself.
    matched = len(wanted) == 1 and not pa.types.is_nested(wanted[0].values.type)
    return rows if matched or not rows.num_rows else _exact(rows, keys)


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
    unique = values.combine_chunks().unique() if not pa.types.is_nested(values.type) else values.combine_chunks()
    listed = [value for value in unique.to_pylist() if value is not None] if encoding.has_statistics(type_) else None
    # NaN has no place in an order.
    ordered = None if listed is None or any(value != value for value in listed) else sorted(listed)
    return _Wanted(name, unique, ordered, null=unique.null_count > 0)


def _in_file(relation: Relation, file: DataFile | NewFile, schema: pa.Schema, wanted: list[_Wanted]) -> list[pa.Table]:
    parquet = files.open_file(relation.name, file.path, file.bytes)
    found = []
    try:
        for group in _row_groups(relation, parquet.metadata, wanted):
            mask = _mask(parquet.read_row_group(group, columns=[part.name for part in wanted]), wanted)
            if mask is None or pc.any(mask).as_py():
                table = parquet.read_row_group(group, columns=schema.names)
                found.append(files.cast(table if mask is None else table.filter(mask), schema))
    except (OSError, pa.ArrowException) as error:
        raise files.broken(relation.name, file.path, error) from error
    return found


def _row_groups(relation: Relation, footer: pq.FileMetaData, wanted: list[_Wanted]) -> list[int]:
    if footer.num_row_groups == 1:
        return [0]
    return [
        group
        for group in range(footer.num_row_groups)
        if _may_be_in_group(files.group_statistics(relation, footer, group), wanted)
    ]


def _may_be_in_group(stats: dict[str, ColumnStats], wanted: list[_Wanted]) -> bool:
    return all(part.may_be_in(stats.get(part.name)) for part in wanted)


def _mask(table: pa.Table, wanted: list[_Wanted]) -> pa.ChunkedArray | None:
    """Mark the rows where each column by itself has one of its values; None = all rows may have."""
    mask = None
    for part in wanted:
        if pa.types.is_nested(part.values.type):
            continue
        one = pc.is_in(table[part.name].cast(part.values.type), value_set=part.values)
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
