"""What the compiler's tests share: one DuckDB engine and a small shop."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from runnel.compiler import parse_columns
from runnel.engine.duckdb import DuckDbEngine
from runnel.model.relation import Kind, Relation

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="session")
def engine() -> Iterator[DuckDbEngine]:
    """Give an engine for the whole run."""
    engine = DuckDbEngine(threads=2)
    yield engine
    engine.close()


def table(name: str, ddl: str) -> Relation:
    """Make a table from a column list."""
    columns, key = parse_columns(ddl)
    return Relation(name, Kind.TABLE, columns, key)


@pytest.fixture
def shop() -> dict[str, Relation]:
    """Give three tables, one of them in a source of its own."""
    tables = (
        table("shop.orders", "id BIGINT, cid INT, amount DECIMAL(12,2), rate DOUBLE, note STRING, PRIMARY KEY (id)"),
        table("customers", "cid INT, region STRING"),
        table("items", "id BIGINT, oid BIGINT, qty INT, price DECIMAL(9,3), info STRUCT<colour: STRING, size: INT>"),
    )
    return {relation.name: relation for relation in tables}
