"""Shows a benchmark's figures as a table and keeps them as JSON; what is lost is shown like what is won."""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from pathlib import Path

    from runnel.bench.measure import Figures

GIGA = 1 << 30
WIDE = 1_000


def to_dict(figures: Figures) -> dict[str, Any]:
    """Give the figures as plain data, with what follows from them."""
    return {
        **dataclasses.asdict(figures),
        "epoch": figures.epoch,
        "recompute": figures.recompute,
        "ratio": figures.ratio,
        "changes_per_second": figures.load.changes / figures.epoch * 1000,
        "recompute_rows_per_second": figures.load.base / figures.recompute * 1000,
    }


def write_json(figures: Figures, path: Path) -> None:
    """Keep the figures for comparison."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(to_dict(figures), indent=2) + "\n", encoding="utf-8")


def show(figures: Figures) -> None:
    """Print the table and the facts around it."""
    console = Console(highlight=False, markup=False)
    if not console.is_terminal:
        console.width = WIDE
    load = figures.load
    table = Table(
        title=f"{figures.benchmark}: {load.base:,} rows, {load.changes:,} changes per epoch", title_justify="left"
    )
    for name in ("view", "kept by", "rows", "epoch ms", "recompute ms", "times faster", "verified"):
        table.add_column(name, justify="left" if name in ("view", "kept by") else "right")
    for name, view in figures.views.items():
        faster = f"{view['recompute'] / view['epoch']:.1f}" if view["epoch"] else "-"
        times = (f"{view['epoch']:.0f}", f"{view['recompute']:.0f}", faster)
        table.add_row(
            name, ", ".join(view["strategies"]), f"{view['rows']:,}", *times, "yes" if view["verified"] else "NO"
        )
    table.add_section()
    whole = (f"{figures.epoch:.0f}", f"{figures.recompute:.0f}", f"{figures.ratio:.1f}")
    table.add_row("all views, whole epoch", "", "", *whole, "yes" if figures.verified else "NO")
    console.print(table)
    for line in _facts(figures):
        console.print(line, soft_wrap=True)


def _facts(figures: Figures) -> list[str]:
    facts, machine = to_dict(figures), figures.machine
    phases = ", ".join(f"{name} {value:.0f}" for name, value in figures.phases.items())
    setup = ", ".join(f"{name} {value / 1000:.1f}" for name, value in figures.setup.items())
    memory = ", ".join(f"{name} {size / GIGA:.2f} GiB" for name, size in figures.peak_memory.items())
    return [
        f"epoch: median of {len(figures.epochs)} warm ones, {min(figures.epochs):.0f} to {max(figures.epochs):.0f} ms;"
        f" phases in ms: {phases}",
        f"recompute: one by one {figures.recompute_one_by_one:.0f} ms, side by side {figures.recompute_side_by_side:.0f} ms;"
        " the faster counts",
        f"throughput: {facts['changes_per_second']:,.0f} changes/s kept, {facts['recompute_rows_per_second']:,.0f} rows/s recomputed",
        f"set-up in s: {setup}",
        f"peak memory: {memory}",
        f"machine: {machine['processor']}, {machine['cores']} cores, {machine['memory'] / GIGA:.0f} GiB, {machine['system']};"
        f" Python {machine['python']}, Java {machine['java']}, Spark {machine['pyspark']}, pyarrow {machine['pyarrow']}",
    ]
