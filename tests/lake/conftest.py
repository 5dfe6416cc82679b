"""The lake suite runs twice: on SQLite, and on a real PostgreSQL."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from runnel.lake.lake import Lake
from tests.servers.postgres import PostgresServer, postgres_server

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["postgres_server"]


@dataclass(frozen=True)
class Where:
    """Where a test's state is to be."""

    catalog: str
    data: str

    def open(self) -> Lake:
        return Lake.open(self.catalog, self.data, durable=False)


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def where(request: pytest.FixtureRequest, tmp_path: Path) -> Where:
    if request.param == "sqlite":
        return Where(f"sqlite:{tmp_path}/catalog.sqlite", f"{tmp_path}/data")
    server: PostgresServer = request.getfixturevalue("postgres_server")
    return Where(server.database(), f"{tmp_path}/data")


@pytest.fixture
def lake(where: Where) -> Iterator[Lake]:
    made = Lake.create(where.catalog, where.data, durable=False)
    yield made
    made.close()


@pytest.fixture
def sqlite(tmp_path: Path) -> Where:
    return Where(f"sqlite:{tmp_path}/catalog.sqlite", f"{tmp_path}/data")
