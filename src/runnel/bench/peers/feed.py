"""Writes the star and its changes as files that other systems read: envelopes in JSON lines, and signed rows in Parquet."""

from __future__ import annotations

import re
import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from runnel.bench import star

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

ENVELOPE = """SELECT CASE WHEN _weight < 0 THEN {row} END AS before, CASE WHEN _weight > 0 THEN {row} END AS after,
CASE WHEN _weight < 0 THEN 'd' ELSE 'c' END AS op FROM part"""
TIME = "strftime(\"time\" AT TIME ZONE 'UTC', '%Y-%m-%d %H:%M:%S.%f')"


@dataclass(frozen=True)
class Feed:
    """Where things lie: each table but the events as JSON lines and Parquet, the events' parts in the order they happen."""

    tables: dict[str, Path]
    parts: tuple[Path, ...]

    def envelopes(self, parts: int, target: Path) -> Path:
        """Put the first parts into one file, which cannot be read but in order."""
        with target.open("wb") as whole:
            for part in self.parts[:parts]:
                with part.with_suffix(".json.gz").open("rb") as one:
                    shutil.copyfileobj(one, whole)
        return target


def write_feed(folder: Path, rows: star.Star, batches: Iterable[pa.Table]) -> Feed:
    """Write the tables as they are now, then a part per batch; the first part holds the events there are."""
    folder.mkdir(parents=True)
    tables = {name: chunks for name, chunks in rows.tables().items() if name != star.FACTS}
    with duckdb.connect() as database:
        database.execute("SET TimeZone = 'UTC'")
        for name, chunks in tables.items():
            part = pa.concat_tables(chunks)
            pq.write_table(part, folder / f"{name}.parquet")
            _copy(database, "FROM part", part, folder / f"{name}.json")
        first = star.weighted(pa.concat_tables(rows.chunks()), 1)
        parts = [_part(database, folder, at, batch) for at, batch in enumerate(_and_then(first, batches))]
    return Feed({name: folder / f"{name}.json" for name in tables}, tuple(parts))


def flink_columns(table: str) -> str:
    """Give a table's columns as Flink declares them."""
    columns = re.sub(r", PRIMARY KEY.*", "", star.TABLES[table]).replace("TIMESTAMP", "TIMESTAMP(6)")
    return ", ".join(re.sub(r"^(\w+)", r"`\1`", column) for column in re.split(r", (?=[a-z])", columns))


def _and_then(first: pa.Table, others: Iterable[pa.Table]) -> Iterable[pa.Table]:
    yield first
    yield from others


def _part(database: duckdb.DuckDBPyConnection, folder: Path, at: int, batch: pa.Table) -> Path:
    path = folder / f"part{at:05d}.parquet"
    pq.write_table(batch, path)
    fields = (f"'{name}': {TIME if name == 'time' else name}" for name in star.SCHEMA.names)
    _copy(database, ENVELOPE.format(row="{" + ", ".join(fields) + "}"), batch, path.with_suffix(".json.gz"))
    return path


def _copy(database: duckdb.DuckDBPyConnection, sql: str, part: pa.Table, target: Path) -> None:
    database.register("part", part)
    database.execute(f"COPY ({sql}) TO '{target}' (FORMAT json)")
    database.unregister("part")
