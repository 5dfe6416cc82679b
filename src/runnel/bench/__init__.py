"""The published benchmarks: warm epochs of maintained views beside the full recompute of the same views, in one process."""

from __future__ import annotations

from typing import TYPE_CHECKING

from runnel.bench.measure import Load, measure
from runnel.bench.report import show, write_json

if TYPE_CHECKING:
    from pathlib import Path

BENCHMARKS = ("dashboard",)

__all__ = ["BENCHMARKS", "Load", "run_benchmark"]


def run_benchmark(name: str, load: Load, report: Path | None = None) -> bool:
    """Run a benchmark, print its table, keep its figures; say whether every view was right at the end."""
    figures = measure(name, load)
    show(figures)
    if report is not None:
        write_json(figures, report)
    return figures.verified
