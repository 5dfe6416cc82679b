"""The trusted way beside the log: what it loads equals what was delivered, and following the log asks the source's tables nothing."""

from __future__ import annotations

import random
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

import psycopg

from tests.connectors.sync.conftest import BOTH
from tests.connectors.targets.conftest import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.connectors.sync.conftest import Pair

pytestmark = BOTH

TRANSACTIONS = 60
VIEWS = {
    "sold": "SELECT d.id, d.at_price, a.title FROM download d JOIN album a ON d.album = a.id",
    "takings": "SELECT a.title, sum(d.at_price) AS total, count(*) AS n FROM download d JOIN album a ON d.album = a.id "
    "GROUP BY a.title",
}
COLUMNS = {"sold": "id, at_price, title", "takings": "title, total, n"}


def test_what_follows_the_log_equals_what_the_batch_path_loads(pair: Pair, say: Callable[[str], None]) -> None:
    """L.j: shadow tables of the batch path equal the delivered ones; no query on source tables in between; the lag is told."""
    pair.sql("CREATE TABLE album (id INT PRIMARY KEY, title VARCHAR(20))")
    pair.sql("CREATE TABLE download (id INT AUTO_INCREMENT PRIMARY KEY, album INT, at_price DECIMAL(8,2))")
    pair.sql("INSERT INTO album SELECT seq, CONCAT('album ', seq) FROM seq_1_to_30")
    user = f"u{pair.database[2:]}"
    pair.sql(f"CREATE USER {user}@'127.0.0.1'", f"GRANT SELECT ON {pair.database}.* TO {user}@'127.0.0.1'")
    pair.sql(f"GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO {user}@'127.0.0.1'")
    for name, sql in VIEWS.items():
        pair.view(name, sql)
    pair.deliver({name: name for name in VIEWS}, keys={"sold": ["id"], "takings": ["title"]}, run="", user=user)
    pair.catch_up()
    with pair.running():
        pair.sql("INSERT INTO download VALUES (1, 1, 1)")
        pair.wait_for("SELECT id FROM sold WHERE id = 1")
        with _query_log(pair):
            lags = _load(pair)
            asked = pair.sql(
                f"SELECT CONVERT(argument USING utf8mb4) FROM mysql.general_log WHERE user_host LIKE '{user}%'"
            )
    queries = [text for (text,) in asked]
    assert any("information_schema" in text or "MASTER STATUS" in text for text in queries), "the log saw nothing"
    tables = [f"`{pair.database}`", f"FROM {pair.database}", "`download`", "`album`", "FROM download", "FROM album"]
    reads = [text for text in queries if "information_schema" not in text and any(table in text for table in tables)]
    assert reads == []
    _batch(pair)
    for name, columns in COLUMNS.items():
        for one, other in ((name, f"shadow_{name}"), (f"shadow_{name}", name)):
            assert pair.arrived(f"SELECT {columns} FROM {one} EXCEPT ALL SELECT {columns} FROM {other}") == [], (
                one,
                other,
            )
    assert pair.arrived("SELECT count(*) FROM sold") == sorted(pair.sql("SELECT count(*) FROM download"))
    assert "rows compared" in pair.run("verify", "--target", "front")
    p50, p95 = lags[len(lags) // 2], lags[int(len(lags) * 0.95)]
    say(
        f"{len(lags)} transactions, lag p50 {p50:.2f} s, p95 {p95:.2f} s, {len(queries)} queries, none of a source table"
    )


@contextmanager
def _query_log(pair: Pair) -> Iterator[None]:
    """Let the source keep all statements in a table meanwhile."""
    pair.sql("SET GLOBAL log_output = 'TABLE'", "TRUNCATE mysql.general_log", "SET GLOBAL general_log = ON")
    try:
        yield
    finally:
        pair.sql("SET GLOBAL general_log = OFF", "SET GLOBAL log_output = 'FILE'")


def _load(pair: Pair) -> list[float]:
    """Write as the shop does; give how long each new row was on its way, sorted."""
    chance = random.Random(1)
    committed: dict[int, float] = {}
    seen: dict[int, float] = {}
    closed = threading.Event()

    def watch() -> None:
        with psycopg.connect(pair.url, autocommit=True) as target:
            while not closed.wait(0.05):
                for (number,) in target.execute("SELECT id FROM sold WHERE id > 1000"):
                    seen.setdefault(number, time.monotonic())

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        for number in range(1001, 1001 + TRANSACTIONS):
            album, price = chance.randint(1, 30), chance.randrange(100, 2000) / 100
            pair.sql(f"INSERT INTO download VALUES ({number}, {album}, {price})")
            committed[number] = time.monotonic()
            if chance.random() < 0.3:
                pair.sql(f"UPDATE download SET at_price = {price + 1}, album = {album % 7 + 1} WHERE id = {number - 3}")
            if chance.random() < 0.1:
                pair.sql(f"UPDATE album SET title = CONCAT(title, '!') WHERE id = {album}")
        wait_until(lambda: len(seen) == TRANSACTIONS)
    finally:
        closed.set()
        watcher.join()
    pair.sql("DELETE FROM download WHERE id % 10 = 3", "INSERT INTO download VALUES (9999, 1, 1)")
    pair.wait_for("SELECT id FROM sold WHERE id = 9999")
    return sorted(seen[number] - when for number, when in committed.items())


def _batch(pair: Pair) -> None:
    """Load shadow tables as a batch job would: the source runs the views' SQL, all rows are written."""
    with psycopg.connect(pair.url) as target:
        for name, sql in VIEWS.items():
            target.execute(f"CREATE TABLE shadow_{name} AS SELECT {COLUMNS[name]} FROM {name} WHERE false".encode())
            rows = pair.sql(sql)
            with (
                target.cursor() as cursor,
                cursor.copy(f"COPY shadow_{name} ({COLUMNS[name]}) FROM STDIN".encode()) as copy,
            ):
                for row in rows:
                    copy.write_row(row)
