"""The `runnel` command: arguments in, answers out. Everything it does stands in the rooms below."""

from __future__ import annotations

from runnel.cli.app import app

__all__ = ["app", "main"]


def main() -> None:
    """Run the command line; this is what the `runnel` script calls."""
    app()
