"""The stores: each folder knows one, reads its changes and turns them into rows, or writes rows. Nothing else imports drivers."""

from runnel.connectors.base import ChangeSet, Source, TableInfo, Target
from runnel.connectors.registry import (
    build_triggers,
    guarded_source,
    open_capture,
    open_source,
    open_target,
    prepare_source,
)

__all__ = [
    "ChangeSet",
    "Source",
    "TableInfo",
    "Target",
    "guarded_source",
    "build_triggers",
    "open_capture",
    "open_source",
    "open_target",
    "prepare_source",
]
