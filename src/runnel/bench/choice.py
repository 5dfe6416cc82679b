"""The choice: many kinds of change, each view kept in both ways; how often the way that `auto` chose was the faster one.

Three projects hold the same rows and get the same changes. In one every view is incremental, in one full, in one left to choose.
"""

from __future__ import annotations

import logging
import statistics
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from runnel.bench import star
from runnel.bench.epochs import RECORDS, take, timed, verify_all
from runnel.bench.machine import facts
from runnel.bench.report import Sheet, about, ms
from runnel.bench.workplace import load as fill

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa

    from runnel.bench.workplace import Workplace
    from runnel.project import Project

MODES = ("incremental", "full", "auto")
KINDS = ("insert", "update", "delete")
VIEWS = (
    *("takings_per_shop_and_category", "expensive_events", "price_range"),
    *("customers_per_shop", "takings_per_promotion", "dearest_events"),
)
NEAR = 1.1
log = logging.getLogger("runnel")


@dataclass(frozen=True)
class Load:
    """How much: events to begin with, the sizes of changes as shares of them, how often each case is run."""

    base: int
    shares: tuple[float, ...] = (0.001, 0.01, 0.1, 0.3, 1.0)
    rounds: int = 3
    warm: int = 5


def measure(workplace: Workplace, load: Load) -> dict[str, Any]:
    """Run every case in all three ways and compare what was chosen with what was faster."""
    rows = star.Star(load.base)
    with ExitStack() as stack:
        projects = {mode: stack.enter_context(workplace.project()) for mode in MODES}
        for mode, project in projects.items():
            fill(project, star.TABLES, rows.tables())
            for view in VIEWS:
                project.create_view(view, star.VIEWS[view], refresh="manual", mode=mode)
            log.info("%s: %s views created", mode, len(VIEWS))
        for _ in range(load.warm):
            _case(projects, rows.change(max(1, load.base // 1_000)))
        cases = [case for share in load.shares for case in _cases(projects, rows, share, load)]
        right = [v["verified"] for project in projects.values() for v in verify_all(project, VIEWS).values()]
    return {
        "benchmark": "choice",
        "load": asdict(load),
        "cases": cases,
        "share_right": sum(case["right"] for case in cases) / len(cases),
        "regret": sum(case["regret"] for case in cases),
        "least": sum(min(case["incremental"], case["full"]) for case in cases),
        "verified": all(right),
        **facts(workplace),
    }


def _cases(projects: Mapping[str, Project], rows: star.Star, share: float, load: Load) -> list[dict[str, Any]]:
    """Insert, update, delete so many rows, several times over; the table is as large after it as before."""
    count = max(1, round(load.base * share))
    seen: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for _ in range(load.rounds):
        for kind in KINDS:
            for view, found in _case(projects, getattr(rows, kind)(count)).items():
                seen.setdefault((view, kind), []).append(found)
    log.info("changes of %s of the table: done", f"{share:.1%}")
    return [{"view": view, "change": kind, "share": share, **_judged(found)} for (view, kind), found in seen.items()]


def _case(projects: Mapping[str, Project], signed: pa.Table) -> dict[str, dict[str, Any]]:
    """Change the table in each project, then bring one view after the other up to date; give times and what auto did."""
    found: dict[str, dict[str, Any]] = {view: {} for view in VIEWS}
    for mode, project in projects.items():
        take(project, {star.FACTS: signed})
        for view in VIEWS:
            found[view][mode] = timed(partial(project.refresh, view))
            if mode == "auto":
                found[view]["chosen"] = _chosen(project, view)
    return found


def _chosen(project: Project, view: str) -> str:
    records = (record.get("views", {}).get(view) for record in reversed(project.epochs(RECORDS)))
    return next((done["strategy"] for done in records if done), "skipped")


def _judged(found: list[dict[str, Any]]) -> dict[str, Any]:
    """Give medians; a choice is right when its way takes at most a tenth longer than the other way."""
    middle = {mode: statistics.median(one[mode] for one in found) for mode in MODES}
    chosen = statistics.mode(one["chosen"] for one in found)
    best = min(middle["incremental"], middle["full"])
    took = middle["full"] if chosen == "full" else middle["incremental"]
    return {**middle, "chosen": chosen, "right": took <= best * NEAR, "regret": took - best}


def sheet(figures: Mapping[str, Any]) -> Sheet:
    """Show the cases by share and kind of change: how many choices were right, and the wrong ones by name."""
    cases, load = figures["cases"], figures["load"]
    rows = [
        _row(f"{kind} {share:.1%}", [c for c in cases if c["share"] == share and c["change"] == kind])
        for share in load["shares"]
        for kind in KINDS
    ]
    return Sheet(
        f"choice: {load['base']:,} events, {len(VIEWS)} views, {len(cases)} cases",
        (
            f"{figures['share_right']:.0%} of the choices were right;"
            f" the wrong ones cost {ms(figures['regret'])} ms in all, the best choices {ms(figures['least'])} ms",
        ),
        ("change", "right", "chosen full", "faster full", "regret ms", "wrong for"),
        tuple(rows),
        (f"Medians of {load['rounds']}. Right: at most 10 % slower than the other way.", about(figures)),
    )


def _row(name: str, cases: list[Mapping[str, Any]]) -> tuple[str, ...]:
    full = sum(case["chosen"] == "full" for case in cases)
    faster = sum(case["full"] < case["incremental"] for case in cases)
    wrong = ", ".join(case["view"] for case in cases if not case["right"]) or "-"
    right = sum(case["right"] for case in cases)
    return (name, f"{right} of {len(cases)}", str(full), str(faster), ms(sum(c["regret"] for c in cases)), wrong)
