"""The dashboard load: a star of events around products, categories, shops and addresses; dimensions change rarely.

Data is made with numpy, so that ten million rows are a matter of seconds. Every row follows from the seed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Iterator

FACTS = "events"
TABLES = {
    "events": "id BIGINT, time TIMESTAMP, prod BIGINT, shop BIGINT, type STRING, cost DECIMAL(12,2), PRIMARY KEY (id)",
    "products": "id BIGINT, shop BIGINT, category BIGINT, name STRING, description STRING, cluster INT, PRIMARY KEY (id)",
    "categories": "id BIGINT, name STRING, parent BIGINT, PRIMARY KEY (id)",
    "shops": "id BIGINT, name STRING, PRIMARY KEY (id)",
    "address": "shop BIGINT, street STRING, city STRING, province STRING, code STRING, country STRING, PRIMARY KEY (shop)",
}
VIEWS = {
    "takings_per_shop_and_category": """SELECT s.name AS shop, c.name AS category, sum(e.cost) AS total, count(*) AS n
FROM events e JOIN products p ON e.prod = p.id JOIN categories c ON p.category = c.id JOIN shops s ON e.shop = s.id
GROUP BY s.name, c.name""",
    "takings_per_city": """SELECT a.country, a.city, sum(e.cost) AS total, count(*) AS n
FROM events e JOIN address a ON e.shop = a.shop GROUP BY a.country, a.city""",
    "cost_per_product": "SELECT prod, avg(cost) AS average, sum(cost) AS total, count(*) AS n FROM events GROUP BY prod",
    "expensive_events": """SELECT e.id, e.time, p.name, e.cost
FROM events e JOIN products p ON e.prod = p.id WHERE e.cost >= 990""",
}
SHOPS, PRODUCTS, CATEGORIES, CITIES = 50, 5_000, 20, 25
TYPES = np.array(["view", "cart", "buy", "return"])
CENTS = 100_000
START = np.datetime64("2026-01-01T00:00:00", "us")
CHUNK = 1_000_000
COST = pa.decimal128(12, 2)


def dimensions() -> dict[str, pa.Table]:
    """Give the rows of the tables around the events."""
    shop, product, category = np.arange(SHOPS), np.arange(PRODUCTS), np.arange(CATEGORIES)
    return {
        "products": pa.table(
            {
                "id": product,
                "shop": product % SHOPS,
                "category": product // SHOPS % CATEGORIES,
                "name": [f"product {n}" for n in product],
                "description": [f"the product with the number {n}" for n in product],
                "cluster": (product % 7).astype(np.int32),
            }
        ),
        "categories": pa.table({"id": category, "name": [f"category {n}" for n in category], "parent": category // 4}),
        "shops": pa.table({"id": shop, "name": [f"shop {n}" for n in shop]}),
        "address": pa.table(
            {
                "shop": shop,
                "street": [f"street {n}" for n in shop],
                "city": [f"city {n % CITIES}" for n in shop],
                "province": [f"province {n % 10}" for n in shop],
                "code": [f"{10_000 + n}" for n in shop],
                "country": [f"country {n % 3}" for n in shop],
            }
        ),
    }


@dataclass(frozen=True)
class Columns:
    """Events as plain arrays; `kind` counts in TYPES, `cents` is the cost."""

    id: np.ndarray
    time: np.ndarray
    prod: np.ndarray
    shop: np.ndarray
    kind: np.ndarray
    cents: np.ndarray

    def take(self, where: np.ndarray) -> Columns:
        """Give some of the events."""
        return Columns(*[array[where] for array in self._arrays()])

    def then(self, other: Columns) -> Columns:
        """Give these events and others behind them."""
        return Columns(*[np.concatenate(pair) for pair in zip(self._arrays(), other._arrays(), strict=True)])

    def arrow(self) -> pa.Table:
        """Give them as the table's rows."""
        return pa.table(
            {
                "id": self.id,
                "time": pa.array(START + self.time, pa.timestamp("us", tz="UTC")),
                "prod": self.prod,
                "shop": self.shop,
                "type": pa.DictionaryArray.from_arrays(self.kind, pa.array(TYPES)).cast(pa.string()),
                "cost": _decimals(self.cents),
            }
        )

    def _arrays(self) -> tuple[np.ndarray, ...]:
        return (self.id, self.time, self.prod, self.shop, self.kind, self.cents)


class Events:
    """All events there are, known in memory, so that signed rows of changes can be made without asking the state."""

    def __init__(self, base: int, seed: int = 11) -> None:
        """Make the first events."""
        self._random = np.random.default_rng(seed)
        self._next = 0
        self._now = self._made(base)

    def __len__(self) -> int:
        return len(self._now.id)

    def chunks(self) -> Iterator[pa.Table]:
        """Give every event, in pieces."""
        for start in range(0, len(self), CHUNK):
            yield self._now.take(np.arange(start, min(start + CHUNK, len(self)))).arrow()

    def change(self, count: int) -> pa.Table:
        """Change events and give the signed rows: of `count` changes half insert, three in ten update, the rest delete."""
        updates, deletes = min(count * 3 // 10, len(self) // 2), min(count // 5, len(self) // 2)
        touched = self._random.choice(len(self), updates + deletes, replace=False)
        gone = self._now.take(touched)
        renewed = self._repriced(self._now.take(touched[:updates]))
        added = self._made(count - updates - deletes)
        self._now = _without(self._now, touched).then(renewed).then(added)
        return pa.concat_tables([_signed(gone, -1), _signed(renewed, 1), _signed(added, 1)])

    def _repriced(self, events: Columns) -> Columns:
        cents = (events.cents + self._random.integers(1, CENTS, len(events.id))) % CENTS
        return Columns(events.id, events.time, events.prod, events.shop, events.kind, cents)

    def _made(self, count: int) -> Columns:
        pick = self._random
        ids = np.arange(self._next, self._next + count, dtype=np.int64)
        self._next += count
        prod = pick.integers(0, PRODUCTS, count)
        kind = pick.integers(0, len(TYPES), count).astype(np.int8)
        return Columns(ids, ids * 1_000, prod, prod % SHOPS, kind, pick.integers(0, CENTS, count))


def _without(events: Columns, touched: np.ndarray) -> Columns:
    keep = np.ones(len(events.id), dtype=bool)
    keep[touched] = False
    return events.take(keep)


def _signed(events: Columns, weight: int) -> pa.Table:
    rows = events.arrow()
    return rows.append_column("_weight", pa.array(np.full(rows.num_rows, weight, dtype=np.int64)))


def _decimals(cents: np.ndarray) -> pa.Array:
    """Give whole cents as decimals without touching each value in Python: 128-bit little-endian, the high half zero."""
    halves = np.zeros((len(cents), 2), dtype=np.int64)
    halves[:, 0] = cents
    return pa.Array.from_buffers(COST, len(cents), [None, pa.py_buffer(halves)])
