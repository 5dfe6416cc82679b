"""What a Cassandra log says: one `Change` per cell that was set or deleted, and per deletion of something larger.

Changes are plain tuples, because millions of them are made; `Change(*change)` gives one with names. Keys, values and
paths are the server's own bytes: equal writes are equal tuples, and ties are broken by bytes as the server does it. The
table in a change decodes them: `table.key_values(key)`, `table.clustering_values(clustering)`,
`table.cell_values(column, path, value)`.

| kind | clustering | column | path | value | timestamp | ttl | ldt |
|---|---|---|---|---|---|---|---|
| `SET` | of the row | name | element or None | bytes | of the cell | seconds or 0 | expiry or 0 |
| `CELL_DELETE` | of the row | name | element or None | None | of the deletion | 0 | when it was deleted |
| `COMPLEX_DELETE` | of the row | name | None | None | all elements up to it | 0 | when it was deleted |
| `COUNTER` | of the row | name | None | shards | of the cell | 0 | 0 |
| `LIVENESS` | of the row | None | None | None | of the INSERT | seconds or 0 | expiry or 0 |
| `ROW_DELETE` | of the row | None | None | None | all cells up to it | 0 | when it was deleted |
| `SHADOWABLE_DELETE` | of the row | None | None | None | as `ROW_DELETE`, of a server's view | 0 | when it was deleted |
| `RANGE_DELETE` | None | None | None | `Range` | all rows between, up to it | 0 | when it was deleted |
| `PARTITION_DELETE` | None | None | None | None | all of the partition up to it | 0 | when it was deleted |
| `TRUNCATE` | None | None | None | `Truncation` | when, in µs | 0 | 0 |
| `COLUMN_DROP` | None | name | None | None | all cells of the column up to it | 0 | 0 |

Timestamps are microseconds, `ttl` seconds, `ldt` (local deletion time) seconds since 1970. The clustering of the static row
is None; that of a table without clustering columns is `()`. A `TRUNCATE` and a `COLUMN_DROP` have the key b"".
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from runnel.connectors.cassandra.schema.tables import TableSchema

SET = 0
CELL_DELETE = 1
COMPLEX_DELETE = 2
COUNTER = 3
LIVENESS = 4
ROW_DELETE = 5
SHADOWABLE_DELETE = 6
RANGE_DELETE = 7
PARTITION_DELETE = 8
TRUNCATE = 9
COLUMN_DROP = 10

KIND_NAMES = (
    "set",
    "cell-delete",
    "complex-delete",
    "counter",
    "liveness",
    "row-delete",
    "shadowable-delete",
    "range-delete",
    "partition-delete",
    "truncate",
    "column-drop",
)

Clustering = tuple[bytes | None, ...]
ChangeTuple = tuple[int, "TableSchema", bytes, "Clustering | None", "str | None", "bytes | None", Any, int, int, int]
"""The form in which changes travel; the fields are those of `Change`."""


class Change(NamedTuple):
    """A change with names, for code that is not in a hurry."""

    kind: int
    table: TableSchema
    key: bytes
    clustering: Clustering | None
    column: str | None
    path: bytes | None
    value: Any
    timestamp: int
    ttl: int
    ldt: int


class Range(NamedTuple):
    """Rows between two bounds in the table's own order; a bound may have fewer values than there are clustering columns.

    A bound of no values is open: it takes in everything on its side.
    """

    start: Clustering
    start_inclusive: bool
    end: Clustering
    end_inclusive: bool


class Truncation(NamedTuple):
    """What a TRUNCATE took: everything its host had logged up to this position."""

    segment: int
    position: int


class Mutation(NamedTuple):
    """One record of a log: the changes made together, and the position after them."""

    segment: int
    position: int
    changes: list[ChangeTuple]
