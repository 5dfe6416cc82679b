"""Archived logs without a server: the same rows, by the driver and by parts; what the files do not say is refused."""

from __future__ import annotations

import pickle
import shutil
from typing import TYPE_CHECKING, Any

import pytest

from runnel import config
from runnel.connectors.mysql import open_source
from runnel.errors import Place, RunnelError
from tests.connectors.mysql.test_source import ORDERS, TAKINGS

if TYPE_CHECKING:
    from runnel.connectors.mysql.archive import ArchiveSource
    from tests.connectors.mysql.conftest import Shop


def archived(shop: Shop) -> None:
    """Copy the logs of the shop's database to where its project reads them, and no server any more."""
    folder = shop.folder / "binlogs"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for path in shop.server.logs(shop.database):
        shutil.copy(path, folder)
    shop.configure(host=None, port=None, user=None, logs="binlogs/*")


def archive_of(shop: Shop) -> ArchiveSource:
    section = config.Source(
        "shop", shop.family, {"database": shop.database, "logs": "binlogs/*"}, Place("runnel.toml", 1)
    )
    return open_source(section, shop.folder)  # type: ignore[return-value]


def _work(shop: Shop) -> None:
    shop.sql(ORDERS, "INSERT INTO orders VALUES (1, 'north', 10), (2, 'north', 5.5), (3, 'south', 1)")
    shop.sql("CREATE TABLE items (id INT PRIMARY KEY, e ENUM('a', 'ü'))", "INSERT INTO items VALUES (1, 'ü')")
    shop.sql("FLUSH BINARY LOGS", "UPDATE orders SET amount = 7 WHERE id = 2", "TRUNCATE TABLE items")
    shop.sql("INSERT INTO items VALUES (5, 'a')", "DELETE FROM orders WHERE id = 3", "FLUSH BINARY LOGS")
    shop.sql("ALTER TABLE orders ADD COLUMN note TEXT", "INSERT INTO orders VALUES (9, 'west', 9, 'new')")


def test_views_are_kept_from_archived_logs_alone(shop: Shop) -> None:
    shop.view("takings", TAKINGS)
    _work(shop)
    archived(shop)
    shop.catch_up()
    shop.compare("orders", "items")
    with shop.open() as project:
        assert project.verify("takings").ok
    shop.sql("UPDATE orders SET note = 'x' WHERE id = 1")
    archived(shop)
    shop.catch_up()
    shop.compare("orders", "items")


def _signed(changes: Any) -> dict[str, int]:
    found: dict[str, int] = {}
    for change in changes:
        for row in change.signed.to_pylist():
            weight = row.pop("_weight")
            name = f"{change.table} {row}"
            found[name] = found.get(name, 0) + weight
    return {name: weight for name, weight in found.items() if weight}


def test_parts_of_a_range_hold_what_the_range_holds(shop: Shop) -> None:
    shop.sql(ORDERS, "CREATE TABLE items (id INT PRIMARY KEY)")
    for n in range(3):
        shop.sql(f"INSERT INTO orders VALUES ({n}, 'a', {n}), ({n + 10}, 'b', 1)", f"INSERT INTO items VALUES ({n})")
        shop.sql("UPDATE orders SET amount = amount + 1", "FLUSH BINARY LOGS")
    archived(shop)
    source = archive_of(shop)
    start = source.initial_offset()
    while True:  # definitions come first, each by itself
        end = source.latest_offset(start, 1000)
        parts = source.partitions(start, end)
        if parts is not None and len({part.table for part in parts}) == 2 and len(parts) > 2:
            break
        assert end != start
        start = end
    whole = _signed(source.read(start, end))
    read = [changes for part in pickle.loads(pickle.dumps(parts)) for changes in part.read()]
    assert whole
    assert _signed(read) == whole


def test_what_archived_logs_do_not_say_is_refused_by_name(shop: Shop) -> None:
    shop.sql(ORDERS, "INSERT INTO orders VALUES (1, 'a', 1)", "ALTER TABLE orders ADD COLUMN n INT DEFAULT 5")
    archived(shop)
    with pytest.raises(RunnelError, match=r"RUNNEL-BINLOG-DEFINITION: ALTER TABLE orders .*binlog\.\d+"):
        shop.catch_up()
    names = sorted((shop.folder / "binlogs").iterdir())
    shutil.copy(names[-1], names[-1].with_suffix(".009999"))
    with pytest.raises(RunnelError, match="RUNNEL-BINLOG-GAP"):
        shop.catch_up()
    shutil.rmtree(shop.folder / "binlogs")
    with pytest.raises(RunnelError, match="RUNNEL-BINLOG-FILES"):
        shop.catch_up()


def test_archived_logs_that_do_not_name_their_columns_are_refused(shop: Shop) -> None:
    shop.sql("SET GLOBAL binlog_row_metadata = MINIMAL", ORDERS, "INSERT INTO orders VALUES (1, 'a', 1)")
    shop.sql("SET GLOBAL binlog_row_metadata = FULL")
    archived(shop)
    with pytest.raises(RunnelError, match=r"RUNNEL-BINLOG-METADATA.*binlog_row_metadata = FULL"):
        shop.catch_up()
