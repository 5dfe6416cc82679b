"""Dates and times of the log: packed numbers, and the zero dates that only these servers have.

`2024-00-00` and `0000-00-00` are values there and none in Arrow. What is to be done with them is the reader's choice: see `Zero`.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

Zero = Literal["error", "null"]
_SECOND, _DAY = 1_000_000, 86_400_000_000
DATETIME_BASE = 0x8000000000
TIME_BASE = 0x800000


def days_of(year: np.ndarray, month: np.ndarray, day: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Give the days since 1970 of civil dates, and which of them are no dates at all."""
    shifted = year - (month <= 2)
    era = shifted // 400
    of_era = shifted - era * 400
    of_year = (153 * (month + np.where(month > 2, -3, 9)) + 2) // 5 + day - 1
    days = era * 146097 + of_era * 365 + of_era // 4 - of_era // 100 + of_year - 719468
    leap = (year % 4 == 0) & ((year % 100 != 0) | (year % 400 == 0))
    longest = np.array([0, 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31, 0, 0, 0])[month] + (leap & (month == 2))
    wrong = (month < 1) | (day < 1) | (day > longest) | (year < 1) | (year > 9999)
    return days, wrong


def date_parts(packed: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Read dates of three bytes: 5 bits of the day, 4 of the month, the year."""
    return days_of(packed >> 9, packed >> 5 & 15, packed & 31)


def datetime_parts(packed: np.ndarray, micros: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Read dates with times: 17 bits of year * 13 + month, 5 of the day, then hour, minute, second; give microseconds."""
    date, clock = packed >> 17, packed & 0x1FFFF
    months = date >> 5
    days, wrong = days_of(months // 13, months % 13, date & 31)
    hour, minute, second = clock >> 12, clock >> 6 & 63, clock & 63
    wrong |= (hour > 23) | (minute > 59) | (second > 59) | (micros > 999_999)
    return days * _DAY + ((hour * 60 + minute) * 60 + second) * _SECOND + micros, wrong


def old_datetime_parts(packed: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Read dates with times as servers wrote them before 5.6: the decimal digits of YYYYMMDDhhmmss."""
    date, clock = packed // 1_000_000, packed % 1_000_000
    days, wrong = days_of(date // 10_000, np.minimum(date // 100 % 100, 15), date % 100)
    hour, minute, second = clock // 10_000, clock // 100 % 100, clock % 100
    wrong |= (hour > 23) | (minute > 59) | (second > 59) | (date // 100 % 100 > 12)
    return days * _DAY + ((hour * 60 + minute) * 60 + second) * _SECOND, wrong


def clock_text(negative: bool, seconds: int, micros: int, digits: int) -> str:  # noqa: FBT001
    """Write a length of time as the server does.

    >>> clock_text(True, 3020399, 500000, 1), clock_text(False, 3600, 0, 0)
    ('-838:59:59.5', '01:00:00')
    """
    sign = "-" if negative else ""
    fraction = f".{micros:06d}"[: digits + 1] if digits else ""
    return f"{sign}{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}{fraction}"


def time_of(packed: int) -> tuple[bool, int, int]:
    """Read a packed time: a sign, ten bits of hours, six of minutes and of seconds, 24 of microseconds."""
    negative, packed = packed < 0, abs(packed)
    whole, micros = packed >> 24, packed & 0xFFFFFF
    return negative, (whole >> 12 & 0x3FF) * 3600 + (whole >> 6 & 63) * 60 + (whole & 63), micros


def time_text(packed: int) -> str:
    """Write a packed time inside JSON, where it has six digits after the second."""
    return clock_text(*time_of(packed), 6)


def datetime_text(packed: int, *, date: bool) -> str:
    """Write a packed date, with time unless `date`, inside JSON."""
    whole, micros = packed >> 24, packed & 0xFFFFFF
    day, clock = whole >> 17, whole & 0x1FFFF
    months = day >> 5
    text = f"{months // 13:04d}-{months % 13:02d}-{day & 31:02d}"
    if date:
        return text
    return f"{text} {clock >> 12:02d}:{clock >> 6 & 63:02d}:{clock & 63:02d}.{micros:06d}"
