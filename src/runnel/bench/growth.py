"""Growth: the dashboard's epochs over larger and larger tables; the change stays the same, and so should its cost."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from runnel.bench import dashboard
from runnel.bench.report import MEGA, Sheet, about, memory_line, ms, times

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from runnel.bench.dashboard import Load
    from runnel.bench.workplace import Workplace

KEPT = ("epoch", "epochs", "phases", "rows_in", "bytes_read", "setup", "views", "verified", "peak_memory")


def measure(workplace: Workplace, bases: Sequence[int], load: Load) -> dict[str, Any]:
    """Take warm epochs over each base; nothing is recomputed but by `verify`."""
    found = {base: dashboard.measure(workplace, replace(load, base=base, rounds=0)) for base in sorted(bases)}
    last = found[max(found)]
    return {
        "benchmark": "growth",
        "load": {"bases": sorted(bases), "changes": load.changes, "epochs": load.epochs, "warm": load.warm},
        "bases": {str(base): {k: one[k] for k in KEPT if k in one} for base, one in found.items()},
        "ratio": last["epoch"] / found[min(found)]["epoch"],
        "verified": all(one["verified"] for one in found.values()),
        **{key: last[key] for key in ("engine", "machine", "peak_memory")},
    }


def sheet(figures: Mapping[str, Any]) -> Sheet:
    """Show an epoch's median per base."""
    bases = figures["bases"]
    first = next(iter(bases.values()))["epoch"]
    rows = tuple(
        (f"{int(base):,}", ms(one["epoch"]), times(one["epoch"], first), _read(one), ms(sum(one["setup"].values())))
        for base, one in bases.items()
    )
    load = figures["load"]
    smallest, largest = min(load["bases"]), max(load["bases"])
    return Sheet(
        f"growth: seven views, {load['changes']:,} changes per epoch",
        (f"a table {largest // smallest:,} times as large makes an epoch {figures['ratio']:.2f} times as long",),
        ("events", "epoch ms", "times the smallest", "MiB read", "set-up ms"),
        rows,
        (f"Medians of {load['epochs']} warm epochs.", memory_line(figures), about(figures)),
    )


def _read(one: Mapping[str, Any]) -> str:
    return f"{one['bytes_read'] / MEGA:,.1f}" if "bytes_read" in one else "-"
