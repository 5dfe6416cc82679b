"""What a cycle of capture leaves for later ones: rows under names, which count when the cycle is over.

Where they are kept is not decided here: whoever opens a capture hands it a place, which is the state.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    import numpy as np

    Task = Callable[[], Iterator[pa.RecordBatch]]

LINES_AT_ONCE = 100_000
"""Lines that are held until they are written, some 20 MB of deltas."""
_LINES = pa.schema([("number", pa.int64()), ("line", pa.string())])


class Kept(Protocol):
    """What cycles leave, by name. What a cycle leaves replaces what the one before left, when it is over."""

    def left(self, name: str) -> Iterator[pa.Table]:
        """Give what the last cycle that is over left under a name, in the order of its first column."""
        ...

    def leave(self, name: str, rows: pa.Table) -> None:
        """Leave rows under a name, beside those that this cycle left there already."""
        ...

    def by_tasks(self, rows: int) -> bool:
        """Say whether about so many rows are better read by tasks, on whatever machines there are, than here."""
        ...

    def leave_read(self, name: str, tasks: Sequence[Task], schema: pa.Schema) -> None:
        """Leave the rows, of this schema, that tasks read."""
        ...

    def compare(self, name: str, sql: str, schema: pa.Schema) -> Iterator[pa.Table]:
        """Run a query over `new` and `old`: what this cycle has left under a name, and what the one before left; give rows of the schema."""
        ...

    def change(self, name: str, signed: pa.Table) -> None:
        """Change rows that stay from cycle to cycle, by signed ones; they have names of their own."""
        ...

    def changed(self) -> list[str]:
        """Name what stays from cycle to cycle, as the last cycle left it."""
        ...

    def find(self, name: str, keys: pa.Table) -> pa.Table | None:
        """Give the rows that stay whose columns equal a row of `keys`; None where nothing has that name."""
        ...

    def whole(self, name: str) -> pa.Table | None:
        """Give all rows that stay; None where nothing has that name."""
        ...

    def due(self, name: str, column: str, wanted: str, window: tuple[int, int]) -> np.ndarray:
        """Give the numbers in `wanted` of rows that stay, as the last cycle left them, whose `column` lies after a time and up to another.

        There may be too many: numbers of rows that are there no more.
        """
        ...


class Lines:
    """Lines on their way to where they are kept."""

    def __init__(self, kept: Kept, name: str) -> None:
        """Begin with none; `close` writes the last ones."""
        self._kept, self._name = kept, name
        self._waiting: list[str] = []
        self._written = 0

    def write(self, line: str) -> None:
        """Leave a line."""
        self._waiting.append(line)
        if len(self._waiting) == LINES_AT_ONCE:
            self.close()

    def close(self) -> None:
        """Write what waits."""
        if self._waiting:
            numbers = range(self._written, self._written + len(self._waiting))
            self._kept.leave(self._name, pa.table([pa.array(numbers), pa.array(self._waiting)], schema=_LINES))
            self._written += len(self._waiting)
            self._waiting = []


def leave_lines(kept: Kept, name: str, lines: Iterable[str]) -> None:
    """Leave lines under a name."""
    into = Lines(kept, name)
    for line in lines:
        into.write(line)
    into.close()


def lines_left(kept: Kept, name: str) -> Iterator[str]:
    """Give the lines that were left under a name, in their order."""
    for table in kept.left(name):
        yield from table["line"].to_pylist()
