"""Arrow tables by the position of their columns: a column may have any name.

Arrow takes a name that begins with '.' or '[' for a path into another column, and Parquet joins the names of nested fields with
dots. So nothing groups, sorts or joins by a user's names: columns are numbered first and get their names back afterwards.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from collections.abc import Sequence


ONE_THREAD = 20_000
"""Rows up to which grouping by one thread is quicker than handing them to several: 1 ms against 16 on a busy machine."""


def group(keys: Sequence[Any], sums: Sequence[tuple[Any, str]]) -> tuple[list[Any], list[Any]]:
    """Group rows by columns: give the keys of each group, and what a function of Arrow makes of each of the other columns."""
    names = [f"k{at}" for at in range(len(keys))]
    summed = [f"s{at}" for at in range(len(sums))]
    table = pa.Table.from_arrays([*keys, *(column for column, _ in sums)], names=[*names, *summed])
    asked = [(name, function) for name, (_, function) in zip(summed, sums, strict=True)]
    found = table.group_by(names, use_threads=table.num_rows > ONE_THREAD).aggregate(asked)
    return [found[name] for name in names], [found[f"{name}_{function}"] for name, function in asked]


def grouped(table: pa.Table, by: Sequence[str], *sums: tuple[str, str]) -> tuple[pa.Table, list[Any]]:
    """Group a table's rows: give the keys of each group under their names, and one column for each aggregate.

    >>> keys, (total,) = grouped(pa.table({"a": [1, 1], ".a": [1, 2], "n": [5, 6]}), ["a", ".a"], ("n", "sum"))
    >>> keys.to_pylist(), total.to_pylist()
    ([{'a': 1, '.a': 1}, {'a': 1, '.a': 2}], [5, 6])
    """
    keys, found = group([table[name] for name in by], [(table[name], function) for name, function in sums])
    return pa.Table.from_arrays(keys, names=list(by)), found


def in_order(table: pa.Table, names: Sequence[str]) -> pa.Table:
    """Sort rows by columns, ascending.

    >>> in_order(pa.table({".a": [2, 1]}), [".a"])[".a"].to_pylist()
    [1, 2]
    """
    keys = pa.Table.from_arrays([table[name] for name in names], names=[f"c{at}" for at in range(len(names))])
    return table.take(pc.sort_indices(keys, sort_keys=[(name, "ascending") for name in keys.column_names]))


def plain_floats(values: Any) -> Any:
    """Give values that are equal in every bit where SQL finds them equal: one NaN, and 0.0 for -0.0. Others than floats stay.

    >>> plain_floats(pa.array([-0.0, 1.5])).to_pylist()
    [0.0, 1.5]
    """
    if not pa.types.is_floating(values.type):
        return values
    nan, zero = pa.scalar(float("nan"), values.type), pa.scalar(0.0, values.type)
    return pc.if_else(pc.is_nan(values), nan, pc.add(values, zero))


def places_among(table: pa.Table, wanted: pa.Table, keys: Sequence[str]) -> pa.Array:
    """Give the positions of those rows of a table whose keys are among the wanted ones, in order."""
    names = [f"c{at}" for at in range(len(keys))]
    left = pa.Table.from_arrays(
        [*(plain_floats(table[name]) for name in keys), pa.array(range(len(table)), pa.int64())], [*names, "row"]
    )
    right = pa.Table.from_arrays([plain_floats(wanted[name]) for name in keys], names)
    return left.join(right, keys=names, join_type="left semi").column("row").combine_chunks().sort()


def contiguous(table: pa.Table) -> pa.Table:
    """Give the same rows without empty chunks, and without nested columns that are a part of a longer one.

    Spark's `createDataFrame` stops at the first empty chunk and loses the rows after it; parts of nested columns with NULLs it
    refuses.
    """
    columns = [
        pa.chunked_array([_own(chunk) for chunk in column.chunks if len(chunk)], column.type)
        for column in table.combine_chunks().columns
    ]
    ready = pa.Table.from_arrays(columns, schema=table.schema) if columns else table
    assert ready.num_rows == table.num_rows, (ready.num_rows, table.num_rows)
    return ready


def _own(chunk: pa.Array) -> pa.Array:
    return chunk.take(pa.array(range(len(chunk)))) if chunk.offset and pa.types.is_nested(chunk.type) else chunk
