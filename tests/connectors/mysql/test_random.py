"""Random work on real servers, and a runner that is killed: the copy is the original at every checkpoint (L.b, L.c)."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from runnel.connectors.mysql import pieces, window
from runnel.errors import RunnelError
from runnel.failpoints import KILL_AT
from tests.connectors.cassandra.by_tasks import ByTasks
from tests.connectors.mysql.test_source import ORDERS, TAKINGS, source_of
from tests.connectors.mysql.workload import TABLES, Workload
from tests.pipeline.test_large_reads import reads_of

if TYPE_CHECKING:
    from tests.connectors.mysql.conftest import Shop

SEED = int(os.environ.get("RUNNEL_SEED", "1"))
STATEMENTS = int(os.environ.get("RUNNEL_SQL_STATEMENTS", "600"))
CHECKPOINTS = 3 if STATEMENTS < 5000 else 20


@pytest.mark.parametrize("way", ["driver", "tasks", "images", "images by tasks"])
def test_the_copy_is_the_original_after_random_work(shop: Shop, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    images = way.startswith("images")
    if images and shop.family == "mariadb":
        with pytest.raises(RunnelError, match="row_image"):
            source_of(shop, row_image="minimal")
        return
    print(f"seed {SEED}, {STATEMENTS} statements")
    if way != "driver":  # pieces of a few transactions, and cuts inside most that are not small
        monkeypatch.setattr(pieces, "PIECE_BYTES", 3000)
        monkeypatch.setattr(window, "HELD_BYTES", 3000)
    shop.configure(row_image="minimal" if images else None)
    shop.view("takings", TAKINGS)
    work = Workload(shop, SEED, images=images)
    try:
        with shop.open(ByTasks() if "tasks" in way else None) as project:
            for _ in range(CHECKPOINTS):
                work.run(STATEMENTS // CHECKPOINTS)
                project.run(once=True)
                shop.compare_in(project, *TABLES)
                assert project.verify("takings").ok
            assert ("tasks" in way) == ("spark" in reads_of(project))
    finally:
        if shop.family == "mariadb":
            shop.sql("SET GLOBAL log_bin_compress = OFF")


@pytest.mark.parametrize("point", ["epoch:captured", "publish:after-commit"])
def test_l_b_a_killed_runner_goes_on_where_it_was(shop: Shop, point: str) -> None:
    shop.sql(ORDERS, "INSERT INTO orders VALUES (1, 'north', 1)")
    shop.view("takings", TAKINGS)
    shop.catch_up()
    command = [
        sys.executable,
        "-c",
        "from runnel.cli import main; main()",
        "--project",
        str(shop.folder),
        "run",
        "--once",
    ]
    shop.sql(
        "UPDATE orders SET amount = 5", "INSERT INTO orders VALUES (2, 'south', 2)", "DELETE FROM orders WHERE id = 1"
    )
    environment = os.environ | {KILL_AT: point, "RUNNEL_ENGINE": "duckdb"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr
    shop.sql("INSERT INTO orders VALUES (1, 'north', 7)")
    shop.catch_up()
    shop.compare("orders")
    with shop.open() as project:
        assert project.verify("takings").ok
