"""Damaged logs: with checksums every change of a byte is noticed, without them nothing hangs, grows or leaves without a place."""

from __future__ import annotations

import os
import random
from typing import TYPE_CHECKING

import pytest

from runnel.errors import RunnelError
from tests.connectors.mysql.fuzz import read, run, without_checksums
from tests.connectors.mysql.test_types import NUMBERS, TEXTS, TIMES

if TYPE_CHECKING:
    from pathlib import Path

    from tests.servers.mysql import SqlServer

SEED = int(os.environ.get("RUNNEL_SEED", "1"))
CASES = int(os.environ.get("RUNNEL_CASES", "60"))
SMALL = {name: [value for value in values if "REPEAT" not in value] for name, values in TEXTS.items()}


def write_log(server: SqlServer) -> Path:
    """Write a small log with all types, updates, deletes, compression, JSON and XA; give its file."""
    database = server.database()
    columns = {name: values for name, values in (NUMBERS | TIMES | SMALL).items() if values}
    names = [f"c{at}" for at in range(len(columns))]
    defined = ", ".join(f"{name} {type_}" for name, type_ in zip(names, columns, strict=True))
    rows = [f"INSERT INTO t VALUES ({n}, {', '.join(v[n % len(v)] for v in columns.values())})" for n in range(3)]
    work = ["SET sql_mode = ''", *rows, "UPDATE t SET c3 = 1, c5 = NULL", "DELETE FROM t WHERE k = 1"]
    if "maria" in server.program.name:
        further = ["SET GLOBAL log_bin_compress = ON", "UPDATE t SET c1 = 7", "SET GLOBAL log_bin_compress = OFF"]
    else:
        document = "JSON_OBJECT('a', JSON_ARRAY(1, 'x', 2.5), 'b', JSON_OBJECT('c', NULL))"
        further = ["CREATE TABLE j (k INT PRIMARY KEY, d JSON)", f"INSERT INTO j VALUES (1, {document})"]
        further += [
            "SET SESSION binlog_row_value_options = PARTIAL_JSON",
            "UPDATE j SET d = JSON_SET(d, '$.a[1]', 'y')",
        ]
        further += ["SET SESSION binlog_transaction_compression = ON", "UPDATE t SET c1 = 7"]
    xa = ["XA START 'x'", "UPDATE t SET c0 = 5", "XA END 'x'", "XA PREPARE 'x'", "XA COMMIT 'x'"]
    server.sql(
        "FLUSH BINARY LOGS", f"CREATE TABLE t (k INT PRIMARY KEY, {defined})", *work, *further, *xa, database=database
    )
    written = server.logs()[-1]
    server.sql("FLUSH BINARY LOGS")
    return written


def test_damage_gives_an_error_with_its_place_or_the_right_beginning(sql_server: SqlServer) -> None:
    data = write_log(sql_server).read_bytes()
    for one in (data, without_checksums(data)):
        outcomes = run(one, range(SEED, SEED + CASES))
        print(f"seed {SEED}: {outcomes}")
        assert outcomes["RUNNEL-BINLOG-DAMAGED"] > CASES // 3


def test_with_checksums_no_changed_byte_changes_a_value(sql_server: SqlServer, tmp_path: Path) -> None:
    data = write_log(sql_server).read_bytes()
    path = tmp_path / "binlog.000001"
    path.write_bytes(data)
    ends, rows = read(path)
    assert len(rows) > 10
    chance = random.Random(SEED)
    for _ in range(CASES):
        at = chance.randrange(4, len(data))
        path.write_bytes(data[:at] + bytes([data[at] ^ 1 << chance.randrange(8)]) + data[at + 1 :])
        with pytest.raises(RunnelError, match=r"binlog.000001"):
            # A header that says more bytes than there are looks like an event that is still being written.
            found = read(path)
            assert found[0] == ends[: len(found[0])]
            assert found[1] == rows[: len(found[1])]
            assert len(found[0]) < len(ends)
            raise RunnelError("RUNNEL-CUT", "binlog.000001 was read up to the damage")


def test_every_beginning_of_a_log_gives_a_beginning_of_its_transactions(sql_server: SqlServer, tmp_path: Path) -> None:
    data = write_log(sql_server).read_bytes()
    path = tmp_path / "binlog.000001"
    path.write_bytes(data)
    ends, rows = read(path)
    for size in random.Random(SEED).sample(range(4, len(data)), 20):
        path.write_bytes(data[:size])
        found = read(path)
        assert found == (ends[: len(found[0])], rows[: len(found[1])])
        assert [end for end in ends if end.spot.position <= size] == found[0]
