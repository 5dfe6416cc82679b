"""Tables read again while the log goes on: their rows as of a snapshot, and the changes from there to wherever the state is by then.

The slot of a snapshot has the log from its place on, so the source's own slot, which a runner may read, is left alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from runnel.connectors.base import Handover
from runnel.connectors.postgres.changes import Gathered
from runnel.connectors.postgres.definitions import Definition
from runnel.connectors.postgres.log.problems import lsn_number, lsn_text
from runnel.connectors.postgres.peek import nothing_between
from runnel.connectors.postgres.snapshot import parts
from runnel.connectors.postgres.window import Wanted

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from runnel.connectors.base import ChangeSet, Offset
    from runnel.connectors.postgres.definitions import Table
    from runnel.connectors.postgres.followed import Followed
    from runnel.connectors.postgres.log.transactions import Change
    from runnel.connectors.postgres.server import Server
    from runnel.connectors.postgres.snapshot import Snapshot
    from runnel.connectors.postgres.stream import LogStream

LOST = ("RUNNEL-POSTGRES-SLOT", "RUNNEL-POSTGRES-SERVER", "RUNNEL-POSTGRES-PUBLICATION")
"""Codes of a log that cannot be gone on with from a position."""


class Reread:
    """Some tables of a source, or with a `fresh` position all of them, as of a snapshot, which is closed with this.

    `start` is where the state was before; `lost` says that the log cannot be gone on with from there.
    """

    def __init__(
        self,
        server: Server,
        followed: Followed,
        snapshot: Snapshot,
        read: Mapping[str, Table],
        start: Offset,
        tables: frozenset[str],
        fresh: Offset | None = None,
        lost: bool = False,  # noqa: FBT001, FBT002
    ) -> None:
        """Keep what is read; nothing is read yet."""
        self.settings = server.settings
        self.tables, self.place = tables, lsn_text(snapshot.place)
        self._server, self._followed, self._snapshot, self._read = server, followed, snapshot, read
        self._start, self._fresh, self._lost = start, fresh, lost
        self._definitions = {name: table.definition for name, table in read.items()}
        self._wanted = Wanted(self.settings.schema, self._definitions, dict.fromkeys(self._definitions, snapshot.place))
        self._stream: LogStream | None = None
        self._changes: list[Change] = []

    def rows(self) -> Iterator[ChangeSet]:
        """Give all rows that the tables have in the snapshot."""
        for table in self._read.values():
            for part, _ in parts(self._followed, table, self._snapshot):
                yield from part()

    def handover(self, have: Offset) -> Handover | None:
        """Say how the rows join a state at a position."""
        if self._lost:
            return Handover(self._fresh) if self._fresh is not None and have == self._start else None
        kept = {name: entry for name, entry in have["tables"].items() if name in self.tables}
        place, here = self._snapshot.place, lsn_number(have["lsn"])
        if any("from" in entry and lsn_number(entry["from"]) > place for entry in kept.values()):
            return None
        same = kept.keys() == self._definitions.keys() and all(
            self._definitions[name].is_like(Definition.of(name, entry)) for name, entry in kept.items()
        )
        if here >= place:
            changes = self._changes_up_to(here) if same else None
            return None if changes is None else Handover(have, changes)
        if same and nothing_between(self._server, self._wanted_since_ever(), here, place):
            return Handover(have)
        if self._fresh is not None:
            return Handover(self._fresh)
        places = {"from": self.place}
        again = {name: definition.as_position() | places for name, definition in self._definitions.items()}
        return Handover({**have, "tables": have["tables"] | again}, ahead=True)

    def _wanted_since_ever(self) -> Wanted:
        return Wanted(self.settings.schema, self._definitions)

    def _changes_up_to(self, end: int) -> tuple[ChangeSet, ...] | None:
        """Give what the log has of the tables between the snapshot and a later place; None where one was redefined."""
        if self._stream is None:
            self._stream = self._snapshot.log(self._wanted.has)
        for transaction in self._stream.transactions(end):
            mine = self._wanted.of(transaction)
            if self._wanted.redefined(mine):
                return None
            self._changes += mine
        gathered = Gathered(self._definitions, self.settings.unrepresentable)
        found = [changes for change in self._changes for changes in gathered.add(change)]
        return (*found, *gathered.rest())

    def close(self) -> None:
        """Let the server forget the snapshot and its slot."""
        if self._stream is not None:
            self._stream.close()
        self._snapshot.close()
