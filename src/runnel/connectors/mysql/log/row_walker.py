"""Finds where rows and their values begin in the bytes of row events.

Rows have no length: one has to go from value to value. That loop is the only one that Python runs per row, so it is written for the
table: straight-line code for its columns, of which only those of varying length need a look at the bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Protocol

import numpy as np

from runnel.connectors.mysql.log.problems import BadBytes
from runnel.connectors.mysql.log.table_map import LoggedColumn, Type

if TYPE_CHECKING:
    from array import array
    from collections.abc import Sequence

_FIXED = {
    Type.TINY: 1,
    Type.SHORT: 2,
    Type.INT24: 3,
    Type.LONG: 4,
    Type.LONGLONG: 8,
    Type.YEAR: 1,
    Type.DATE: 3,
    Type.TIME: 3,
    Type.TIMESTAMP: 4,
    Type.DATETIME: 8,
    Type.FLOAT: 4,
    Type.DOUBLE: 8,
}
DIGIT_BYTES = (0, 1, 1, 2, 2, 3, 3, 4, 4, 4)
"""Bytes that so many decimal digits take."""


@dataclass(frozen=True)
class Width:
    """How long a value is: `fixed` bytes, or a length in `prefix` bytes and then so many."""

    fixed: int = 0
    prefix: int = 0


def width_of(column: LoggedColumn) -> Width:
    """Say how long the values of a column are in the log."""
    kind, meta = column.type, column.meta
    if kind in _FIXED:
        return Width(_FIXED[Type(kind)])
    if kind in (Type.TIMESTAMP2, Type.DATETIME2, Type.TIME2):
        if meta > 6:
            raise BadBytes(f"a time cannot have {meta} digits after the second")
        return Width({Type.TIMESTAMP2: 4, Type.DATETIME2: 5, Type.TIME2: 3}[Type(kind)] + (meta + 1) // 2)
    if kind == Type.NEWDECIMAL:
        return Width(decimal_width(meta >> 8, meta & 0xFF))
    if kind == Type.BIT:
        bits = (meta >> 8) * 8 + (meta & 0xFF)
        if not 0 < bits <= 64:
            raise BadBytes(f"a bit field cannot have {bits} bits")
        return Width((bits + 7) // 8)
    if kind in (Type.ENUM, Type.SET):
        if not 0 < meta <= 8:
            raise BadBytes(f"an enumeration cannot have values of {meta} bytes")
        return Width(meta)
    if kind in (Type.VARCHAR, Type.STRING, Type.VARCHAR_COMPRESSED):
        return Width(prefix=1 if meta < 256 else 2)
    if not 0 < meta <= 4:
        raise BadBytes(f"a length cannot have {meta} bytes")
    return Width(prefix=meta)


def decimal_width(precision: int, scale: int) -> int:
    """Give the bytes of a decimal: nine digits in four bytes, on both sides of the point."""
    if not (0 < precision <= 65 and 0 <= scale <= min(precision, 38)):
        raise BadBytes(f"there is no decimal({precision},{scale})")
    whole = precision - scale
    return whole // 9 * 4 + DIGIT_BYTES[whole % 9] + scale // 9 * 4 + DIGIT_BYTES[scale % 9]


class Walk(Protocol):
    """Goes through rows; notes the begin of each and where each value of varying length ends, and gives where it stopped."""

    def __call__(self, data: bytes, at: int, end: int, marks: array[int]) -> int:
        """Walk from `at` to `end`."""
        ...


@lru_cache(maxsize=1024)
def walker(widths: tuple[Width, ...]) -> Walk:
    """Write the walk for the columns that are present in the rows."""
    bitmap = (len(widths) + 7) // 8
    lines = ["def walk(data, p, end, marks):", "    note = marks.append", "    while p < end:", "        note(p)"]
    lines.append(
        f"        nulls = {_number('p', bitmap)}" + (f" & {(1 << len(widths)) - 1}" if len(widths) % 8 else "")
    )
    lines += ["        if not nulls:", *_without_nulls(widths, bitmap)]
    lines += ["        else:", f"            p += {bitmap}", *_with_nulls(widths)]
    lines.append("    return p")
    made: dict[str, Walk] = {}
    exec("\n".join(lines), made)  # the text is of numbers alone
    return made["walk"]


def _number(at: str, size: int) -> str:
    if size > 4:
        return f"int.from_bytes(data[{at}:{at} + {size}], 'little')"
    return " | ".join([f"data[{at}]", *(f"data[{at} + {n}] << {8 * n}" for n in range(1, size))])


def _without_nulls(widths: Sequence[Width], bitmap: int) -> list[str]:
    lines, skip, pad = [], bitmap, " " * 12
    for width in widths:
        if width.prefix:
            if skip:
                lines.append(f"{pad}p += {skip}")
            lines += [f"{pad}p += {width.prefix} + ({_number('p', width.prefix)})", f"{pad}note(p)"]
            skip = 0
        else:
            skip += width.fixed
    return [*lines, f"{pad}p += {skip}"]


def _with_nulls(widths: Sequence[Width]) -> list[str]:
    lines, pad = [], " " * 12
    for at, width in enumerate(widths):
        size = f"{width.prefix} + ({_number('p', width.prefix)})" if width.prefix else str(width.fixed)
        lines.append(f"{pad}if not nulls & {1 << at}: p += {size}")
        if width.prefix:
            lines.append(f"{pad}note(p)")
    return lines


@dataclass(frozen=True)
class Places:
    """Where the values of one column are: the offset of each, and which of them are NULL (None where none is)."""

    at: np.ndarray
    null: np.ndarray | None


def places(data: np.ndarray, widths: Sequence[Width], marks: np.ndarray) -> list[Places]:
    """Give the places of all columns from the marks of a walk, one line of marks per row."""
    bitmap = (len(widths) + 7) // 8
    bits = data[marks[:, 0][:, None] + np.arange(bitmap)]
    has_nulls = bool(bits[:, : len(widths) // 8].any() or (bits[:, -1] & ((1 << (len(widths) % 8 or 8)) - 1)).any())
    found, base, noted = [], marks[:, 0] + bitmap, 1
    for at, width in enumerate(widths):
        null = (bits[:, at >> 3] >> (at & 7) & 1).astype(bool) if has_nulls else None
        if null is not None and not null.any():
            null = None
        found.append(Places(base, null))
        if width.prefix:
            base, noted = marks[:, noted], noted + 1
        else:
            base = base + (width.fixed if null is None else np.where(null, 0, width.fixed))
    return found
