"""The projects that `runnel init` writes: small, commented, and they run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from runnel import config
from runnel.cli import sync_example
from runnel.errors import Place, UsageError, nearest, places_named

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

TOML = """\
# A runnel project: connections and settings. Tables stand in tables/, views in views/.
[project]
name = "shop"

[state]                                      # a DuckLake: a SQL catalog and Parquet files
# catalog = "sqlite:.runnel/catalog.sqlite"  # or "postgresql://user@host/db" when several machines share it
# data = ".runnel/data"                      # or any path or URI that Spark reaches
# keep = 100                                 # how many epochs stay readable

[spark]                                      # all optional
# master = "local[*]"
# conf = { "spark.driver.memory" = "4g" }

[run]
epoch = "100ms"                              # how long changes are gathered; "transaction" = one epoch each
max_rows = 1_000_000                         # and how many at most

# Changes come in as files: every new file below feed/orders/ is read once, in the order of the names.
# The table is called feed.orders in SQL, or just orders.
[sources.feed]
type = "files"
path = "feed"

[sources.feed.schema]
orders = "id BIGINT, customer BIGINT, product BIGINT, amount DECIMAL(12,2)"
customers = "id BIGINT, name STRING, region STRING"

[sources.feed.key]
orders = ["id"]
customers = ["id"]
"""

TABLES = """\
-- Managed tables live in the project's own state. Change them from Python:
--   with runnel.open("shop") as project:
--       project.sql("INSERT INTO goals VALUES ('north', 1000)")
CREATE TABLE goals (
  region STRING,
  goal DECIMAL(12,2),
  PRIMARY KEY (region)
);
"""

LARGE_ORDERS = """\
-- A selection: it follows every change of orders.
CREATE MATERIALIZED VIEW large_orders
COMMENT 'orders of 100 or more'
AS SELECT id, customer, amount
FROM orders
WHERE amount >= 100;
"""

TAKINGS = """\
-- An aggregate over a join; `runnel explain takings` shows how it is kept.
CREATE MATERIALIZED VIEW takings
COMMENT 'takings per region'
TBLPROPERTIES ('refresh' = 'immediate',  -- immediate | '5 seconds' | manual | auto
               'mode' = 'auto')          -- auto | incremental (refuse what is not) | full
AS SELECT c.region, sum(o.amount) AS total, count(*) AS n
FROM orders o JOIN customers c ON o.customer = c.id
GROUP BY c.region;

-- An aggregate of one table alone.
CREATE MATERIALIZED VIEW per_product AS
SELECT product, sum(amount) AS total, count(*) AS n
FROM orders
GROUP BY product;
"""

ORDERS = """\
{"id": 1, "customer": 1, "product": 10, "amount": 120.00}
{"id": 2, "customer": 2, "product": 10, "amount": 35.50}
{"id": 3, "customer": 1, "product": 11, "amount": 240.25}
"""

CUSTOMERS = """\
{"id": 1, "name": "Ada", "region": "north"}
{"id": 2, "name": "Ben", "region": "south"}
"""

IGNORE = """\
.runnel/
"""

FILES = {
    config.FILE: TOML,
    "tables/shop.sql": TABLES,
    "views/large_orders.sql": LARGE_ORDERS,
    "views/takings.sql": TAKINGS,
    "feed/orders/0001.jsonl": ORDERS,
    "feed/customers/0001.jsonl": CUSTOMERS,
    ".gitignore": IGNORE,
}
EXAMPLES = {"sync": sync_example.FILES | {".gitignore": IGNORE}}
README = "README.md"
"""The file of an example that says how to try it."""


def write_project(folder: Path, example: str | None = None) -> list[str]:
    """Write the files and give their names; refuse a folder that holds a project, and never overwrite a file."""
    if example is not None and example not in EXAMPLES:
        hint = nearest(example, EXAMPLES) or f"there is {', '.join(EXAMPLES)}"
        raise UsageError("RUNNEL-EXAMPLE-UNKNOWN", f"there is no example {example!r}", hint=hint)
    with places_named("the project cannot be written", folder, "choose another folder"):
        return _written(folder, FILES if example is None else EXAMPLES[example])


def _written(folder: Path, files: Mapping[str, str]) -> list[str]:
    if (folder / config.FILE).exists():
        raise UsageError(
            "RUNNEL-PROJECT-EXISTS",
            "there is a project already",
            place=Place(str(folder / config.FILE)),
            hint="choose another folder",
        )
    there = [name for name in files if (folder / name).exists()]
    if there:
        raise UsageError(
            "RUNNEL-PROJECT-EXISTS",
            f"{there[0]} is there already",
            place=Place(str(folder)),
            hint="choose an empty folder",
        )
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return list(files)
