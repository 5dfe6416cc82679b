"""Parts of a text file: where it may be cut, and how a part is read.

A part is a range of bytes (unzipped) between two `Spot`s, so it can be read by anyone who has the file. A spot carries a checksum of all
bytes before it. So a file that was changed in what is taken already, or is being taken, is noticed; what comes after may still be mended.
"""

from __future__ import annotations

import contextlib
import io
import re
import zlib
from dataclasses import asdict, dataclass
from typing import IO, TYPE_CHECKING, Any, Self

from runnel.connectors.files.listing import LONGEST_LINE, opened, too_long, translated
from runnel.errors import Place, Terminal

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from runnel.connectors.files.listing import File
    from runnel.connectors.files.open_files import OpenFiles

_CHUNK = 1 << 20
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


@dataclass(frozen=True)
class Spot:
    """A place between two records: so many bytes (unzipped) and lines come before it; `crc` is the CRC-32 of those bytes."""

    at: int = 0
    line: int = 0
    crc: int = 0

    @classmethod
    def of(cls, part: Mapping[str, Any]) -> Self:
        """Read one out of a position."""
        return cls(int(part["at"]), int(part["line"]), int(part["crc"]))

    def as_position(self) -> dict[str, int]:
        """Give it as a position keeps it."""
        return asdict(self)


@dataclass(frozen=True)
class Span:
    """What lies between two spots of a text file; without `end`, all that comes after `begin`."""

    begin: Spot = Spot()
    end: Spot | None = None


WHOLE = Span()


def lines_left(file: File, begin: Spot, known: int | None, most: int, files: OpenFiles) -> int:
    """Count the lines after a spot, up to about `most`; `known` is how many the file has where that was counted already."""
    if known is not None:
        return known - begin.line
    found = 0
    with files.at(file, begin.at) as stream:
        while found <= most and (chunk := stream.read(_CHUNK)):
            found += chunk.count(b"\n")
    return found


def cut(file: File, begin: Spot, rows: int, delimiter: str, files: OpenFiles) -> Spot | None:
    """Give the first spot after another one with `rows` records between them; None where the file ends before.

    A record is a line; of CSV with line ends inside quotes, several.
    """
    is_csv, end_of_field = file.format == "csv", re.compile(b"[\r\n]|" + re.escape(delimiter.encode()))
    left = rows + 1 if is_csv and begin.at == 0 else rows  # the header is not a row
    at, line, crc, quoted, done = begin.at, begin.line, begin.crc, False, 0
    with translated(file), files.at(file, begin.at) as stream:
        while text := stream.readline(LONGEST_LINE + 1):
            if len(text) > LONGEST_LINE:
                raise too_long(file, at)
            quoted = is_csv and ends_quoted(
                text.removeprefix(_BYTE_ORDER_MARK) if at == 0 else text, quoted, end_of_field
            )
            at, line, crc = at + len(text), line + 1, zlib.crc32(text, crc)
            done += not quoted
            if done >= left and not quoted and text.endswith(b"\n"):
                return Spot(at, line, crc)
    return None


def ends_quoted(line: bytes, quoted: bool, end_of_field: re.Pattern[bytes]) -> bool:  # noqa: FBT001
    r"""Say whether a line of CSV ends inside quotes, by the rules of Arrow: only a quote that begins a field opens them.

    >>> comma = re.compile(b"[\r\n]|,")
    >>> ends_quoted(b'a,"b\n', False, comma), ends_quoted(b'c""d",e\n', True, comma), ends_quoted(b'5" pipe,1\n', False, comma)
    (True, False, False)
    """
    if not quoted and b'"' not in line:
        return False
    at, fresh = 0, not quoted
    while True:
        if fresh:
            quoted = line.startswith(b'"', at)
            at += quoted
        while quoted:
            close = line.find(b'"', at)
            if close < 0:
                return True
            quoted = line.startswith(b'"', close + 1)
            at = close + 1 + quoted
        end = end_of_field.search(line, at)
        if end is None or end.end() == len(line):
            return False
        at, fresh = end.end(), True


def check_begin(file: File, begin: Spot, files: OpenFiles) -> None:
    """Raise unless the file still begins with the bytes that were taken."""
    crc, left = 0, begin.at
    with translated(file), files.at(file, 0) as stream:
        while left and (chunk := stream.read(min(_CHUNK, left))):
            crc, left = zlib.crc32(chunk, crc), left - len(chunk)
    if left or crc != begin.crc:
        raise changed(file, f"its first {begin.line} lines")


def changed(file: File, what: str) -> Terminal:
    """Make the error for a file of which something was changed that is taken already."""
    return Terminal(
        "RUNNEL-FILES-CHANGED",
        f"{file.shown} was changed after {what} were taken",
        place=Place(file.shown),
        hint="bring the file back as it was; write changes as new files",
    )


@contextlib.contextmanager
def opened_span(file: File, span: Span, files: OpenFiles, before: bytes = b"") -> Iterator[IO[bytes]]:
    """Open the bytes of a span; `before` is put before them unless the file begins there."""
    with opened(file) if span == WHOLE else files.at(file, span.begin.at) as stream:
        yield stream if span == WHOLE else io.BufferedReader(SpanReader(file, span, stream, before), _CHUNK)


class SpanReader(io.RawIOBase):
    """The bytes of a span; the last read raises when they are not those that were planned."""

    def __init__(self, file: File, span: Span, stream: IO[bytes], before: bytes = b"") -> None:
        """Read from a stream that is at the span's begin."""
        self._before = before if span.begin.at else b""
        self._file, self._end, self._stream = file, span.end, stream
        self._at, self._crc = span.begin.at, span.begin.crc

    def readable(self) -> bool:
        """Say that it can be read."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Read some bytes, none at the end."""
        if self._before:
            count = min(len(buffer), len(self._before))
            buffer[:count], self._before = self._before[:count], self._before[count:]
            return count
        wanted = len(buffer) if self._end is None else min(len(buffer), self._end.at - self._at)
        with translated(self._file):
            chunk = self._stream.read(wanted) if wanted else b""
        buffer[: len(chunk)] = chunk
        self._at += len(chunk)
        if self._end is not None:
            self._crc = zlib.crc32(chunk, self._crc)
            is_cut, is_other = wanted and not chunk, self._at == self._end.at and self._crc != self._end.crc
            if is_cut or is_other:
                raise changed(self._file, f"its first {self._end.line} lines")
        return len(chunk)
