"""Plays the demo: opens the shop, lets it trade for a while, shows the views moving, verifies each one."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from rich.console import Console

from runnel.demo.shop import VIEWS, Shop
from runnel.demo.show import Stage, Tally
from runnel.project import memory

if TYPE_CHECKING:
    from runnel.engine.base import Engine
    from runnel.project import Project


def run_demo(seconds: float, *, engine: Engine | None = None, seed: int = 7) -> bool:
    """Play for so many seconds of changes in a throw-away project; say whether every view was right at the end."""
    console = Console(highlight=False, markup=False, soft_wrap=True)
    with memory(engine=engine) as project:
        console.print("opening the shop: 3 tables, 5 views")
        shop = Shop(seed)
        shop.open(project)
        for name in VIEWS:
            found = project.explain(name)
            how = "incremental" if found.incremental else "recomputed in full, only the difference is stored"
            console.print(f"  {name}: {how}")
        tally = _trade(project, shop, seconds, console)
        console.print(tally.summary())
        return _verified(project, console)


def _trade(project: Project, shop: Shop, seconds: float, console: Console) -> Tally:
    console.print("the first epoch, which warms up")
    with project.transaction() as first:
        shop.trade(first)
    tally = Tally()
    with Stage(console, project) as stage:
        end = time.monotonic() + seconds
        while time.monotonic() < end or not tally.milliseconds:
            begun = time.perf_counter()
            with project.transaction() as tx:
                changes = shop.trade(tx)
            took = (time.perf_counter() - begun) * 1000
            tally.add(changes, took, _record(project, tx.epoch or 0))
            stage.update(tx.epoch or 0, tally)
    return tally


def _record(project: Project, epoch: int) -> dict[str, object]:
    """Find the epoch's record among the newest: upkeep may have added its own behind it."""
    return next((record for record in reversed(project.epochs(5)) if record["epoch"] == epoch), {})


def _verified(project: Project, console: Console) -> bool:
    reports = [project.verify(name) for name in VIEWS]
    for report in reports:
        console.print(str(report), style=None if report.ok else "bold red")
        for row in (*report.missing[:5], *report.unexpected[:5]):
            console.print(f"  {row}")
    return all(report.ok for report in reports)
