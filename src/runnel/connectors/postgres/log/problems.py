"""Places of the write-ahead log, and what can be wrong there."""

from __future__ import annotations

import re

from runnel.errors import Place, Terminal

_TEXT = re.compile(r"([0-9A-Fa-f]{1,8})/([0-9A-Fa-f]{1,8})")


class BadBytes(ValueError):
    """Bytes that are not what the format says; whoever knows the place turns it into an error."""


def lsn_text(lsn: int) -> str:
    """Write a place of the log as the server does.

    >>> lsn_text(0x1_0000_00FF)
    '1/FF'
    """
    return f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"


def lsn_number(text: str) -> int:
    """Read a place of the log; raise `ValueError` where it is not one.

    >>> lsn_number("1/FF") == 0x1_0000_00FF
    True
    """
    found = _TEXT.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r} is not a place of the log, such as 0/16B3748")
    return int(found[1], 16) << 32 | int(found[2], 16)


def damaged(lsn: int, what: object) -> Terminal:
    """Make the error for bytes that a server cannot have sent."""
    return Terminal(
        "RUNNEL-PGOUTPUT-DAMAGED",
        f"the message of the log at {lsn_text(lsn)} cannot be read: {what}",
        place=Place(lsn_text(lsn)),
        hint="nothing after it was taken; report it with the version of the server",
    )


def refused(code: str, lsn: int, what: str, hint: str) -> Terminal:
    """Make the error for a change that cannot be followed."""
    return Terminal(code, f"{what} (log at {lsn_text(lsn)})", place=Place(lsn_text(lsn)), hint=hint)
