"""A folder of change files (Parquet, CSV, JSON lines), read in the order of their names, each exactly once."""

from runnel.connectors.files.source import open_source

__all__ = ["open_source"]
