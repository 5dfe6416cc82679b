"""A runner that is killed again and again while transactions stream: no gap, and no row twice."""

from __future__ import annotations

import os
import random
import threading
import time
from itertools import pairwise
from typing import TYPE_CHECKING

from tests.connectors.sync.conftest import BOTH
from tests.connectors.targets.conftest import wait_until
from tests.support.runner import Runnel

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.connectors.sync.conftest import Pair

pytestmark = BOTH

KILLS = int(os.environ.get("RUNNEL_SYNC_KILLS", "3"))
SEED = int(os.environ.get("RUNNEL_SEED", "1"))
LONGEST = 3.0
"""Seconds in which a runner is killed: every other one after its start, the others after their first epoch."""
PAUSE = 0.3
"""Seconds between two transactions: runners that are hardly alive have to keep up in the end."""
ORDERS = 40
CHANGED = "SELECT new.id, old.amount AS was, new.amount AS now FROM CHANGES(orders) WHERE _op = 'update'"
TAKINGS = "SELECT region, sum(amount) AS total, count(*) AS n FROM orders GROUP BY region"


class Writer(threading.Thread):
    """Commits a few transactions a second: an order comes, goes or changes, and the ledger says what changed."""

    def __init__(self, pair: Pair) -> None:
        super().__init__(daemon=True)
        self._pair, self._chance, self._closed = pair, random.Random(SEED), threading.Event()
        self.transactions = 0
        self.error: BaseException | None = None

    def run(self) -> None:
        amounts: dict[int, int] = {}
        try:
            with self._pair.server.connect(self._pair.database, autocommit=False) as writer, writer.cursor() as cursor:
                while not self._closed.wait(PAUSE):
                    # Each order once: what changes twice in a transaction is one event.
                    for order in self._chance.sample(range(ORDERS), self._chance.randint(1, 5)):
                        for statement in self._step(order, amounts):
                            cursor.execute(statement)
                    writer.commit()
                    self.transactions += 1
        except BaseException as error:
            self.error = error

    def _step(self, order: int, amounts: dict[int, int]) -> list[str]:
        amount = self._chance.randrange(1_000_000)
        was = amounts.get(order)
        if was is None:
            amounts[order] = amount
            return [f"INSERT INTO orders VALUES ({order}, 'r{order % 5}', {amount})"]
        if self._chance.random() < 0.2:
            del amounts[order]
            return [f"DELETE FROM orders WHERE id = {order}"]
        amounts[order] = amount
        noted = f"INSERT INTO ledger (id, was, now) VALUES ({order}, {was}, {amount})"
        return [f"UPDATE orders SET amount = {amount} WHERE id = {order}", noted]

    def close(self) -> None:
        """Stop after the transaction that is open."""
        self._closed.set()
        self.join()
        assert self.error is None, self.error


def test_a_runner_killed_at_random_moments_goes_on_at_its_position(pair: Pair, say: Callable[[str], None]) -> None:
    """L.b: the target equals the source, its sums too; each change is one event, as the ledger has it."""
    pair.sql("CREATE TABLE orders (id INT PRIMARY KEY, region VARCHAR(9), amount INT)")
    pair.sql("CREATE TABLE ledger (n INT AUTO_INCREMENT PRIMARY KEY, id INT, was INT, now INT)")
    pair.view("takings", TAKINGS)
    pair.view("changed", CHANGED)
    delivered = {"shop.orders": "orders", "shop.ledger": "ledger", "takings": "takings", "changed": "changed"}
    pair.deliver(delivered)
    pair.catch_up()
    chance, writer = random.Random(SEED), Writer(pair)
    writer.start()
    epochs = [0]
    for number in range(KILLS):
        runner = Runnel(pair.folder, "duckdb")
        said = _epochs_said(runner)
        runner.start()
        if number % 2 == 0:
            wait_until(lambda runner=runner, said=said: _epochs_said(runner) > said)  # type: ignore[misc]
        time.sleep(chance.uniform(0, LONGEST))  # the moment is what is random here
        runner.check()
        runner.kill()
        with pair.open() as project:
            epochs.append(project.status().epoch)
    writer.close()
    pair.catch_up()
    for table in ("orders", "ledger"):
        assert pair.arrived(f"SELECT * FROM {table}") == sorted(pair.sql(f"SELECT * FROM {table}"), key=repr)
    there = [(region, int(total), n) for region, total, n in pair.arrived("SELECT region, total, n FROM takings")]
    assert there == [(region, int(total), n) for region, total, n in sorted(pair.sql(TAKINGS), key=repr)]
    net = "SELECT id, was, now FROM {} ORDER BY 1, 2, 3"
    assert pair.arrived(net.format("changed")) == sorted(pair.sql(net.format("ledger")), key=repr)
    moved = sum(two > one for one, two in pairwise(epochs))
    assert moved >= KILLS // 2
    say(f"{KILLS} kills, {moved} of runners that had published, {writer.transactions} transactions, seed {SEED}")


def _epochs_said(runner: Runnel) -> int:
    return runner.said.read_text().count("INFO epoch") if runner.said.exists() else 0
