"""TPC-H: its 22 queries as views, all together and each alone, beside Spark recomputing them; a refresh set per epoch."""

from __future__ import annotations

import logging
import statistics
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from runnel.bench import tpch_data
from runnel.bench.epochs import per_view, summary, take_warm, timed, verify_all
from runnel.bench.machine import facts
from runnel.bench.recompute import ByDuckDb, BySpark, recompute
from runnel.bench.report import Sheet, about, memory_line, ms, times
from runnel.bench.workplace import load

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from runnel.bench.recompute import Recomputer
    from runnel.bench.tpch_data import Refreshes
    from runnel.bench.workplace import Workplace
    from runnel.project import Project

VIEWS = {name.lower(): tpch_data.without_order(sql) for name, sql in tpch_data.queries().items()}
log = logging.getLogger("runnel")


@dataclass(frozen=True)
class Load:
    """How much: the scale, the share of orders a refresh set replaces, epochs, and whether each view is taken alone too."""

    scale: float
    share: float = 0.001
    epochs: int = 10
    warm: int = 20
    rounds: int = 3
    each: bool = False


def measure(workplace: Workplace, load: Load) -> dict[str, Any]:
    """Run the whole benchmark. Results are compared with the recomputed ones before the first epoch, verified after the last."""
    figures: dict[str, Any] = {"benchmark": "tpch", "load": asdict(load)}
    with workplace.project() as project:
        files = tpch_data.generate(project.folder / "base", load.scale)
        figures["setup"] = {"load": timed(lambda: _fill(project, files))}
        for name, sql in VIEWS.items():
            figures["setup"][name] = _create(project, name, sql)
        who = _recomputer(workplace, project.folder)
        figures["recompute"] = {who.name: recompute(who, project, VIEWS, load.rounds)}
        refreshes = tpch_data.Refreshes(files, load.share)
        epochs = take_warm(project, refreshes.change, warm=load.warm, measured=load.epochs)
        figures |= summary(epochs)
        figures["views"] = per_view(project, epochs, list(VIEWS))
        checked = verify_all(project, list(VIEWS))
        figures["alone"] = _each(project, refreshes, load) if load.each else {}
    figures["views"] = {name: {**view, **checked[name]} for name, view in figures["views"].items()}
    figures["ratio"] = figures["recompute"][who.name]["best"] / figures["epoch"]
    right = [view["verified"] for view in (*figures["views"].values(), *figures["alone"].values())]
    figures["verified"] = all(right) and figures["recompute"][who.name]["same_rows"]
    return {**figures, **facts(workplace)}


def _fill(project: Project, files: Mapping[str, Path]) -> None:
    tables = {name: tpch_data.columns(files[name], key) for name, key in tpch_data.KEYS.items()}
    load(project, tables, {name: tpch_data.chunks(file) for name, file in files.items()})


def _create(project: Project, name: str, sql: str) -> float:
    took = timed(lambda: project.create_view(name, sql, mode="incremental"))
    log.info("created %s: %.0f ms", name, took)
    return took


def _recomputer(workplace: Workplace, folder: Path) -> Recomputer:
    base = folder / "base"
    return ByDuckDb(base) if workplace.spark is None else BySpark(workplace.spark, base, folder / "out")


def _each(project: Project, refreshes: Refreshes, load: Load) -> dict[str, dict[str, Any]]:
    """Take each view alone: all others are dropped."""
    for name in VIEWS:
        project.drop_view(name)
    found: dict[str, dict[str, Any]] = {}
    for name, sql in VIEWS.items():
        _create(project, name, sql)
        epochs = take_warm(project, refreshes.change, warm=load.warm, measured=load.epochs)
        found[name] = {
            "epoch": statistics.median(epoch.ms for epoch in epochs),
            "epochs": [epoch.ms for epoch in epochs],
            **verify_all(project, [name])[name],
        }
        log.info("%s alone: %.0f ms", name, found[name]["epoch"])
        project.drop_view(name)
    return found


def sheet(figures: Mapping[str, Any]) -> Sheet:
    """Show the ratio per view, the worst first; alone where that was measured."""
    who, other = next(iter(figures["recompute"].items()))
    shown = figures["alone"] or figures["views"]
    ratio = {name: other["views"][name] / view["epoch"] for name, view in shown.items() if view["epoch"]}
    order = [*sorted(ratio, key=ratio.__getitem__), *(name for name in shown if name not in ratio)]
    rows = [
        (name, f"{shown[name]['rows']:,}", *_compared(other["views"][name], shown[name]["epoch"])) for name in order
    ]
    rows.append(
        ("all 22, whole epoch", "", ms(figures["epoch"]), ms(other["best"]), times(other["best"], figures["epoch"]))
    )
    size = figures["load"]
    same = "the same rows" if other["same_rows"] else "OTHER ROWS"
    alone = "Each view alone, whole epochs." if figures["alone"] else "A view's share of the epoch of all 22."
    return Sheet(
        f"tpch: scale {size['scale']:g}, 22 views, {size['share']:.1%} of the orders replaced per epoch",
        (f"recomputing all takes {figures['ratio']:.2f} times as long with {_SYSTEM[who]} as an epoch", _lost(ratio)),
        ("view", "rows", "epoch ms", "recompute ms", "times faster"),
        tuple(rows),
        (
            f"Median of {size['epochs']} warm epochs, {figures['rows_in']:,.0f} signed rows each. {alone} The recompute gave {same}.",
            memory_line(figures),
            about(figures),
        ),
    )


def _compared(recompute: float, epoch: float) -> tuple[str, ...]:
    """Show both times; a view that reads neither orders nor lines has nothing to do."""
    return (ms(epoch), ms(recompute), times(recompute, epoch)) if epoch else ("untouched", ms(recompute), "-")


_SYSTEM = {"spark": "Spark", "duckdb": "DuckDB"}


def _lost(ratio: Mapping[str, float]) -> str:
    lost = [name for name, value in ratio.items() if value < 1]
    return f"slower than recomputing: {', '.join(lost)}" if lost else "no view is slower than recomputing it"
