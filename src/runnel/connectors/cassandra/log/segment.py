"""Reads a segment's header and its sections: marker by marker, every checksum checked, every length held against the file.

Positions are the server's own: in plain files the byte of the file, in compressed and encrypted ones the byte the file
would have if it were plain.
"""

from __future__ import annotations

import gzip
import io
import json
import re
import struct
import zlib
from dataclasses import dataclass, field
from typing import IO, TYPE_CHECKING, Any, NamedTuple

from runnel.connectors.cassandra.log.compression import opener
from runnel.connectors.cassandra.log.errors import LogError
from runnel.errors import Terminal, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from runnel.connectors.cassandra.log.encryption import Keys

VERSIONS = (6, 7, 8)
LARGEST_SECTION = 256 << 20
"""Bytes of a section that are taken into memory; a segment has 32 MiB unless somebody changed that."""

NAME = re.compile(r"CommitLog-(?:(\d+)-)?(\d+)\.log(\.gz)?")
_FIXED = struct.Struct(">iqH")
_CHECKED = struct.Struct(">iIII")
_MARKER = struct.Struct(">II")
_MARKED = struct.Struct(">III")
MARKER_SIZE = 8


@dataclass(frozen=True)
class Header:
    """What a segment says of itself; `size` is the header's own."""

    version: int
    id: int
    size: int
    parameters: dict[str, Any] = field(default_factory=dict)

    @property
    def compression(self) -> str | None:
        """The Java class that compressed it."""
        return self.parameters.get("compressionClass")

    @property
    def cipher(self) -> str | None:
        """The cipher that encrypted it."""
        return self.parameters.get("encCipher")


class Section(NamedTuple):
    """An open section: its bytes, the position of the first of them, and the position after it."""

    data: bytes
    start: int
    end: int


class End(NamedTuple):
    """Where a section ends: as a position, and in the file."""

    position: int
    offset: int


class Reached:
    """Where a reader began and came to in its last segment, so that it goes on there.

    A segment may have a hundred thousand sections, which nobody wants to walk along at every look.
    """

    def __init__(self) -> None:
        """Nothing was read yet."""
        self._segment, self._begin, self._last = -1, End(0, 0), End(0, 0)

    def begin(self, segment: int, first: End, after: int) -> End:
        """Give the last known end of a section that is not behind a position; `first` stands before all sections."""
        known = [end for end in (self._begin, self._last) if segment == self._segment and end.position <= after]
        self._segment = segment
        self._begin = self._last = max([first, *known])
        return self._begin

    def passed(self, segment: int, end: End, after: int) -> None:
        """Note the end of a section, which comes behind `after` or not."""
        if segment == self._segment:
            self._last = end
            if end.position <= after:
                self._begin = end


@dataclass(frozen=True)
class SegmentFile:
    """A segment's file; the id orders the segments of a node."""

    path: Path
    id: int

    @property
    def index(self) -> Path:
        """The file that says how far the segment is safely on disk."""
        return self.path.with_name(self.path.name.removesuffix(".gz").removesuffix(".log") + "_cdc.idx")


def segment_files(folder: Path) -> list[SegmentFile]:
    """Give the segments of a folder in the order they were written."""
    matches = [(path, NAME.fullmatch(path.name)) for path in folder.iterdir()]
    return sorted((segment_file(path) for path, match in matches if match), key=lambda segment: segment.id)


def segment_file(path: Path) -> SegmentFile:
    """Take a file as a segment by its name."""
    match = NAME.fullmatch(path.name)
    if match is None:
        raise LogError("RUNNEL-CASSANDRA-LOG-NAME", f"{path.name} is no name of a segment", path, 0)
    return SegmentFile(path, int(match.group(2)))


class Segment:
    """An open segment. Close it, or use it in a `with`."""

    def __init__(
        self, path: Path, keys: Keys | None = None, largest: int = LARGEST_SECTION, reached: Reached | None = None
    ) -> None:
        """Open a file and read its header; `keys` opens encrypted sections, `largest` bounds the memory of one."""
        self.path = path
        self._reached = reached or Reached()
        self._keys = keys
        self._largest = largest
        self._file = self._open()
        try:
            self.header = self._read_header()
        except BaseException:
            self._file.close()
            raise

    def __enter__(self) -> Segment:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def _open(self) -> IO[bytes]:
        if self.path.suffix != ".gz":
            return self.path.open("rb")
        with gzip.open(self.path) as packed:
            try:
                data = packed.read(self._largest + 1)
            except (OSError, EOFError, zlib.error) as error:
                raise self._broken(f"the file cannot be unpacked ({error})", 0) from error
        if len(data) > self._largest:
            raise self._broken(f"the file has more than {self._largest} bytes", 0)
        return io.BytesIO(data)

    def _broken(self, message: str, offset: int, code: str = "RUNNEL-CASSANDRA-LOG-LENGTH") -> LogError:
        return LogError(code, message, self.path, offset)

    def _at(self, offset: int, length: int) -> bytes:
        self._file.seek(offset)
        data = self._file.read(length)
        if len(data) != length:
            raise self._broken(f"the file ends before the {length} bytes that should be there", offset)
        return data

    def _size(self) -> int:
        return self._file.seek(0, io.SEEK_END)

    def _read_header(self) -> Header:
        version, id_, length = _FIXED.unpack(self._at(0, _FIXED.size))
        if version not in VERSIONS:
            raise LogError(
                "RUNNEL-CASSANDRA-LOG-VERSION",
                f"version {version} of the commit log is not known",
                self.path,
                0,
                hint=f"known are {', '.join(map(str, VERSIONS))}: Cassandra 3.0 to 5.0",
            )
        text = self._at(_FIXED.size, length)
        low, high = id_ & 0xFFFFFFFF, id_ >> 32 & 0xFFFFFFFF
        checksum = zlib.crc32(text, zlib.crc32(_CHECKED.pack(version, low, high, length)))
        if self._at(_FIXED.size + length, 4) != checksum.to_bytes(4, "big"):
            raise self._broken("the header's checksum is wrong", 0, "RUNNEL-CASSANDRA-LOG-CHECKSUM")
        named = NAME.fullmatch(self.path.name)
        if named is not None and int(named.group(2)) != id_:
            reason = f"the header names the segment {id_}, the file another one"
            raise self._broken(reason, 4, "RUNNEL-CASSANDRA-LOG-HEADER")
        return Header(version, id_, _FIXED.size + length + 4, self._parameters(text))

    def _parameters(self, text: bytes) -> dict[str, Any]:
        try:
            found = json.loads(text) if text else {}
        except ValueError as error:
            raise self._broken("the header is no JSON", _FIXED.size, "RUNNEL-CASSANDRA-LOG-HEADER") from error
        if not isinstance(found, dict):
            raise self._broken("the header is no JSON object", _FIXED.size, "RUNNEL-CASSANDRA-LOG-HEADER")
        return found

    def sections(self, after: int = 0, until: int | None = None) -> Iterator[Section]:
        """Give the sections that end after a position and begin before another, in order.

        Stops where nothing is written yet. What is damaged raises a `LogError` when its turn comes.
        """
        for at, end, behind, length in self._spans(after, until, partly=True):
            yield Section(self._contents(at, end, length), behind - length, behind)

    def section_ends(self, after: int = 0, until: int | None = None) -> Iterator[int]:
        """Give the positions at which these sections end, without reading what is in them."""
        return (behind for _, _, behind, _ in self._spans(after, until))

    def _spans(self, after: int, until: int | None, *, partly: bool = False) -> Iterator[tuple[int, int, int, int]]:
        """Give of each section where it begins and ends in the file, the position after it, and its open length.

        `partly` gives one that ends after `until` too, if it begins before it.
        """
        behind, at = self._reached.begin(self.header.id, End(self.header.size, self.header.size), after)
        size = self._size()
        while size - at >= MARKER_SIZE:
            end = self._marker(at, size)
            if end is None:
                return
            length = self._length(at, end)
            begin, behind = behind, behind + MARKER_SIZE + length
            if until is not None and (begin if partly else behind - 1) >= until:
                return
            self._reached.passed(self.header.id, End(behind, end), after)
            if behind > after:
                yield at, end, behind, length
            at = end

    def _marker(self, at: int, size: int) -> int | None:
        end, checksum = _MARKER.unpack(self._at(at, MARKER_SIZE))
        if end == 0 and checksum == 0:
            return None
        id_ = self.header.id
        if checksum != zlib.crc32(_MARKED.pack(id_ & 0xFFFFFFFF, id_ >> 32 & 0xFFFFFFFF, at)):
            raise self._broken("a section's checksum is wrong", at, "RUNNEL-CASSANDRA-LOG-CHECKSUM")
        if not at + MARKER_SIZE <= end <= size:
            raise self._broken(f"a section ends at the impossible byte {end}", at)
        return int(end)

    @property
    def plain(self) -> bool:
        """Whether sections are in the file as they were written, neither compressed nor encrypted."""
        return self.header.compression is None and self.header.cipher is None

    def _length(self, at: int, end: int) -> int:
        """Give the length a section has when it is open."""
        inside = end - at - MARKER_SIZE
        if self.plain:
            length = inside
        elif inside < 4:
            raise self._broken("a section is too short to say its length", at)
        else:
            length = int.from_bytes(self._at(at + MARKER_SIZE, 4), "big")
        if length > self._largest:
            raise self._broken(f"a section has {length} bytes, more than {self._largest}", at)
        return length

    def _contents(self, at: int, end: int, length: int) -> bytes:
        if self.plain:
            return self._at(at + MARKER_SIZE, length)
        data = self._at(at + MARKER_SIZE + 4, end - at - MARKER_SIZE - 4)
        try:
            return self._opened(data, length)
        except ValueError as error:
            reason = f"a section cannot be opened ({error})"
            raise self._broken(reason, at, "RUNNEL-CASSANDRA-LOG-SECTION") from error
        except Terminal as error:
            if isinstance(error, LogError | UsageError):
                raise
            raise LogError(error.code, error.message, self.path, at, hint=error.hint) from error

    def _opened(self, data: bytes, length: int) -> bytes:
        if self.header.cipher is not None:
            if self._keys is None:
                raise LogError(
                    "RUNNEL-CASSANDRA-LOG-KEY",
                    "the segment is encrypted",
                    self.path,
                    0,
                    hint="name the key store of the server",
                )
            return self._keys.open(self.header.parameters, data, length)
        found = opener(str(self.header.compression))
        if found is None:
            raise self._broken(
                f"the compressor {self.header.compression!r} is not known", 0, "RUNNEL-CASSANDRA-LOG-COMPRESSION"
            )
        return found(data, length)
