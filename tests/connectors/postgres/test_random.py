"""Random work on a real server, and a runner that is killed: the copy is the original at every checkpoint (L.b, L.c)."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from runnel.failpoints import KILL_AT
from tests.connectors.postgres.test_source import ORDERS, TAKINGS
from tests.connectors.postgres.workload import TABLES, Workload

if TYPE_CHECKING:
    from tests.connectors.postgres.conftest import Shop

pytestmark = pytest.mark.postgres
SEED = int(os.environ.get("RUNNEL_SEED", "1"))
STATEMENTS = int(os.environ.get("RUNNEL_SQL_STATEMENTS", "600"))
CHECKPOINTS = 3 if STATEMENTS < 5000 else 20


def test_the_copy_is_the_original_after_random_work(shop: Shop) -> None:
    print(f"seed {SEED}, {STATEMENTS} statements")
    shop.view("takings", TAKINGS)
    work = Workload(shop, SEED)
    with shop.open() as project:
        for _ in range(CHECKPOINTS):
            work.run(STATEMENTS // CHECKPOINTS)
            project.run(once=True)
            shop.compare_in(project, *TABLES)
            assert project.verify("takings").ok


@pytest.mark.parametrize("point", ["epoch:captured", "publish:after-commit", "epoch:before-release"])
@pytest.mark.parametrize("started", [False, True], ids=["snapshot", "log"])
def test_l_b_a_killed_runner_goes_on_where_it_was(shop: Shop, point: str, *, started: bool) -> None:
    shop.sql(ORDERS, "INSERT INTO orders VALUES (1, 'north', 1)")
    shop.view("takings", TAKINGS)
    if started:
        shop.catch_up()
        shop.sql(
            "UPDATE orders SET amount = 5", "INSERT INTO orders VALUES (2, 's', 2)", "DELETE FROM orders WHERE id = 1"
        )
    run = "from runnel.cli import main; main()"
    command = [sys.executable, "-c", run, "--project", str(shop.folder), "run", "--once"]
    environment = os.environ | {KILL_AT: point, "RUNNEL_ENGINE": "duckdb"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr
    shop.sql("INSERT INTO orders VALUES (1, 'north', 7) ON CONFLICT (id) DO UPDATE SET amount = 8")
    shop.catch_up()
    shop.compare("orders")
    with shop.open() as project:
        assert project.verify("takings").ok
