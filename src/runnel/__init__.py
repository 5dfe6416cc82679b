"""runnel keeps materialized views of changing tables right and fresh, incrementally, on Apache Spark."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from runnel.project import Project, create, memory, open
    from runnel.project.datasource import DataSource

__version__ = "0.1.0"
__all__ = ["DataSource", "Project", "create", "memory", "open"]


def __getattr__(name: str) -> Any:
    """Load the facade when it is first asked for, so that light uses (`runnel --help`, one error class) stay light."""
    if name == "DataSource":
        return importlib.import_module("runnel.project.datasource").DataSource
    if name in __all__:
        return getattr(importlib.import_module("runnel.project"), name)
    raise AttributeError(name)
