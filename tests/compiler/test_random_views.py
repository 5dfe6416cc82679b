"""Maintained equals recomputed, for random tables, views and changes."""

from __future__ import annotations

import os
import random
from typing import TYPE_CHECKING

from runnel.engine.duckdb import DuckDbEngine
from tests.compiler.harness import check_case

if TYPE_CHECKING:
    from collections.abc import Callable

SEED = int(os.environ.get("RUNNEL_SEED", "0")) or random.SystemRandom().randrange(1, 10**9)
CHECKS = int(os.environ.get("RUNNEL_CASES", "300"))


def test_maintained_views_equal_their_query_after_every_batch_and_after_one_merged_batch(
    say: Callable[[str], None],
) -> None:
    print(f"RUNNEL_SEED={SEED} RUNNEL_CASES={CHECKS}")
    engine = DuckDbEngine(threads=1)
    checks, seed = 0, SEED
    while checks < CHECKS:
        checks += check_case(engine, seed)
        seed += 1
    engine.close()
    say(f"{checks} checks in {seed - SEED} cases, RUNNEL_SEED={SEED}")
