"""Values that Cassandra holds and Python or the state cannot.

These are dates and times beyond the years 1 to 9999, and numbers of thousands of digits. They travel as `Beyond`, with their
bytes, until a source's policy says what becomes of them.

>>> Beyond("date", (2**31 - 800_000).to_bytes(4, "big")).text
'-0221-09-04'
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_FIRST_DAY = 1 << 31
_MILLISECONDS = 86_400_000


@dataclass(frozen=True)
class Beyond:
    """A value of a native type that has no Python value, by its bytes."""

    type: str
    data: bytes

    @property
    def text(self) -> str:
        """The value as text, as other values of its type are written; years beyond 9999 have a sign, as in ISO 8601."""
        if self.type == "date":
            return date_text(int.from_bytes(self.data, "big") - _FIRST_DAY)
        if self.type == "timestamp":
            days, rest = divmod(int.from_bytes(self.data, "big", signed=True), _MILLISECONDS)
            seconds, milliseconds = divmod(rest, 1000)
            clock = f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}.{milliseconds:03d}Z"
            return f"{date_text(days)} {clock}"
        return f"0x{self.data.hex()}"

    def __str__(self) -> str:
        return self.text


def date_text(days: int) -> str:
    """Write a day, counted from 1970-01-01, in the Gregorian calendar, which is thought to go on in both directions.

    >>> date_text(-719163), date_text(2932897)
    ('0000-12-31', '+10000-01-01')
    """
    year, month, day = _civil(days)
    sign = "-" if year < 0 else "+" if year > 9999 else ""
    return f"{sign}{abs(year):04d}-{month:02d}-{day:02d}"


def _civil(days: int) -> tuple[int, int, int]:
    """Give year, month and day; years begin in March here, so that the leap day is the last of its year."""
    era, of_era = divmod(days + 719_468, 146_097)
    year = (of_era - of_era // 1460 + of_era // 36_524 - of_era // 146_096) // 365
    of_year = of_era - (365 * year + year // 4 - year // 100)
    shifted = (5 * of_year + 2) // 153
    month = shifted + 3 if shifted < 10 else shifted - 9
    return year + era * 400 + (month <= 2), month, of_year - (153 * shifted + 2) // 5 + 1


_WRITTEN = re.compile(r"([+-]?\d{4,})-(\d\d)-(\d\d)(?: (\d\d):(\d\d):(\d\d)\.(\d{3})Z)?")


def raw_number(text: str) -> str | None:
    """Give the number that the server reads for the text of a `Beyond`; None for a text that it understands itself.

    >>> raw_number("+10000-01-01"), raw_number("-0221-09-04 00:00:00.001Z"), raw_number("2026-01-02")
    ('2150416545', '-69119999999999', None)
    """
    found = _WRITTEN.fullmatch(text)
    if found is None or 1 <= int(found[1]) <= 9999:
        return None
    days = _days(int(found[1]), int(found[2]), int(found[3]))
    if found[4] is None:
        return str(days + _FIRST_DAY)
    seconds = int(found[4]) * 3600 + int(found[5]) * 60 + int(found[6])
    return str(days * _MILLISECONDS + seconds * 1000 + int(found[7]))


def _days(year: int, month: int, day: int) -> int:
    """Give the days since 1970-01-01; it is the other way round of `_civil`."""
    era, of_era = divmod(year - (month <= 2), 400)
    of_year = (153 * (month - 3 if month > 2 else month + 9) + 2) // 5 + day - 1
    return era * 146_097 + of_era * 365 + of_era // 4 - of_era // 100 + of_year - 719_468
