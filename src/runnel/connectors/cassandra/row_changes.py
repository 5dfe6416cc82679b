"""From changed partitions to changed rows: which rows a window may have touched, and what they are before and after it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from runnel.connectors.base import DELETE, OP, UPSERT, ChangeSet
from runnel.connectors.cassandra import cells
from runnel.connectors.cassandra.live_rows import NEVER, deleted_until, row_deleted_until
from runnel.connectors.cassandra.reconcile import may_outlive, merge
from runnel.connectors.cassandra.single_row import Row, row_at
from runnel.connectors.cassandra.twins import captured_columns
from runnel.errors import Terminal
from runnel.model import types as model
from runnel.model.exact import exact_array

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from runnel.connectors.cassandra.cell_store import CellStore
    from runnel.connectors.cassandra.cells import ChangeTuple, Clustering
    from runnel.connectors.cassandra.reconcile import PartitionState
    from runnel.connectors.cassandra.schema import ColumnSchema, TableSchema

    Exists = Callable[[TableSchema, bytes, Clustering], bool]


class Touched:
    """The rows of one partition that a window may have changed, as they were before it."""

    def __init__(self, table: TableSchema, was: int) -> None:
        """Begin without a row; `was` is the second at which the window begins."""
        self._table, self._was = table, was
        self._rows: dict[Clustering, Row | None] = {}
        self._all = False

    def by(self, state: PartitionState, added: list[ChangeTuple]) -> None:
        """Note the rows that changes speak of: all of them where these are coarse or of static columns."""
        if any(change[3] is None for change in added):
            self.all_rows(state)
        for change in added:
            if change[3] is not None:
                self._note(state, change[3])

    def all_rows(self, state: PartitionState) -> None:
        """Note every row."""
        self._all = True
        for clustering in state.rows:
            if clustering is not None:
                self._note(state, clustering)

    def born(self) -> None:
        """Note that the partition may have rows that it did not have before."""
        self._all = True

    def _note(self, state: PartitionState, clustering: Clustering) -> None:
        if clustering not in self._rows:
            self._rows[clustering] = row_at(state, self._table, clustering, self._was)

    def compare(self, state: PartitionState, now: int, batch: Batch, exists: Exists) -> bool:
        """Hand over the rows that are different now; say whether something new became known of the partition.

        A snapshot does not tell whether a row stays without values. When one loses its last, `exists` is asked.
        """
        learned, table = False, batch.table
        known = dict(self._rows)
        if self._all:
            born: dict[Clustering, Row | None] = {place: None for place in state.rows if place is not None}
            known = born | known
        for clustering, old in known.items():
            new = row_at(state, table, clustering, now)
            vague = new is None and old is not None and _may_stay(state, table, clustering)
            if vague and exists(table, state.key, clustering):
                survived = _deleted(state, table, clustering) + 1
                live = (cells.LIVENESS, table, state.key, clustering, None, None, None, survived, 0, now)
                new = row_at(merge(state, [live]), table, clustering, now)
                learned = True
            if new is None and old is not None:
                batch.deletes.append(old)
            elif new is not None and new != old:
                batch.upserts.append(new)
        return learned


class Window:
    """The partitions that a window of the log may have changed, from a second to another."""

    def __init__(self, store: CellStore, was: int, now: int) -> None:
        """Begin without a partition."""
        self.now = now
        self.touched: dict[tuple[str, bytes], Touched] = {}
        self._store, self._was = store, was

    def touch(self, table: TableSchema, key: bytes) -> Touched:
        """Give what is noted of a partition."""
        return self.touched.setdefault((table.name, key), Touched(table, self._was))

    def all_of(self, table: TableSchema) -> None:
        """Note every row of a table."""
        for key in self._store.keys(table):
            self.touch(table, key).all_rows(self._store.get(table, key))

    def expire(self, names: set[str]) -> None:
        """Note the partitions of tables in which something expires."""
        for table, key, state in self._store.expiring(self.now):
            if table.name in names:
                self.touch(table, key).all_rows(state)
                self._store.see(table, key, self.now)


def _may_stay(state: PartitionState, table: TableSchema, clustering: Clustering) -> bool:
    """Say whether a row that has no values any more may still be there.

    Nothing is known of its insertion or deletion, or it was deleted with a date before the second at which it was seen.
    """
    row = state.rows.get(clustering)
    if row is None:
        return False
    deleted = _deleted(state, table, clustering)
    if row.liveness is None:
        return deleted == NEVER
    return may_outlive(row, deleted)


def _deleted(state: PartitionState, table: TableSchema, clustering: Clustering) -> int:
    return max(deleted_until(state, table, clustering), row_deleted_until(state.rows[clustering]))


class Batch:
    """Rows of one table on their way."""

    def __init__(self, table: TableSchema, columns: tuple[ColumnSchema, ...] | None = None) -> None:
        """Begin without a row; `columns` are those that are wanted of the table, all unless they are named."""
        self.table = table
        self.upserts: list[Row] = []
        self.deletes: list[Row] = []
        self._columns = columns or row_columns(table)
        self._keys = {column.name for column in (*table.partition_key, *table.clustering)}

    def taken(self) -> ChangeSet:
        """Give the rows and begin anew."""
        upserts = [row for row in self.upserts if all(row[name] is not None for name in self._keys)]
        deletes = [row for row in self.deletes if all(row[name] is not None for name in self._keys)]
        fields = [pa.field(column.name, model.to_arrow(column.type.model_type)) for column in self._columns]
        arrays = []
        for column, field in zip(self._columns, fields, strict=True):
            values = [row[column.name] for row in upserts]
            values += [row[column.name] if column.name in self._keys else None for row in deletes]
            arrays.append(self._array(column, values, field.type))
        arrays.append(pa.array([UPSERT] * len(upserts) + [DELETE] * len(deletes), pa.string()))
        self.upserts, self.deletes = [], []
        keyed = pa.Table.from_arrays(arrays, schema=pa.schema([*fields, pa.field(OP, pa.string())]))
        return ChangeSet(self.table.name, keyed=keyed, place=f"{self.table.keyspace}.{self.table.name}")

    def _array(self, column: ColumnSchema, values: list[Any], type_: pa.DataType) -> pa.Array:
        try:
            return exact_array(values, type_)
        except (pa.ArrowException, OverflowError, ValueError) as error:
            raise Terminal(
                "RUNNEL-CASSANDRA-VALUE",
                f"{self.table.keyspace}.{self.table.name}: a value of {column.name} does not fit {column.type.model_type}: {error}",
                hint="decimals are kept with up to 20 digits before and 18 after the point",
            ) from error


def row_columns(table: TableSchema) -> tuple[ColumnSchema, ...]:
    """Give the columns of a table's rows: its key, then static and other columns by name."""
    keys = (*table.partition_key, *table.clustering)
    return (*keys, *sorted(captured_columns(table), key=lambda column: (column.kind != "static", column.name)))


def by_partition(changes: list[ChangeTuple]) -> Iterator[tuple[TableSchema, bytes, list[ChangeTuple]]]:
    """Cut a mutation into the changes of one partition each; a TRUNCATE stands alone."""
    found: dict[tuple[int, bytes, bool], list[ChangeTuple]] = {}
    for change in changes:
        found.setdefault((id(change[1]), change[2], change[0] == cells.TRUNCATE), []).append(change)
    for (_, key, _), added in found.items():
        yield added[0][1], key, added
