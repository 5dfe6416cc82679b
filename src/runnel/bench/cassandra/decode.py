"""The decode benchmark: how fast Cassandra's log is decoded, per core and with Spark's tasks."""

from __future__ import annotations

import statistics
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from runnel.bench.cassandra.segment import SCHEMA, write_segment
from runnel.bench.machine import facts
from runnel.bench.report import Sheet, machine_line, times
from runnel.connectors.cassandra.cells import SET
from runnel.connectors.cassandra.cells.reconcile import PartitionState, merge
from runnel.connectors.cassandra.log.catalog import Catalog
from runnel.connectors.cassandra.log.reader import LogReader
from runnel.connectors.cassandra.schema.tables import build_tables
from runnel.connectors.cassandra.schema.text import parse_schema
from runnel.connectors.cassandra.values.decode import decoder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from runnel.bench.workplace import Workplace
    from runnel.connectors.cassandra.cells import Mutation

MEGA = 1e6


@dataclass(frozen=True)
class Load:
    """How many mutations a segment has, how often it is read, and by how many of Spark's tasks at once."""

    mutations: int
    rounds: int
    tasks: tuple[int, ...] = (1, 2)


def measure(workplace: Workplace, load: Load) -> dict[str, Any]:
    """Read the same segment in several ways; times of one core are those of the process, Spark's are those of the clock."""
    with tempfile.TemporaryDirectory(prefix="runnel-bench-") as folder:
        path = write_segment(Path(folder), load.mutations)
        size = path.stat().st_size
        ways = {name: _of_core(work, path, load) for name, work in WAYS.items()}
        tasks = {} if workplace.spark is None else _with_tasks(workplace.spark, Path(folder), load)
    return {
        "benchmark": "decode",
        "load": asdict(load) | {"bytes": size},
        "ways": ways,
        "tasks": tasks,
        "verified": all(one["found"] == load.mutations for one in ways.values())
        and all(one["found"] == load.mutations * int(count) for count, one in tasks.items()),
        **facts(workplace),
    }


def _of_core(work: Callable[[Iterable[Mutation]], int], path: Path, load: Load) -> dict[str, Any]:
    seconds, found = [], 0
    for _ in range(load.rounds):
        reader = LogReader(Catalog(parse_schema(SCHEMA)), compile_readers=work is not by_grammar)
        began = time.process_time()
        found = work(reader.read(path))
        seconds.append(time.process_time() - began)
    return {"seconds": statistics.median(seconds), "best": min(seconds), "found": found}


def _with_tasks(spark: Any, folder: Path, load: Load) -> dict[str, Any]:
    """Let each of several tasks read a segment of its own; the rows are counted where they are."""
    from runnel.connectors.cassandra.datasource import CassandraDataSource

    spark.dataSource.register(CassandraDataSource)
    (folder / "schema.cql").write_text(SCHEMA + ";", encoding="utf-8")
    found = {}
    for tasks in load.tasks:
        logs = folder / f"tasks-{tasks}"
        logs.mkdir()
        for number in range(tasks):
            write_segment(logs, load.mutations, number)
        reader = spark.read.format("runnel.cassandra").options(keyspace="shop", logs=f"{logs}/*")
        rows = reader.option("schema", str(folder / "schema.cql")).option("tables", "orders").load()
        seconds, count = [], 0
        for _ in range(load.rounds):
            began = time.perf_counter()
            count = rows.select("segment", "position").distinct().count()
            seconds.append(time.perf_counter() - began)
        found[str(tasks)] = {"seconds": statistics.median(seconds), "best": min(seconds), "found": count}
    return found


def count(mutations: Iterable[Mutation]) -> int:
    """Count mutations: their changes are made, and nothing is done with them."""
    return sum(1 for _ in mutations)


def with_values(mutations: Iterable[Mutation]) -> int:
    """Decode every key and value too."""
    table = build_tables(parse_schema(SCHEMA))[0]
    decoders = {column.name: decoder(column.type) for column in table.columns}
    found = 0
    for mutation in mutations:
        for kind, owner, key, _, column, _, value, _, _, _ in mutation.changes:
            if kind == SET:
                decoders[column or ""](value)
            else:
                owner.key_values(key)
        found += 1
    return found


def merged(mutations: Iterable[Mutation]) -> int:
    """Reconcile the changes into the states of their partitions."""
    states: dict[bytes, PartitionState] = {}
    found = 0
    for mutation in mutations:
        key = mutation.changes[0][2]
        merge(states.setdefault(key, PartitionState(key)), mutation.changes)
        found += 1
    return found


def by_grammar(mutations: Iterable[Mutation]) -> int:
    """Count mutations of a reader that makes no functions for column lists."""
    return count(mutations)


WAYS: dict[str, Callable[[Iterable[Mutation]], int]] = {
    "changes": count,
    "changes, keys and values decoded": with_values,
    "changes merged into states": merged,
    "changes, by the grammar alone": by_grammar,
}


def sheet(figures: Mapping[str, Any]) -> Sheet:
    """Show mutations and megabytes per second."""
    load, tasks = figures["load"], figures["tasks"]
    rows = [_row(f"{name}, one core", one, load, None) for name, one in figures["ways"].items()]
    one_task = tasks.get("1")
    rows += [
        _row(f"Spark, {number} task{'s' if number != '1' else ''}", one, load, one_task)
        for number, one in tasks.items()
    ]
    per_second = load["mutations"] / figures["ways"]["changes"]["seconds"]
    right = "All were found." if figures["verified"] else "NOT ALL WERE FOUND."
    return Sheet(
        f"decode: {load['mutations']:,} mutations of 8 columns, {load['bytes'] / MEGA:.1f} MB, "
        f"{load['bytes'] // load['mutations']} bytes each",
        (f"{per_second:,.0f} mutations per second of one core",),
        ("", "mutations/s", "MB/s", "best mutations/s", "times one task"),
        tuple(rows),
        (
            "Times of one core are processor time; Spark's are on the clock, and have in them the start of a job, a row per cell "
            "made in Arrow, and counting the mutations.",
            f"{right} {machine_line(figures)}",
        ),
    )


def _row(
    name: str, one: Mapping[str, Any], load: Mapping[str, Any], single: Mapping[str, Any] | None
) -> tuple[str, ...]:
    size = load["bytes"] * one["found"] / load["mutations"]
    rate = one["found"] / one["seconds"]
    return (
        name,
        f"{rate:,.0f}",
        f"{size / MEGA / one['seconds']:.1f}",
        f"{one['found'] / one['best']:,.0f}",
        "" if single is None else times(rate, single["found"] / single["seconds"]),
    )
