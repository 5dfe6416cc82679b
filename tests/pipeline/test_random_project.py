"""Maintained equals recomputed through a whole project, on both engines."""

from __future__ import annotations

import os
import random
from typing import TYPE_CHECKING

import pytest

from runnel.engine.duckdb import DuckDbEngine
from runnel.lake import files, lookup
from tests.compiler.harness import check_case
from tests.engine.looking import LookingEngine
from tests.pipeline.random_project import check_project

if TYPE_CHECKING:
    from collections.abc import Callable

    from runnel.engine.base import Engine
    from runnel.engine.spark import SparkEngine
    from tests.compiler.harness import Outcome

SEED = int(os.environ.get("RUNNEL_SEED", "900001")) or random.SystemRandom().randrange(1, 10**9)
"""Where the slice of `make test` begins, so that it fails by a change and not by chance; 0 begins anywhere."""
CASES = int(os.environ.get("RUNNEL_CASES", "300"))


def _play(
    check: Callable[[Engine, int], int | Outcome], engine: Engine, wanted: int, say: Callable[[str], None]
) -> None:
    print(f"RUNNEL_SEED={SEED}, {wanted} checks on {engine.name}")
    checks, seed = 0, SEED
    while checks < wanted:
        found = check(engine, seed)
        checks += found if isinstance(found, int) else found.checks
        seed += 1
    say(f"{checks} checks in {seed - SEED} cases on {engine.name}, RUNNEL_SEED={SEED}")


def test_random_projects_stay_right(say: Callable[[str], None]) -> None:
    _play(check_project, DuckDbEngine(threads=2), max(60, CASES // 5), say)


def test_random_projects_stay_right_where_every_relation_is_looked_up(
    say: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lookup, "SMALL_FILE", 0)
    monkeypatch.setattr(files, "ROW_GROUP", 3)
    engine = LookingEngine()
    _play(check_project, engine, max(60, CASES // 5), say)
    assert engine.looked_up > 30
    say(f"{engine.looked_up} steps by look-ups, {engine.counted.in_driver} of them as the driver runs them")


@pytest.mark.spark
def test_random_views_stay_right_on_spark(spark_engine: SparkEngine, say: Callable[[str], None]) -> None:
    _play(check_case, spark_engine, max(30, CASES // 10), say)


@pytest.mark.spark
def test_random_projects_stay_right_on_spark(spark_engine: SparkEngine, say: Callable[[str], None]) -> None:
    _play(check_project, spark_engine, max(10, CASES // 40), say)
