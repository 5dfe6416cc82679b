"""A process that adds 1 to a counter and inserts a row, again and again; several of them run at once on one project."""

from __future__ import annotations

import sys

import runnel
from runnel.engine.duckdb import DuckDbEngine


def main(folder: str, writer: int, count: int) -> None:
    with runnel.open(folder, engine=DuckDbEngine(), sync=False) as project:
        for number in range(count):
            project.sql(f"UPDATE counter SET n = n + 1 WHERE id = 1; INSERT INTO log VALUES ({writer}, {number}, 7)")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
