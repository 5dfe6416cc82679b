"""Cells: values with write times, tombstones and expiry, of stores whose log does not have whole rows.

The state keeps the cells of a table in a hidden relation `<table>#cells`, one row each: every value, deletion or sign of life that
still matters. What a log brings has the same form and an order. From both, the store's own function makes signed cells and
signed rows, key by key.

Where a cell is, two numbers say: `partition` is a hash of its key, `place` one of its key and of the row within. Files are sorted by
`place`, so the cells of a row, and those of a partition, are next to each other and are found by numbers alone. Different keys
with the same hash are brought together and told apart by whoever reads them.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa

from runnel.model import types
from runnel.model.relation import Column

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np

    from runnel.errors import RunnelError

PLACE, PARTITION, KEY, CLUSTERING, EXPIRES, SEEN = "place", "partition", "key", "clustering", "expires", "seen"
ORDER = ("at", "part", "mutation")
"""What changes are ordered by: a time where there are several logs, a stretch of a log, and the place of a mutation in it."""
CELLS, ROWS, VERSIONS = "cells", "rows", "versions"
"""What a reconciliation gives: signed cells, signed rows, and every version that rows went through."""

_BINARY, _INT, _TEXT = types.parse("binary"), types.parse("int"), types.parse("string")
CELL = (
    Column(PLACE, types.BIGINT),
    Column(PARTITION, _INT),
    Column(KEY, _BINARY),
    Column(CLUSTERING, _BINARY),
    Column("kind", _INT),
    Column("column", _TEXT),
    Column("path", _BINARY),
    Column("timestamp", types.BIGINT),
    Column("ttl", _INT),
    Column("ldt", types.BIGINT),
    Column("value", _BINARY),
)
"""A cell: where it is, what it is, when it was written, and for how long (`ldt` is when it expires, or was deleted)."""
STORED = (*CELL, Column(EXPIRES, types.BIGINT), Column(SEEN, types.BIGINT))
"""A stored cell: the second at which it expires by itself, and the one at which a row was seen of which nothing else is known."""
CHANGED = (*CELL, Column("at", types.BIGINT), Column("part", _INT), Column("mutation", types.BIGINT))
"""A changed cell: its order. One without a key is about the whole table."""

ROW_BITS = 30
"""How many bits of a place are a hash of the row; those before them are the partition."""


def schema_of(columns: Sequence[Column]) -> pa.Schema:
    """Give the Arrow schema of columns."""
    return pa.schema([pa.field(column.name, types.to_arrow(column.type)) for column in columns])


def partition_of(key: bytes) -> int:
    """Give the hash of a key: 32 bits with a sign."""
    return zlib.crc32(key) - (1 << 31)


def place_of(partition: int, clustering: bytes | None) -> int:
    """Give where the cells of a row are; those of a whole partition have a place of their own.

    >>> place_of(-1, None) < place_of(-1, b"c") < place_of(0, None)
    True
    """
    return (partition << ROW_BITS) + (0 if clustering is None else zlib.crc32(clustering) >> 2)


def is_coarse(places: np.ndarray) -> np.ndarray:
    """Say of each place whether it is that of a whole partition (or, seldom, of a row that cannot be told from it)."""
    coarse: np.ndarray = places & ((1 << ROW_BITS) - 1) == 0
    return coarse


class CellFunction(Protocol):
    """Makes signed cells, signed rows and versions of stored and changed cells; picklable."""

    def __call__(self, stored: pa.Table, changed: pa.Table) -> Mapping[str, pa.Table]:
        """Give signed rows by output."""
        ...

    def knowing(self, of_table: pa.Table) -> CellFunction:
        """Give the function for whoever sees some keys only: changes about the whole table are told to it."""
        ...


@dataclass(frozen=True)
class Reconciliation:
    """How the cells of one table that changed in a range become rows.

    `function` takes stored cells and changed ones of whole rows, or whole partitions where a change is coarse, and gives
    signed cells, signed rows and versions; it needs nothing else and runs anywhere. `was` and `now` are the seconds at which the
    range begins and ends: what expires between them is to be brought too, and what is past its `grace` by then. `everything`
    says that all stored cells are needed, `recheck` that those are which have a `seen`. Where `afresh`, the changes are all that
    counts: what was stored before them goes.
    """

    table: str
    function: CellFunction
    was: int
    now: int
    grace: int
    everything: bool = False
    recheck: bool = False
    afresh: bool = False


class CellSource(Protocol):
    """What a source of cells has besides what every source has."""

    def reconciliations(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[Reconciliation]:
        """Say of each table how its cells in (start, end] become rows."""
        ...

    def later(self, start: dict[str, Any]) -> dict[str, Any]:
        """Give the position at which the log was read as far, and time has passed."""
        ...

    def is_idle(self, start: dict[str, Any], end: dict[str, Any]) -> bool:
        """Take note that nothing changed in (start, end]; say whether nothing but time has passed, so that it need not be kept."""
        ...

    def located(self, error: RunnelError, start: dict[str, Any], end: dict[str, Any]) -> RunnelError:
        """Give an error of a reconciliation with the place in the log that it comes from, where that can be told."""
        ...
