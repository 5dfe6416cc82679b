"""A process that runs a project until it is stopped."""

from __future__ import annotations

import logging
import signal
import sys

import runnel
from runnel.engine.duckdb import DuckDbEngine


def main(folder: str) -> None:
    logging.basicConfig(stream=sys.stdout, level=logging.INFO, format="%(message)s")
    with runnel.open(folder, engine=DuckDbEngine(), sync=False) as project:
        signal.signal(signal.SIGTERM, lambda *_: project.stop())
        project.run(on_epoch=lambda taken: print(f"epoch {taken.epoch}", flush=True))


if __name__ == "__main__":
    main(sys.argv[1])
