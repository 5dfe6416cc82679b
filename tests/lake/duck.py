"""DuckDB with its own ducklake extension, as a user would attach a runnel catalog."""

from __future__ import annotations

from contextlib import contextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Any

import duckdb

if TYPE_CHECKING:
    from collections.abc import Iterator

EXTENSIONS = ("ducklake", "sqlite_scanner", "postgres_scanner")


@contextmanager
def with_ducklake() -> Iterator[Any]:
    """Connect with the extensions loaded."""
    for extension in EXTENSIONS:
        import_module("duckdb_extensions").import_extension(extension)
    with duckdb.connect() as connection:
        for extension in EXTENSIONS:
            connection.execute(f"LOAD {extension}")
        connection.execute("SET TimeZone = 'UTC'")
        yield connection


@contextmanager
def attached(catalog: str) -> Iterator[Any]:
    """Attach a catalog, `sqlite:...` or `postgresql://...`, as `lake`."""
    catalog = catalog if catalog.startswith("sqlite:") else f"postgres:{catalog}"
    with with_ducklake() as connection:
        connection.execute(f"ATTACH 'ducklake:{catalog}' AS lake (READ_ONLY)")
        yield connection
