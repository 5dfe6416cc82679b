"""`format("runnel.toy")`: the toy store's changes as Spark DataFrames."""

from __future__ import annotations

from runnel.connectors.datasource import ChangeDataSource
from tests.connectors.toy_store import open_source


class ToyDataSource(ChangeDataSource):
    """Register with `spark.dataSource.register(ToyDataSource)`."""

    STORE, OPEN = "toy", staticmethod(open_source)
