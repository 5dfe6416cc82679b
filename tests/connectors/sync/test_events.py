"""Price changes as events: found against the earlier value, pushed once."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from tests.connectors.sync.conftest import BOTH
from tests.connectors.targets.conftest import wait_until

if TYPE_CHECKING:
    from tests.connectors.sync.conftest import Pair

pytestmark = BOTH

PRICES = "SELECT new.id, old.price AS was, new.price AS now FROM CHANGES(product) WHERE old.price <> new.price"


class Subscriber:
    """A process' worth of following: it runs the project and notes what it is pushed."""

    def __init__(self, pair: Pair) -> None:
        self._pair = pair
        self.events: list[tuple[int, int, int]] = []

    def __enter__(self) -> Subscriber:
        self._project = self._pair.open()
        self._project.subscribe("price_changes", self._note, cursor="prices")
        self._thread = threading.Thread(target=self._project.run)
        self._thread.start()
        return self

    def _note(self, rows: Any, _: int) -> None:
        self.events += [(row["id"], row["was"], row["now"]) for row in rows.to_pylist()]

    def covers_all(self) -> None:
        """Wait until everything that was committed so far was followed."""
        self._project.wait("shop", timeout=120)

    def __exit__(self, *_: object) -> None:
        self._project.stop()
        self._thread.join()
        self._project.close()


def test_a_price_change_is_one_event_and_is_pushed_once(pair: Pair) -> None:
    """L.e: 1 to 2 is an event; another column and the same price again are none; a new subscriber goes on after the last one."""
    pair.sql("CREATE TABLE product (id INT PRIMARY KEY, price INT, name VARCHAR(20))")
    pair.sql("INSERT INTO product VALUES (1, 1, 'pen'), (2, 5, 'ink')")
    pair.view("price_changes", PRICES)
    pair.deliver({"price_changes": "price_changes"})
    pair.catch_up()
    with Subscriber(pair) as first:
        pair.sql("UPDATE product SET price = 2 WHERE id = 1", "UPDATE product SET name = 'quill' WHERE id = 1")
        pair.sql("UPDATE product SET price = 2 WHERE id = 1", "UPDATE product SET price = 2, name = 'pen' WHERE id = 1")
        first.covers_all()
        wait_until(lambda: bool(first.events))
    assert first.events == [(1, 1, 2)]
    pair.sql("UPDATE product SET price = 6 WHERE id = 2")
    pair.catch_up()  # by somebody else, while nobody subscribes
    pair.sql("UPDATE product SET price = 7 WHERE id = 2")
    with Subscriber(pair) as second:
        second.covers_all()
        wait_until(lambda: len(second.events) >= 2)
        pair.sql("UPDATE product SET price = 3 WHERE id = 1")
        wait_until(lambda: len(second.events) >= 3)
    assert second.events == [(2, 5, 6), (2, 6, 7), (1, 2, 3)]
    expected = sorted([*first.events, *second.events], key=repr)
    assert pair.arrived("SELECT id, was, now FROM price_changes") == expected
