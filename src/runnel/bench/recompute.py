"""What maintained views are compared with: the same SQL over plain Parquet copies, recomputed warm by Spark and by DuckDB."""

from __future__ import annotations

import logging
import os
import statistics
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import duckdb
import pyarrow.parquet as pq

from runnel.bench.epochs import timed
from runnel.engine.dialect import to_duckdb

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

    import pyarrow as pa

    from runnel.bench.workplace import Workplace
    from runnel.project import Project

DUCKDB_MEMORY = "8GB"
SIDE_BY_SIDE = 2 * (os.cpu_count() or 1)
"""So many views are recomputed at once: more gain nothing, and Spark runs out of memory over the joins of all of them."""
log = logging.getLogger("runnel")


class Recomputer(Protocol):
    """Computes a query over the copies and keeps its result."""

    name: str

    def compute(self, view: str, sql: str) -> None:
        """Compute a view and keep the result."""
        ...

    def rows(self, view: str) -> pa.Table:
        """Give the kept result."""
        ...


class BySpark:
    """Plain Spark: reads the Parquet copies, writes each result as Parquet; a session beside ours, in the same warm process."""

    name = "spark"

    def __init__(self, session: Any, base: Path, out: Path) -> None:
        """Name the copies."""
        key = "spark.sql.shuffle.partitions"
        self._out = out
        self._session = session.newSession()
        self._session.conf.set("spark.sql.session.timeZone", "UTC")
        self._session.conf.set(key, session.conf.get(key))
        for folder in base.iterdir():
            self._session.read.parquet(str(folder)).createOrReplaceTempView(folder.name)

    def compute(self, view: str, sql: str) -> None:
        """Compute a view and write it."""
        self._session.sql(sql).write.mode("overwrite").parquet(str(self._out / view))

    def rows(self, view: str) -> pa.Table:
        """Read the result back."""
        return self._session.read.parquet(str(self._out / view)).toArrow()


class ByDuckDb:
    """DuckDB in this process: reads the same Parquet copies, keeps each result as a table."""

    name = "duckdb"

    def __init__(self, base: Path) -> None:
        """Name the copies."""
        self._database = duckdb.connect(config={"memory_limit": DUCKDB_MEMORY, "threads": os.cpu_count() or 1})
        self._database.execute("SET GLOBAL TimeZone = 'UTC'")
        for folder in base.iterdir():
            self._database.execute(f"CREATE VIEW \"{folder.name}\" AS FROM read_parquet('{folder}/*.parquet')")

    def compute(self, view: str, sql: str) -> None:
        """Compute a view into a table."""
        self._database.cursor().execute(f'CREATE OR REPLACE TABLE "result_{view}" AS {to_duckdb(sql)}')

    def rows(self, view: str) -> pa.Table:
        """Give the table."""
        return self._database.cursor().execute(f'FROM "result_{view}"').to_arrow_table()


def copy_tables(tables: Mapping[str, Iterable[pa.Table]], folder: Path) -> None:
    """Write tables as plain Parquet, a folder each, a piece at a time."""
    for name, chunks in tables.items():
        target = folder / name
        target.mkdir(parents=True)
        for number, chunk in enumerate(chunks):
            pq.write_table(chunk, target / f"{number:05d}.parquet")


def recomputers(workplace: Workplace, folder: Path) -> list[Recomputer]:
    """Give those that recompute over the copies below a folder: Spark where there is a session, and DuckDB."""
    base = folder / "base"
    found: list[Recomputer] = [ByDuckDb(base)]
    return [BySpark(workplace.spark, base, folder / "out"), *found] if workplace.spark is not None else found


def recompute(who: Recomputer, project: Project, views: Mapping[str, str], rounds: int) -> dict[str, Any]:
    """Check that the results are the views' own rows, then time: each view alone, all one by one, all side by side."""
    for view, sql in views.items():
        who.compute(view, sql)
    same = {view: same_rows(project.view(view).to_arrow(), who.rows(view)) for view in views}
    alone = {view: _median(partial(who.compute, view, sql), rounds) for view, sql in views.items()}
    log.info("recomputed by %s: %s", who.name, {view: round(ms) for view, ms in alone.items()})

    def side_by_side() -> None:
        with ThreadPoolExecutor(min(len(views), SIDE_BY_SIDE)) as pool:
            list(pool.map(who.compute, views, views.values()))

    times = {"one_by_one": sum(alone.values()), "side_by_side": _median(side_by_side, rounds)}
    return {**times, "best": min(times.values()), "views": alone, "same_rows": all(same.values()), "same": same}


def same_rows(ours: pa.Table, theirs: pa.Table) -> bool:
    """Say whether two results are the same bag of rows; values are compared in our types."""
    if ours.num_rows != theirs.num_rows or ours.num_columns != theirs.num_columns:
        return False
    theirs = theirs.rename_columns(ours.column_names).cast(ours.schema)
    order = [(name, "ascending") for name in ours.column_names]
    return bool(ours.sort_by(order).equals(theirs.sort_by(order)))


def _median(work: Callable[[], Any], rounds: int) -> float:
    return statistics.median(timed(work) for _ in range(rounds))
