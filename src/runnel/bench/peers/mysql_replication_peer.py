"""Reads a binary log from a server by `mysql-replication`; started by `runnel bench logsync` in an environment of its own.

`python mysql_replication_peer.py TASK.json` reads what to do and writes `answer.json` beside it: the rows, the sum of their keys, and
the seconds of this process and of the clock.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

from pymysqlreplication import BinLogStreamReader
from pymysqlreplication.row_event import WriteRowsEvent


def read(task: dict[str, Any]) -> dict[str, Any]:
    """Read the rows of the table from the position on; as of a MariaDB it would begin with the first file, by GTID."""
    stream = BinLogStreamReader(
        connection_settings={"host": task["host"], "port": task["port"], "user": task["user"], "passwd": ""},
        server_id=4_100_001,
        log_file=task["file"],
        log_pos=task["at"],
        resume_stream=True,
        only_events=[WriteRowsEvent],
        only_schemas=[task["database"]],
        only_tables=[task["table"]],
        slave_heartbeat=5,
        blocking=True,
    )
    cpu, wall = time.process_time(), time.perf_counter()
    rows = total = 0
    for event in stream:
        for row in event.rows:
            rows += 1
            total += row["values"]["id"]
        if rows >= task["rows"]:
            break
    answer = {"rows": rows, "sum": total, "cpu": time.process_time() - cpu, "seconds": time.perf_counter() - wall}
    stream.close()
    return answer


def main(path: Path) -> None:
    """Do the task."""
    path.with_name("answer.json").write_text(json.dumps(read(json.loads(path.read_text()))))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
