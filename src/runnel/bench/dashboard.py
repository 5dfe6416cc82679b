"""The dashboard: seven views over the star, kept by epochs of changes, beside two systems that recompute them."""

from __future__ import annotations

import logging
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from runnel.bench import star
from runnel.bench.epochs import WARM, per_view, summary, take_warm, timed, verify_all
from runnel.bench.machine import facts
from runnel.bench.recompute import copy_tables, recompute, recomputers
from runnel.bench.report import MEGA, Sheet, about, memory_line, ms, times
from runnel.bench.workplace import load

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa

    from runnel.bench.workplace import Workplace
    from runnel.project import Project

VIEWS = tuple(star.VIEWS)
log = logging.getLogger("runnel")


@dataclass(frozen=True)
class Load:
    """How much: events to begin with, changes of events and of dimensions per epoch, epochs, rounds of recomputing."""

    base: int
    changes: int
    epochs: int = 10
    warm: int = WARM
    dimension: int = 0
    rounds: int = 3


def measure(workplace: Workplace, load: Load) -> dict[str, Any]:
    """Run the whole benchmark; without rounds nothing is recomputed but by `verify`."""
    rows = star.Star(load.base)
    figures: dict[str, Any] = {"benchmark": "dashboard", "load": asdict(load), "sizes": asdict(rows.sizes)}
    with workplace.project() as project:
        figures["setup"] = set_up(project, rows)
        epochs = take_warm(project, lambda: change(rows, load), warm=load.warm, measured=load.epochs)
        figures |= summary(epochs)
        figures["views"] = per_view(project, epochs, VIEWS)
        figures["recompute"] = _recompute(workplace, project, rows, load.rounds) if load.rounds else {}
        checked = verify_all(project, VIEWS)
        figures["views"] = {view: {**kept, **checked[view]} for view, kept in figures["views"].items()}
    same = all(found["same_rows"] for found in figures["recompute"].values())
    figures["verified"] = same and all(view["verified"] for view in checked.values())
    return {**figures, **facts(workplace)}


def set_up(project: Project, rows: star.Star) -> dict[str, float]:
    """Load the tables, then create the views; give how long each took."""
    log.info("loading %s events", len(rows))
    took = {"load": timed(lambda: load(project, star.TABLES, rows.tables()))}
    for name, sql in star.VIEWS.items():
        took[name] = timed(partial(project.create_view, name, sql, mode="incremental"))
        log.info("created %s: %.0f ms", name, took[name])
    return took


def change(rows: star.Star, load: Load) -> dict[str, pa.Table]:
    """Give the signed rows of one epoch."""
    dimensions = rows.change_dimensions(load.dimension) if load.dimension else {}
    return {star.FACTS: rows.change(load.changes), **dimensions}


def _recompute(workplace: Workplace, project: Project, rows: star.Star, rounds: int) -> dict[str, Any]:
    folder = project.folder / "recompute"
    copy_tables(rows.tables(), folder / "base")
    return {who.name: recompute(who, project, star.VIEWS, rounds) for who in recomputers(workplace, folder)}


def sheet(figures: Mapping[str, Any]) -> Sheet:
    """Show each view's epoch beside its recompute, and the whole of both."""
    others = figures["recompute"]
    columns: tuple[str, ...] = ("view", "what it is", "rows", "epoch ms")
    columns += tuple(part for who in others for part in (f"{NAMES[who]} ms", f"x {NAMES[who]}"))
    rows = [_row(name, view, others) for name, view in figures["views"].items()]
    whole = [cell for found in others.values() for cell in (ms(found["best"]), times(found["best"], figures["epoch"]))]
    rows.append(("all seven, whole epoch", "", "", ms(figures["epoch"]), *whole))
    size = figures["load"]
    more = f" and {size['dimension']:,} of dimensions" if size["dimension"] else ""
    title = f"dashboard: {size['base']:,} events, {size['changes']:,} changes{more} per epoch"
    return Sheet(title, headline(figures), columns, tuple(rows), _notes(figures))


NAMES = {"spark": "Spark", "duckdb": "DuckDB"}


def headline(figures: Mapping[str, Any]) -> tuple[str, ...]:
    """Say the ratios first."""
    ratios = [
        f"recomputing takes {times(found['best'], figures['epoch'])} times as long with {NAMES[who]}"
        for who, found in figures["recompute"].items()
    ]
    return ("; ".join([*ratios, f"an epoch takes {ms(figures['epoch'])} ms"]),)


def _row(name: str, view: Mapping[str, Any], others: Mapping[str, Any]) -> tuple[str, ...]:
    alone = [found["views"][name] for found in others.values()]
    compared = [cell for other in alone for cell in (ms(other), times(other, view["epoch"]))]
    return (name, star.KINDS[name], f"{view['rows']:,}", ms(view["epoch"]), *compared)


def _notes(figures: Mapping[str, Any]) -> tuple[str, ...]:
    phases = ", ".join(f"{name} {value:.0f}" for name, value in figures["phases"].items())
    measured = figures["epochs"]
    read = f" Bytes read per epoch: {figures['bytes_read'] / MEGA:,.1f} MiB." if "bytes_read" in figures else ""
    notes = [
        f"Epoch: median of {len(measured)} warm ones, {min(measured):,.0f} to {max(measured):,.0f} ms;"
        f" phases in ms: {phases}; {figures['rows_in']:,.0f} signed rows in.{read}"
        " A view's figure adds up its stages, some of which run side by side."
    ]
    for who, found in figures["recompute"].items():
        same = "the same rows" if found["same_rows"] else "OTHER ROWS"
        notes.append(
            f"{NAMES[who]} recomputes all in {ms(found['one_by_one'])} ms one by one, {ms(found['side_by_side'])} ms side by side;"
            f" the faster counts. It gave {same}."
        )
    setup = ", ".join(f"{name} {value / 1000:.1f}" for name, value in figures["setup"].items())
    return (*notes, f"Set-up in s: {setup}.", memory_line(figures), about(figures))
