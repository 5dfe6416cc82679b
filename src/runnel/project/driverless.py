"""Reads a project's rows without a Spark session of its own, for use inside Spark's Python workers.

The same rows_sql runs on the in-process DuckDB engine, over the same files.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from runnel import config, query
from runnel.engine import contents
from runnel.engine.duckdb import DuckDbEngine
from runnel.lake.lake import Lake

if TYPE_CHECKING:
    import pyarrow as pa


def _lake(project: str) -> Lake:
    settings = config.load(Path(project))
    return Lake.open(str(config.reveal(settings.state.catalog)), settings.state.data)


def describe(project: str, name: str, at: int | None) -> str:
    """Give a table's or view's columns as DDL."""
    lake = _lake(project)
    try:
        return ", ".join(str(column) for column in query.find(lake.snapshot(at), name).rows)
    finally:
        lake.close()


def read(project: str, name: str, at: int | None) -> pa.Table:
    """Give a table's or view's rows."""
    lake, engine = _lake(project), DuckDbEngine()
    try:
        snapshot = lake.snapshot(at)
        return contents.rows(engine, snapshot, query.find(snapshot, name))
    finally:
        engine.close()
        lake.close()
