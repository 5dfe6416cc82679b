"""A toy store: tables in a SQLite file, and a log of their changes that triggers write into the table `log`.

The log has, for each change, its number, its table, what is done (`upsert` or `remove`) and the row as JSON.
"""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from runnel.connectors.base import OP, UPSERT, ChangeSet, Offset, Partition, TableInfo
from runnel.connectors.settings import Check, Kinds
from runnel.errors import Terminal, Unreachable
from runnel.model import types
from runnel.model.relation import Column, check_columns

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from runnel import config
    from runnel.errors import RunnelError

TYPES = {"INTEGER": types.BIGINT, "REAL": types.parse("DOUBLE"), "TEXT": types.STRING}
BATCH = 1_000


# -- settings: checked before anything is opened, every problem at once


def open_source(section: config.Source, folder: Path) -> ToySource:
    """Open what `[sources.NAME]` describes; relative paths start from the project's folder."""
    check = Check(section, Kinds(strings=("path",)))
    check.required({"path": 'path = "shop.db"'})
    check.done()
    return ToySource(folder / check.text("path"))


def connected(path: Path) -> closing[sqlite3.Connection]:
    """Connect to the file; it is never created here."""
    if not path.exists():
        raise Unreachable("TOY-FILE", f"there is no file {path.name}", hint="it is tried again")
    return closing(sqlite3.connect(path))


class ToySource:
    """Reads the tables of a file: a snapshot first, then the log."""

    def __init__(self, path: Path) -> None:
        """Keep where the file is; a connection lives for one call, so there is nothing to lose."""
        self.path = path

    # -- what can be read

    def tables(self) -> tuple[TableInfo, ...]:
        """Give the tables with their columns and keys."""
        with connected(self.path) as db:
            names = [
                name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")
            ]
            return tuple(described(db, name) for name in names if name not in ("log", "sqlite_sequence"))

    def problems(self) -> tuple[RunnelError, ...]:
        """Give nothing: a table that cannot be read is an error of the whole source."""
        return ()

    def advice(self) -> tuple[str, ...]:
        """Give nothing."""
        return ()

    # -- positions: small JSON objects; {} is before the snapshot, {"seq": n} after change n of the log

    def initial_offset(self) -> Offset:
        """Give the position before the snapshot."""
        return {}

    def end_offset(self) -> Offset:
        """Give the position after everything that was written so far."""
        with connected(self.path) as db:
            (last,) = db.execute("SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = 'log'").fetchone()
        return {"seq": last}

    def latest_offset(self, start: Offset, max_rows: int, *, single: bool = False) -> Offset:
        """Give the end of the next range: of the snapshot, where the log is now; else at most `max_rows` changes."""
        if not start:
            return self.end_offset()  # noted before the snapshot is read, so that nothing falls between the two
        cut = "SELECT max(seq) FROM (SELECT seq FROM log WHERE seq > ? ORDER BY seq LIMIT ?)"
        with connected(self.path) as db:
            (last,) = db.execute(cut, (start["seq"], 1 if single else max_rows)).fetchone()
        return start if last is None else {"seq": last}

    def covers(self, have: Offset, wanted: Offset) -> bool:
        """Say whether a position is at or after another one."""
        return bool(have) and have["seq"] >= wanted.get("seq", 0)

    def lag(self, start: Offset) -> Mapping[str, Any]:
        """Say how many changes wait."""
        return {"changes": self.end_offset()["seq"] - start.get("seq", 0)}

    # -- rows: partitions are all there is to it; `read` goes through them in order

    def partitions(self, start: Offset, end: Offset) -> Sequence[Partition]:
        """Cut a range into pieces that can be read anywhere: whole tables of the snapshot, runs of the log."""
        infos = self.tables()
        if not start:
            return [Partition(info.name, BATCH, partial(read_table, self.path, info)) for info in infos]
        edges = [*range(start["seq"], end["seq"], BATCH), end["seq"]]
        return [
            Partition(info.name, upto - after, partial(read_log, self.path, info, after, upto))
            for info in infos
            for after, upto in pairwise(edges)
        ]

    def read(self, start: Offset, end: Offset) -> Iterator[ChangeSet]:
        """Give the changes in (start, end]."""
        for part in self.partitions(start, end):
            yield from part.read()

    def cells(self) -> None:
        """Say that changes are rows."""

    def commit(self, end: Offset) -> None:
        """Delete what the state holds from the log."""
        with connected(self.path) as db:
            db.execute("DELETE FROM log WHERE seq <= ?", (end["seq"],))
            db.commit()

    def close(self) -> None:
        """Do nothing: no connection is kept."""


def described(db: sqlite3.Connection, name: str) -> TableInfo:
    """Give a table's columns and key; a type that is not known is refused with its place."""
    columns, key = [], []
    for _, column, type_, _, _, place in db.execute(f'PRAGMA table_info("{name}")'):
        if type_ not in TYPES:
            raise Terminal("TOY-TYPE", f"{name}.{column} has the type {type_!r}", hint=f"known are {', '.join(TYPES)}")
        columns.append(Column(column, TYPES[type_]))
        key += [(place, column)] if place else []
    named = tuple(column for _, column in sorted(key))
    check_columns(name, tuple(columns), named)
    return TableInfo(name, tuple(columns), named)


# -- what tasks run: functions that need nothing but their arguments


def read_table(path: Path, info: TableInfo) -> Iterator[ChangeSet]:
    """Give the rows of a table. They may be newer than the position: the log after it then says them again."""
    with connected(path) as db:
        rows = db.execute(f'SELECT {", ".join(f"{json.dumps(c.name)}" for c in info.columns)} FROM "{info.name}"')
        while some := rows.fetchmany(BATCH):
            dicts = [dict(zip((c.name for c in info.columns), row, strict=True)) for row in some]
            yield keyed(info, [(UPSERT, row) for row in dicts], f"the table {info.name}")


def read_log(path: Path, info: TableInfo, after: int, upto: int) -> Iterator[ChangeSet]:
    """Give the changes of a table in a run of the log, in its order."""
    query = "SELECT seq, op, row FROM log WHERE tab = ? AND seq > ? AND seq <= ? ORDER BY seq"
    with connected(path) as db:
        found = db.execute(query, (info.name, after, upto)).fetchall()
    changes = []
    for seq, op, text in found:
        try:
            changes.append((op, dict(json.loads(text))))
        except (ValueError, TypeError) as error:
            said = f"{info.name}: change {seq} of the log is not a row: {text!r}"
            raise Terminal("TOY-LOG-ROW", said, hint="mend it; nothing after it was taken") from error
    if changes:
        yield keyed(info, changes, f"the log after {after}")


def keyed(info: TableInfo, changes: list[tuple[str, dict[str, Any]]], place: str) -> ChangeSet:
    """Give upserts and removals as Arrow, with the place that errors name."""
    columns = {c.name: pa.array([row.get(c.name) for _, row in changes], types.to_arrow(c.type)) for c in info.columns}
    return ChangeSet(info.name, keyed=pa.table(columns | {OP: pa.array([op for op, _ in changes])}), place=place)
