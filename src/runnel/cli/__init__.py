"""The `runnel` command: arguments in, answers out. Everything it does stands in the rooms below."""

from __future__ import annotations

import signal
import sys
from typing import TYPE_CHECKING

from runnel.cli.app import app

if TYPE_CHECKING:
    from types import FrameType

__all__ = ["app", "main"]


def main() -> None:
    """Run the command line; this is what the `runnel` script calls."""
    signal.signal(signal.SIGTERM, _leave)
    app()


def _leave(number: int, frame: FrameType | None) -> None:
    """End by way of every `finally`, so that a throw-away project is deleted; `run` has a handler of its own."""
    sys.exit(128 + number)
