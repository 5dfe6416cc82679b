"""Rows of tables exactly as of a place of the log, without locks that stop a writer.

A slot that lives as long as its connection is made; the server says from which place on it has the log, and exports a snapshot that
sees exactly what was committed before that place. Tables are then read by COPY, in ranges of blocks, by whoever knows the snapshot's name.
"""

from __future__ import annotations

import io
import secrets
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import psycopg
import pyarrow as pa
from pyarrow import csv

from runnel.connectors.base import ChangeSet
from runnel.connectors.postgres.changes import as_table
from runnel.connectors.postgres.client import told
from runnel.connectors.postgres.columns import Reading
from runnel.connectors.postgres.log.problems import lsn_number, lsn_text
from runnel.connectors.postgres.server import open_session, quoted, rows_of
from runnel.connectors.postgres.slot import waiting_for_others
from runnel.connectors.postgres.stream import LogStream
from runnel.errors import Transient
from runnel.model.relation import WEIGHT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from psycopg import Connection

    from runnel.connectors.postgres.definitions import Definition, Table
    from runnel.connectors.postgres.followed import Followed
    from runnel.connectors.postgres.settings import SourceSettings

PART_ROWS = 500_000
"""Rows of a part that a task reads, about."""
PIECE = 16 << 20
"""Bytes of rows that are turned into Arrow together."""
_GONE = (psycopg.errors.UndefinedObject, psycopg.errors.InvalidParameterValue, psycopg.errors.UndefinedTable)


class Snapshot:
    """What was committed before a place of the log, for as long as this is open."""

    def __init__(self, settings: SourceSettings) -> None:
        """Make it; a transaction that is open and has written something has to end first."""
        name = f"{settings.slot[:40]}_snapshot_{secrets.token_hex(4)}"
        self._connection = open_session(settings, replication=True)
        try:
            command = f"CREATE_REPLICATION_SLOT {quoted(name)} TEMPORARY LOGICAL pgoutput EXPORT_SNAPSHOT"
            with waiting_for_others(settings):
                ((_, place, self.name, _),) = rows_of(self._connection, command)
        except BaseException:
            self._connection.close()
            raise
        self.settings, self._slot, self.place = settings, name, lsn_number(place)

    def log(self, wanted: Callable[[str, str], bool]) -> LogStream:
        """Give the log from the place on: rows can no longer be read afterwards. Closing the stream ends both."""
        return LogStream(self.settings, self.place, wanted, (self._slot, self._connection))

    def close(self) -> None:
        """Let the server forget it."""
        self._connection.close()


def seeing(settings: SourceSettings, snapshot: str) -> Connection[tuple[Any, ...]]:
    """Connect with a snapshot of somebody else's."""
    connection = open_session(settings)
    try:
        with told(settings):
            try:
                connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
                connection.execute(f"SET TRANSACTION SNAPSHOT '{snapshot}'")
            except _GONE as error:
                raise gone(settings) from error
    except BaseException:
        connection.close()
        raise
    return connection


def gone(settings: SourceSettings) -> Transient:
    """Make the error for a snapshot that whoever made it has closed, or that ended with a connection."""
    return Transient(
        "RUNNEL-POSTGRES-SNAPSHOT",
        f"{settings.label}: the snapshot that tables were read from is no longer open",
        hint="they are read again, from another one",
    )


@dataclass(frozen=True)
class SnapshotPart:
    """The rows of a range of blocks of a table, or of one of its partitions, as a snapshot has them; picklable, so a task can read it."""

    followed: Followed
    definition: Definition
    source: str
    snapshot: str
    place: int
    low: int = 0
    high: int | None = None

    def __call__(self) -> Iterator[ChangeSet]:
        """Give the rows with weight 1."""
        settings = self.followed.settings
        place = f"table {self.definition.name} as of {lsn_text(self.place)}"
        connection = seeing(settings, self.snapshot)
        try:
            self._check(connection)
            with told(settings):
                for texts in _copied(connection, self._statement(), len(self.definition.columns)):
                    reading = Reading(self.definition.name, settings.unrepresentable)
                    rows = as_table(self.definition, range(len(self.definition.columns)), texts, reading)
                    weights = pa.repeat(pa.scalar(1, pa.int64()), rows.num_rows)
                    yield ChangeSet(
                        self.definition.name, signed=rows.append_column(WEIGHT, weights), place=place, trusted=True
                    )
        finally:
            connection.close()

    def _check(self, connection: Connection[tuple[Any, ...]]) -> None:
        """Raise unless the table is still what it was: files that were written since have no rows that the snapshot could see."""
        settings = self.followed.settings
        lock = f"LOCK TABLE {quoted(settings.schema, self.definition.name)} IN ACCESS SHARE MODE"
        with told(settings):
            try:
                connection.execute(lock)
            except psycopg.errors.UndefinedTable as error:
                raise self._redefined() from error
        now = self.followed.now().tables.get(self.definition.name)
        if now is None or now.definition != self.definition:
            raise self._redefined()

    def _redefined(self) -> Transient:
        return Transient(
            "RUNNEL-POSTGRES-REDEFINED",
            f"{self.followed.settings.label}: table {self.definition.name} was redefined or emptied while it was read",
            hint="it is read again",
        )

    def _statement(self) -> str:
        columns = ", ".join(quoted(column.name) for column in self.definition.columns)
        where = [f"ctid >= '({self.low},0)'"] if self.low else []
        where += [f"ctid < '({self.high},0)'"] if self.high is not None else []
        chosen = f" WHERE {' AND '.join(where)}" if where else ""
        return f"COPY (SELECT {columns} FROM {self.source}{chosen}) TO STDOUT (FORMAT csv)"


def _copied(connection: Connection[tuple[Any, ...]], statement: str, width: int) -> Iterator[list[pa.Array]]:
    """Give what COPY writes as columns of text; NULL is nothing, an empty text is two quotes."""
    with connection.cursor() as cursor, cursor.copy(statement) as copy:
        pieces, size = [], 0
        for piece in copy:
            pieces.append(piece)
            size += len(piece)
            if size >= PIECE:
                yield _texts(b"".join(pieces), width)
                pieces, size = [], 0
        if pieces:
            yield _texts(b"".join(pieces), width)


def _texts(data: bytes, width: int) -> list[pa.Array]:
    names = [str(at) for at in range(width)]
    table = csv.read_csv(
        io.BytesIO(data),
        csv.ReadOptions(column_names=names, block_size=len(data) + 1, use_threads=False),
        csv.ParseOptions(newlines_in_values=True, ignore_empty_lines=False),
        csv.ConvertOptions(
            column_types=dict.fromkeys(names, pa.string()),
            null_values=[""],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        ),
    )
    return [column.combine_chunks() for column in table.columns]


def parts(followed: Followed, table: Table, snapshot: Snapshot) -> Iterator[tuple[SnapshotPart, int]]:
    """Cut a table into ranges of its blocks; give each with an estimate of its rows."""
    for source, blocks, rows in table.leaves:
        rows = max(rows, 0.0)
        count = max(1, min(int(rows) // PART_ROWS, blocks))
        bounds: list[int | None] = [blocks * n // count for n in range(count)]
        for low, high in pairwise([*bounds, None]):
            yield (
                SnapshotPart(followed, table.definition, source, snapshot.name, snapshot.place, low or 0, high),
                max(1, int(rows) // count),
            )
