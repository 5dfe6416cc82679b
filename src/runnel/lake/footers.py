"""Footers of data files, read once: files never change, so what their footers say of each row group is kept in memory.

Kept are the footer itself and, for the columns somebody looks things up by, the range of each row group as arrays, so that a
thousand keys are held against a thousand row groups at once.
"""

from __future__ import annotations

import datetime
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from runnel.lake import files
from runnel.lake.kept import Kept
from runnel.model import types

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow.parquet as pq

    from runnel.lake.entries import DataFile, NewFile
    from runnel.model.relation import Relation

KEPT_BYTES = 256 << 20
UNPACKED = 8
"""How much larger a footer is in memory, with the ranges taken from it, than in its file."""
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_LIMIT = 2**62


@dataclass(frozen=True)
class Ranges:
    """The least and the greatest value of a column in each row group, as ordered numbers; `open` groups may hold anything."""

    low: np.ndarray
    high: np.ndarray
    open: np.ndarray
    nulls: np.ndarray


@dataclass
class Footer:
    """A file's footer, and the ranges taken from it so far."""

    metadata: pq.FileMetaData
    ranges: dict[str, Ranges | None] = field(default_factory=dict)

    @property
    def rows(self) -> np.ndarray:
        """How many rows each row group has."""
        groups = range(self.metadata.num_row_groups)
        return np.array([self.metadata.row_group(group).num_rows for group in groups], dtype=np.int64)


_kept: Kept[Footer] = Kept(KEPT_BYTES)


def footer(relation: str, file: DataFile | NewFile) -> Footer:
    """Give a file's footer; read once, however often it is asked for."""
    known = _kept.get(file.path)
    if known is None:
        known = Footer(files.open_file(relation, file).metadata)
        _kept.put(file.path, known, known.metadata.serialized_size * UNPACKED)
    return known


def ranges(relation: Relation, found: Footer, column: str) -> Ranges | None:
    """Give a column's range in each row group; None where its values have no order to prune by."""
    if column not in found.ranges:
        type_ = next(c.type for c in relation.columns if c.name == column)
        at = files.places_of(relation, found.metadata).get(column)
        known = at is not None and ordered(type_)
        found.ranges[column] = _ranges(found.metadata, at, text=type_.name == "string") if known else None
    return found.ranges[column]


def ordered(type_: types.Type) -> bool:
    """Say whether values of a type can be held against ranges."""
    return type_.name in (*types.INTEGERS, "date", "timestamp", "timestamp_ntz", "decimal", "string")


def _ranges(metadata: pq.FileMetaData, at: int | None, *, text: bool) -> Ranges:
    lows: list[Any] = []
    highs: list[Any] = []
    unknown, nulls = [], []
    for group in range(metadata.num_row_groups):
        stats = metadata.row_group(group).column(at).statistics
        known = stats is not None and stats.has_null_count
        nulls.append(not known or stats.null_count > 0)
        low, high = (None, None)
        if known and stats.has_min_max:
            low, high = files.range_of(stats)
        empty = known and not stats.has_min_max and stats.null_count == metadata.row_group(group).num_rows
        unknown.append((low is None or high is None) and not empty)
        lows.append(low)
        highs.append(high)
    return Ranges(*_numbers(lows, highs, text=text), np.array(unknown, dtype=bool), np.array(nulls, dtype=bool))


def _numbers(lows: list[Any], highs: list[Any], *, text: bool) -> tuple[np.ndarray, np.ndarray]:
    # A range that is not known is an empty one; `open` says what it means.
    least, most = ("\U0010ffff", "") if text else (1, 0)
    low = values([least if value is None else value for value in lows])
    high = values([most if value is None else value for value in highs])
    return low, high


def values(listed: Sequence[Any]) -> np.ndarray:
    """Give values as an array whose order is theirs: numbers where they fit 64 bits, else objects."""
    if listed and isinstance(listed[0], str):
        return np.array(listed, dtype=object)
    numbers = [_number(value) for value in listed]
    if all(isinstance(n, int) and -_LIMIT < n < _LIMIT for n in numbers):
        return np.array(numbers, dtype=np.int64)
    return np.array(numbers, dtype=object)


def _number(value: Any) -> Any:
    match value:
        case datetime.datetime():
            moment = value if value.tzinfo else value.replace(tzinfo=datetime.UTC)
            return (moment - _EPOCH) // datetime.timedelta(microseconds=1)
        case datetime.date():
            return value.toordinal()
        case bool():
            return int(value)
    return value
