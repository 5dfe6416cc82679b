"""The star that most benchmarks change: events around products, categories, shops, addresses, customers and promotions.

Every event follows from its number, its version and the seed, so a hundred million of them need one byte each in memory and
the old row of a change is known without asking the state.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

FACTS = "events"
TABLES = {
    "events": "id BIGINT, time TIMESTAMP, prod BIGINT, shop BIGINT, customer BIGINT, type STRING, cost DECIMAL(12,2), PRIMARY KEY (id)",
    "products": "id BIGINT, shop BIGINT, category BIGINT, name STRING, description STRING, cluster INT, PRIMARY KEY (id)",
    "categories": "id BIGINT, name STRING, parent BIGINT, PRIMARY KEY (id)",
    "shops": "id BIGINT, name STRING, PRIMARY KEY (id)",
    "address": "shop BIGINT, street STRING, city STRING, province STRING, code STRING, country STRING, PRIMARY KEY (shop)",
    "customers": "id BIGINT, name STRING, city STRING, PRIMARY KEY (id)",
    "promotions": "id BIGINT, prod BIGINT, name STRING, PRIMARY KEY (id)",
}
VIEWS = {
    "takings_per_shop_and_category": """SELECT s.name AS shop, c.name AS category, sum(e.cost) AS total, count(*) AS n
FROM events e JOIN products p ON e.prod = p.id JOIN categories c ON p.category = c.id JOIN shops s ON e.shop = s.id
GROUP BY s.name, c.name""",
    "takings_per_city": """SELECT a.country, a.city, u.city AS home, sum(e.cost) AS total, count(*) AS n
FROM events e JOIN address a ON e.shop = a.shop JOIN customers u ON e.customer = u.id GROUP BY a.country, a.city, u.city""",
    "expensive_events": """SELECT e.id, e.`time`, p.name, e.cost
FROM events e JOIN products p ON e.prod = p.id WHERE e.cost >= 990""",
    "price_range": "SELECT prod, min(cost) AS low, max(cost) AS high FROM events GROUP BY prod",
    "customers_per_shop": "SELECT shop, count(DISTINCT customer) AS customers FROM events GROUP BY shop",
    "takings_per_promotion": """SELECT r.name AS promotion, sum(e.cost) AS total, count(*) AS n
FROM events e LEFT JOIN promotions r ON e.prod = r.prod GROUP BY r.name""",
    "dearest_events": """SELECT shop, id, cost, place
FROM (SELECT shop, id, cost, row_number() OVER (PARTITION BY shop ORDER BY cost DESC, id) AS place FROM events) AS ranked
WHERE place <= 3""",
}
KINDS = {
    "takings_per_shop_and_category": "four tables joined, SUM, COUNT",
    "takings_per_city": "three tables joined, SUM, COUNT",
    "expensive_events": "selection over a join",
    "price_range": "MIN, MAX",
    "customers_per_shop": "COUNT DISTINCT",
    "takings_per_promotion": "LEFT JOIN, SUM, COUNT",
    "dearest_events": "top 3 per key",
}
CATEGORIES, CITIES, COUNTRIES, FAVOURITES = 20, 25, 3, 10
TYPES = np.array(["view", "cart", "buy", "return"])
CENTS = 100_000
START = np.datetime64("2026-01-01T00:00:00", "us")
CHUNK = 1_000_000
COST = pa.decimal128(12, 2)
SCHEMA = pa.schema(
    {"id": pa.int64(), "time": pa.timestamp("us", tz="UTC"), "prod": pa.int64(), "shop": pa.int64()}
    | {"customer": pa.int64(), "type": pa.string(), "cost": COST}
)
VERSIONS = 255


@dataclass(frozen=True)
class Sizes:
    """How many of each there are around so many events: a hundred events per customer, shops and products within bounds."""

    events: int
    products: int
    shops: int
    customers: int
    promotions: int

    @classmethod
    def around(cls, base: int) -> Sizes:
        """Give the sizes for so many events; 5,000 products, 1,000 shops and 100,000 customers for ten million.

        >>> Sizes.around(10_000_000)
        Sizes(events=10000000, products=5000, shops=1000, customers=100000, promotions=500)
        """
        products = min(5_000, max(20, base // 200))
        return cls(base, products, min(1_000, max(5, base // 1_000)), max(10, base // 100), products // 10)


class Star:
    """All rows there are. `change` and `change_dimensions` change them and give the signed rows of the change."""

    def __init__(self, base: int, seed: int = 11) -> None:
        """Make the first rows."""
        self.sizes = Sizes.around(base)
        self._seed = seed
        self._random = np.random.default_rng(seed)
        self._version = np.ones(base, dtype=np.uint8)  # 0: there is no such event (any more)
        self._next = base
        self._alive = base
        self._category = np.arange(self.sizes.products) // 7 % CATEGORIES
        promoted = np.arange(self.sizes.promotions)
        self._promotions = {int(n): int(n * 10 % self.sizes.products) for n in promoted}

    def __len__(self) -> int:
        return self._alive

    def tables(self) -> dict[str, Iterable[pa.Table]]:
        """Give every row of every table as it is now, in pieces that are made when they are asked for."""
        return {FACTS: self.chunks(), **{name: iter([rows]) for name, rows in self._dimensions().items()}}

    def chunks(self) -> Iterator[pa.Table]:
        """Give every event, in pieces."""
        for start in range(0, self._next, CHUNK):
            numbers = np.arange(start, min(start + CHUNK, self._next))
            yield self._events(numbers[self._version[numbers] > 0])

    def change(self, count: int) -> pa.Table:
        """Change events and give the signed rows: of `count` changes half insert, three in ten update, the rest delete."""
        updates, deletes = min(count * 3 // 10, len(self) // 2), min(count // 5, len(self) // 2)
        touched = self._choose(updates + deletes)
        gone = self._events(touched)
        renewed, ended = touched[:updates], touched[updates:]
        self._version[renewed] = self._version[renewed] % VERSIONS + 1
        self._version[ended] = 0
        added = self._grow(count - updates - deletes)
        self._alive += len(added) - deletes
        return pa.concat_tables(
            [weighted(gone, -1), weighted(self._events(renewed), 1), weighted(self._events(added), 1)]
        )

    def insert(self, count: int) -> pa.Table:
        """Add events and give their signed rows."""
        added = self._grow(count)
        self._alive += count
        return weighted(self._events(added), 1)

    def update(self, count: int) -> pa.Table:
        """Give events other costs and give the signed rows."""
        touched = self._choose(count)
        gone = self._events(touched)
        self._version[touched] = self._version[touched] % VERSIONS + 1
        return pa.concat_tables([weighted(gone, -1), weighted(self._events(touched), 1)])

    def delete(self, count: int) -> pa.Table:
        """Take events away and give their signed rows."""
        touched = self._choose(count)
        gone = self._events(touched)
        self._version[touched] = 0
        self._alive -= count
        return weighted(gone, -1)

    def change_dimensions(self, count: int) -> dict[str, pa.Table]:
        """Move half as many products to another category and replace the other half of promotions; give the signed rows."""
        moved = self._random.choice(self.sizes.products, min(self.sizes.products, -(-count // 2)), replace=False)
        before = self._products(moved)
        self._category[moved] = (self._category[moved] + 1) % CATEGORIES
        signed = {"products": pa.concat_tables([weighted(before, -1), weighted(self._products(moved), 1)])}
        ended = self._random.choice(
            np.array(sorted(self._promotions)), min(len(self._promotions), count // 2), replace=False
        )
        if len(ended):
            over = _promotion_rows({int(n): self._promotions.pop(int(n)) for n in ended})
            first = max((*self._promotions, int(max(ended)))) + 1
            fresh = {first + at: int(self._random.integers(self.sizes.products)) for at in range(len(ended))}
            self._promotions |= fresh
            signed["promotions"] = pa.concat_tables([weighted(over, -1), weighted(_promotion_rows(fresh), 1)])
        return signed

    def _choose(self, count: int) -> np.ndarray:
        """Choose events that are there, each at most once."""
        if count * 4 > len(self):
            return self._random.choice(np.flatnonzero(self._version[: self._next]), count, replace=False)
        found = np.empty(0, dtype=np.int64)
        while len(found) < count:
            more = self._random.integers(0, self._next, count * 2)
            found = np.unique(np.concatenate([found, more[self._version[more] > 0]]))
        return self._random.permutation(found)[:count]

    def _grow(self, count: int) -> np.ndarray:
        ids = np.arange(self._next, self._next + count)
        self._next += count
        if self._next > len(self._version):
            room = np.zeros(max(self._next, len(self._version) * 5 // 4), dtype=np.uint8)
            room[: len(self._version)] = self._version
            self._version = room
        self._version[ids] = 1
        return ids

    def _events(self, ids: np.ndarray) -> pa.Table:
        mixed = partial(_mixed, seed=self._seed)
        customer = mixed(ids, 1) % self.sizes.customers
        favourite = mixed(ids, 2) % FAVOURITES
        kind = (mixed(ids, 3) % len(TYPES)).astype(np.int8)
        cents = mixed(ids * (VERSIONS + 1) + self._version[ids], 4) % CENTS
        columns = {
            "id": ids,
            "time": pa.array(START + ids * 1_000, SCHEMA.field("time").type),
            "prod": mixed(ids, 5) % self.sizes.products,
            "shop": (customer * 7 + favourite * favourite) % self.sizes.shops,
            "customer": customer,
            "type": pa.DictionaryArray.from_arrays(kind, pa.array(TYPES)).cast(pa.string()),
            "cost": decimals(cents),
        }
        return pa.table(columns, schema=SCHEMA)

    def _dimensions(self) -> dict[str, pa.Table]:
        shop, category, customer = (np.arange(n) for n in (self.sizes.shops, CATEGORIES, self.sizes.customers))
        return {
            "products": self._products(np.arange(self.sizes.products)),
            "categories": pa.table({"id": category, "name": _names("category", category), "parent": category // 4}),
            "shops": pa.table({"id": shop, "name": _names("shop", shop)}),
            "address": pa.table(
                {
                    "shop": shop,
                    "street": _names("street", shop),
                    "city": _names("city", shop % CITIES),
                    "province": _names("province", shop % 10),
                    "code": _names("code", shop + 10_000),
                    "country": _names("country", shop % COUNTRIES),
                }
            ),
            "customers": pa.table(
                {"id": customer, "name": _names("customer", customer), "city": _names("city", customer % CITIES)}
            ),
            "promotions": _promotion_rows(self._promotions),
        }

    def _products(self, ids: np.ndarray) -> pa.Table:
        return pa.table(
            {
                "id": ids,
                "shop": ids % self.sizes.shops,
                "category": self._category[ids],
                "name": _names("product", ids),
                "description": _names("the product with the number", ids),
                "cluster": (ids % 7).astype(np.int32),
            }
        )


def weighted(rows: pa.Table, weight: int) -> pa.Table:
    """Give rows with a weight each."""
    return rows.append_column("_weight", pa.array(np.full(rows.num_rows, weight, dtype=np.int64)))


def decimals(cents: np.ndarray) -> pa.Array:
    """Give whole cents as decimals without touching each value in Python: 128-bit little-endian, the high half zero."""
    halves = np.zeros((len(cents), 2), dtype=np.int64)
    halves[:, 0] = cents
    return pa.Array.from_buffers(COST, len(cents), [None, pa.py_buffer(halves)])


def _promotion_rows(promotions: Mapping[int, int]) -> pa.Table:
    ids, products = (np.array(list(part), dtype=np.int64) for part in (promotions, promotions.values()))
    return pa.table({"id": ids, "prod": products, "name": _names("promotion", ids % 100)})


def _names(what: str, numbers: np.ndarray) -> pa.Array:
    return pa.array([f"{what} {n}" for n in numbers], pa.string())


def _mixed(numbers: Any, column: int, *, seed: int) -> np.ndarray:
    """Give a number without a pattern for each of these: the finish of a well-known 64-bit generator, by column and seed."""
    with np.errstate(over="ignore"):
        mixed = np.asarray(numbers).astype(np.uint64) + np.uint64(seed * 1_000 + column)
        mixed *= np.uint64(0x9E3779B97F4A7C15)
        mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return ((mixed ^ (mixed >> np.uint64(31))) >> np.uint64(1)).astype(np.int64)
