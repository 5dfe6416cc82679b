"""Characters that would command a terminal instead of being shown by it: values, names and errors come from anywhere."""

from __future__ import annotations

import re
import sys
from typing import Any

import typer
from rich.console import Console

# C0 but for tab and line end, DEL, C1, marks that turn the direction of text around, separators that begin a line.
_COMMANDS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


def escaped(text: str) -> str:
    r"""Write control characters as JSON does.

    >>> escaped("\x1b[31mred")
    '\\u001b[31mred'
    """
    return _COMMANDS.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def echo(text: str, *, err: bool = False) -> None:
    """Print a line for people."""
    typer.echo(escaped(text), err=err)


def echo_exact(text: str) -> None:
    """Print a line for programs, exactly; on a terminal it is for people after all."""
    terminal = sys.stdout.isatty()
    # Colours are left in: click would cut whatever looks like one out of the values.
    typer.echo(escaped(text) if terminal else text, color=None if terminal else True)


class SafeConsole(Console):
    """A console that shows control characters in the texts it is given, and sends none but its own."""

    def print(self, *objects: Any, **options: Any) -> None:
        """Print texts with control characters escaped, and whatever else as it is."""
        super().print(*[escaped(one) if isinstance(one, str) else one for one in objects], **options)
