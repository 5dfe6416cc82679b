"""Reads segments mutation by mutation, with the definitions as they were at that point of the log."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

from runnel.connectors.cassandra.cells import Mutation
from runnel.connectors.cassandra.log.errors import BadBody, LogError, UnknownTable
from runnel.connectors.cassandra.log.mutation import Decoder
from runnel.connectors.cassandra.log.records import OVERHEAD, records
from runnel.connectors.cassandra.log.segment import LARGEST_SECTION, Reached, Segment
from runnel.connectors.cassandra.schema.system_tables import SCHEMA_TABLES
from runnel.errors import Terminal

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from runnel.connectors.cassandra.log.catalog import Catalog
    from runnel.connectors.cassandra.log.encryption import Keys


DEFINING = tuple(id_.bytes for id_ in SCHEMA_TABLES.values())
"""The ids of the server's tables of definitions, as they are in mutations of them."""


class LogReader:
    """Decodes segments of one node in the order they are given, and keeps what it learns of tables in a catalog."""

    def __init__(
        self,
        catalog: Catalog,
        keys: Keys | None = None,
        *,
        largest_section: int = LARGEST_SECTION,
        compile_readers: bool = True,
    ) -> None:
        """Read with a catalog's definitions; the other arguments are those of `Segment` and `Decoder`."""
        self.catalog = catalog
        self._keys = keys
        self._largest = largest_section
        self._compile = compile_readers
        self._decoders: dict[int, Decoder] = {}
        self._reached = Reached()
        self.skipped: frozenset[tuple[int, int]] = frozenset()
        """Mutations to go past unread, by segment and the position after them."""

    def learn(self, path: Path, until: int | None = None) -> None:
        """Take in the definitions that a segment has up to a position. Nothing else of it is decoded: that takes a hundredth of the time."""
        for _ in self._read(path, 0, until, DEFINING):
            pass

    def read(self, path: Path, after: int = 0, until: int | None = None) -> Iterator[Mutation]:
        """Give the mutations of a segment that end after a position and not after another.

        Mutations without a change of a wanted table are left out. What is damaged raises a `LogError` in its turn; what was
        given out before it is right and complete.
        """
        return self._read(path, after, until, ())

    def _read(self, path: Path, after: int, until: int | None, naming: tuple[bytes, ...]) -> Iterator[Mutation]:
        """Give mutations; where ids are given, only those in which one of them occurs."""
        with Segment(path, self._keys, self._largest, self._reached) as segment:
            header = segment.header
            decode = self._decoder(header.version).decode
            for section in segment.sections(after, until):
                if naming and not _names(section.data, naming):
                    continue
                for position, body in records(section, path, after):
                    if until is not None and position > until:
                        return
                    if naming and not _names(body, naming):
                        continue
                    if self.skipped and (header.id, position) in self.skipped:
                        continue
                    try:
                        changes = decode(body)
                    except (BadBody, UnknownTable, Terminal) as error:
                        told = self._unreadable(error, path, position - len(body) - OVERHEAD)
                        told.passable = (header.id, position)
                        raise told from error
                    if changes:
                        yield Mutation(header.id, position, changes)

    def _decoder(self, version: int) -> Decoder:
        if version not in self._decoders:
            self._decoders[version] = Decoder(self.catalog, version, compile_readers=self._compile)
        return self._decoders[version]

    def _unreadable(self, error: BadBody | UnknownTable | Terminal, path: Path, offset: int) -> LogError:
        if isinstance(error, UnknownTable):
            return self._unknown_table(error, path, offset)
        if isinstance(error, Terminal):
            return LogError(error.code, error.message, path, offset, hint=error.hint)
        return LogError("RUNNEL-CASSANDRA-LOG-BODY", str(error), path, offset)

    def _unknown_table(self, error: UnknownTable, path: Path, offset: int) -> LogError:
        table_id = uuid.UUID(bytes=error.table_id)
        problem = self.catalog.problems.get(table_id)
        why = "is not known" if problem is None else f"cannot be read: {problem.message}"
        return LogError(
            "RUNNEL-CASSANDRA-LOG-TABLE",
            f"the table with the id {table_id} {why}",
            path,
            offset,
            hint="read the definitions from the server again, or give them as schema = 'x.cql'",
        )


def _names(data: bytes, ids: tuple[bytes, ...]) -> bool:
    return any(id_ in data for id_ in ids)
