"""How far clients have written, also what no index names yet, and whether the state has all of it.

The position after a client's own last write is what a driver waits for. It cannot be read off the indexes: the server writes
them when it syncs, which is after it has acknowledged, and only for segments with changes for readers. In plain segments
what was acknowledged is in the file, synced or not. Compressed and encrypted ones show it after the next sync, so there the position
has a time as well, from which on everything that was acknowledged is synced.

A position inside writes of other keyspaces is never that of an epoch, since there is nothing to take. It is covered when nothing of ours is before it.
"""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

from runnel.connectors.cassandra.log.all_nodes import Logs
from runnel.connectors.cassandra.log.nodes import open_files, open_live
from runnel.connectors.cassandra.log.positions import END_OF_SEGMENT, START, Position, position_of
from runnel.connectors.cassandra.log.segment import MARKER_SIZE, Segment, segment_files
from runnel.connectors.cassandra.log.space import log_settings
from runnel.connectors.deltas.technique import Window
from runnel.errors import Terminal

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from runnel.connectors.base import Offset
    from runnel.connectors.cassandra.client import Client
    from runnel.connectors.cassandra.log.nodes import NodeLog
    from runnel.connectors.cassandra.log.segment import SegmentFile
    from runnel.connectors.cassandra.settings import Settings
    from runnel.connectors.skips import Skips

SYNCED = "synced"
"""The second from which on everything that is before a position is in the files."""
SYNC_PERIODS = 2.5
"""A server lets no client write when its last sync is more than 1.5 periods old, and the next one begins a period later at most."""


UNKNOWN_SYNC_SECONDS = 10.0
"""The server's default."""
_BEGIN = 14
"""Bytes at the beginning of a header that are never all zero."""


class WrittenLogs:
    """The logs of a source as waiting readers see them: other objects than those of the reader of changes, who may be another thread."""

    def __init__(self, opening: Callable[[], Logs], sync_seconds: float, *, in_file: bool) -> None:
        """Keep how the logs are opened; `in_file` says whether plain segments show what is not yet synced."""
        self._opening = opening
        self._sync, self._in_file = sync_seconds, in_file
        self._logs: Logs | None = None
        self._resolved: dict[str, dict[str, list[int]]] = {}
        self._not_yet: tuple[Offset, Offset] | None = None

    def end(self) -> Offset:
        """Give the position after everything that was acknowledged so far."""
        asked = time.time()
        ends = {node.host: _end(node) for node in self._nodes()}
        made: Offset = {"hosts": {host: list(end) for host, (end, _) in ends.items()}}
        if self._sync and not (self._in_file and all(plain for _, plain in ends.values())):
            made[SYNCED] = round(asked + SYNC_PERIODS * self._sync, 3)
        return made

    def covers(self, have: Mapping[str, Any], wanted: Offset) -> bool:
        """Say whether the logs were read that far, or further ones hold nothing of ours up to there.

        `wanted` is `{"hosts": {folder: [segment, position]}}`, or without `hosts`.
        """
        hosts = self._synced(wanted) if SYNCED in wanted else wanted.get("hosts", wanted)
        if hosts is None:
            return False
        behind = [host for host in hosts if position_of(have, host) < position_of(hosts, host)]
        return not behind or all(self._nothing_of_ours(host, have, hosts) for host in behind)

    def _nodes(self) -> list[NodeLog]:
        if self._logs is None:
            self._logs = self._opening()
        return self._logs.nodes

    def _synced(self, wanted: Offset) -> dict[str, list[int]] | None:
        """Give how far the files went when everything before the position was in them; None before that time."""
        name = json.dumps(wanted, sort_keys=True)
        if time.time() < float(wanted[SYNCED]):
            return None
        if name not in self._resolved:
            self._resolved = {name: {node.host: list(_end(node)[0]) for node in self._nodes()}}
        return self._resolved[name]

    def _nothing_of_ours(self, host: str, have: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
        node = next((node for node in self._nodes() if node.host == host), None)
        if node is None or host not in have:
            return False
        asked = ({host: list(position_of(have, host))}, {host: list(position_of(wanted, host))})
        if asked == self._not_yet:
            return False
        try:
            end = _readable_end(node, position_of(wanted, host))
            if end is None:
                return False
            assert self._logs is not None
            window = Window({"hosts": asked[0]}, {"hosts": {host: list(end)}})
            ours = next(self._logs.mutations(window), None) is not None
        except Terminal as error:
            if error.code != "RUNNEL-CASSANDRA-LOG-GONE":  # the reader of changes has gone on meanwhile
                raise
            return False
        if ours:
            self._not_yet = asked
        return not ours


def open_written(settings: Settings, client: Client | None, folder: Path, skips: Skips) -> WrittenLogs:
    """Look at a source's logs for those who wait; `folder` is the source's own."""

    def opening() -> Logs:
        nodes = open_files(settings) if client is None else open_live(settings, client)
        return Logs(nodes, settings, client, f"waiting: {folder}", skips)

    if client is None:
        return WrittenLogs(opening, 0.0, in_file=True)
    told = client.server_settings()
    sync = log_settings(told).sync
    in_file = told.get("commitlog_disk_access_mode") != "direct"
    return WrittenLogs(opening, UNKNOWN_SYNC_SECONDS if sync is None else sync, in_file=in_file)


def _end(node: NodeLog) -> tuple[Position, bool]:
    """Give how far a node's log is written, and whether all writes are to be seen: of one that is served, what its indexes name."""
    return (node.folder.latest(START), False) if node.folder.is_served else written_end(node.folder.folder)


def _readable_end(node: NodeLog, wanted: Position) -> Position | None:
    """Give the end of a stretch that can be read and goes at least so far; None while there is none."""
    if not node.folder.is_served:
        return _section_end(node.folder.folder, wanted)
    latest = node.folder.latest(START)
    return latest if latest >= wanted else None


def written_end(folder: Path) -> tuple[Position, bool]:
    """Give the position after the last byte that is written in a folder of segments, and whether all writes are to be seen there."""
    plain = True
    for segment in reversed(segment_files(folder)):
        end, seen = _written(segment)
        plain = plain and seen
        if end:
            return Position(segment.id, end), plain
    return START, plain


def _written(segment: SegmentFile) -> tuple[int, bool]:
    """Give the position after the last byte of a segment, 0 where it is empty or gone, and whether it is plain."""
    try:
        with segment.path.open("rb") as file:
            if not any(file.read(_BEGIN)):
                return 0, True  # it is just being created
        with Segment(segment.path) as opened:
            end = max(opened.section_ends(), default=0)
            if not opened.plain or segment.path.suffix == ".gz":
                return end, opened.plain
            begin = max(end, opened.header.size) + MARKER_SIZE
    except FileNotFoundError:
        return 0, True
    with segment.path.open("rb") as file:
        file.seek(begin)
        tail = file.read().rstrip(b"\0")
    return (begin + len(tail) if tail else end), True


def _section_end(folder: Path, wanted: Position) -> Position | None:
    """Give the end of the section that a position is in, or of the segment where that is gone; None while it is not synced."""
    segments = segment_files(folder)
    for segment in segments:
        if segment.id == wanted.segment:
            with Segment(segment.path) as opened:
                ends = [end for end in opened.section_ends() if end >= wanted.position]
            newer = segments[-1].id > wanted.segment and wanted.position == END_OF_SEGMENT
            return Position(segment.id, ends[0]) if ends else Position(segment.id, END_OF_SEGMENT) if newer else None
    # The server deletes segments without changes for readers by itself.
    gone = bool(segments) and segments[-1].id > wanted.segment
    return Position(wanted.segment, END_OF_SEGMENT) if gone else None
