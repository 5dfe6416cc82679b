"""Peers: the same seven views in Flink SQL and in Pathway, over the same changes; changes per second of each.

Every system first proves on a small case that it gives our rows. A peer is timed by two runs, one over the base and some changes
and one over more of them; the difference is what those changes cost, without start, planning and loading. Too few changes drown
in the noise of starting: a difference that is not above zero is reported as too few to tell.
"""

from __future__ import annotations

import logging
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from runnel.bench import star
from runnel.bench.dashboard import VIEWS, set_up
from runnel.bench.epochs import take, timed, verify_all
from runnel.bench.machine import facts
from runnel.bench.peers import homes
from runnel.bench.peers.feed import Feed, flink_columns, write_feed
from runnel.bench.recompute import same_rows
from runnel.bench.report import Sheet, about, times

if TYPE_CHECKING:
    from collections.abc import Mapping

    from runnel.bench.workplace import Workplace
    from runnel.project import Project

OURS = "runnel"
SMALL = (2_000, 100, 2)
MEASURED = 500_000
LEAST = 3
LONGEST = 300.0
"""Seconds a peer's run may be expected to take, by its speed in smaller batches; it is not timed where it would take longer."""
log = logging.getLogger("runnel")


@dataclass(frozen=True)
class Load:
    """How much: events to begin with, changes per batch, batches of each size that are timed (0: half a million changes).

    A peer's runs are repeated `rounds` times, and the fastest of each kind count.
    """

    base: int
    batches: tuple[int, ...] = (10_000, 1_000_000)
    count: int = 0
    rounds: int = 2

    def timed(self, batch: int) -> int:
        """Say how many batches of a size are timed."""
        return self.count or max(LEAST, MEASURED // batch)

    def warm(self, batch: int) -> int:
        """Say how many batches go before those."""
        return max(1, self.timed(batch) // 5)


def measure(workplace: Workplace, load: Load, peers: tuple[str, ...] = tuple(homes.PACKAGES)) -> dict[str, Any]:
    """Compare small results, then time; a peer that is not installed or gives other rows is not timed."""
    there = [peer for peer in peers if homes.installed(peer)]
    with TemporaryDirectory(prefix="runnel-peers-") as name:
        folder = Path(name)
        same = _small(workplace, folder / "small", there)
        right = [peer for peer in there if same[peer]]
        found: dict[str, dict[str, Any]] = {}
        for batch in sorted(load.batches):
            slow = _too_slow(load, batch, list(found.values()))
            peers_now = [peer for peer in right if peer not in slow]
            found[str(batch)] = _timed(workplace, folder / str(batch), load, batch, peers_now)
            found[str(batch)] |= {
                peer: {"changes_per_second": None, "too_slow": True} for peer in right if peer in slow
            }
    return {
        "benchmark": "peers",
        "load": asdict(load),
        "packages": {peer: homes.PACKAGES[peer] for peer in there},
        "missing": [peer for peer in peers if peer not in there],
        "same_rows": same,
        "batches": found,
        "verified": all(same.values()) and all(one[OURS]["verified"] for one in found.values()),
        **facts(workplace),
    }


def _small(workplace: Workplace, folder: Path, peers: list[str]) -> dict[str, bool]:
    """Say for each peer whether it gives our rows."""
    base, batch, count = SMALL
    rows = star.Star(base)
    feed = write_feed(folder / "feed", rows, (rows.change(batch) for _ in range(count)))
    with workplace.project() as project:
        set_up(project, star.Star(base))
        for part in feed.parts[1:]:
            take(project, {star.FACTS: pq.read_table(part)})
        ours = {view: project.view(view).to_arrow() for view in VIEWS}
    same = {}
    for peer in peers:
        homes.run(peer, _task(peer, feed, count + 1, folder, batch, collect=True), folder / peer)
        theirs = {view: pq.read_table(folder / peer / f"result_{view}.parquet") for view in VIEWS}
        differ = [view for view in VIEWS if not same_rows(ours[view], _in_our_units(theirs[view], ours[view].schema))]
        log.info("%s gives %s", peer, f"other rows in {', '.join(differ)}" if differ else "our rows")
        same[peer] = not differ
    return same


def _timed(workplace: Workplace, folder: Path, load: Load, batch: int, peers: list[str]) -> dict[str, dict[str, Any]]:
    warm, count = load.warm(batch), load.timed(batch)
    rows = star.Star(load.base)
    feed = write_feed(folder / "feed", rows, (rows.change(batch) for _ in range(warm + count)))
    found = {OURS: _ours(workplace, load.base, feed, warm)}
    for peer in peers:
        first: list[float] = []
        last: list[float] = []
        for _ in range(load.rounds):
            for runs, parts in ((first, warm), (last, warm + count)):
                runs.append(homes.run(peer, _task(peer, feed, 1 + parts, folder, batch), folder / peer)["seconds"])
            log.info("%s, batches of %s: %.1f s, then %.1f s", peer, batch, first[-1], last[-1])
        found[peer] = {"seconds": min(last) - min(first), "first": first, "last": last}
    for one in found.values():
        one["changes_per_second"] = batch * count / one["seconds"] if one["seconds"] > 0 else None
    return found


def _too_slow(load: Load, batch: int, before: list[dict[str, Any]]) -> set[str]:
    """Say which peers would take too long over batches of a size, by what they took in smaller ones."""
    changes = batch * (load.warm(batch) + load.timed(batch))
    seen = [(peer, found) for one in before for peer, found in one.items() if peer != OURS]
    return {
        peer
        for peer, found in seen
        if found.get("too_slow") or changes > LONGEST * (found["changes_per_second"] or changes)
    }


def _ours(workplace: Workplace, base: int, feed: Feed, warm: int) -> dict[str, Any]:
    with workplace.project() as project:
        set_up(project, star.Star(base))
        epochs = [timed(partial(_read_and_take, project, part)) for part in feed.parts[1:]]
        checked = verify_all(project, VIEWS)
    return {"seconds": sum(epochs[warm:]) / 1000, "verified": all(view["verified"] for view in checked.values())}


def _read_and_take(project: Project, part: Path) -> None:
    take(project, {star.FACTS: pq.read_table(part)})


def _task(peer: str, feed: Feed, parts: int, folder: Path, batch: int, *, collect: bool = False) -> dict[str, Any]:
    """Say what a peer is to do with the first parts of a feed."""
    if peer == "pathway":
        files = {name: str(path.with_suffix(".parquet")) for name, path in feed.tables.items()}
        return {"collect": collect, "parts": [str(part) for part in feed.parts[:parts]], "files": files}
    return {
        "collect": collect,
        "batch": batch,
        "changing": star.FACTS,
        "events": str(feed.envelopes(parts, folder / "events.json.gz")),
        "tables": {name: flink_columns(name) for name in star.TABLES},
        "files": {name: str(path) for name, path in feed.tables.items()},
        "views": star.VIEWS,
    }


def _in_our_units(theirs: pa.Table, schema: pa.Schema) -> pa.Table:
    """Give whole cents as the decimals they stand for."""
    columns = [
        star.decimals(column.to_numpy())
        if pa.types.is_decimal(field.type) and pa.types.is_integer(column.type)
        else column
        for field, column in zip(schema, theirs.columns, strict=True)
    ]
    return pa.table(columns, names=schema.names)


def sheet(figures: Mapping[str, Any]) -> Sheet:
    """Show changes per second of each, and how many times ours."""
    load, batches = figures["load"], figures["batches"]
    others = [peer for peer, same in figures["same_rows"].items() if same]
    rows = [(f"{int(batch):,}", *_cells(found, others)) for batch, found in batches.items()]
    columns = ("changes per batch", "runnel changes/s")
    ways = {"the best batches of each": _best(batches)} | {
        f"batches of {int(n):,}": found for n, found in batches.items()
    }
    ratios = [
        f"{name}: " + ", ".join(f"{times(_speed(found, OURS), _speed(found, peer))} times {peer}'s" for peer in others)
        for name, found in ways.items()
    ]
    slow = sorted({who for found in batches.values() for who, one in found.items() if one.get("too_slow")})
    untimed = [f"{p} was not timed where a run would have taken more than {LONGEST:.0f} s." for p in slow]
    missing = [f"{p} is not installed; `runnel bench peers --install` installs it." for p in figures["missing"]]
    wrong = [f"{p} gave OTHER ROWS and was not timed." for p, same in figures["same_rows"].items() if not same]
    return Sheet(
        f"peers: {load['base']:,} events, the same seven views",
        (f"our changes/s in {'; '.join(ratios)}" if others else "no peer to compare with",),
        (*columns, *(part for peer in others for part in (f"{peer} changes/s", f"runnel / {peer}"))),
        tuple(rows),
        (*missing, *wrong, *untimed, f"With {', '.join(figures['packages'].values()) or 'no peer'}.", about(figures)),
    )


def _cells(found: Mapping[str, Any], others: list[str]) -> tuple[str, ...]:
    own = _speed(found, OURS)
    cells = (cell for p in others for cell in (_written(found, p), times(own, _speed(found, p))))
    return (_written(found, OURS), *cells)


def _best(batches: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Give for each the size of batches in which it is fastest."""
    peers = {peer for found in batches.values() for peer in found}
    return {
        peer: max((one for one in batches.values() if peer in one), key=lambda one: _speed(one, peer) or 0)[peer]
        for peer in peers
    }


def _speed(found: Mapping[str, Any], who: str) -> float | None:
    speed: float | None = found[who]["changes_per_second"]
    return speed


def _written(found: Mapping[str, Any], who: str) -> str:
    speed = _speed(found, who)
    if speed is None:
        return "not timed" if found[who].get("too_slow") else "too few to tell"
    return f"{speed:,.0f}"
