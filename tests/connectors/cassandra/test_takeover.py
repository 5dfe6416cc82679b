"""Two runners with folders of their own share a state, and nothing else: when one is killed, the other goes on with its cells."""

from __future__ import annotations

import shutil
import time
from typing import TYPE_CHECKING

import pytest

import runnel
from runnel.engine.duckdb import DuckDbEngine
from tests.connectors.cassandra.following import told_by_server
from tests.support.runner import Runnel

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.connectors.cassandra.conftest import Shop

pytestmark = pytest.mark.cassandra

WAIT_SECONDS = 120
TABLE = "CREATE TABLE KS.t (k int, c int, v int, w text, PRIMARY KEY (k, c)) WITH cdc = true"


def rows_of(folder: Path) -> list[dict[str, object]]:
    with runnel.open(folder, engine=DuckDbEngine(), sync=False) as project:
        return sorted(project.table("shop.t").to_pylist(), key=str)


def wait_until(holds: Callable[[], bool], runner: Runnel) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while not holds():
        assert time.monotonic() < deadline
        runner.check()


def test_a_runner_with_another_folder_goes_on_where_one_was_killed(shop: Shop, say: Callable[[str], None]) -> None:
    shop.cql(TABLE, *(f"INSERT INTO KS.t (k, c, v, w) VALUES ({n % 3}, {n}, {n}, 'w')" for n in range(30)))
    first, second = (_project(shop, name) for name in ("first", "second"))
    one, other = Runnel(first, "duckdb"), Runnel(second, "duckdb")
    one.start()
    try:
        wait_until(lambda: (shop.folder / "state" / "catalog.sqlite").exists(), one)
        for n in range(100):
            # Only cells tell what becomes of a row that is changed in one column, and dated back in another.
            shop.cql(
                f"UPDATE KS.t SET v = {n} WHERE k = {n % 3} AND c = {n % 40}",
                f"UPDATE KS.t USING TIMESTAMP 1 SET w = 'lost' WHERE k = {n % 3} AND c = {n % 40}",
                f"DELETE v FROM KS.t WHERE k = {n % 3} AND c = {(n + 7) % 40}",
            )
            if n == 60:
                one.kill()
                killed = time.monotonic()
                shutil.rmtree(first)
                other.start()
        shop.wait_for_log()
        expected = told_by_server(shop, "t")
        wait_until(lambda: rows_of(second) == expected, other)
        say(f"the second runner had everything {time.monotonic() - killed:.1f} s after the first was killed")
        notes = list((shop.node.cdc_raw / "runnel-readers").glob("*.json"))
        assert len(notes) == 1, "the log is kept for the state, not for a folder that is gone"
    finally:
        one.kill()
        other.kill()


def _project(shop: Shop, name: str) -> Path:
    """Make a project folder of its own over the state that both share."""
    folder = shop.folder / name
    folder.mkdir()
    shop.configure(tables=["t"])
    state = f'[state]\ncatalog = "sqlite:{shop.folder}/state/catalog.sqlite"\ndata = "{shop.folder}/state/data"\n'
    (folder / "runnel.toml").write_text((shop.folder / "runnel.toml").read_text() + state)
    return folder
