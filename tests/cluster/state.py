"""How much a state takes: every row of a table of eight columns written once, and no views."""

from __future__ import annotations

from typing import TYPE_CHECKING

import runnel
from runnel.engine.duckdb import DuckDbEngine
from runnel.pipeline.cells import cells_name
from tests.cluster.backlog import BYTES_PER_MUTATION, Backlog
from tests.cluster.compare import differing
from tests.cluster.driver import Driver
from tests.cluster.report import Report

if TYPE_CHECKING:
    from tests.cluster.workplace import Workplace

BOUND_PER_ROW = 150
"""Bytes that the cells of a row may take: a million rows 150 MB."""


def check(place: Workplace, rows: int) -> Report:
    """Write so many rows and measure the files that hold them."""
    report = Report(f"state: {rows:,} rows of eight columns")
    log = Backlog(rows * BYTES_PER_MUTATION, rows)
    folder = place.project("state", log.write(place.folder), {})
    with Driver(folder) as driver:
        report.run("state", driver.run(), workers=2)
    with runnel.open(folder, engine=DuckDbEngine(), sync=False) as project:
        head = project.runtime.lake.snapshot()
        sizes = {name: sum(file.bytes for file in head.files(name)) for name in head.relations}
    cells = sizes[cells_name("shop", "orders")]
    for name, size in sizes.items():
        report.say(name, f"{size / 1e6:,.1f} MB, {size / rows:.1f} bytes a row")
    report.hold("cells", f"{cells / rows:.1f} of {BOUND_PER_ROW} bytes a row", right=cells <= rows * BOUND_PER_ROW)
    report.equal("rows", differing(folder, {"shop.orders": log.expected()}, {}))
    return report
