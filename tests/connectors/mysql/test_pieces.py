"""The log of a server in pieces, cut between transactions and inside long ones: tasks read them, and the driver holds no rows of them."""

from __future__ import annotations

import tracemalloc
from typing import TYPE_CHECKING, Any

import pytest

from runnel.connectors.mysql import logs, pieces, window
from runnel.connectors.mysql.pieces import Amount, PieceOfTable
from runnel.engine.driver import Driver
from runnel.engine.spark import SparkEngine
from runnel.errors import RunnelError
from tests.connectors.cassandra.by_tasks import ByTasks, sent
from tests.connectors.mysql.conftest import Shop
from tests.connectors.mysql.test_source import ORDERS, TAKINGS, source_of
from tests.pipeline.test_large_reads import reads_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from runnel.connectors.base import ChangeSet, Offset, Partition
    from runnel.connectors.mysql.source import ServerSource
    from tests.servers.mysql import SqlServer

ITEMS = "CREATE TABLE items (id INT PRIMARY KEY, what TEXT)"
SMALL = 20_000
"""Bytes of a piece, so that a few hundred rows are several."""


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cut everything small, hold nothing, and ask the server for every event."""
    monkeypatch.setattr(logs, "FAR", 0)
    monkeypatch.setattr(pieces, "PIECE_BYTES", SMALL)
    monkeypatch.setattr(window, "HELD_BYTES", SMALL)


def listed(read: Iterable[ChangeSet]) -> dict[str, list[str]]:
    """Give the signed rows of each table in their order."""
    found: dict[str, list[str]] = {}
    for changes in read:
        assert changes.signed is not None
        found.setdefault(changes.table, []).extend(map(repr, changes.signed.to_pylist()))
    return found


def cut(source: ServerSource, start: Offset, end: Offset) -> list[Partition]:
    found = source.partitions(start, end)
    assert found is not None
    return list(found)


def pieces_of(parts: Iterable[Partition]) -> list[PieceOfTable]:
    return [part.read for part in parts if isinstance(part.read, PieceOfTable)]


@pytest.fixture
def followed(shop: Shop) -> Iterator[tuple[ServerSource, Offset]]:
    """Give a source of two empty tables, after its snapshot."""
    shop.sql(ORDERS, ITEMS)
    source = source_of(shop)
    source.tables()
    yield source, source.latest_offset({}, 1000)
    source.close()


def many(first: int, count: int, width: int = 10) -> str:
    return ", ".join(f"({n}, '{'x' * width}{n}', {n % 90})" for n in range(first, first + count))


def work(shop: Shop) -> None:
    """Change both tables in all the ways a log can have: short and long transactions, XA across others, aborted ones, new files."""
    rows = ", ".join(f"({n}, '{'x' * 30}{n}')" for n in range(10_000, 10_900))
    shop.sql("XA START 'a'", f"INSERT INTO items VALUES {rows}", "XA END 'a'", "XA PREPARE 'a'")
    shop.sql("XA START 'b'", "INSERT INTO items VALUES (50000, 'never')", "XA END 'b'", "XA PREPARE 'b'")
    with shop.server.connect(shop.database, autocommit=False) as connection, connection.cursor() as cursor:
        cursor.execute(f"INSERT INTO orders VALUES {many(1, 1500)}")
        cursor.execute("INSERT INTO items VALUES (1, 'one')")
        cursor.execute("UPDATE orders, items SET amount = amount + 1, what = 'two' WHERE items.id = 1")
        cursor.execute("DELETE FROM orders WHERE orders.id % 3 = 0")
        connection.commit()
    shop.sql("XA COMMIT 'a'", "FLUSH BINARY LOGS", "XA ROLLBACK 'b'", "UPDATE items SET what = 'three'")
    shop.sql(*(f"REPLACE INTO items VALUES ({n % 7}, '{'y' * 300}')" for n in range(100)))


@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.usefixtures("small")
def test_tasks_find_in_pieces_what_the_driver_reads_in_the_same_order(
    shop: Shop, followed: tuple[ServerSource, Offset], compressed: bool
) -> None:
    source, start = followed
    name = "binlog_transaction_compression" if shop.family == "mysql" else "log_bin_compress"
    shop.sql(f"SET GLOBAL {name} = {'ON' if compressed else 'OFF'}")
    try:
        work(shop)
    finally:
        shop.sql(f"SET GLOBAL {name} = OFF")
    end = source.latest_offset(start, 1_000_000)
    parts = cut(source, start, end)
    whole = listed(source.read(start, end))
    assert listed(changes for part in sent(parts) for changes in part.read()) == whole
    found = pieces_of(parts)
    assert {part.definition.name for part in found} == {"orders", "items"}
    assert len({part.piece.begin.file for part in found}) == 2
    assert [part.piece.decided is not None for part in found].count(True) >= 1
    # A compressed transaction is one event, which is not cut.
    assert any(part.piece.maps for part in found) == (not compressed or shop.family == "mariadb")
    rows = sum(map(len, whole.values()))
    assert rows / 2 <= sum(part.rows for part in parts) <= rows * 2


@pytest.mark.usefixtures("small")
def test_a_range_ends_between_transactions_however_long_they_are(
    shop: Shop, followed: tuple[ServerSource, Offset]
) -> None:
    source, start = followed
    with shop.server.connect(shop.database, autocommit=False) as connection, connection.cursor() as cursor:
        for begin in range(0, 4000, 1000):
            cursor.execute(f"INSERT INTO orders VALUES {many(begin, 1000)}")
        connection.commit()
        cursor.execute("DELETE FROM orders WHERE id = 1")
        connection.commit()
    end = source.latest_offset(start, 10)
    parts, whole = cut(source, start, end), listed(source.read(start, end))
    assert len(whole["orders"]) == 4000
    assert len(parts) > 4
    assert listed(changes for part in parts for changes in part.read()) == whole
    last = source.latest_offset(end, 10)
    assert len(listed(source.read(end, last))["orders"]) == 1


@pytest.mark.mariadb
def test_a_long_transaction_at_the_end_of_the_log_is_read_whatever_the_server_says_of_places(
    tmp_path: Path, mariadb_server: SqlServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """MariaDB 11 gives no places inside a transaction, and leaves out events there: it is then one piece."""
    monkeypatch.setattr(pieces, "PIECE_BYTES", SMALL)
    shop = Shop(tmp_path, mariadb_server)
    shop.sql(ORDERS)
    source = source_of(shop)
    source.tables()
    start = source.latest_offset({}, 1000)
    with shop.server.connect(shop.database, autocommit=False) as connection, connection.cursor() as cursor:
        for begin in range(0, 4000, 1000):
            cursor.execute(f"INSERT INTO orders VALUES {many(begin, 1000)}")
        connection.commit()
    end = source.latest_offset(start, 10)
    parts, whole = cut(source, start, end), listed(source.read(start, end))
    counted = "11." in shop.sql("SELECT VERSION()")[0][0][:3]
    assert (len(parts) == 1) == counted
    assert listed(changes for part in parts for changes in part.read()) == whole
    source.close()


def test_the_driver_holds_no_rows_of_a_long_transaction(
    shop: Shop, followed: tuple[ServerSource, Offset], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pieces, "PIECE_BYTES", 4 << 20)
    monkeypatch.setattr(window, "HELD_BYTES", 1 << 20)
    source, start = followed
    with shop.server.connect(shop.database, autocommit=False) as connection, connection.cursor() as cursor:
        cursor.execute("INSERT INTO items VALUES (0, REPEAT('z', 1000))")
        for power in range(15):
            cursor.execute(f"INSERT INTO items SELECT id + {1 << power}, what FROM items")
        connection.commit()
    tracemalloc.start()
    end = source.latest_offset(start, 1000)
    parts = cut(source, start, end)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    held = source._held
    assert held is not None
    assert held.changes is None
    assert len({part.piece.begin for part in pieces_of(parts)}) >= 8
    assert sum(part.piece.tables["items"].bytes for part in pieces_of(parts)) > 30 << 20
    assert peak < 8 << 20
    assert sum(changes.rows for part in parts for changes in part.read()) == 1 << 15


@pytest.mark.usefixtures("small")
def test_a_piece_that_is_not_what_it_was_is_refused(shop: Shop, followed: tuple[ServerSource, Offset]) -> None:
    source, start = followed
    shop.sql("INSERT INTO orders VALUES (1, 'a', 1)")
    part = pieces_of(cut(source, start, source.latest_offset(start, 10)))[0]
    part.piece.tables["orders"] = Amount(1, 5)  # type: ignore[index]
    with pytest.raises(RunnelError, match=r"RUNNEL-BINLOG-CHANGED.*binlog\.\d+:\d+"):
        list(part())


@pytest.mark.parametrize("each", [1, 150])
@pytest.mark.parametrize("width", [0, 20, 2000])
def test_a_range_has_about_as_many_rows_as_it_may(shop: Shop, each: int, width: int) -> None:
    shop.sql(ITEMS)
    source = source_of(shop)
    source.tables()
    at = source.latest_offset({}, 1000)
    values = [f"({n}, '{'x' * (width if n % 3 else 1)}')" for n in range(600)]
    shop.sql(*(f"INSERT INTO items VALUES {', '.join(values[n : n + each])}" for n in range(0, 600, each)))
    found = []
    while (end := source.latest_offset(at, 200)) != at:
        found.append(sum(changes.rows for changes in source.read(at, end)))
        at = end
    assert sum(found) == 600
    assert max(found) <= 400
    assert min(found[:-1]) >= 100
    source.close()


def test_tasks_have_numbers_of_their_own_and_end_no_other_reader(shop: Shop) -> None:
    shop.sql(ORDERS)
    shop.configure(server_id=4711)
    with shop.open(ByTasks()) as project:
        for step in range(3):
            shop.sql(f"INSERT INTO orders VALUES ({step}, 'a', 1)")
            project.run(once=True)
        assert reads_of(project) == {"spark": 3}
        shop.compare_in(project, "orders")


@pytest.mark.spark
def test_spark_decodes_a_backlog_and_the_driver_sees_paths_and_counts(
    shop: Shop, spark_engine: SparkEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pieces, "PIECE_BYTES", 3 * SMALL)
    monkeypatch.setattr(window, "HELD_BYTES", SMALL)
    secret = "hunter2-of-the-log"
    shop.sql(ORDERS, f"CREATE USER IF NOT EXISTS tasks@'127.0.0.1' IDENTIFIED BY '{secret}'", ITEMS)
    shop.sql("GRANT ALL ON *.* TO tasks@'127.0.0.1'")
    shop.configure(user="tasks", password=secret)
    shop.view("takings", TAKINGS)
    shop.catch_up()
    with shop.open() as project:
        before = len(project.epochs())
    work(shop)
    engine = SparkEngine(spark_engine.session, driver=Driver(changes=0))
    with shop.open(engine) as project:
        project.run(once=True)
        shop.compare_in(project, "orders", "items")
        assert project.verify("takings").ok
        record: list[dict[str, Any]] = [epoch["work"] for epoch in list(project.epochs())[before:] if "work" in epoch]
        assert sum(one["read"]["driver"] for one in record if "read" in one) == 0
        assert sum(one["read"]["spark"] for one in record if "read" in one) >= 4
    assert not [path for path in files_below(shop.folder / ".runnel") if secret.encode() in path.read_bytes()]


def files_below(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]
