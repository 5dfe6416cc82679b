"""Tables read again while the log goes on: their rows as of a place, and the changes from there to wherever the state is by then."""

from __future__ import annotations

import logging
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from runnel.connectors.base import Handover
from runnel.connectors.mysql.definitions import Definition
from runnel.connectors.mysql.handover import SnapshotPart
from runnel.connectors.mysql.keyed import gathering
from runnel.connectors.mysql.log.problems import Spot
from runnel.connectors.mysql.logs import ServerLog
from runnel.connectors.mysql.wanted import Wanted
from runnel.connectors.mysql.window import Scan, prepared_of, spot_of
from runnel.errors import Terminal, Transient

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from runnel.connectors.base import ChangeSet, Offset
    from runnel.connectors.mysql.handover import Base
    from runnel.connectors.mysql.log.row_events import Rows
    from runnel.connectors.mysql.settings import Settings

log = logging.getLogger("runnel")
LOST = ("RUNNEL-BINLOG-PURGED", "RUNNEL-BINLOG-SERVER")
"""Codes of a log that cannot be gone on with from a position."""


def redefined(settings: Settings) -> Transient:
    """Make the error for tables that are not what they were a moment ago."""
    return Transient(
        "RUNNEL-MYSQL-REDEFINED",
        f"{settings.label}: tables are redefined faster than they can be read",
        hint="it is tried again",
    )


class Reread:
    """Some tables of a source, or with a `fresh` position all of them, as of a place of the log.

    `start` is where the state was before; `lost` says that the log cannot be gone on with from there.
    """

    def __init__(
        self,
        settings: Settings,
        base: Base,
        definitions: Mapping[str, Definition],
        start: Offset,
        tables: frozenset[str],
        fresh: Offset | None = None,
        lost: bool = False,  # noqa: FBT001, FBT002
    ) -> None:
        """Keep what is read; nothing is asked yet."""
        self.settings = settings
        self.tables, self.place = tables, str(base.place)
        self._base, self._definitions, self._start = base, definitions, start
        self._fresh, self._lost = fresh, lost
        self._log = ServerLog(self.settings)
        self._wanted = Wanted(settings.database, tables, tables, dict.fromkeys(tables, base.place))
        self._changes: list[Rows] = []
        self._read_to: Offset = start

    def rows(self) -> Iterator[ChangeSet]:
        """Give all rows that the tables have at the place."""
        for definition in self._definitions.values():
            yield from SnapshotPart(self.settings, definition, self._base)()

    def handover(self, have: Offset) -> Handover | None:
        """Say how the rows join a state at a position."""
        if self._lost:
            return Handover(self._fresh) if self._fresh is not None and have == self._start else None
        kept = {name: entry for name, entry in have["tables"].items() if name in self.tables and entry["columns"]}
        place = self._base.place
        if any("from" in entry and Spot(*entry["from"]).order > place.order for entry in kept.values()):
            return None
        same = {name: Definition.of(name, entry) for name, entry in kept.items()} == dict(self._definitions)
        if spot_of(have).order >= place.order:
            changes = self._changes_up_to(have) if same else None
            return None if changes is None else Handover(have, changes)
        if same and self._is_quiet(have):
            return Handover(have)
        if self._fresh is not None:
            return Handover(self._fresh)
        places = {"from": list(place), "sure": list(self._base.sure)}
        again = {name: definition.as_position() | places for name, definition in self._definitions.items()}
        return Handover({**have, "tables": have["tables"] | again}, ahead=True)

    def _changes_up_to(self, have: Offset) -> tuple[ChangeSet, ...] | None:
        """Give what the log has of the tables between the place and a later position; None where one was redefined."""
        end, begin = spot_of(have), spot_of(self._read_to)
        if end.order > begin.order:
            scan = Scan(self._wanted, partial(self._log.stretch, wanted=self._wanted.rows), 1 << 62)
            items = self._log.items(begin, end, self._wanted.rows)
            window = scan.window(begin, prepared_of(self._read_to), items, end)
            if window.defined or window.end != end:
                return None
            self._changes += window.read(self.settings, self._wanted)
            self._read_to = have
        gathered = gathering(self.settings, self._definitions)
        found = [changes for rows in self._changes for changes in gathered.add(rows)]
        return (*found, *gathered.rest())

    def _is_quiet(self, have: Offset) -> bool:
        """Say whether the log has nothing of the tables between a position and the place."""
        begin, end = spot_of(have), self._base.place
        wanted = replace(self._wanted, since={})
        scan = Scan(wanted, partial(self._log.stretch, wanted=wanted.rows), 1, single=True)
        try:
            window = scan.window(begin, prepared_of(have), self._log.items(begin, end, wanted.rows), end)
        except Terminal as error:  # what of it concerns the tables is passed over: they are whole as of the place
            log.debug("%s", error)
            return False
        return window.empty and window.prepared == prepared_of(have)

    def close(self) -> None:
        """Nothing to do: nothing is held in the server."""
