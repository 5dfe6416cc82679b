"""Write the tables and charts of docs/benchmarks.md from the figures kept in docs/benchmarks/*.json; the prose stays.

Between `<!-- figures: NAME -->` and `<!-- end -->` stands what NAME.json says. Figures of a run that was not verified, or whose
views were not kept on Spark, are refused.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from runnel.bench import choice, dashboard, growth, latency, minmax, sustained, tpch
from runnel.bench.cassandra import capture_sheet, decode
from runnel.bench.logsync import measure as logsync
from runnel.bench.peers import measure as peers
from runnel.bench.report import GIGA, Sheet, markdown
from scripts.benchmark_charts import bars, lines

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "benchmarks.md"
KEPT = ROOT / "docs" / "benchmarks"
BLOCK = re.compile(r"(<!-- figures: ([\w-]+) -->\n).*?(<!-- end -->)", re.DOTALL)
NONE = "No figures of this version are kept here yet.\n"

Figures = Mapping[str, Any]


def page(text: str, kept: Mapping[str, Figures]) -> str:
    """Give the page with every block made anew."""
    return BLOCK.sub(lambda found: found[1] + block(found[2], kept.get(found[2])) + found[3], text)


def block(name: str, figures: Figures | None) -> str:
    """Give what stands between the marks: the command, the sheet, the chart."""
    if figures is None:
        return NONE
    refuse_unfit(name, figures)
    command = f"```sh\n{figures['command']}\n```\n\n"
    picture = f"\n![{name}](benchmarks/{name}.svg)\n" if figures["benchmark"] in CHARTS else ""
    return command + markdown(SHEETS[figures["benchmark"]](figures)) + picture


def charts(kept: Mapping[str, Figures]) -> dict[str, str]:
    """Give the drawing of every kept benchmark that has one."""
    return {name: CHARTS[one["benchmark"]](one) for name, one in kept.items() if one["benchmark"] in CHARTS}


def refuse_unfit(name: str, figures: Figures) -> None:
    """Refuse figures that must not be published."""
    if figures["engine"] not in ("spark", "none") or not figures["verified"]:
        raise SystemExit(
            f"{name}.json is of a run on {figures['engine']}, verified: {figures['verified']}; measure it again"
        )


def _dashboard_chart(figures: Figures) -> str:
    others = [(f"recomputed by {dashboard.NAMES[who]}", one["best"]) for who, one in figures["recompute"].items()]
    return bars("Seven views brought up to date", [("runnel: an epoch", figures["epoch"]), *others], "ms")


def _growth_chart(figures: Figures) -> str:
    points = [(float(base), one["epoch"]) for base, one in figures["bases"].items()]
    level = [(x, points[0][1]) for x, _ in points]
    return lines(
        "An epoch over larger tables", {"epoch": points, "no growth": level}, ("events", "ms"), logarithmic=True
    )


def _tpch_chart(figures: Figures) -> str:
    shown = figures["alone"] or figures["views"]
    other = next(iter(figures["recompute"].values()))["views"]
    ratios = sorted(
        ((name, other[name] / one["epoch"]) for name, one in shown.items() if one["epoch"]), key=lambda r: r[1]
    )
    return bars("How many times longer recomputing takes", [("all 22 views", figures["ratio"]), *ratios], "x")


def _sustained_chart(figures: Figures) -> str:
    series = {
        name: [(s["second"], s[key] / GIGA) for s in figures["samples"]]
        for name, key in (
            ("memory of the driver", "memory_driver"),
            ("memory of Spark", "memory_spark"),
            ("state", "bytes"),
        )
    }
    return lines("Memory and state under sustained load", series, ("seconds", "GiB"))


def _latency_chart(figures: Figures) -> str:
    return bars("From rename to visible", [(name, figures[name]) for name in ("p50", "p95", "p99", "longest")], "ms")


def _peers_chart(figures: Figures) -> str:
    found = [
        (f"{who}, batches of {int(batch):,}", one["changes_per_second"])
        for batch, systems in figures["batches"].items()
        for who, one in systems.items()
        if one["changes_per_second"]
    ]
    return bars("Changes per second", found, "")


SHEETS: dict[str, Callable[[Figures], Sheet]] = {
    "dashboard": dashboard.sheet,
    "growth": growth.sheet,
    "minmax": minmax.sheet,
    "tpch": tpch.sheet,
    "sustained": sustained.sheet,
    "latency": latency.sheet,
    "choice": choice.sheet,
    "peers": peers.sheet,
    "capture": capture_sheet.sheet,
    "decode": decode.sheet,
    "logsync": logsync.sheet,
}
CHARTS: dict[str, Callable[[Figures], str]] = {
    "dashboard": _dashboard_chart,
    "growth": _growth_chart,
    "tpch": _tpch_chart,
    "sustained": _sustained_chart,
    "latency": _latency_chart,
    "peers": _peers_chart,
}


def kept_figures(folder: Path = KEPT) -> dict[str, Figures]:
    """Read the kept figures by name."""
    return {path.stem: json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))}


def main() -> None:
    """Write the page and the charts."""
    kept = kept_figures()
    PAGE.write_text(page(PAGE.read_text(), kept))
    for name, drawing in charts(kept).items():
        (KEPT / f"{name}.svg").write_text(drawing)
    print(f"{PAGE.relative_to(ROOT)}: {len(kept)} benchmarks")


if __name__ == "__main__":
    main()
