"""The process that the crash matrix kills: works through a feed, then folds and forgets, on the project given."""

from __future__ import annotations

import sys

import runnel
from runnel.engine.duckdb import DuckDbEngine


def main(folder: str) -> None:
    with runnel.open(folder, engine=DuckDbEngine(), sync=False) as project:
        project.runtime.keep, project.runtime.grace = 2, 0.0
        project.run(once=True)
        with project.transaction() as tx:
            tx.upsert("marks", [{"id": 1, "n": 1}])
        project.compact()
        project.compact()


if __name__ == "__main__":
    main(sys.argv[1])
