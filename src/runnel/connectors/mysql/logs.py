"""Where the log comes from: a server, or files without one. Both give items from a place on, as often as they are asked."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING

from runnel.connectors.mysql.log.files import FIRST, listed, read_file
from runnel.connectors.mysql.log.problems import Spot, damaged
from runnel.connectors.mysql.log.row_events import Rows
from runnel.connectors.mysql.log.transactions import Assembler
from runnel.connectors.mysql.stream import LogStream
from runnel.errors import Terminal, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from runnel.connectors.mysql.log.events import Event
    from runnel.connectors.mysql.log.transactions import Item
    from runnel.connectors.mysql.settings import Settings
    from runnel.connectors.mysql.wanted import Stretch

    Filter = Callable[[str, str], bool]


IDLE_SECONDS = 60
"""After so long a stream is opened anew: a server gives one up whose heartbeats nobody reads."""


FAR = 4 << 20
"""Bytes behind the end of the log from which on every event is asked for."""


class ServerLog:
    """The log of a running server, read here and there beside whoever follows it."""

    def __init__(self, settings: Settings) -> None:
        """Keep the settings; nothing is connected to yet."""
        # A server closes the stream of a reader when another one with its number comes: the number is the follower's.
        self._settings = replace(settings, server_id=0)

    def items(self, start: Spot, end: Spot, wanted: Filter, maps: Iterable[bytes] = ()) -> Iterator[Item]:
        """Give what the log has between two places; `maps` are table maps that hold at the first one.

        The stream is one of several, so it has a number of its own: a server ends one whose number another one has.
        """
        if start.order >= end.order:
            return
        stream = LogStream(self._settings, start, every=True, bounded=True)
        try:
            yield from Assembler(wanted, maps).items(stream.until(end, self._settings.timeout))
        finally:
            stream.close()

    def stretch(self, stretch: Stretch, wanted: Filter) -> Iterator[Rows]:
        """Give the rows of one transaction again."""
        file, begin, end = stretch
        found = self.items(Spot(file, begin), Spot(file, end), wanted)
        yield from (item for item in found if isinstance(item, Rows))


class Tail:
    """One stream that is kept open, for who reads on where it stopped; else it is opened anew."""

    def __init__(self, settings: Settings) -> None:
        """Keep the settings; nothing is connected to yet."""
        self._settings = settings
        self._stream: LogStream | None = None
        self._assembler: Assembler | None = None
        self._used = 0.0

    def items(self, start: Spot, end: Spot, wanted: Filter) -> Iterator[Item]:
        """Give what the log has between two places; a reader that stops before the end closes the stream."""
        stream, assembler = self._stream, self._assembler
        idle = time.monotonic() - self._used > IDLE_SECONDS
        if stream is None or assembler is None or idle or stream.spot != start:
            self.close()
            # Who is far behind is likely to meet what has to be cut inside a transaction.
            far = start.file != end.file or end.position - start.position > FAR
            stream = LogStream(self._settings, start, number=self._settings.server_id, every=far)
            assembler = Assembler(wanted)
        self._stream = None
        assembler.wanted = wanted
        try:
            yield from assembler.items(stream.until(end, self._settings.timeout))
        except BaseException:
            stream.close()
            raise
        self._stream, self._assembler, self._used = stream, assembler, time.monotonic()

    def close(self) -> None:
        """Close the stream."""
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.close()


class FileLog:
    """Archived logs: the files that a pattern names, in the order of their numbers."""

    def __init__(self, settings: Settings) -> None:
        """Keep the pattern; files are looked for whenever the log is read."""
        self._settings = settings

    def paths(self) -> list[Path]:
        """Give the files there are now."""
        found = listed(path for path in self._settings.folder.glob(self._settings.logs) if path.is_file())
        if not found:
            raise UsageError(
                "RUNNEL-BINLOG-FILES",
                f"{self._settings.label}: no binary log is at {self._settings.logs!r}",
                hint='write a pattern such as logs = "binlogs/*"; files are named like binlog.000001',
            )
        numbers = [int(path.suffix[1:]) for path in found]
        for number, path in zip(range(numbers[0], numbers[0] + len(found)), found, strict=True):
            if int(path.suffix[1:]) != number:
                raise Terminal(
                    "RUNNEL-BINLOG-GAP",
                    f"{self._settings.label}: the binary log before {path.name} is missing",
                    hint="copy the missing file there too: changes would be left out",
                )
        return found

    def first(self) -> Spot:
        """Give the place of the first event."""
        return Spot(self.paths()[0].name, FIRST)

    def items(self, start: Spot, end: Spot | None, wanted: Filter, maps: Iterable[bytes] = ()) -> Iterator[Item]:
        """Give what the files have between two places, or after one; `maps` are table maps that hold at the first one."""
        paths = self.paths()
        assembler = Assembler(wanted, maps)
        if start.order < Spot(paths[0].name, FIRST).order or start.file not in {path.name for path in paths}:
            raise Terminal(
                "RUNNEL-BINLOG-PURGED",
                f"{self._settings.label}: {start.file} is not among the files any more",
                hint="bring the file back, or begin with a new state",
            )
        for path in paths:
            if len(path.name) < len(start.file) or (len(path.name) == len(start.file) and path.name < start.file):
                continue
            if end is not None and Spot(path.name, 0).order > end.order:
                return
            begin = start.position if path.name == start.file else FIRST
            upto = end.position if end is not None and path.name == end.file else None
            yield from assembler.items(self._whole(path, begin, upto, last=path == paths[-1]))

    @staticmethod
    def _whole(path: Path, begin: int, upto: int | None, *, last: bool) -> Iterator[Event]:
        """Give the events of a file, which must end with a whole one where another file comes after it."""
        at = begin
        for event in read_file(path, begin, upto):
            at = event.end
            yield event
        if upto is None and not last and at != path.stat().st_size:
            raise damaged(Spot(path.name, at), "the file ends within an event, and another file comes after it")

    def stretch(self, stretch: Stretch, wanted: Filter) -> Iterator[Rows]:
        """Give the rows of one transaction again."""
        file, begin, end = stretch
        found = self.items(Spot(file, begin), Spot(file, end), wanted)
        yield from (item for item in found if isinstance(item, Rows))


def log_of(settings: Settings) -> FileLog | ServerLog:
    """Give the log that settings are about."""
    return FileLog(settings) if settings.logs else ServerLog(settings)
