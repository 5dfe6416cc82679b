"""Runs views in Flink SQL over change files; started by `runnel bench peers` in an environment that holds PyFlink alone.

`python flink_peer.py TASK.json` reads what to do and writes `answer.json` beside it: the seconds that all views together take over
the changes, results thrown away; or, with "collect", the final rows of each view as `result_VIEW.parquet`.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyflink.common import Configuration
from pyflink.table import EnvironmentSettings, TableDescriptor, TableEnvironment

COMING = ("INSERT", "UPDATE_AFTER")


def environment(task: dict[str, Any]) -> Any:
    """Start Flink in streaming mode with mini-batches, and name the tables."""
    settings = Configuration()
    settings.set_string("table.exec.mini-batch.enabled", "true")
    settings.set_string("table.exec.mini-batch.allow-latency", "1 s")
    settings.set_string("table.exec.mini-batch.size", str(task["batch"]))
    settings.set_string("table.optimizer.agg-phase-strategy", "TWO_PHASE")
    settings.set_string("pipeline.object-reuse", "true")
    settings.set_string("parallelism.default", str(os.cpu_count()))
    settings.set_string("taskmanager.memory.managed.size", "256 mb")
    settings.set_string("taskmanager.numberOfTaskSlots", str(os.cpu_count()))
    flink = TableEnvironment.create(
        EnvironmentSettings.new_instance().in_streaming_mode().with_configuration(settings).build()
    )
    flink.get_config().set_local_timezone("UTC")
    for name, columns in task["tables"].items():
        changing = name == task["changing"]
        options = {
            "connector": "filesystem",
            "path": task["events"] if changing else task["files"][name],
            "format": "debezium-json" if changing else "json",
        }
        listed = ", ".join(f"'{key}' = '{value}'" for key, value in options.items())
        flink.execute_sql(f"CREATE TABLE {name} ({columns}) WITH ({listed})")
    return flink


def collect(task: dict[str, Any], folder: Path) -> None:
    """Add up what each view says and write what is left at the end."""
    flink = environment(task)
    for view, sql in task["views"].items():
        answer = flink.sql_query(sql).execute()
        names = answer.get_table_schema().get_field_names()
        bag: Counter[tuple[Any, ...]] = Counter()
        with answer.collect() as rows:
            for row in rows:
                bag[tuple(row)] += 1 if row.get_row_kind().name in COMING else -1
        assert not bag or min(bag.values()) >= 0, view
        kept = list(bag.elements())
        columns = {name: [row[at] for row in kept] for at, name in enumerate(names)}
        pq.write_table(pa.table(columns), folder / f"result_{view}.parquet")


def seconds(task: dict[str, Any]) -> float:
    """Run all views as one job, to its end."""
    flink = environment(task)
    statements = flink.create_statement_set()
    for sql in task["views"].values():
        statements.add_insert(TableDescriptor.for_connector("blackhole").build(), flink.sql_query(sql))
    begun = time.perf_counter()
    statements.execute().wait()
    return time.perf_counter() - begun


def main(path: Path) -> None:
    """Do a task."""
    task = json.loads(path.read_text())
    answer: dict[str, float] = {}
    if task["collect"]:
        collect(task, path.parent)
    else:
        answer["seconds"] = seconds(task)
    (path.parent / "answer.json").write_text(json.dumps(answer))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
