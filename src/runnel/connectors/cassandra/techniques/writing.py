"""Writes the cells of a table as deltas."""

from __future__ import annotations

from typing import TYPE_CHECKING

from runnel.connectors.cassandra.values.text import to_text
from runnel.connectors.deltas.model import Delta, Operation

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from runnel.connectors.cassandra.schema.tables import TableSchema
    from runnel.connectors.cassandra.snapshot import Cell


class Writer:
    """Writes the cells of one table as deltas."""

    def __init__(self, table: TableSchema) -> None:
        """Choose the functions that write each column's values."""
        self.table = table
        self._key = [to_text(column.type) for column in table.partition_key]
        self._clustering = [to_text(column.type) for column in table.clustering]
        self._values: dict[str, Callable[[bytes], str]] = {c.name: to_text(c.type) for c in table.columns}

    def key(self, key: Sequence[bytes]) -> tuple[str, ...]:
        """Write the parts of a partition key."""
        return tuple(text(part) for text, part in zip(self._key, key, strict=True))

    def cluster(self, clustering: Sequence[bytes | None] | None) -> tuple[str, ...]:
        """Write a clustering, or the beginning of one; the static row has none."""
        return tuple(text(part or b"") for text, part in zip(self._clustering, clustering or (), strict=False))

    def value(self, column: str, value: bytes) -> str:
        """Write a value."""
        return self._values[column](value)

    def delta(
        self, operation: Operation, key: Sequence[bytes], clustering: Sequence[bytes | None] | None, cell: Cell
    ) -> Delta:
        """Write a cell."""
        value = None if operation is Operation.DEL else self.value(cell.column, cell.value)
        place = (self.table.keyspace, self.table.name, self.key(key), self.cluster(clustering), cell.column)
        return Delta(operation, *place, value, cell.time, ttl=cell.ttl)
