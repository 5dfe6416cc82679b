"""The process that is killed while it swaps a view, or a table with other columns, for a new one."""

from __future__ import annotations

import sys

import runnel
from runnel.engine.duckdb import DuckDbEngine

CHANGES = {
    "view": "SELECT region, count(*) AS n, sum(amount + 1) AS s FROM orders GROUP BY region",
    "table": "ALTER TABLE orders ALTER COLUMN amount TYPE BIGINT",
}


def main(folder: str, what: str) -> None:
    with runnel.open(folder, engine=DuckDbEngine(), sync=False) as project:
        if what == "view":
            project.create_view("sums", CHANGES[what], replace=True)
        else:
            project.sql(CHANGES[what])


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
