"""What every command knows from the options that may stand anywhere."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True)
class Context:
    """The project's folder, and whether tracebacks are wanted."""

    folder: Path
    debug: bool
