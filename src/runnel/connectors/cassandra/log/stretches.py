"""Stretches of logs, and ranges of a table, that can be read anywhere: by tasks on whatever machine sees the file, or the server."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from runnel.connectors.base import ChangeSet
from runnel.connectors.cassandra.cells.asking import Server
from runnel.connectors.cassandra.cells.packed import ChangedCells
from runnel.connectors.cassandra.cells.seed import partition_key, seed
from runnel.connectors.cassandra.client import Client
from runnel.connectors.cassandra.log.all_nodes import captured, with_way_past
from runnel.connectors.cassandra.log.errors import LogError
from runnel.connectors.cassandra.log.reader import LogReader
from runnel.connectors.cassandra.log.tail import read_stretch
from runnel.connectors.cassandra.schema.twins import captured_columns
from runnel.connectors.cassandra.snapshot import Wanted, read_table

if TYPE_CHECKING:
    import uuid
    from collections.abc import Iterable, Iterator, Mapping

    from runnel.connectors.cassandra.cells import ChangeTuple, Mutation
    from runnel.connectors.cassandra.log.catalog import Catalog
    from runnel.connectors.cassandra.log.tail import Stretch
    from runnel.connectors.cassandra.schema.tables import SchemaRows, TableSchema
    from runnel.connectors.cassandra.settings import Settings

BATCH = 100_000
"""Cells that are given at once where a table or a log is read piece by piece."""
Ids = dict[str, "uuid.UUID"]


@dataclass(frozen=True)
class LogStretch:
    """A part of a node's segment, with the definitions to read it with; `tables` are those that are followed, by their ids.

    Mutations of `several` logs are ordered by their times, those of one log by their places.
    """

    settings: Settings
    host: str
    stretch: Stretch
    number: int
    catalog: Catalog
    skipped: frozenset[tuple[int, int]]
    tables: Mapping[str, uuid.UUID]
    several: bool

    def __call__(self) -> Iterator[ChangeSet]:
        """Give the cells that the stretch changes, table by table."""
        server = Server(self.settings, None)
        if not self.settings.logs:
            self.catalog.ask_by(partial(_definitions, server))
        reader = LogReader(self.catalog)
        reader.skipped = self.skipped
        found = {name: ChangedCells(self.number) for name in self.tables}
        try:
            for at, mutation in enumerate(captured(read_stretch(reader, self.stretch), self.settings.keyspace)):
                collect(found, self.tables, mutation, at, several=self.several)
                yield from taken(self.settings.keyspace, found, BATCH)
        except LogError as error:
            raise with_way_past(error, self.host, self.settings.name) from error
        finally:
            server.disconnect()
        yield from taken(self.settings.keyspace, found, 1)


def _definitions(server: Server) -> SchemaRows:
    client = server.connected()
    assert client is not None
    return client.all_definitions()


def collect(
    found: Mapping[str, ChangedCells], tables: Mapping[str, uuid.UUID], mutation: Mutation, at: int, *, several: bool
) -> None:
    """Add the changes of a mutation to those of their tables, if these are followed."""
    time = max(change[7] for change in mutation.changes) if several else 0
    by_table: dict[int, list[ChangeTuple]] = {}
    for change in mutation.changes:
        by_table.setdefault(id(change[1]), []).append(change)
    for changes in by_table.values():
        table = changes[0][1]
        if tables.get(table.name) == table.id:
            found[table.name].add(changes, at, time)


def taken(keyspace: str, found: Mapping[str, ChangedCells], least: int) -> Iterator[ChangeSet]:
    """Give what was collected of the tables of which there is at least so much."""
    for name, changed in found.items():
        if len(changed) >= least:
            yield ChangeSet(name, cells=changed.taken(), place=f"{keyspace}.{name}")


@dataclass(frozen=True)
class TokenRanges:
    """Ranges of a table's tokens, read from the server as the changes that make its rows at a second."""

    settings: Settings
    table: TableSchema
    ranges: tuple[tuple[int, int], ...]
    now: int
    number: int

    def __call__(self) -> Iterator[ChangeSet]:
        """Give the cells of the ranges."""
        with Client(self.settings) as client:
            yield from seeded(client, self.table, self.now, self.ranges, self.number)


def seeded(
    client: Client,
    table: TableSchema,
    now: int,
    ranges: Iterable[tuple[int, int]] | None = None,
    number: int = 0,
) -> Iterator[ChangeSet]:
    """Read a table, or ranges of it, as the changes that make it; a partition is never cut."""
    changed, last, place = ChangedCells(number), b"", f"{table.keyspace}.{table.name}"
    wanted = Wanted(captured_columns(table), ttls=True)
    for at, row in enumerate(read_table(client, table, wanted, ranges)):
        key = partition_key(table, row.key)
        if key != last and len(changed) >= BATCH:
            yield ChangeSet(table.name, cells=changed.taken(), place=place)
        changed.add(seed(table, row, now), at)
        last = key
    if len(changed):
        yield ChangeSet(table.name, cells=changed.taken(), place=place)
