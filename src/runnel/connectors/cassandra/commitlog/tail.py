"""Follows a node's folder of segments: what is safely on disk now, what comes after a position, what may be deleted.

While a segment is open its index file says how far it is safe; bytes behind that may never have happened. A segment with an
index is read up to it, and the next one only when the index says COMPLETED. A segment without an index is read when a
later one has one: the server writes indexes in order, so it holds nothing that could still come. Behind the last index
are spare segments, which are left alone.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from runnel.connectors.cassandra.commitlog.errors import LogError
from runnel.connectors.cassandra.commitlog.positions import END_OF_SEGMENT, START, Position
from runnel.connectors.cassandra.commitlog.segment import Reached, Segment, SegmentFile, segment_files
from runnel.errors import Terminal

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from runnel.connectors.cassandra.cells import Mutation
    from runnel.connectors.cassandra.commitlog.log import LogReader

TRIES = 20
PAUSE_SECONDS = 0.001
COMPLETED = "COMPLETED"
_LONGEST_INDEX = 64


@dataclass(frozen=True)
class Durable:
    """How far a segment is safe; `completed` says that nothing will follow."""

    position: int
    completed: bool


def read_index(path: Path) -> Durable | None:
    """Read an index file; None where there is none.

    The server empties the file before it writes it anew. One that stays empty says that nothing is safe yet: it is asked
    again at the next look.
    """
    for _ in range(TRIES):
        try:
            with path.open("rb") as file:
                text = file.read(_LONGEST_INDEX)
        except FileNotFoundError:
            return None
        if text:
            return _parsed(text, path)
        time.sleep(PAUSE_SECONDS)
    return Durable(0, completed=False)


def _parsed(text: bytes, path: Path) -> Durable:
    first, _, rest = text.partition(b"\n")
    if not first.isdigit() or not COMPLETED.encode().startswith(rest.strip()):
        raise LogError("RUNNEL-CASSANDRA-LOG-INDEX", f"{text[:32]!r} is no index of a segment", path, 0)
    return Durable(int(first), completed=rest.strip() == COMPLETED.encode())


@dataclass(frozen=True)
class Readable:
    """A segment that can be read now, up to a position; `indexed` says that the server cannot have taken it away."""

    segment: SegmentFile
    until: int
    indexed: bool


@dataclass(frozen=True)
class Stretch:
    """A part of a segment: what ends behind one position and not behind another; `indexed` as in `Readable`."""

    path: Path
    after: int
    until: int
    indexed: bool


def read_stretch(reader: LogReader, stretch: Stretch) -> Iterator[Mutation]:
    """Give the mutations of a stretch."""
    try:
        yield from reader.read(stretch.path, stretch.after, stretch.until)
    except FileNotFoundError:
        # The server takes segments away by itself when they hold nothing for a reader.
        if stretch.indexed:
            raise


class LogFolder:
    """The segments of one node: a `cdc_raw` folder with indexes, or a folder of finished segments without."""

    def __init__(self, folder: Path, *, indexed: bool = True) -> None:
        """Look into a folder; `indexed=False` reads every segment as far as it is written."""
        self.folder = folder
        self._indexed = indexed
        self._reached = Reached()

    def readable(self, start: Position) -> list[Readable]:
        """Give the segments that can be read now from a position on, in order."""
        found = self._from(start)
        if not self._indexed:
            return [Readable(segment, END_OF_SEGMENT, indexed=True) for segment in found]
        indexes = {segment.id: read_index(segment.index) for segment in found}
        last = max((id_ for id_, index in indexes.items() if index is not None), default=-1)
        made: list[Readable] = []
        for segment in found:
            index = indexes[segment.id]
            if segment.id > last:
                break
            if index is not None and not index.completed:
                made.append(Readable(segment, index.position, indexed=True))
                break
            # After a crash the index of a completed segment names the end of its file, not of what was written.
            made.append(Readable(segment, END_OF_SEGMENT, indexed=index is not None))
        return made

    def latest(self, start: Position, max_bytes: int | None = None) -> Position:
        """Give the position up to which everything can be read now, or one before it when that is enough bytes.

        It is `start` itself where there is nothing behind it, and the end of a section otherwise.
        """
        last, left = start, max_bytes
        for found in self.readable(start):
            if left is not None:
                at = start.position if found.segment.id == start.segment else 0
                for behind in self._section_ends(found, at):
                    left -= behind - at
                    at = behind
                    if left <= 0:
                        return max(last, Position(found.segment.id, behind))
            last = max(last, Position(found.segment.id, found.until))
        return last

    def _section_ends(self, found: Readable, after: int) -> list[int]:
        try:
            with Segment(found.segment.path, reached=self._reached) as segment:
                return list(segment.section_ends(after, found.until))
        except FileNotFoundError:
            if found.indexed:
                raise
            return []

    def read(self, reader: LogReader, start: Position, end: Position | None = None) -> Iterator[Mutation]:
        """Give the mutations in (start, end], the same ones however often it is asked; without `end`, all that is safe now."""
        for stretch in self.between(start, end):
            yield from read_stretch(reader, stretch)

    def between(self, start: Position, end: Position | None = None) -> Iterator[Stretch]:
        """Give the stretches of segments in (start, end]."""
        for found in self.readable(start) if end is None else self._up_to(start, end):
            after = start.position if found.segment.id == start.segment else 0
            if after < found.until:
                yield Stretch(found.segment.path, after, found.until, found.indexed)

    def _up_to(self, start: Position, end: Position) -> Iterator[Readable]:
        """Give the segments up to a position that was safe when `latest` gave it.

        The indexes are not asked again. One that is just being written anew looks empty, and what it had said would be passed over.
        """
        for segment in self._from(start):
            if segment.id <= end.segment:
                until = end.position if segment.id == end.segment else END_OF_SEGMENT
                yield Readable(segment, until, indexed=not self._indexed or segment.index.exists())

    def _from(self, start: Position) -> list[SegmentFile]:
        """Give the segments from that of a position on; an error where that one is gone and was not read to its end."""
        found = [segment for segment in segment_files(self.folder) if segment.id >= start.segment]
        if start == START or start.position == END_OF_SEGMENT or (found and found[0].id == start.segment):
            return found
        raise Terminal(
            "RUNNEL-CASSANDRA-LOG-GONE",
            f"{self.folder}: the segment {start.segment} is gone, which was read up to byte {start.position} only",
            hint="somebody else deletes segments (release = false keeps them for all), or the server does (cdc_block_writes); "
            "begin with a new state and a new snapshot",
        )

    def kept(self) -> int:
        """Give the bytes that the folder takes: what the server keeps for its reader."""
        return sum(segment.path.stat().st_size for segment in segment_files(self.folder))

    def release(self, position: Position) -> list[SegmentFile]:
        """Delete the completed segments before a position, the index last; give them. The server keeps them until then."""
        gone = []
        for segment in segment_files(self.folder):
            index = read_index(segment.index)
            if segment.id < position.segment and index is not None and index.completed:
                segment.path.unlink(missing_ok=True)
                segment.index.unlink(missing_ok=True)
                gone.append(segment)
        return gone
