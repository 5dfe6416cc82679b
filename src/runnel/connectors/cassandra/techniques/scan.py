"""The table scan: a cell written since the last cycle is an upsert. Nothing is installed and nothing is remembered.

It trusts write times. A write that comes late, or that its client dates back, is missed; `overlap` looks that far back and
leaves out what it has told before.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from runnel.connectors.cassandra.schema.twins import captured_columns
from runnel.connectors.cassandra.snapshot import Wanted, read_table
from runnel.connectors.cassandra.techniques.writing import Writer
from runnel.connectors.deltas.kept import Lines, lines_left
from runnel.connectors.deltas.model import Operation
from runnel.connectors.deltas.technique import WRITE_TIMES, Abilities, Position, after_time, clock

if TYPE_CHECKING:
    from collections.abc import Iterator

    from runnel.connectors.cassandra.client import Client
    from runnel.connectors.cassandra.schema.tables import TableSchema
    from runnel.connectors.deltas.model import Delta
    from runnel.connectors.deltas.technique import Cycle

MICROSECONDS = 1_000_000
RECENT = "recent"
ABILITIES = Abilities(
    "scan",
    (Operation.UPS,),
    WRITE_TIMES,
    "nothing",
)


class Scan:
    """Capture by scanning for new write times."""

    def __init__(self, client: Client, tables: list[TableSchema]) -> None:
        """Scan these tables."""
        self._client, self._tables = client, tables

    def now(self) -> Position:
        """Give this moment."""
        return clock()

    def read(self, cycle: Cycle) -> Iterator[Delta]:
        """Give an upsert for each cell written in the window."""
        overlap = Overlap(cycle, self._client.settings.overlap)
        for table in self._tables:
            writer = Writer(table)
            columns = tuple(c for c in captured_columns(table) if c.type.name != "counter")
            for row in read_table(self._client, table, Wanted(columns, ttls=True)):
                for cell in row.cells:
                    if cell.time is not None and overlap.after < cell.time <= overlap.upto:
                        yield from overlap.new(writer.delta(Operation.UPS, row.key, row.clustering, cell))
        overlap.close()

    def settle(self, cycle: Cycle) -> None:
        """Leave the store as it is."""

    def close(self) -> None:
        """Close the connection."""
        self._client.close()


class Overlap:
    """A window of write times that looks back behind its beginning, and knows what was told from there already."""

    def __init__(self, cycle: Cycle, seconds: float) -> None:
        """Read what the cycle before has told of its last `seconds`."""
        width = int(seconds * MICROSECONDS)
        self.begin, self.upto = after_time(cycle), int(cycle.upto["time"])
        self.after = max(-(2**63), self.begin - width)
        self._told = set(lines_left(cycle.kept, RECENT))
        self._from = self.upto - width
        self._recent = Lines(cycle.kept, RECENT) if width else None
        if self._recent is not None:
            for line in self._told:
                if json.loads(line)[-1] > self._from:
                    self._recent.write(line)

    def new(self, delta: Delta) -> Iterator[Delta]:
        """Give the delta unless it was told before."""
        line = json.dumps([delta.table, delta.key, delta.cluster, delta.column, delta.time])
        if line in self._told:
            return
        if self._recent is not None and delta.time is not None and delta.time > self._from:
            self._recent.write(line)
        yield delta

    def close(self) -> None:
        """Keep what was told, for the next cycle."""
        if self._recent is not None:
            self._recent.close()
