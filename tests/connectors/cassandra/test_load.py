"""A short slice of the load that `make load-cassandra` puts on views for ten minutes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.connectors.cassandra.load import Options, under_load

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = pytest.mark.cassandra


def test_views_equal_recompute_through_a_kill_of_runnel_and_a_restart_of_the_server(
    tmp_path: Path, say: Callable[[str], None]
) -> None:
    options = Options(seconds=20, engine="duckdb", steps=("kill", "check", "restart", "check"))
    load = under_load(tmp_path, options, say)
    assert load.wrong == []
    assert load.checks == 2
    assert load.lags(undisturbed=True)
