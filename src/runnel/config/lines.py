"""Finds where in a TOML text a key stands, so that a problem can name its line; `tomllib` does not tell."""

from __future__ import annotations

import re

Path = tuple[str, ...]

_PART = r"""[A-Za-z0-9_\-]+|"[^"\n]*"|'[^'\n]*'"""
_DOTTED = rf"(?:{_PART})(?:\s*\.\s*(?:{_PART}))*"
_HEADER = re.compile(rf"\s*\[\[?\s*({_DOTTED})\s*\]")
_KEY = re.compile(rf"\s*({_DOTTED})\s*=")
_LONG_QUOTE = re.compile(r'"""|\'\'\'')


def key_lines(text: str) -> dict[Path, tuple[int, int]]:
    r"""Give line and column (from 1) of every section and key; keys inside `{...}` are found with their parent.

    >>> key_lines("[run]\nepoch = 1")
    {('run',): (1, 2), ('run', 'epoch'): (2, 1)}
    """
    found: dict[Path, tuple[int, int]] = {}
    section: Path = ()
    quote: str | None = None
    for number, line in enumerate(text.splitlines(), start=1):
        if quote is None:
            header, key = _HEADER.match(line), _KEY.match(line)
            match = header or key
            if match is not None:
                path = (() if header else section) + _parts(match.group(1))
                section = path if header else section
                found.setdefault(path, (number, match.start(1) + 1))
        quote = _open_quote(line, quote)
    return found


def line_of(lines: dict[Path, tuple[int, int]], path: Path) -> tuple[int, int] | tuple[None, None]:
    """Give the place of a key, or of the nearest thing around it that has one."""
    while path:
        if path in lines:
            return lines[path]
        below = [place for other, place in lines.items() if other[: len(path)] == path]
        if below:
            return min(below)
        path = path[:-1]
    return None, None


def _parts(dotted: str) -> Path:
    return tuple(part.strip("\"'") for part in re.findall(_PART, dotted))


def _open_quote(line: str, quote: str | None) -> str | None:
    """Say which long quote is open after this line."""
    for match in _LONG_QUOTE.finditer(line):
        if quote is None:
            quote = match.group()
        elif quote == match.group():
            quote = None
    return quote
