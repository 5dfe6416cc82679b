"""The stores: each folder knows one, reads its changes and turns them into rows. Nothing else imports drivers."""

from runnel.connectors.base import ChangeSet, Source, TableInfo
from runnel.connectors.registry import open_capture, open_source

__all__ = ["ChangeSet", "Source", "TableInfo", "open_capture", "open_source"]
