"""Waiting for one's own writes: the position after them is known before the server has synced them, and is reached."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

import pytest

from runnel.connectors.cassandra.log.all_nodes import Logs
from runnel.connectors.cassandra.log.catalog import Catalog
from runnel.connectors.cassandra.log.nodes import NodeLog
from runnel.connectors.cassandra.log.positions import Position
from runnel.connectors.cassandra.log.reader import LogReader
from runnel.connectors.cassandra.log.tail import LogFolder
from runnel.connectors.cassandra.log.written import SYNCED, WrittenLogs, written_end
from runnel.connectors.cassandra.settings import Settings
from runnel.connectors.skips import Skips
from tests.connectors.cassandra.encoder import body, record, write_segment
from tests.connectors.cassandra.following import opened
from tests.connectors.cassandra.random_updates import RandomUpdates, schema, tables

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from runnel.project import Project
    from tests.connectors.cassandra.conftest import Shop

ORDERS = "CREATE TABLE KS.orders (id int PRIMARY KEY, amount int) WITH cdc = true"


@pytest.fixture
def running(shop: Shop) -> Iterator[Project]:
    """Give a project that follows `orders` in another thread."""
    shop.cql(ORDERS, "INSERT INTO KS.orders (id, amount) VALUES (0, 1)")
    shop.configure(tables=["orders"])
    (shop.folder / "views").mkdir()
    (shop.folder / "views" / "v.sql").write_text(
        "CREATE MATERIALIZED VIEW total AS SELECT sum(amount) AS s FROM orders;"
    )
    with opened(shop) as project:
        thread = threading.Thread(target=project.run)
        thread.start()
        yield project
        project.stop()
        thread.join(60)


@pytest.mark.cassandra
def test_a_client_that_waits_for_its_own_writes_finds_them_in_the_view(running: Project, shop: Shop) -> None:
    session = shop.session()
    for n in range(1, 21):
        session.execute(f"INSERT INTO {shop.keyspace}.orders (id, amount) VALUES ({n}, 1)")
        epoch = running.wait("shop", running.position("shop"), view="total", timeout=60)
        assert running.view("total").to_pylist(at=epoch) == [{"s": n + 1}]


@pytest.mark.cassandra
def test_a_position_after_writes_of_others_is_covered_without_an_epoch(running: Project, shop: Shop) -> None:
    epoch = running.wait("shop", timeout=60)
    shop.cql("CREATE TABLE KS.others (id int PRIMARY KEY)", "INSERT INTO KS.others (id) VALUES (1)")
    assert running.wait("shop", running.position("shop"), timeout=60) == epoch


def written(folder: Path, ours: str, *, sync: float = 0.0) -> WrittenLogs:
    settings = Settings("shop", tables()[ours].keyspace)
    reader = LogReader(Catalog(schema(), wanted=[(tables()[ours].keyspace, ours)]))
    node = NodeLog("n", LogFolder(folder, indexed=False), reader)
    skips = Skips(None)
    return WrittenLogs(lambda: Logs([node], settings, None, "r", skips), sync, in_file=True)


def test_what_is_written_and_not_synced_is_before_the_position(tmp_path: Path) -> None:
    made = body(RandomUpdates(1).update(tables()["fixed"], b"\0\0\0\1"))
    path = write_segment(tmp_path, [[made]], room=0)
    synced = path.stat().st_size
    assert written_end(tmp_path) == (Position(1_700_000_000_001, synced), True)
    with path.open("ab") as file:  # a record after a marker that the next sync fills in, and the rest of the segment
        file.write(bytes(8) + record(made) + bytes(1000))
    position, _ = written_end(tmp_path)
    assert synced + 8 < position.position <= synced + 8 + len(record(made))
    write_segment(tmp_path, [], id_=1_700_000_000_002)  # the server has the next segment ready
    assert written_end(tmp_path)[0] == position


def test_a_position_is_covered_by_reading_that_far_or_by_finding_nothing_of_ours(tmp_path: Path) -> None:
    one, other = (body(RandomUpdates(1).update(tables()[name], b"\0\0\0\1")) for name in ("fixed", "wide"))
    path = write_segment(tmp_path, [[one]], room=0)
    have = {"n": [1_700_000_000_001, path.stat().st_size]}
    write_segment(tmp_path, [[one], [other]])
    of_fixed, of_wide = written(tmp_path, "fixed"), written(tmp_path, "wide")
    wanted = of_fixed.end()
    assert of_fixed.covers(have, wanted)
    assert not of_wide.covers(have, wanted)
    assert of_wide.covers(wanted["hosts"], wanted)
    assert not of_fixed.covers({}, wanted)


def test_a_compressed_log_has_a_position_with_the_time_of_its_next_syncs(tmp_path: Path) -> None:
    one = body(RandomUpdates(1).update(tables()["fixed"], b"\0\0\0\1"))
    write_segment(tmp_path, [[one]], compression="LZ4Compressor")
    log = written(tmp_path, "fixed", sync=0.2)
    wanted = log.end()
    have = wanted["hosts"]
    assert not log.covers(have, wanted), "what was acknowledged may not be in the file yet"
    write_segment(tmp_path, [[one], [one]], compression="LZ4Compressor")
    while time.time() <= wanted[SYNCED]:
        assert not log.covers(have, wanted)
    assert not log.covers(have, wanted), "the second section was written before the call, and is not read"
    assert log.covers(log.end()["hosts"], wanted)
