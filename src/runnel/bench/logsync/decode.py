"""Decoding: the same log read by runnel and by others, in rows per second of the reader's own processor time.

Each reader runs alone. It has to give every row of the log; the sum of the keys says that it did.
"""

from __future__ import annotations

import logging
import time
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import psycopg
import pyarrow.compute as pc

from runnel import config
from runnel.bench.logsync.servers import ORDERS, TABLE, inserts, mysql_database, postgres_database
from runnel.bench.peers import homes
from runnel.connectors.mysql import open_source as mysql_source
from runnel.connectors.mysql.definitions import Definition
from runnel.connectors.mysql.keyed import gathering
from runnel.connectors.mysql.log.problems import Spot
from runnel.connectors.mysql.log.row_events import Rows
from runnel.connectors.mysql.logs import FileLog
from runnel.connectors.mysql.settings import Settings
from runnel.connectors.mysql.wanted import Wanted
from runnel.connectors.postgres import open_source as postgres_source
from runnel.errors import Place

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from runnel.bench.logsync.servers import MysqlServer
    from runnel.connectors import ChangeSet, Source

FILE, SERVER = "file", "server"
"""runnel itself: from the file of the log, where this machine has it, and from the server, as it follows one."""
ROUNDS = 3
PEERS = {"mariadb": ("mysql_replication",), "mysql": ("mysql_replication", "debezium")}
"""Who else reads the log of which server; Debezium's package has no connector for MariaDB."""
log = logging.getLogger("runnel")


def of_binlog(server: MysqlServer, rows: int) -> dict[str, Any]:
    """Write a log of so many rows and let each reader read it."""
    with mysql_database(server) as made, TemporaryDirectory(prefix="runnel-logsync-") as name:
        folder = Path(name)
        peers = [peer for peer in PEERS[server.family] if homes.installed(peer)]
        if "debezium" in peers:  # it has to see the table before it can begin at a place of the log
            made.sql(f"INSERT INTO {TABLE} (id) VALUES (0)")
            homes.run("debezium", _task(made, rows, begin=True), folder / "debezium")
        made.sql("FLUSH BINARY LOGS")
        file, begin = made.end_of_log()
        known = {"host": made.host, "port": made.port, "user": made.user, "database": made.database}
        with following(mysql_source(_section(made.family, **known), folder), rows) as follow:
            for statement in inserts(rows):
                made.sql(statement)
            _, end = made.end_of_log()
            ((base,),) = made.sql("SELECT @@log_bin_basename")
            path = Path(base).parent / file
            found = {FILE: _from_file(path, begin, end, made)} if path.exists() else {}
            found[SERVER] = follow()
        for peer in peers:
            found[peer] = homes.run(peer, _task(made, rows, file=file, at=begin), folder / peer)
            log.info("%s of %s: %s", peer, server.family, found[peer])
        return {
            "version": server.version,
            "bytes": end - begin,
            "readers": {k: _judged(v, rows) for k, v in found.items()},
        }


def _task(server: MysqlServer, rows: int, **further: Any) -> dict[str, Any]:
    known = {"host": server.host, "port": server.port, "user": server.user, "database": server.database}
    return {**known, "table": TABLE, "rows": rows, "begin": False, **further}


def _from_file(file: Path, begin: int, end: int, server: MysqlServer) -> dict[str, Any]:
    """Decode the file to Arrow, as a task of Spark does; the fastest of some rounds counts."""
    settings = Settings("bench", server.family, server.database, file.parent, logs=file.name)
    stretch = Spot(file.name, begin), Spot(file.name, end)
    return min((_timed(_decoded(settings, *stretch)) for _ in range(ROUNDS)), key=lambda one: one["cpu"])


def _decoded(settings: Settings, begin: Spot, end: Spot) -> Iterator[ChangeSet]:
    wanted = Wanted(settings.database, (TABLE,), (TABLE,))
    gathered = gathering(settings, {TABLE: Definition(TABLE, (), ("id",))})
    for item in FileLog(settings).items(begin, end, wanted.rows):
        if isinstance(item, Rows):
            yield from gathered.add(item)
    yield from gathered.rest()


def of_pgoutput(url: str, rows: int) -> dict[str, Any]:
    """Follow a PostgreSQL from before the rows were written; receiving and converting them is timed."""
    with postgres_database(url) as own, psycopg.connect(own, autocommit=True) as server:
        server.execute(ORDERS.format(time="TIMESTAMP(3)", double="DOUBLE PRECISION").encode())
        server.execute(f"ALTER TABLE {TABLE} REPLICA IDENTITY FULL".encode())
        ((version,),) = server.execute("SHOW server_version").fetchall()
        with following(postgres_source(_section("postgres", url=own), Path.cwd()), rows) as follow:
            for statement in inserts(rows):
                server.execute(statement.encode())
            found = follow()
    return {"version": version, "readers": {SERVER: _judged(found, rows)}}


def _section(family: str, **settings: Any) -> config.Source:
    return config.Source("bench", family, settings, Place("bench"), project="logsync")


@contextmanager
def following(source: Source, rows: int) -> Iterator[Callable[[], dict[str, Any]]]:
    """Take in what a source has; then give what reads on from there."""
    try:
        source.tables()
        start = source.latest_offset({}, rows)
        list(source.read({}, start))
        source.commit(start)

        def follow() -> dict[str, Any]:
            source.tables()
            began = (time.process_time(), time.perf_counter())
            end = source.latest_offset(start, 2 * rows)
            return _timed(source.read(start, end), began)

        yield follow
    finally:
        source.close()


def _timed(changes: Iterable[ChangeSet], began: tuple[float, float] | None = None) -> dict[str, Any]:
    cpu, wall = began or (time.process_time(), time.perf_counter())
    rows = total = 0
    for change in changes:
        assert change.signed is not None
        rows += change.signed.num_rows
        total += pc.sum(change.signed["id"]).as_py()
    return {"rows": rows, "sum": total, "cpu": time.process_time() - cpu, "seconds": time.perf_counter() - wall}


def _judged(found: dict[str, Any], rows: int) -> dict[str, Any]:
    """Add the speed, and whether every row came."""
    whole = (found["rows"], found["sum"]) == (rows, rows * (rows + 1) // 2)
    return found | {"rows_per_cpu_second": found["rows"] / found["cpu"], "whole": whole}
