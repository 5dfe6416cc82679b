"""Holds what a state has against what it should have, in DuckDB, whatever the number of rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import duckdb

import runnel
from runnel.engine.duckdb import DuckDbEngine

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    import pyarrow as pa

MEMORY = "2GB"


def differing(folder: Path, tables: Mapping[str, pa.Table | str], views: Mapping[str, str]) -> list[str]:
    """Compare tables with their rows, and views with what their texts give on these rows; say what differs.

    A table that is given as a query is what views read, and is not compared itself.
    """
    found = []
    with duckdb.connect() as recompute, runnel.open(folder, engine=DuckDbEngine(), sync=False) as project:
        recompute.execute(f"SET memory_limit = '{MEMORY}'")
        for name, rows in tables.items():
            recompute.execute(f"CREATE SCHEMA IF NOT EXISTS {name.partition('.')[0]}")
            if isinstance(rows, str):
                recompute.execute(f"CREATE VIEW {name} AS {rows}")
                continue
            recompute.register("given", rows)
            recompute.execute(f"CREATE TABLE {name} AS SELECT * FROM given")
            recompute.register("kept", project.table(name).to_arrow())
            listed = ", ".join(f'"{column}"' for column in rows.column_names)
            found += _differing(recompute, name, f"SELECT * FROM {name}", f"SELECT {listed} FROM kept")
        for name, sql in views.items():
            recompute.register("kept", project.view(name).to_arrow())
            found += _differing(recompute, name, sql, "SELECT * FROM kept")
    return found


def _differing(connection: duckdb.DuckDBPyConnection, name: str, wanted: str, kept: str) -> list[str]:
    missing, extra = _count(connection, wanted, kept), _count(connection, kept, wanted)
    return [f"{name}: {missing} rows missing, {extra} rows too many"] if missing or extra else []


def _count(connection: duckdb.DuckDBPyConnection, one: str, other: str) -> int:
    row = connection.execute(f"SELECT count(*) FROM (({one}) EXCEPT ALL ({other}))").fetchone()
    assert row is not None
    return int(row[0])
