"""A benchmark's figures for eyes: one sheet of them, printed on a terminal or written into the documentation, kept as JSON."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

GIGA = 1 << 30
MEGA = 1 << 20
WIDE = 1_000


@dataclass(frozen=True)
class Sheet:
    """What is shown of a benchmark: the result in a sentence or two, a table, and what one must know to read it."""

    title: str
    headline: tuple[str, ...]
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...] = ()


def show(sheet: Sheet) -> None:
    """Print a sheet."""
    console = Console(highlight=False, markup=False)
    if not console.is_terminal:
        console.width = WIDE
    for line in sheet.headline:
        console.print(line, soft_wrap=True)
    table = Table(title=sheet.title, title_justify="left")
    for at, name in enumerate(sheet.columns):
        table.add_column(name, justify="right" if at else "left")
    for row in sheet.rows:
        table.add_row(*row)
    console.print(table)
    for line in sheet.notes:
        console.print(line, soft_wrap=True)


def markdown(sheet: Sheet) -> str:
    """Give a sheet as Markdown."""
    said = [_sentence(line) for line in sheet.headline]
    head = [f"| {' | '.join(sheet.columns)} |", "|---" + "|---:" * (len(sheet.columns) - 1) + "|"]
    rows = [f"| {' | '.join(row)} |" for row in sheet.rows]
    table = "\n".join([*head, *rows])
    return "\n\n".join([f"{sheet.title}.", f"**{said[0]}**", *said[1:], table, " ".join(sheet.notes)]) + "\n"


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."


def keep(figures: Mapping[str, Any], path: Path) -> None:
    """Keep the figures as JSON."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")


def about(figures: Mapping[str, Any]) -> str:
    """Say on what it was measured and whether the views were right."""
    right = "equal" if figures["verified"] else "NOT EQUAL"
    test = "" if figures["engine"] == "spark" else f" A trial on the engine {figures['engine']}, not for publishing."
    return f"Every view verified after the run: {right}.{test} {machine_line(figures)}"


def machine_line(figures: Mapping[str, Any]) -> str:
    """Say on what it was measured."""
    m = figures["machine"]
    versions = ", ".join(f"{name} {m[key]}" for name, key in _VERSIONS if m.get(key))
    return f"Machine: {m['processor']}, {m['cores']} cores, {m['memory'] / GIGA:.0f} GiB, {m['system']}; {versions}."


def memory_line(figures: Mapping[str, Any]) -> str:
    """Say how much memory it took at most."""
    peak = figures["peak_memory"]
    return f"Peak memory: {', '.join(f'{name} {size / GIGA:.2f} GiB' for name, size in peak.items())}."


def ms(value: float | None) -> str:
    """Write milliseconds."""
    return "-" if value is None else f"{value:,.0f}"


def times(slow: float | None, fast: float | None) -> str:
    """Write how many times longer the first takes than the second; below 1 is a loss."""
    return f"{slow / fast:.2f}" if slow and fast else "-"


_VERSIONS = (
    ("Python", "python"),
    ("Java", "java"),
    ("Spark", "pyspark"),
    ("Cassandra", "cassandra"),
    ("DuckDB", "duckdb"),
    ("pyarrow", "pyarrow"),
    ("runnel", "runnel"),
)
