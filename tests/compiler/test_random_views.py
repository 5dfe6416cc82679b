"""Maintained equals recomputed, for random tables, views and changes, and for every case that once failed."""

from __future__ import annotations

import os
import random
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from runnel.engine.duckdb import DuckDbEngine
from tests.compiler.harness import check_case, play_case
from tests.compiler.random_views import random_case
from tests.compiler.shrink import REGRESSIONS, from_json, to_json

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SEED = int(os.environ.get("RUNNEL_SEED", "900001")) or random.SystemRandom().randrange(1, 10**9)
"""Where the slice of `make test` begins, so that it fails by a change and not by chance; 0 begins anywhere."""
CHECKS = int(os.environ.get("RUNNEL_CASES", "300"))
INCREMENTAL = 0.92
"""At least so many of the views are kept incrementally in long runs, which have about 95 of 100."""
OF_FEW = 0.90
"""The same for the slice of `make test`, whose 53 views are too few for that bound: 48 of them are."""
MANY_VIEWS = 300


def test_maintained_views_equal_their_query_after_every_batch_and_after_one_merged_batch(
    say: Callable[[str], None],
) -> None:
    print(f"RUNNEL_SEED={SEED} RUNNEL_CASES={CHECKS}")
    engine = DuckDbEngine(threads=2)
    checks = views = incremental = 0
    reasons: Counter[str] = Counter()
    seed = SEED
    while checks < CHECKS:
        outcome = check_case(engine, seed)
        checks, views = checks + outcome.checks, views + outcome.views
        incremental += outcome.incremental
        reasons.update(set(outcome.reasons))
        seed += 1
    engine.close()
    share = incremental / views
    say(f"{checks} checks in {seed - SEED} cases, {share:.1%} of {views} views incremental, RUNNEL_SEED={SEED}")
    print(reasons.most_common(5))
    assert share >= (INCREMENTAL if views >= MANY_VIEWS else OF_FEW), reasons.most_common(5)


@pytest.mark.parametrize("kept", sorted(REGRESSIONS.glob("*.json")), ids=lambda path: path.stem)
def test_what_once_failed_stays_right(engine: DuckDbEngine, kept: Path) -> None:
    play_case(engine, from_json(kept.read_text()), kept.stem)


@pytest.mark.parametrize("seed", range(20))
def test_a_case_survives_being_written_down(seed: int) -> None:
    case = random_case(seed)
    assert repr(from_json(to_json(case)).batches) == repr(
        tuple({t: r for t, r in b.items() if r} for b in case.batches)
    )
