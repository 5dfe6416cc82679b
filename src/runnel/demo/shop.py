"""The demo's shop: its tables, its five views, and an endless, repeatable stream of transactions."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from decimal import Decimal
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from runnel.pipeline.transaction import Transaction
    from runnel.project import Project

TABLES = {
    "customers": "id BIGINT, name STRING, region STRING, PRIMARY KEY (id)",
    "products": "id BIGINT, title STRING, category STRING, price DECIMAL(10,2), PRIMARY KEY (id)",
    "orders": "id BIGINT, customer_id BIGINT, product_id BIGINT, quantity INT, amount DECIMAL(12,2), PRIMARY KEY (id)",
}
VIEWS = {
    "large_orders": "SELECT id, customer_id, amount FROM orders WHERE amount >= 300",
    "order_lines": """SELECT o.id, c.name, c.region, p.title, o.quantity, o.amount
FROM orders o JOIN customers c ON o.customer_id = c.id JOIN products p ON o.product_id = p.id""",
    "takings": """SELECT c.region, p.category, sum(o.amount) AS total, count(*) AS n
FROM orders o JOIN customers c ON o.customer_id = c.id JOIN products p ON o.product_id = p.id
GROUP BY c.region, p.category""",
    "takings_by_region": "SELECT region, sum(total) AS total, sum(n) AS n FROM takings GROUP BY region",
    "buyers": """SELECT p.category, count(DISTINCT o.customer_id) AS buyers
FROM orders o JOIN products p ON o.product_id = p.id GROUP BY p.category""",
}
SHOWN = "takings_by_region"
REGIONS = ("north", "east", "south", "west")
CATEGORIES = ("books", "garden", "music", "tools", "toys")
FIRST = ("Ada", "Ben", "Cleo", "Dan", "Eva", "Finn", "Gus", "Hana", "Ivo", "Jana")
CUSTOMERS, PRODUCTS, ORDERS = 200, 60, 2_000


@dataclass
class Shop:
    """Knows what is in the tables, so that every change it makes is a valid one."""

    seed: int
    orders: dict[int, dict[str, Any]] = field(default_factory=dict)
    prices: dict[int, Decimal] = field(default_factory=dict)
    next_order: int = 1

    def __post_init__(self) -> None:
        """Start the one stream of random numbers that everything comes from."""
        self._random = random.Random(self.seed)

    def open(self, project: Project) -> None:
        """Create tables with their first rows, then the views."""
        for name, columns in TABLES.items():
            project.create_table(name, columns)
        with project.transaction() as tx:
            tx.insert("customers", [self._customer(number) for number in range(1, CUSTOMERS + 1)])
            tx.insert("products", [self._product(number) for number in range(1, PRODUCTS + 1)])
            tx.insert("orders", [self._order() for _ in range(ORDERS)])
        for name, sql in VIEWS.items():
            project.create_view(name, sql)

    def trade(self, tx: Transaction) -> int:
        """Put one transaction's changes: new orders, changed ones, cancelled ones, now and then a move or a new price."""
        pick = self._random
        changed = pick.sample(sorted(self.orders), pick.randint(2, 12))
        cancelled = changed[: pick.randint(1, len(changed) - 1)]
        added = [self._order() for _ in range(pick.randint(5, 30))]
        updated = [self._requantified(number) for number in changed[len(cancelled) :]]
        tx.insert("orders", added)
        tx.update("orders", updated)
        tx.delete("orders", [{"id": number} for number in cancelled])
        for number in cancelled:
            del self.orders[number]
        return len(added) + len(updated) + len(cancelled) + self._rarely(tx)

    def _rarely(self, tx: Transaction) -> int:
        """Change a dimension in one transaction of three: a customer moves, or a product gets another category."""
        if self._random.random() >= 1 / 3:
            return 0
        if self._random.random() < 1 / 2:
            customer = self._random.randint(1, CUSTOMERS)
            tx.update("customers", [{"id": customer, "region": self._random.choice(REGIONS)}])
        else:
            product = self._random.randint(1, PRODUCTS)
            tx.update("products", [{"id": product, "category": self._random.choice(CATEGORIES)}])
        return 1

    def _customer(self, number: int) -> dict[str, Any]:
        name = f"{self._random.choice(FIRST)} {number}"
        return {"id": number, "name": name, "region": self._random.choice(REGIONS)}

    def _product(self, number: int) -> dict[str, Any]:
        category = self._random.choice(CATEGORIES)
        self.prices[number] = Decimal(self._random.randint(200, 12_000)) / 100
        return {"id": number, "title": f"{category} no. {number}", "category": category, "price": self.prices[number]}

    def _order(self) -> dict[str, Any]:
        number, self.next_order = self.next_order, self.next_order + 1
        product, quantity = self._random.randint(1, PRODUCTS), self._random.randint(1, 5)
        self.orders[number] = {
            "id": number,
            "customer_id": self._random.randint(1, CUSTOMERS),
            "product_id": product,
            "quantity": quantity,
            "amount": self.prices[product] * quantity,
        }
        return self.orders[number]

    def _requantified(self, number: int) -> dict[str, Any]:
        quantity = self._random.randint(1, 9)
        amount = self.prices[self.orders[number]["product_id"]] * quantity
        self.orders[number] |= {"quantity": quantity, "amount": amount}
        return {"id": number, "quantity": quantity, "amount": amount}
