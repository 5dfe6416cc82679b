"""`format("runnel.mariadb")` and `format("runnel.mysql")`: snapshots and binary logs as Spark DataFrames."""

from __future__ import annotations

from runnel.connectors.datasource import ChangeDataSource
from runnel.connectors.mysql import open_source


class MariadbDataSource(ChangeDataSource):
    """Register with `spark.dataSource.register(MariadbDataSource)`; the settings of a `mariadb` source are its options."""

    STORE, OPEN = "mariadb", staticmethod(open_source)


class MysqlDataSource(ChangeDataSource):
    """Register with `spark.dataSource.register(MysqlDataSource)`; the settings of a `mysql` source are its options."""

    STORE, OPEN = "mysql", staticmethod(open_source)
