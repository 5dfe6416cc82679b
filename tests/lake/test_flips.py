"""A slice of the flips that `make flips` does at length; a failure names file, byte and bit."""

from __future__ import annotations

import os
import random
from typing import TYPE_CHECKING

import pytest

from tests.flips import flip_many, flip_on_spark

if TYPE_CHECKING:
    from pathlib import Path

    from runnel.engine.spark import SparkEngine
    from tests.flips import Counts


def seed() -> int:
    """Give the seed of this run, and print it."""
    chosen = int(os.environ.get("RUNNEL_SEED", random.SystemRandom().randrange(10**6)))
    print(f"RUNNEL_SEED={chosen}")
    return chosen


def none_silent(found: dict[str, Counts]) -> None:
    assert not [where for counts in found.values() for where in counts.silent]
    assert not [where for counts in found.values() for where in counts.without_code]


def test_no_flipped_bit_of_a_state_is_read_as_another_value(tmp_path: Path) -> None:
    """In data files and in the catalog, read by DuckDB, by Arrow and by look-ups."""
    found = flip_many(tmp_path, 120, seed())
    none_silent(found)
    assert found["files, checked whole"].errors > 40
    assert found["files, checked in part"].errors > 30
    assert found["catalog"].errors > 0


@pytest.mark.spark
def test_no_flipped_bit_of_a_file_is_read_as_another_value_by_spark(tmp_path: Path, spark_engine: SparkEngine) -> None:
    """In files that the driver wrote, and in those that Spark wrote itself."""
    found = flip_on_spark(tmp_path, 12, seed(), spark_engine)
    none_silent(found)
    assert sum(counts.errors for counts in found.values()) > 4
