"""A target that hardly takes anything, while large transactions burst and others write to its tables."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
from psycopg.conninfo import conninfo_to_dict

from tests.connectors.sync.conftest import BOTH
from tests.connectors.targets.conftest import wait_until
from tests.connectors.targets.stores import Gate

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.connectors.sync.conftest import Pair

pytestmark = BOTH

ROWS, TRANSACTIONS, WIDTH = 500, 40, 1_000
LOGGED = 2 * ROWS * TRANSACTIONS * WIDTH
"""Bytes of the burst in the log: old rows and new ones."""
MAX_ROWS = 1_000
MOST_MEMORY = 512 << 20
"""By how much the runner may grow: it grew by 240 MiB, as much with a burst of half the size."""
BYTES_PER_SECOND = 400_000
SIZES = "SELECT length(text) AS size, count(*) AS n FROM orders GROUP BY length(text)"


class OtherWriter(threading.Thread):
    """Writes a column of its own into the delivered rows, many in a transaction, in the order of their keys."""

    def __init__(self, pair: Pair) -> None:
        super().__init__(daemon=True)
        self._pair, self._closed = pair, threading.Event()
        self.written = 0
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            with psycopg.connect(self._pair.url) as connection:
                while not self._closed.wait(0.05):
                    # Rows that are there from the beginning: one that came between the two statements could be another's already.
                    connection.execute("SELECT id FROM orders WHERE id > 0 ORDER BY id FOR UPDATE")
                    connection.execute("UPDATE orders SET note = coalesce(note, 0) + 1 WHERE id > 0")
                    connection.commit()
                    self.written += 1
        except BaseException as error:
            self.error = error

    def close(self) -> None:
        """Stop; raise what went wrong, a deadlock say."""
        self._closed.set()
        self.join()
        assert self.error is None, self.error


def test_a_slow_target_bounds_nothing_but_itself(pair: Pair, say: Callable[[str], None]) -> None:
    """L.h: epochs and memory stay within their bounds, the source is not held up, nobody deadlocks, and nothing is lost."""
    crawl = Gate("127.0.0.1", int(str(conninfo_to_dict(pair.url)["port"])), BYTES_PER_SECOND)
    crawl.open()
    pair.sql("CREATE TABLE orders (id INT PRIMARY KEY, text TEXT)")
    pair.sql(f"INSERT INTO orders SELECT seq, REPEAT('a', {WIDTH}) FROM seq_1_to_{ROWS}")
    pair.change_target("CREATE TABLE orders (id int PRIMARY KEY, text text, note int)")
    pair.view("sizes", SIZES)
    slow = f"postgresql://postgres@127.0.0.1:{crawl.port}/{conninfo_to_dict(pair.url)['dbname']}"
    pair.deliver({"shop.orders": "orders", "sizes": "sizes"}, url=slow, run=f"max_rows = {MAX_ROWS}")
    pair.catch_up()
    waits = _waits(pair)
    others = [OtherWriter(pair), OtherWriter(pair)]
    try:
        with pair.running() as runner:
            pair.sql("INSERT INTO orders VALUES (0, '')")
            pair.wait_for("SELECT id FROM orders WHERE id = 0")
            idle = _memory(runner.pid, "VmRSS:")
            for other in others:
                other.start()
            for number in range(1, TRANSACTIONS + 1):
                pair.sql(
                    f"UPDATE orders SET text = CONCAT({number}, ' ', REPEAT('{number % 10}', {WIDTH})) WHERE id > 0"
                )
            assert _waits(pair) == waits, "the source's writer had to wait for a lock"
            pair.sql("INSERT INTO orders VALUES (-1, 'the end')")
            wait_until(lambda: bool(pair.arrived("SELECT id FROM orders WHERE id = -1")), 240)
            grown = _memory(runner.pid, "VmHWM:") - idle
            for other in others:
                other.close()
    finally:
        crawl.shut()
    assert pair.arrived("SELECT id, text FROM orders") == sorted(pair.sql("SELECT id, text FROM orders"), key=repr)
    assert pair.arrived("SELECT size, n FROM sizes") == sorted(pair.sql(SIZES), key=repr)
    assert pair.arrived("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()") == [(0,)]
    with pair.open() as project:
        epochs = project.epochs(1_000)
    say(
        f"{LOGGED >> 20} MiB of log, {len(epochs)} epochs, memory grew by {grown >> 20} MiB, "
        f"others wrote {others[0].written} and {others[1].written} times"
    )
    assert grown < MOST_MEMORY
    # An epoch ends between two transactions, so it may have one more than it should.
    assert max(epoch["rows_in"].get("shop.orders", 0) for epoch in epochs if epoch["kind"] == "epoch") <= 2 * MAX_ROWS


def _waits(pair: Pair) -> tuple[tuple[str, str], ...]:
    return pair.sql("SHOW GLOBAL STATUS WHERE Variable_name IN ('Innodb_row_lock_waits', 'Innodb_deadlocks')")


def _memory(pid: int, field: str) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(field))
