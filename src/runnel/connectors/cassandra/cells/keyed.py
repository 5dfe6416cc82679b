"""From the stored cells of some partitions, and what changed of them, to signed cells and signed rows.

`Reconcile` is the function; it is the same in the driver and in Spark's tasks. Apart from the server, which it asks for what the log
cannot tell, it depends on nothing but what it is given: whole rows, or whole partitions where a change is about more than rows.
Cells that come again, from another replica or because a range is read twice, change nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING

import pyarrow as pa

from runnel.connectors.cassandra import cells
from runnel.connectors.cassandra.cells.expired_rows import gone_rows
from runnel.connectors.cassandra.cells.packed import Cell, change_of, plain_cells, read_cells, signed_cells
from runnel.connectors.cassandra.cells.read_again import merge_exactly
from runnel.connectors.cassandra.cells.reconcile import PartitionState, changes, merge, purge
from runnel.connectors.cassandra.cells.row_changes import Batch, Touched
from runnel.connectors.cassandra.cells.single_row import unproven
from runnel.connectors.cells import CELLS, ORDER, ROWS, VERSIONS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from runnel.connectors.cassandra.cells import ChangeTuple
    from runnel.connectors.cassandra.cells.asking import Server
    from runnel.connectors.cassandra.schema.tables import ColumnSchema, TableSchema


@dataclass(frozen=True)
class Reconcile:
    """How the partitions of one table are reconciled in a window of time.

    `table` and `columns` are as they are now, `before` and `before_columns` as they were at the window's begin. `renewed` says that
    stored cells are of a table that was dropped since, `replaced` that every stored row may look different now. `seeded` changes are
    what the server had when a table was read as a whole; they are a `snapshot` where nothing was known before. `one_log` says that
    a TRUNCATE took everything that was logged before it; where there are several logs it takes what was written up to its time.
    `of_table` are changes about the whole table where these are not among the others.
    """

    table: TableSchema
    columns: tuple[ColumnSchema, ...]
    before: TableSchema
    before_columns: tuple[ColumnSchema, ...]
    was: int
    now: int
    server: Server
    policy: str = "error"
    one_log: bool = True
    renewed: bool = False
    replaced: bool = False
    seeded: bool = False
    snapshot: bool = False
    recheck: bool = False
    of_table: pa.Table | None = None

    def __call__(self, stored: pa.Table, changed: pa.Table) -> dict[str, pa.Table]:
        """Give signed cells, signed rows and versions of rows."""
        run = _Run(self)
        try:
            run.load(stored)
            run.apply(changed if self.of_table is None else pa.concat_tables([self.of_table, changed]))
            run.let_time_pass()
            return run.outcome()
        finally:
            self.server.disconnect()

    def knowing(self, of_table: pa.Table) -> Reconcile:
        """Give the function for whoever sees some partitions only."""
        return replace(self, of_table=of_table)


@dataclass
class _Run:
    """The partitions on their way from one moment to another."""

    how: Reconcile
    states: dict[bytes, PartitionState] = field(default_factory=dict)
    stored: dict[bytes, set[Cell]] = field(default_factory=dict)
    touched: dict[bytes, Touched] = field(default_factory=dict)

    def touch(self, key: bytes) -> Touched:
        found = self.touched.get(key)
        if found is None:
            found = self.touched[key] = Touched(self.how.before, self.how.was)
        return found

    def state(self, key: bytes) -> PartitionState:
        found = self.states.get(key)
        if found is None:
            found = self.states[key] = PartitionState(key)
        return found

    def load(self, stored: pa.Table) -> None:
        """Make up the states of partitions; note all rows where all may look different."""
        for cell in read_cells(stored):
            self.stored.setdefault(cell[1], set()).add(cell)
        for key, known in self.stored.items():
            merge(self.state(key), [change_of(cell, self.how.before) for cell in known])
            if self.how.replaced:
                self.touch(key).all_rows(self.states[key])
            if self.how.renewed:
                self.states[key] = PartitionState(key)

    def apply(self, changed: pa.Table) -> None:
        """Merge changes in their order, mutation by mutation."""
        for key, added in _mutations(changed, self.how.table):
            if key is None:
                self._truncate(added[0][7])
            elif self.how.seeded:
                self.touch(key).born()
                merge(self.state(key), added)
            else:
                state = self.state(key)
                self.touch(key).by(state, added)
                merge_exactly(self.how.table, state, added, self.how.now, self.how.server.connected)

    def _truncate(self, when: int) -> None:
        table = self.how.table
        for key, state in self.states.items():
            self.touch(key).all_rows(state, when)
            if self.how.one_log:
                self.states[key] = PartitionState(key)
            else:
                deleted = (cells.PARTITION_DELETE, table, key, None, None, None, None, when, 0, when // 1_000_000)
                merge(state, [deleted])

    def let_time_pass(self) -> None:
        """Note what expires, and ask whether rows are still there of which only a snapshot told."""
        now, table = self.how.now, self.how.table
        for key, state in self.states.items():
            self.touch(key).expire(state, now)
        if not self.how.recheck:
            return
        waiting = {key: set(unproven(state, table, now)) for key, state in self.states.items()}
        doubtful = {key: places for key, places in waiting.items() if places}
        client = self.how.server.connected() if doubtful else None
        for key, places in gone_rows(client, table, doubtful).items() if client is not None else ():
            for place in places:
                self.touch(key).row(self.states[key], place)
                self.states[key].rows[place].liveness = None

    def outcome(self) -> dict[str, pa.Table]:
        """Compare rows and cells with what they were."""
        how = self.how
        batch = Batch(how.table, how.columns, how.before_columns, how.policy)
        came: list[Cell] = []
        went: list[Cell] = []
        grace = how.table.gc_grace_seconds
        for key, touched in self.touched.items():
            state = self.states[key]
            touched.compare(state, how.now, batch, how.server.has_row)
            known = self.stored.get(key, set())
            new = set(plain_cells(changes(purge(state, how.table, how.now - grace), how.table)))
            came += new - known
            went += known - new
        made = {CELLS: signed_cells(came, went, grace), ROWS: batch.signed()}
        return made if how.snapshot else made | {VERSIONS: batch.versions()}


def _mutations(changed: pa.Table, table: TableSchema) -> Iterator[tuple[bytes | None, list[ChangeTuple]]]:
    """Give the changes of one mutation to one partition together, in the order of the log; those about the table alone."""
    ordered = changed.sort_by([(name, "ascending") for name in ORDER]) if _is_unordered(changed) else changed
    order = zip(*(ordered[name].to_pylist() for name in ORDER), strict=True)
    for _, same in groupby(zip(order, read_cells(ordered), strict=True), key=itemgetter(0)):
        by_key: dict[bytes | None, list[ChangeTuple]] = {}
        for _, cell in same:
            by_key.setdefault(None if cell[0] == cells.TRUNCATE else cell[1], []).append(change_of(cell, table))
        yield from by_key.items()


def _is_unordered(changed: pa.Table) -> bool:
    """Say whether changes have to be sorted: those that the driver has read are in order."""
    if changed.num_rows < 2:
        return False
    numbers = changed["mutation"].to_numpy()
    return len(changed["part"].unique()) > 1 or bool((numbers[1:] < numbers[:-1]).any())
