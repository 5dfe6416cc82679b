"""What the tests of TPC-H and TPC-DS share: the data, made once, and an engine."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from runnel.engine.duckdb import DuckDbEngine
from tests.tpc import tpcds, tpch

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.tpc.changing import Dataset


@pytest.fixture(scope="session")
def engine() -> Iterator[DuckDbEngine]:
    """Give an engine for the whole run; with a single thread DuckDB waits forever for itself in some of these queries."""
    engine = DuckDbEngine(threads=2)
    yield engine
    engine.close()


@pytest.fixture(scope="session")
def tpch_data(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """Give TPC-H with ten batches."""
    return tpch.make(tmp_path_factory.mktemp("tpch"), batches=10)


@pytest.fixture(scope="session")
def tpcds_data() -> Dataset:
    """Give TPC-DS with five batches."""
    return tpcds.make(batches=5)
