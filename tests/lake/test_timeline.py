"""What falls due is found by times that are read once per file, and files in which nothing is due are not read."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from runnel.lake import files, lookup, timeline
from runnel.lake.entries import Commit
from runnel.lake.lake import Lake
from runnel.model import types
from runnel.model.relation import WEIGHT, Column, Kind, Relation

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import pytest

    from runnel.lake.entries import DataFile

CELLS = Relation("t#cells", Kind.STAGE, (Column("place", types.BIGINT), Column("expires", types.BIGINT)))


def stored(lake: Lake, *changes: Sequence[tuple[int, int | None, int]]) -> None:
    """Publish a file for each change, of (place, expires, weight)."""
    for rows in changes:
        places, times, weights = (list(column) for column in zip(*rows, strict=True))
        table = pa.table(
            {"place": pa.array(places, pa.int64()), "expires": pa.array(times, pa.int64()), WEIGHT: pa.array(weights)}
        )
        written = lake.write(CELLS, table, remembered=False)
        lake.publish(Commit(base=lake.head(), add=[written]))


def due(lake: Lake, *windows: tuple[int, int]) -> list[int]:
    found: list[int] = timeline.due(CELLS, lake.snapshot().files(CELLS), "expires", "place", windows).tolist()
    return found


def test_places_are_found_by_their_times(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lookup, "SMALL_FILE", 0)
    lake = Lake.create(f"sqlite:{tmp_path}/catalog.sqlite", f"{tmp_path}/data", durable=False)
    lake.publish(Commit(base=lake.head(), create=[CELLS]))
    stored(
        lake,
        [(1, 10, 1), (2, 20, 1), (3, None, 1)],
        [(2, 20, -1), (4, 20, 1)],
        [(5, None, 1)],
        [(6, 99, 1), (6, 5, -1)],
    )
    read: list[str] = []
    reading = files.read

    def noted(relation: Relation, wanted: Sequence[DataFile], columns: Sequence[str] | None = None) -> pa.Table:
        read.extend(file.path for file in wanted)
        return reading(relation, wanted, columns)

    monkeypatch.setattr(files, "read", noted)
    assert due(lake, (9, 20)) == [1, 2, 4]
    assert due(lake, (10, 20)) == [2, 4], "after the first second, up to the second one"
    assert due(lake, (0, 9)) == []
    assert due(lake, (9, 10), (20, 99)) == [1, 6]
    assert len(read) == len(set(read)) == 3, "each file once, and not the one without times"
    lake.close()
