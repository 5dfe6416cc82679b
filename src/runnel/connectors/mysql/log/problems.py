"""What can be wrong with a binary log, each with file and position."""

from __future__ import annotations

from typing import NamedTuple

from runnel.errors import Place, Terminal


class BadBytes(ValueError):
    """Bytes that are not what the format says; whoever knows the position turns it into an error with a place."""


class Spot(NamedTuple):
    """A place in a binary log: a file and the number of bytes before it."""

    file: str
    position: int

    def __str__(self) -> str:
        return f"{self.file}:{self.position}"

    @property
    def order(self) -> tuple[int, str, int]:
        """What places of one server's log are compared by: after file 999999 comes 1000000."""
        return len(self.file), self.file, self.position


def damaged(spot: Spot, what: object) -> Terminal:
    """Make the error for bytes that cannot have been written by a server."""
    return Terminal(
        "RUNNEL-BINLOG-DAMAGED",
        f"the binary log is damaged at {spot}: {what}",
        place=Place(spot.file),
        hint="bring the file back from the server or from a copy; nothing after this position was read",
    )


def not_understood(spot: Spot, what: str) -> Terminal:
    """Make the error for something that a server wrote and this version cannot read."""
    return Terminal(
        "RUNNEL-BINLOG-UNKNOWN",
        f"the binary log has {what} at {spot}, which this version cannot read",
        place=Place(spot.file),
        hint="nothing after this position was read; report it with the version of the server",
    )


def refused(code: str, spot: Spot, what: str, hint: str) -> Terminal:
    """Make the error for a log that does not hold what a copy needs."""
    return Terminal(code, f"{what} (binary log at {spot})", place=Place(spot.file), hint=hint)


def zero_date(spot: Spot | None, what: str) -> Terminal:
    """Make the error for a date that only these servers have, such as 0000-00-00."""
    where = "" if spot is None else f" (binary log from {spot} on)"
    return Terminal(
        "RUNNEL-MYSQL-ZERO-DATE",
        f"{what}{where}",
        place=None if spot is None else Place(spot.file),
        hint='set zero_dates = "null" to read such dates as NULL',
    )
