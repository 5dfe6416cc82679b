"""What can be wrong with a log: always said with the file and the byte, after everything before it was given out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from runnel.errors import Place, Terminal

if TYPE_CHECKING:
    from pathlib import Path


class LogError(Terminal):
    """A segment that cannot be read further; `path` and `offset` say where, and what came before was right.

    Where it is one mutation that cannot be read, `passable` is its segment and the position after it.
    """

    passable: tuple[int, int] | None = None

    def __init__(self, code: str, message: str, path: Path, offset: int, hint: str | None = None) -> None:
        """Say what is wrong at a byte of a file."""
        super().__init__(code, f"{message}, at byte {offset}", place=Place(str(path)), hint=hint)
        self.path = path
        self.offset = offset


class BadBody(ValueError):
    """A mutation whose bytes do not follow the format, though its checksum is right; becomes a `LogError`."""


class UnknownColumn(BadBody):
    """A mutation of a column that its table does not have, as far as is known."""

    def __init__(self, table: object, name: str) -> None:
        """Name the column."""
        super().__init__(f"{table!r} has no column {name!r}")


class UnknownTable(Exception):
    """A mutation of a table whose definition is not known; becomes a `LogError`."""

    def __init__(self, table_id: bytes) -> None:
        """Name the table by the bytes of its id."""
        super().__init__(table_id.hex())
        self.table_id = table_id
