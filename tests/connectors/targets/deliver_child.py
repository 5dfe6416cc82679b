"""The process that is killed while it delivers."""

from __future__ import annotations

import sys

import runnel
from runnel.engine.duckdb import DuckDbEngine


def main(folder: str) -> None:
    with runnel.open(folder, engine=DuckDbEngine(), sync=False) as project:
        project.run(once=True)


if __name__ == "__main__":
    main(sys.argv[1])
