"""Lengths of time as people write them: `100ms`, `5 seconds`, `1 minute 30 seconds`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from runnel.errors import UsageError

if TYPE_CHECKING:
    from runnel.errors import Place

_UNITS = {
    0.001: ("ms", "milli", "millis", "millisecond", "milliseconds"),
    1.0: ("s", "sec", "secs", "second", "seconds"),
    60.0: ("m", "min", "mins", "minute", "minutes"),
    3600.0: ("h", "hour", "hours"),
    86400.0: ("d", "day", "days"),
    604800.0: ("w", "week", "weeks"),
}
_SECONDS = {word: seconds for seconds, words in _UNITS.items() for word in words}
_PART = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-z]+)\s*")


def parse_duration(text: str | float, *, place: Place | None = None) -> float:
    """Give a length of time in seconds; a bare number means seconds.

    >>> parse_duration("100ms"), parse_duration("5 seconds"), parse_duration("1 minute 30 seconds")
    (0.1, 5.0, 90.0)
    """
    if isinstance(text, int | float) and not isinstance(text, bool) and 0 <= text < float("inf"):
        return float(text)
    total, at = 0.0, 0
    lowered = text.lower() if isinstance(text, str) else ""
    while match := _PART.match(lowered, at):
        if match.group(2) not in _SECONDS:
            break
        total += float(match.group(1)) * _SECONDS[match.group(2)]
        at = match.end()
    if at == 0 or at != len(lowered):
        raise UsageError(
            "RUNNEL-CONFIG-DURATION",
            f"{text!r} is no length of time",
            place=place,
            hint="write it like '100ms', '5 seconds' or '1 minute'",
        )
    return total
