"""A feed of files: plain rows and signed rows in Parquet, Debezium envelopes in JSON lines; hydrated, then followed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import duckdb

from tests.cluster.compare import differing
from tests.cluster.driver import Driver
from tests.cluster.report import Report

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cluster.workplace import Workplace

COLUMNS = "id BIGINT, product BIGINT, quantity BIGINT"
TABLES = ("plain", "signed", "changed")
VIEWS = {
    f"{table}_products": f"SELECT product, count(*) AS n, sum(quantity) AS total, sum(id) AS ids FROM feed.{table} GROUP BY product"
    for table in TABLES
}
FILE_ROWS = {"plain": 1_000_000, "signed": 1_000_000, "changed": 200_000}
SHARES = {"plain": 0.4, "signed": 0.4, "changed": 0.2}
"""How much of the rows is in each table; an envelope is read by Python, a row at a time."""
UPDATED = 10
"""One row of so many is updated while the feed is followed."""


@dataclass(frozen=True)
class Feed:
    """A feed of so many rows to begin with, and updates of a tenth of them after that."""

    rows: int

    def of(self, table: str) -> int:
        """How many rows a table has."""
        return int(self.rows * SHARES[table])

    def write(self, folder: Path) -> str:
        """Write the rows to begin with, and give the section of a project that reads them."""
        for table in TABLES:
            (folder / "changes" / table).mkdir(parents=True)
            each, whole = FILE_ROWS[table], self.of(table)
            for number, first in enumerate(range(0, whole, each)):
                _write(folder / "changes" / table, number, _inserts(table, first, min(first + each, whole)))
        schema = ", ".join(f'{table} = "{COLUMNS}, PRIMARY KEY (id)"' for table in TABLES)
        lines = ["[sources.feed]", 'type = "files"', f'path = "{folder}/changes"', f"schema = {{ {schema} }}"]
        return "\n".join(lines)

    def follow(self, folder: Path) -> None:
        """Write the changes that come later: updates, and new plain rows."""
        for table in TABLES:
            _write(folder / "changes" / table, 100_000, _later(table, self.of(table)))

    def expected(self) -> dict[str, str]:
        """Give what the tables hold in the end, as queries."""
        new = f"CASE WHEN i % {UPDATED} = 0 THEN 1 ELSE 0 END"
        made = {f"feed.{table}": _rows(0, self.of(table), f"quantity + {new}") for table in TABLES}
        return made | {"feed.plain": _rows(0, self.of("plain") + self.of("plain") // UPDATED)}


def _rows(first: int, last: int, quantity: str = "quantity", where: str = "true") -> str:
    return (
        f"SELECT i AS id, i % 1000 AS product, {quantity} AS quantity FROM"
        f" (SELECT range AS i, range * 7919 % 10007 AS quantity FROM range({first}, {last})) AS made WHERE {where}"
    )


def _inserts(table: str, first: int, last: int) -> str:
    rows = _rows(first, last)
    if table == "signed":
        return f"SELECT *, 1 AS _weight FROM ({rows})"
    return f"SELECT 'c' AS op, NULL AS before, made AS after FROM ({rows}) AS made" if table == "changed" else rows


def _later(table: str, rows: int) -> str:
    where = f"i % {UPDATED} = 0"
    old, new = _rows(0, rows, where=where), _rows(0, rows, "quantity + 1", where)
    if table == "plain":
        return _rows(rows, rows + rows // UPDATED)
    if table == "signed":
        return f"SELECT *, -1 AS _weight FROM ({old}) UNION ALL SELECT *, 1 AS _weight FROM ({new})"
    return f"SELECT 'u' AS op, old AS before, new AS after FROM ({old}) AS old JOIN ({new}) AS new ON old.id = new.id"


def _write(folder: Path, number: int, sql: str) -> None:
    is_text = folder.name == "changed"
    form, ending = ("FORMAT json", "jsonl") if is_text else ("FORMAT parquet", "parquet")
    duckdb.sql(f"COPY ({sql}) TO '{folder}/{number:08d}.{ending}' ({form})")


def check(place: Workplace, feed: Feed) -> Report:
    """Hydrate three views, follow changes of a tenth of the rows, and compare with a recompute."""
    report = Report(f"feed: {feed.rows:,} rows: " + ", ".join(f"{feed.of(table):,} {table}" for table in TABLES))
    folder = place.project("feed", feed.write(place.folder), VIEWS)
    with Driver(folder) as driver:
        report.run("hydrated", driver.run(), workers=2)
        feed.follow(place.folder)
        report.run("followed", driver.run(), workers=1)
    report.equal("views", differing(folder, feed.expected(), VIEWS))
    return report
