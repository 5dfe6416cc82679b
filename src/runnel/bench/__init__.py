"""The published benchmarks: warm epochs of maintained views beside the full recompute of the same views, in one process."""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING

from runnel.bench import minmax
from runnel.bench.measure import Load, measure
from runnel.bench.report import show, write_json

if TYPE_CHECKING:
    from pathlib import Path

BENCHMARKS = ("dashboard", "minmax")

__all__ = ["BENCHMARKS", "Load", "run_benchmark"]


def run_benchmark(name: str, load: Load, report: Path | None = None) -> bool:
    """Run a benchmark, print its table, keep its figures; say whether every view was right at the end."""
    if name == "minmax":
        return _minmax(load, report)
    figures = measure(name, load)
    show(figures)
    if report is not None:
        write_json(figures, report)
    return figures.verified


def _minmax(load: Load, report: Path | None) -> bool:
    found = minmax.measure(load.base, load.epochs)
    minmax.show(found)
    if report is not None:
        report.parent.mkdir(parents=True, exist_ok=True)
        report.write_text(
            json.dumps({**dataclasses.asdict(found), "ratio": found.ratio}, indent=2) + "\n", encoding="utf-8"
        )
    return found.verified
