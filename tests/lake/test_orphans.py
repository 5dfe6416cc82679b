"""Only files that this state's own dead writers left are orphans; how old a file is decides nothing."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import sqlalchemy as sa

from runnel.errors import Conflict, Terminal
from runnel.lake import expiry, tables
from runnel.lake.catalog import RUNNEL_VERSION
from runnel.lake.entries import Commit
from runnel.lake.lake import Lake
from runnel.lake.owner import is_dead, this_process
from tests.lake.samples import ORDERS, change, contents, create, signed

if TYPE_CHECKING:
    from tests.lake.conftest import Where


def make_old(data: str) -> None:
    for path in Path(data).rglob("*"):
        os.utime(path, (0, 0))


def kill_writers(lake: Lake) -> None:
    """Let the leases of all writers run out, as if their machines were gone."""
    with lake.catalog.write() as connection:
        connection.execute(tables.runnel_lease.update().values(until=0.0))


def test_files_of_a_writer_that_lives_are_kept_however_old(lake: Lake, where: Where) -> None:
    create(lake, ORDERS)
    unpublished = lake.write(ORDERS, signed(ORDERS, (1, "n", 1, 1)))
    temporary = Path(lake.unpublished("orders")) / "_temporary" / "0" / "part-0.parquet"
    temporary.parent.mkdir(parents=True)
    temporary.write_bytes(b"half")
    make_old(lake.data)
    other = where.open()
    assert expiry.expire(other, 0, grace=0).files == 0
    assert temporary.exists()
    lake.publish(Commit(lake.head(), add=[unpublished]))
    assert contents(other, ORDERS) == [(1, "n", 1, 1)]
    other.close()


def test_files_of_a_writer_that_is_gone_are_deleted_however_young(lake: Lake, where: Where) -> None:
    create(lake, ORDERS)
    change(lake, ORDERS, (1, "n", 1, 1))
    other = where.open()
    left = other.write(ORDERS, signed(ORDERS, (2, "n", 1, 1)))
    part = Path(other.unpublished("never")) / "_temporary" / "part.parquet"
    part.parent.mkdir(parents=True)
    part.write_bytes(b"half")
    other.close()
    assert expiry.expire(lake, 5, grace=3600).files == 2
    assert not part.exists()
    assert not Path(left.path).exists()
    assert contents(lake, ORDERS) == [(1, "n", 1, 1)]


def test_a_writer_whose_lease_was_ended_cannot_publish_its_files_and_begins_again(lake: Lake, where: Where) -> None:
    create(lake, ORDERS)
    given_up = lake.write(ORDERS, signed(ORDERS, (1, "n", 1, 1)))
    kill_writers(lake)
    other = where.open()
    assert expiry.expire(other, 5, grace=3600).files == 1
    with pytest.raises(Conflict, match="RUNNEL-WRITER-LOST"):
        lake.publish(Commit(lake.head(), add=[given_up]))
    assert change(lake, ORDERS, (2, "n", 1, 1)) == 2
    assert contents(other, ORDERS) == [(2, "n", 1, 1)]
    other.close()


def test_files_of_strangers_and_of_other_states_are_left_alone(lake: Lake) -> None:
    create(lake, ORDERS)
    folder = Path(lake.folder("orders"))
    folder.mkdir(parents=True)
    strangers = [
        folder / "ledger-2024.xlsx",
        folder / ("0" * 32 + ".parquet"),
        folder / f"{'a' * 12}-{'b' * 12}-{'c' * 32}.parquet",
        Path(lake.data) / "state" / "billing" / "years.parquet",
    ]
    for path in strangers:
        path.parent.mkdir(exist_ok=True)
        path.write_text("years of work")
    make_old(lake.data)
    assert expiry.expire(lake, 0, grace=0).files == 0
    assert all(path.exists() for path in strangers)


def test_a_second_catalog_over_one_data_folder_is_refused(tmp_path: Path) -> None:
    first = Lake.create(f"sqlite:{tmp_path}/a.sqlite", f"{tmp_path}/data")
    create(first, ORDERS)
    change(first, ORDERS, (1, "n", 1, 1))
    with pytest.raises(Terminal, match="RUNNEL-CATALOG-LOST"):
        Lake.create(f"sqlite:{tmp_path}/b.sqlite", f"{tmp_path}/data")
    Lake.create(f"sqlite:{tmp_path}/c.sqlite", f"{tmp_path}/other").close()
    with pytest.raises(Terminal, match="RUNNEL-DATA-TAKEN"):
        Lake.open(f"sqlite:{tmp_path}/c.sqlite", f"{tmp_path}/data")
    first.close()


@pytest.mark.parametrize("marked", [True, False])
def test_a_catalog_that_is_missing_or_emptied_is_not_made_again(tmp_path: Path, marked: bool) -> None:
    place, data = tmp_path / "c.sqlite", f"{tmp_path}/data"
    first = Lake.create(f"sqlite:{place}", data)
    create(first, ORDERS)
    change(first, ORDERS, (1, "n", 1, 1))
    first.close()
    place.unlink()
    if not marked:  # as earlier versions left it
        Path(data, "runnel-state.json").unlink()
    for emptied in (False, True):
        if emptied:
            sqlite3.connect(place).execute("VACUUM").connection.close()
        for act in (Lake.open, Lake.create):
            with pytest.raises(Terminal, match="RUNNEL-CATALOG-LOST"):
                act(f"sqlite:{place}", data)


def test_a_state_of_an_earlier_version_gets_an_id_and_keeps_its_rows(lake: Lake, where: Where) -> None:
    create(lake, ORDERS)
    change(lake, ORDERS, (1, "n", 1, 1))
    m = tables.runnel_metadata
    with lake.catalog.write() as connection:
        connection.execute(m.delete().where(m.c.key == "state"))
        connection.execute(m.update().where(m.c.key == "version").values(value="1"))
    Path(lake.data, "runnel-state.json").unlink()
    again = where.open()
    assert again.state != lake.state
    assert contents(again, ORDERS) == [(1, "n", 1, 1)]
    with again.catalog.read() as connection:
        assert connection.scalar(sa.select(m.c.value).where(m.c.key == "version")) == str(RUNNEL_VERSION)
    again.close()


def test_a_process_that_is_gone_is_known_to_be() -> None:
    mine = this_process()
    host, _, started, unique = mine.split(":")
    child = os.fork()
    if not child:
        os._exit(0)
    while not is_dead(f"{host}:{child}:0:{unique}"):  # also before anybody waits for it
        pass
    os.waitpid(child, 0)
    assert is_dead(f"{host}:{child}:0:{unique}")
    assert not is_dead(mine)
    assert is_dead(f"{host}:{os.getpid()}:{int(started) + 1}:{unique}")
    assert not is_dead(f"elsewhere:{child}:0:{unique}")
