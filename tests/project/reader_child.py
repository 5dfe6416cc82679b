"""A process that reads views with DuckDB's own ducklake extension until its input ends; it dies of a view that is missing.

It must be a process of its own: two SQLite libraries in one process undo each other's file locks.
"""

from __future__ import annotations

import select
import sys

from tests.lake.duck import attached


def main(catalog: str, sql: str) -> None:
    reads = 0
    with attached(catalog) as duck:
        while not select.select([sys.stdin], [], [], 0)[0]:
            assert duck.execute(sql).fetchone() is not None
            reads += 1
    print(reads)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
