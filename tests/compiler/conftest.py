"""What the compiler's tests share: one DuckDB engine and a small shop."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from runnel.compiler import parse_table
from runnel.engine.duckdb import DuckDbEngine
from runnel.model.foreign_keys import with_references
from runnel.model.relation import Kind, Relation

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


@pytest.fixture(scope="session")
def engine() -> Iterator[DuckDbEngine]:
    """Give an engine for the whole run."""
    engine = DuckDbEngine(threads=2)
    yield engine
    engine.close()


def table(name: str, ddl: str, *beside: Relation) -> Relation:
    """Make a table from a column list; foreign keys may be to tables that are there already."""
    said = parse_table(ddl)
    return with_references(Relation(name, Kind.TABLE, said.columns, said.key), said.references, by_name(beside))


def by_name(tables: Iterable[Relation]) -> dict[str, Relation]:
    """Give tables by their names."""
    return {relation.name: relation for relation in tables}


@pytest.fixture
def shop() -> dict[str, Relation]:
    """Give four tables, one of them in a source of its own, one that refers to it."""
    orders = table(
        "shop.orders", "id BIGINT, cid INT, amount DECIMAL(12,2), rate DOUBLE, note STRING, PRIMARY KEY (id)"
    )
    tables = (
        orders,
        table("parcels", "id INT, oid BIGINT REFERENCES shop.orders (id)", orders),
        table("customers", "cid INT, region STRING"),
        table("items", "id BIGINT, oid BIGINT, qty INT, price DECIMAL(9,3), info STRUCT<colour: STRING, size: INT>"),
    )
    return {relation.name: relation for relation in tables}
