"""Rows by a column of times: where something falls due, without reading a relation again each time somebody asks.

Files never change, so the times in each of them are read once, sorted, and kept in memory within a bound; files whose statistics tell
that nothing of theirs is due are not read at all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow.compute as pc

from runnel.lake import files as lake_files
from runnel.lake import lookup
from runnel.lake.kept import Kept
from runnel.model.relation import WEIGHT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from runnel.lake.entries import DataFile
    from runnel.model.relation import Relation

KEPT_BYTES = 256 << 20
Window = tuple[int, int]
"""After one second, up to another."""
_kept: Kept[tuple[np.ndarray, np.ndarray]] = Kept(KEPT_BYTES)


def due(
    relation: Relation, files: Sequence[DataFile], column: str, wanted: str, windows: Sequence[Window]
) -> np.ndarray:
    """Give the numbers in the column `wanted` of rows that were added with a time in one of the windows, each once.

    Rows that were taken away since are among them: who asks has to look.
    """
    found = [np.empty(0, np.int64)]
    for file in files:
        if _may_hold(file, column, windows):
            times, numbers = _times(relation, file, column, wanted)
            for after, upto in windows:
                begin, end = np.searchsorted(times, [after, upto], "right")
                found.append(numbers[begin:end])
    return np.unique(np.concatenate(found))


def _may_hold(file: DataFile, column: str, windows: Sequence[Window]) -> bool:
    stats = file.stats.get(column)
    if stats is None:
        return True
    if stats.minimum is None or stats.maximum is None:
        return stats.nulls < file.rows
    return any(after < stats.maximum and stats.minimum <= upto for after, upto in windows)


def _times(relation: Relation, file: DataFile, column: str, wanted: str) -> tuple[np.ndarray, np.ndarray]:
    known = _kept.get(file.path, column)
    if known is None:
        small = file.rows <= lookup.SMALL_FILE
        rows = lookup.whole(relation, file) if small else lake_files.read(relation, [file], [column, wanted, WEIGHT])
        rows = rows.filter(pc.and_(pc.is_valid(rows[column]), pc.greater(rows[WEIGHT], 0)))
        times, numbers = rows[column].to_numpy(), rows[wanted].to_numpy()
        order = np.argsort(times, kind="stable")
        known = times[order], numbers[order]
        _kept.put(file.path, known, 16 * len(times) + 200, column)
    return known
