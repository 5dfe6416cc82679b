"""Keyed work: a Python function from what is stored and what changed for some keys to the signed rows that follow from it.

The function is given whole keys: all rows, on both sides, whose column `by` has the same number, which is a hash of 32 bits. How many
keys it is given at once is up to the place where it runs: all of them in the driver, a range of hashes in each task of an engine.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from runnel.engine.tasks import TaskFailed, packed
from runnel.errors import RunnelError
from runnel.lake import files
from runnel.lake.compaction import fold

if TYPE_CHECKING:
    from runnel.model.relation import Column, Relation

Reconcile = Callable[[pa.Table, pa.Table], Mapping[str, pa.Table]]
"""From stored rows (netted, with `_weight`) and changes to signed rows, by the name of an output."""

BUCKET = "~bucket"
BUCKET_ROWS = 200_000
"""Rows of stored and changed rows together that one call of the function is given by an engine: some 100 MB of Python objects."""
WRITTEN = "`output` STRING, `path` STRING, `rows` BIGINT"
_HALF = 1 << 31


@dataclass(frozen=True)
class Keyed:
    """A function, the column that both sides are grouped by, the columns of both, and where each of its outputs is written.

    `outputs` has a relation and a folder for each name that the function gives rows for. It is picklable if the function is.
    """

    function: Reconcile
    by: str
    stored: Relation
    changed: tuple[Column, ...]
    outputs: Mapping[str, tuple[Relation, str]]

    def write(self, stored: pa.Table, changed: pa.Table) -> Iterator[tuple[str, str, int]]:
        """Call the function and write what it gives; give the output, the path and the rows of each file."""
        made = self.function(fold(self.stored, stored), changed)
        for name, rows in made.items():
            if rows.num_rows:
                relation, folder = self.outputs[name]
                path = f"{folder.rstrip('/')}/{uuid.uuid4().hex}.parquet"
                yield name, path, files.write(relation, path, rows).rows


def buckets_of(rows: int, least: int = 1) -> int:
    """Say into how many ranges of hashes the keys of so many rows are cut."""
    return max(least, 1, -(-rows // BUCKET_ROWS))


def bucket_sql(by: str, buckets: int) -> str:
    """Write the number of the range that a hash is in."""
    return f"CAST(shiftright((CAST({by} AS BIGINT) + {_HALF}) * {buckets}, 32) AS INT)"


def split(work: Keyed, sides: tuple[pa.Table, pa.Table], buckets: int) -> Iterator[tuple[pa.Table, pa.Table]]:
    """Cut both sides at the same hashes, as `bucket_sql` does; give the pieces side by side."""
    if buckets == 1:
        yield sides
        return
    numbers = [(side[work.by].to_numpy().astype(np.int64) + _HALF) * buckets >> 32 for side in sides]
    for number in np.unique(np.concatenate(numbers)):
        stored, changed = (side.filter(pa.array(at == number)) for side, at in zip(sides, numbers, strict=True))
        yield stored, changed


def task(work: Keyed) -> Callable[[pa.Table, pa.Table], pa.Table]:
    """Give the function that Spark runs over the two sides of each range of hashes."""

    def run(stored: pa.Table, changed: pa.Table) -> pa.Table:
        try:
            written = list(work.write(_without_bucket(stored), _without_bucket(changed)))
        except RunnelError as error:
            raise TaskFailed(packed(error)) from error
        names, paths, rows = zip(*written, strict=True) if written else ((), (), ())
        return pa.table(
            {
                "output": pa.array(names, pa.string()),
                "path": pa.array(paths, pa.string()),
                "rows": pa.array(rows, pa.int64()),
            }
        )

    return run


def _without_bucket(rows: pa.Table) -> pa.Table:
    return rows.drop_columns([BUCKET]) if BUCKET in rows.column_names else rows
