"""`format("runnel.files")`: change files as Spark DataFrames."""

from __future__ import annotations

from runnel.connectors.datasource import ChangeDataSource
from runnel.connectors.files.source import open_source


class FilesDataSource(ChangeDataSource):
    """Register with `spark.dataSource.register(FilesDataSource)`; the settings of a `files` source are its options."""

    STORE, OPEN = "files", staticmethod(open_source)
