"""The figures of the capture benchmark for eyes: what a cycle costs, what grows with it, and what is lost."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING, Any

from runnel.bench.report import Sheet, machine_line, times

if TYPE_CHECKING:
    from collections.abc import Mapping

COLUMNS = (
    *("technique", "rows", "create s", "remove s", "write ms", "times plain", "updates 25 % s", "50 %", "75 %"),
    *("inserts 75 %", "deletes 75 %", "whole cycle s", "95 % interval", "99 % interval", "p95", "p99"),
    *("2N / N", "75 % / 25 %", "lost: upd", "ins", "del"),
)
CYCLES = ("update 25%", "update 50%", "update 75%", "insert 75%", "delete 75%")


def growth(sizes: Mapping[str, Any]) -> float:
    """Give how many times longer a cycle takes over twice as many rows."""
    small, large = (_updates(one) for one in sizes.values())
    return large / small


def share_effect(sizes: Mapping[str, Any]) -> float:
    """Give how many times longer a cycle takes after three times as many updates, over both sizes."""
    few, many = (
        statistics.fmean(one["workloads"][f"update {share}"]["cycle"]["mean"] for one in sizes.values())
        for share in ("25%", "75%")
    )
    return many / few


def _updates(one: Mapping[str, Any]) -> float:
    named = one["workloads"].items()
    return statistics.fmean(work["cycle"]["mean"] for name, work in named if name.startswith("update"))


def sheet(figures: Mapping[str, Any]) -> Sheet:
    """Show a row per technique and size; a whole cycle has in it what must be made for it and removed."""
    size, found = figures["load"], figures["techniques"]
    plain = {rows: _write_ms(one) for rows, one in found["scan"].items()} if "scan" in found else {}
    rows = [
        _row(name, count, one, plain.get(count), sizes) for name, sizes in found.items() for count, one in sizes.items()
    ]
    cheapest = min(found, key=lambda name: sum(one["whole"]["update"]["mean"] for one in found[name].values()))
    right = "as each technique can" if figures["verified"] else "NOT AS EXPECTED"
    return Sheet(
        f"capture: {size['rows']:,} and {2 * size['rows']:,} rows of {size['columns']} columns of {size['width']} characters, "
        f"{size['rounds']} rounds",
        (
            f"a cycle after updates is cheapest by {cheapest}",
            "audit and scan lose every delete; all but the logs see the last of several updates only",
        ),
        COLUMNS,
        tuple(rows),
        (
            "A whole cycle: what is made and removed for it, or the snapshot before it, and the cycle itself. Intervals and "
            "percentiles are those of whole cycles after updates. Lost: operations that nobody can know of.",
            f"Every delta was counted: {right}. {machine_line(figures)}",
        ),
    )


def _write_ms(one: Mapping[str, Any]) -> float:
    return statistics.fmean(work["write_ms"] for work in one["workloads"].values())


def _row(
    name: str, rows: str, one: Mapping[str, Any], plain: float | None, sizes: Mapping[str, Any]
) -> tuple[str, ...]:
    whole = one["whole"]["update"]
    first = rows == next(iter(sizes))
    lost = [
        sum(work["lost"] for named, work in one["workloads"].items() if named.startswith(kind))
        / sum(work["operations"] for named, work in one["workloads"].items() if named.startswith(kind))
        for kind in ("update", "insert", "delete")
    ]
    return (
        name,
        f"{int(rows):,}",
        *(f"{one[part]:.2f}" if one[part] else "-" for part in ("create", "remove")),
        f"{_write_ms(one):.2f}",
        times(_write_ms(one), plain),
        *(f"{one['workloads'][cycle]['cycle']['mean']:.3f}" for cycle in CYCLES),
        f"{whole['mean']:.3f}",
        *(f"{whole[edge][0]:.3f} to {whole[edge][1]:.3f}" for edge in ("interval_95", "interval_99")),
        *(f"{whole[edge]:.3f}" for edge in ("percentile_95", "percentile_99")),
        *(("", "") if first else (f"{growth(sizes):.2f}", f"{share_effect(sizes):.2f}")),
        *(f"{part:.0%}" for part in lost),
    )
