"""Follows a node's folder of segments: what is safely on disk now, what comes after a position, what may be deleted.

While a segment is open its index file says how far it is safe; bytes behind that may never have happened. A segment with an
index is read up to it, and the next one only when the index says COMPLETED. Copied segments have no index: they are taken as
far as they are written, and the last one from there on when it has grown. A segment without an index is read when a
later one has one: the server writes indexes in order, so it holds nothing that could still come. Behind the last index
are spare segments, which are left alone.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from runnel.connectors.cassandra.log.errors import LogError
from runnel.connectors.cassandra.log.positions import END_OF_SEGMENT, START, Position
from runnel.connectors.cassandra.log.records import OVERHEAD, SMALLEST, records
from runnel.connectors.cassandra.log.segment import Reached, Segment, SegmentFile, segment_files
from runnel.errors import Terminal

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from runnel.connectors.cassandra.cells import Mutation
    from runnel.connectors.cassandra.log.mirror import Mirror
    from runnel.connectors.cassandra.log.reader import LogReader

TRIES = 20
PAUSE_SECONDS = 0.001
COMPLETED = "COMPLETED"
_LONGEST_INDEX = 64
SMALLEST_RECORD = SMALLEST + OVERHEAD
"""Bytes that a mutation takes at least."""


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

    @property
    def bytes(self) -> int:
        """How long it is; 0 where the file has gone."""
        try:
            return max(0, min(self.until, self.path.stat().st_size) - self.after)
        except FileNotFoundError:
            return 0


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

    def __init__(self, folder: Path, *, indexed: bool = True, mirror: Mirror | None = None) -> None:
        """Look into a folder; `indexed=False` reads every segment as far as it is written. A `mirror` keeps it like one elsewhere."""
        self.folder = folder
        self._indexed, self._mirror = indexed, mirror
        self._reached = Reached()

    @property
    def is_served(self) -> bool:
        """Whether it is a copy of a folder of another machine."""
        return self._mirror is not None

    def readable(self, start: Position) -> list[Readable]:
        """Give the segments that can be read now from a position on, in order."""
        found = self._from(start)
        if not self._indexed:
            return self._copied(found)
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

    def _copied(self, found: list[SegmentFile]) -> list[Readable]:
        """Give copied segments: the last ones with the end they have now, for they may be copied again when they have grown."""
        made: list[Readable] = []
        for segment in reversed(found):
            until = END_OF_SEGMENT if made else self._written(segment)
            if until:
                made.append(Readable(segment, until, indexed=True))
        return made[::-1]

    def _written(self, segment: SegmentFile) -> int:
        """Give the position after the last section; of a damaged segment the end, so that reading it says what is wrong."""
        try:
            with Segment(segment.path) as opened:
                return max(opened.section_ends(), default=0)
        except LogError:
            return END_OF_SEGMENT

    def latest(self, start: Position) -> Position:
        """Give the position up to which everything can be read now; `start` itself where nothing follows it."""
        return self.latest_within(start, None)[0]

    def latest_within(self, start: Position, most: int | None) -> tuple[Position, int]:
        """Give the position after the next `most` mutations, or after all that can be read now, and how many mutations lie before it.

        They are counted only where there may be more; else their number is 0.
        """
        readable = self.readable(start)
        counted = most is not None and self._bytes_after(start, readable) > most * SMALLEST_RECORD
        last, left = start, most if counted and most is not None else 0
        for found in readable:
            after = start.position if found.segment.id == start.segment else 0
            for position in self._record_ends(found, after) if counted else ():
                left -= 1
                if left == 0:
                    return max(last, Position(found.segment.id, position)), most or 0
            last = max(last, Position(found.segment.id, found.until))
        return last, (most or 0) - left if counted else 0

    def _bytes_after(self, start: Position, readable: list[Readable]) -> int:
        """Give about how many bytes there are to read; positions of compressed segments count as if they were plain."""
        sizes = [one.until if one.until < END_OF_SEGMENT else self._size(one.segment) for one in readable]
        return sum(sizes) - (start.position if readable and readable[0].segment.id == start.segment else 0)

    def _size(self, segment: SegmentFile) -> int:
        try:
            with Segment(segment.path) as opened:
                return segment.path.stat().st_size if opened.plain else END_OF_SEGMENT
        except (FileNotFoundError, LogError):
            return END_OF_SEGMENT

    def _record_ends(self, found: Readable, after: int) -> Iterator[int]:
        """Give the positions after the mutations of a segment, whatever table they are of."""
        try:
            self._fetch(found)
            with Segment(found.segment.path, reached=self._reached) as segment:
                for section in segment.sections(after, found.until):
                    yield from (position for position, _ in records(section, found.segment.path, after))
        except FileNotFoundError:
            if found.indexed:
                raise

    def read(self, reader: LogReader, start: Position, end: Position | None = None) -> Iterator[Mutation]:
        """Give the mutations in (start, end], the same ones however often it is asked; without `end`, all that is safe now."""
        for stretch in self.between(start, end):
            yield from read_stretch(reader, stretch)

    def learn(self, reader: LogReader) -> None:
        """Have a reader take in the definitions of all that can be read now."""
        for stretch in self.between(START):
            reader.learn(stretch.path, stretch.until)

    def between(self, start: Position, end: Position | None = None) -> Iterator[Stretch]:
        """Give the stretches of segments in (start, end]."""
        for found in self.readable(start) if end is None else self._up_to(start, end):
            after = start.position if found.segment.id == start.segment else 0
            if after < found.until and self._is_here(found):
                yield Stretch(found.segment.path, after, found.until, found.indexed)

    def _fetch(self, found: Readable) -> None:
        """See that a segment of another machine is here as far as it can be read."""
        if self._mirror is not None:
            self._mirror.fetch(found.segment, found.until, completed=found.until == END_OF_SEGMENT)

    def _is_here(self, found: Readable) -> bool:
        """Say whether a segment is here; one that holds nothing for a reader may be gone meanwhile."""
        try:
            self._fetch(found)
        except FileNotFoundError:
            if found.indexed:
                raise
            return False
        return True

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
        if self._mirror is not None:
            self._mirror.look()
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
        if self._mirror is not None:
            return self._mirror.kept()
        return sum(segment.path.stat().st_size for segment in segment_files(self.folder))

    def forget(self, position: Position) -> None:
        """Delete copies of segments before a position; a folder of this machine is left alone."""
        if self._mirror is not None:
            self._mirror.forget(position)

    def release(self, position: Position) -> list[SegmentFile]:
        """Delete the completed segments before a position, the index last; give them. The server keeps them until then."""
        gone: list[SegmentFile] = []
        if self._mirror is not None:
            return gone
        for segment in segment_files(self.folder):
            index = read_index(segment.index)
            if segment.id < position.segment and index is not None and index.completed:
                segment.path.unlink(missing_ok=True)
                segment.index.unlink(missing_ok=True)
                gone.append(segment)
        return gone
