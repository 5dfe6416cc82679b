"""From changed partitions to changed rows: which rows a window may have touched, and what they are before and after it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from runnel.connectors.base import AT, BEFORE, CHANGE, DELETE, SEQUENCE, UPSERT
from runnel.connectors.cassandra import cells
from runnel.connectors.cassandra.cells.live_rows import NEVER, deleted_until, row_deleted_until
from runnel.connectors.cassandra.cells.reconcile import EXPIRING, may_outlive, merge
from runnel.connectors.cassandra.cells.single_row import Row, row_at
from runnel.connectors.cassandra.schema.twins import captured_columns
from runnel.connectors.cassandra.values.held import NotHeld, held_array
from runnel.errors import Terminal
from runnel.model.relation import WEIGHT

if TYPE_CHECKING:
    from collections.abc import Callable

    from runnel.connectors.cassandra.cells import ChangeTuple, Clustering
    from runnel.connectors.cassandra.cells.reconcile import PartitionState
    from runnel.connectors.cassandra.schema.tables import ColumnSchema, TableSchema

    Exists = Callable[[TableSchema, bytes, Clustering], bool]


class Touched:
    """The rows of one partition that a window may have changed, as they were before it."""

    def __init__(self, table: TableSchema, was: int) -> None:
        """Begin without a row; `was` is the second at which the window begins."""
        self._table, self._was = table, was
        self._rows: dict[Clustering, Row | None] = {}
        self._all = False
        self._versions: dict[Clustering, list[tuple[int, Row | None]]] = {}
        self._times: dict[Clustering, int] = {}
        """When a row was last changed, as far as that is not among its versions yet."""

    def by(self, state: PartitionState, added: list[ChangeTuple]) -> None:
        """Note the rows that changes speak of before they are merged: all rows where these are coarse or of static columns."""
        coarse = [change[7] for change in added if change[3] is None]
        times: dict[Clustering, int] = {}
        for change in added:
            if change[3] is not None:
                times[change[3]] = max(change[7], times.get(change[3], change[7]))
        if coarse:
            self.all_rows(state)
            times |= {place: max(coarse[0], times.get(place, coarse[0])) for place in self._rows}
        for clustering in [place for place in times if place in self._times]:
            self._version(clustering, row_at(state, self._table, clustering, self._was))
        for clustering in times:
            self._note(state, clustering)
        self._times |= times

    def _version(self, clustering: Clustering, row: Row | None) -> None:
        """Note what a row has become by its last change, if it has become something else."""
        known = self._versions.get(clustering, ())
        if row != (known[-1][1] if known else self._rows.get(clustering)):
            self._versions.setdefault(clustering, []).append((self._times[clustering], row))

    def all_rows(self, state: PartitionState, at: int | None = None) -> None:
        """Note every row, before something happens to all of them at a time (µs), if it is known."""
        self._all = True
        for clustering in state.rows:
            if clustering is not None:
                self._note(state, clustering)
        if at is not None:
            for clustering in list(self._times):
                self._version(clustering, row_at(state, self._table, clustering, self._was))
            self._times |= dict.fromkeys(self._rows, at)

    def expire(self, state: PartitionState, now: int) -> None:
        """Note the rows in which something expires up to a second, or all of them where it is a static column."""
        for clustering in list(state.rows):
            if any(self._was < second <= now for second in _expirations(state, clustering)):
                self.all_rows(state) if clustering is None else self._note(state, clustering)

    def row(self, state: PartitionState, clustering: Clustering) -> None:
        """Note one row, before something happens to it."""
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
            self._tell(state, clustering, (old, new), now, batch)
            if new is None or _differs(old, new):
                batch.change(old, new)
        return learned

    def _tell(
        self, state: PartitionState, clustering: Clustering, rows: tuple[Row | None, Row | None], now: int, batch: Batch
    ) -> None:
        """Hand over the versions of a row: what it was, what each change made of it, and what expired in the end."""
        old, new = rows
        if clustering in self._times:
            lasts = not _expirations(state, clustering)
            self._version(clustering, new if lasts else row_at(state, batch.table, clustering, self._was))
        told = self._versions.get(clustering, [])
        last = told[-1][1] if told else old
        if new != last and (new is None or last is None or _differs(last, new)):
            told = [*told, (_expired_at(state, clustering, now), new)]
        if told:
            batch.version(old, told)


def _expired_at(state: PartitionState, clustering: Clustering, now: int) -> int:
    """Give when something of a row expired last, in microseconds; `now` where that is not known."""
    expired = [second for second in _expirations(state, clustering) if second <= now]
    return max(expired, default=now) * 1_000_000


def _expirations(state: PartitionState, clustering: Clustering | None) -> list[int]:
    """Give the seconds at which something of a row expires, or has expired."""
    row = state.rows.get(clustering)
    if row is None:
        return []
    found = [version[2] for version in row.cells.values() if version[1] == EXPIRING]
    return found + ([row.liveness[2]] if row.liveness is not None and row.liveness[1] == EXPIRING else [])


def _differs(old: Row | None, new: Row) -> bool:
    """Compare a row with what it was; a column that came or went since counts where it has, or had, a value."""
    if old is None or old.keys() == new.keys():
        return old != new
    return any(old.get(name) != new.get(name) for name in (*old, *new))


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
    """Rows of one table on their way: signed, as they were before and as they are now."""

    def __init__(
        self, table: TableSchema, columns: tuple[ColumnSchema, ...], before: tuple[ColumnSchema, ...], policy: str
    ) -> None:
        """Begin without a row; `columns` are those that are followed now, `before` those that old rows have.

        `policy` says what becomes of values that cannot be held (see `held`).
        """
        self.table = table
        self._policy = policy
        self._went: list[Row] = []
        self._came: list[Row] = []
        self._versions: list[tuple[str, int, Row]] = []
        named = {column.name for column in columns}
        self._columns = columns
        self._all = (*columns, *(column for column in before if column.name not in named))
        self._keys = {column.name for column in (*table.partition_key, *table.clustering)}

    def change(self, old: Row | None, new: Row | None) -> None:
        """Add a row that is another one now, or came, or went."""
        if old is not None:
            self._went.append(old)
        if new is not None:
            self._came.append(new)

    def version(self, old: Row | None, versions: list[tuple[int, Row | None]]) -> None:
        """Add the versions of a row; `old` is what it was before them."""
        last = old
        if old is not None:
            self._versions.append((BEFORE, 0, old))
        for at, row in versions:
            known = row if row is not None else last
            if known is not None:
                self._versions.append((UPSERT if row is not None else DELETE, at, known))
            last = row

    def versions(self) -> pa.Table:
        """Give the versions of rows, in order."""
        rows = [row for _, _, row in self._versions]
        arrays = [self._array(c, rows, self._lenient) for c in self._columns]
        arrays.append(pa.array(range(len(rows)), pa.int64()))
        arrays.append(pa.array([kind for kind, _, _ in self._versions], pa.string()))
        arrays.append(pa.array([at for _, at, _ in self._versions], pa.int64()))
        return pa.Table.from_arrays(arrays, names=[*(c.name for c in self._columns), SEQUENCE, CHANGE, AT])

    def signed(self) -> pa.Table:
        """Give the rows with `_weight`: a column that came or went since is NULL where a row does not have it."""
        sides = ((self._came, 1, self._policy), (self._went, -1, self._lenient))
        return pa.concat_tables([self._side(*side) for side in sides])

    @property
    def _lenient(self) -> str:
        """What becomes of values that cannot be held in rows that were there before: they are no reason to stop."""
        return "null" if self._policy == "error" else self._policy

    def _side(self, rows: list[Row], weight: int, policy: str) -> pa.Table:
        arrays = [self._array(column, rows, policy) for column in self._all]
        arrays.append(pa.repeat(pa.scalar(weight, pa.int64()), len(rows)))
        return pa.Table.from_arrays(arrays, names=[*(column.name for column in self._all), WEIGHT])

    def _array(self, column: ColumnSchema, rows: list[Row], policy: str) -> pa.Array:
        values = [row.get(column.name) for row in rows]  # a dropped column is not among them any more
        try:
            return held_array(column.type, policy, values, key=column.name in self._keys)
        except NotHeld as error:
            table = self.table
            key = {part.name: rows[error.at][part.name] for part in (*table.partition_key, *table.clustering)}
            raise ValueNotHeld(table, column.name, key, str(error)) from error


class ValueNotHeld(Terminal):
    """A value that the state cannot hold, with the table, the column and the key where it is."""

    def __init__(self, table: TableSchema, column: str, key: Row, why: str, where: str = "") -> None:
        """Say what is where; `where` is the position in the log, if it is known."""
        shown = ", ".join(f"{name} = {value}" for name, value in key.items())
        super().__init__(
            "RUNNEL-CASSANDRA-VALUE",
            f"{table.keyspace}.{table.name}: in the column {column} of the row {shown}, {why}{where}",
            hint=NOT_HELD_HINT,
        )
        self.table, self.column, self.key, self.why = table, column, key, why

    def is_in(self, change: ChangeTuple) -> bool:
        """Say whether a change has written the value."""
        table, clustering = change[1], change[3]
        if change[0] != cells.SET or table.name != self.table.name:
            return False
        values = (*table.key_values(change[2]), *table.clustering_values(clustering or ()))
        in_key = self.column in self.key
        return (in_key or change[4] == self.column) and values == tuple(self.key.values())[: len(values)]


NOT_HELD_HINT = "set unrepresentable = 'null' or 'text' for the source, or change the value in the store"


def row_columns(table: TableSchema) -> tuple[ColumnSchema, ...]:
    """Give the columns of a table's rows: its key, then static and other columns by name."""
    keys = (*table.partition_key, *table.clustering)
    return (*keys, *sorted(captured_columns(table), key=lambda column: (column.kind != "static", column.name)))
