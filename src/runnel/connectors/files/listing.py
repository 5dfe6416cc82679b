"""Which change files there are, in which order, how many rows they hold, and whether they are whole."""

from __future__ import annotations

import contextlib
import csv
import gzip
import io
import itertools
import json
import os
import zlib
from bisect import bisect_right
from collections import deque
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from runnel.errors import Place, Terminal, Transient

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from runnel.connectors.files.settings import Format, Settings

UNFINISHED = (".tmp", ".part", ".inprogress", ".crc")
ENDINGS: dict[str, Format] = {
    ".parquet": "parquet",
    ".csv": "csv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
}
SAMPLE = 64 * 1024
_SENTINEL = "end"
NO_GZIP_END = "its gzip end is missing"
LONGEST_LINE = 64 << 20
"""Bytes of a line; a longer one is refused rather than read into memory."""


@dataclass(frozen=True)
class File:
    """A change file of a table; `shown` is its path as a user knows it, `changed` when it last moved or changed."""

    table: str
    name: str
    path: Path
    shown: str
    format: Format
    bytes: int
    changed: int

    @property
    def version(self) -> tuple[int, int]:
        """What changes when the file is written or replaced."""
        return self.bytes, self.changed

    @property
    def zipped(self) -> bool:
        """Whether it is a gzip file."""
        return self.name.endswith(".gz")


@dataclass(frozen=True)
class Inspection:
    """What a look at a file tells: `half` says why it is not whole; `rows` is exact or a fair estimate."""

    rows: int
    half: str | None = None


def ignored(name: str) -> bool:
    """Say whether a name means "not for readers": hidden, a marker, or still being written."""
    return name.startswith((".", "_")) or name.endswith(UNFINISHED)


def folders(settings: Settings) -> dict[str, Path]:
    """Give each table's folder, whether or not it is there already."""
    if settings.table is not None:
        return {settings.table: settings.path}
    found = set(settings.schemas) | set(settings.tables or ())
    if settings.path.is_dir():
        found |= {entry.name for entry in settings.path.iterdir() if entry.is_dir() and not ignored(entry.name)}
    return {name: settings.path / name for name in sorted(found) if settings.tables is None or name in settings.tables}


@dataclass(frozen=True)
class Listing:
    """The names of a table's files in order. Files themselves are looked at only when asked for: a feed may keep all it ever had."""

    settings: Settings
    table: str
    folder: Path
    names: tuple[str, ...]

    def upto(self, last: str) -> tuple[str, ...]:
        """Give the names up to this one."""
        return self.names[: bisect_right(self.names, last)]

    def after(self, last: str) -> list[File]:
        """Give the files whose names come after this one."""
        return self.files(self.names[bisect_right(self.names, last) :])

    def files(self, names: Iterable[str] | None = None) -> list[File]:
        """Give the files of these names, or all, without those that are gone by now."""
        wanted = self.names if names is None else names
        found = [_file(self.settings, self.table, self.folder / name) for name in wanted]
        return [file for file in found if file is not None]


def listing(settings: Settings, table: str, folder: Path) -> Listing:
    """List a table's folder."""
    if not folder.is_dir():
        return Listing(settings, table, folder, ())
    with os.scandir(folder) as found:
        return Listing(settings, table, folder, tuple(sorted(e.name for e in found if not ignored(e.name))))


def _file(settings: Settings, table: str, path: Path) -> File | None:
    shown = "/".join(
        (settings.shown.rstrip("/"), path.name) if settings.table else (settings.shown.rstrip("/"), table, path.name)
    )
    format_ = settings.format or format_of(path.name)
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    if format_ is None or path.is_dir():
        what = "is a folder" if path.is_dir() else "has no known ending"
        raise Terminal(
            "RUNNEL-FILES-FORMAT",
            f"{shown} {what}, so it cannot be a change file",
            place=Place(shown),
            hint=f"end it in {', '.join(ENDINGS)} (text also .gz), or begin its name with _ to have it left alone",
        )
    return File(table, path.name, path, shown, format_, status.st_size, status.st_ctime_ns)


def format_of(name: str) -> Format | None:
    """Tell a file's format by its name."""
    text = name.removesuffix(".gz")
    found = next((kind for ending, kind in ENDINGS.items() if text.lower().endswith(ending)), None)
    return None if found == "parquet" and text != name else found


def half(file: File, why: str) -> Transient:
    """Make the error for a file that is not whole."""
    return Transient(
        "RUNNEL-FILES-HALF",
        f"{file.shown} is only half there: {why}",
        place=Place(file.shown),
        hint="it is read once it is whole; write under a name ending in .tmp and rename when done",
    )


def opened(file: File) -> IO[bytes]:
    """Open a text file's bytes, unzipped."""
    return io.BufferedReader(gzip.open(file.path, "rb")) if file.zipped else file.path.open("rb")


def inspect(file: File, delimiter: str = ",") -> Inspection:
    """Look whether a file is whole and how many rows it holds, reading as little as that takes."""
    if file.bytes == 0:
        return Inspection(0, "it is empty")
    if file.format == "parquet":
        return _inspect_parquet(file)
    seen = _inspect_zipped(file) if file.zipped else _inspect_text(file)
    if seen.half is None and file.format == "csv" and _ends_in_quotes(file, delimiter):
        return Inspection(seen.rows, "its last value has no closing quote")
    return seen


def _ends_in_quotes(file: File, delimiter: str) -> bool:
    """Say whether the file ends inside a quoted value; that takes an odd number of quotes, which is quick to count."""
    if sum(chunk.count(b'"') for chunk in _chunks(file)) % 2 == 0:
        return False
    with opened(file) as stream:
        # A line more after the end: a value that is still open swallows it.
        records = csv.reader(itertools.chain(texts(file, stream, "replace"), [_SENTINEL]), delimiter=delimiter)
        try:
            (last,) = deque(records, maxlen=1)
        except csv.Error:
            return False
    return last != [_SENTINEL]


def _inspect_parquet(file: File) -> Inspection:
    with file.path.open("rb") as stream:
        stream.seek(max(0, file.bytes - 4))
        if stream.read() != b"PAR1":
            return Inspection(0, "its Parquet footer is missing")
    try:
        return Inspection(pq.read_metadata(file.path).num_rows)
    except (pa.ArrowInvalid, OSError) as error:
        return Inspection(0, f"its Parquet footer cannot be read ({str(error).splitlines()[0]})")


def _inspect_text(file: File) -> Inspection:
    with file.path.open("rb") as stream:
        sample = stream.read(SAMPLE)
        # An estimate is enough to cut ranges, and the first lines are the only ones that are cheap to count.
        lines = max(1, sample.count(b"\n"))
        rows = max(1, lines * file.bytes // max(1, len(sample)))
        return Inspection(rows, _cut(file, _last_line(file, stream)))


def _inspect_zipped(file: File) -> Inspection:
    with translated(file):
        try:
            rows, last = _lines_and_last(file)
        except EOFError:
            return Inspection(0, NO_GZIP_END)
    return Inspection(max(1, rows), _cut(file, last) if last else "it is empty")


def _lines_and_last(file: File) -> tuple[int, bytes]:
    rows, pieces, held = 0, [b""], 0
    for chunk in _chunks(file):
        rows += chunk.count(b"\n")
        # A line end at the very end of what came before belongs to the last line only if nothing comes after it.
        if pieces[-1].endswith(b"\n"):
            pieces, held = [], 0
        begin = chunk.rfind(b"\n", 0, -1) + 1
        pieces, held = ([chunk[begin:]], len(chunk) - begin) if begin else ([*pieces, chunk], held + len(chunk))
        if held > LONGEST_LINE:
            raise too_long(file, None)
    return rows, b"".join(pieces)


@contextlib.contextmanager
def translated(file: File) -> Iterator[None]:
    """Make errors with a code of what a broken or cut gzip file raises."""
    try:
        yield
    except EOFError as error:
        raise half(file, NO_GZIP_END) from error
    except (gzip.BadGzipFile, zlib.error) as error:
        message = f"{file.shown} is no readable gzip file: {error}"
        raise Terminal("RUNNEL-FILES-BROKEN", message, place=Place(file.shown), hint="write it again") from error


def _chunks(file: File) -> Iterator[bytes]:
    with opened(file) as stream:
        while chunk := stream.read(1024 * 1024):
            yield chunk


def _last_line(file: File, stream: IO[bytes]) -> bytes:
    pieces: list[bytes] = []
    at = file.bytes
    while at > 0 and file.bytes - at <= LONGEST_LINE:
        step = min(SAMPLE, at)
        at -= step
        stream.seek(at)
        piece = stream.read(step)
        begin = piece.rfind(b"\n", 0, None if pieces else -1) + 1
        pieces.append(piece[begin:])
        if begin:
            return b"".join(reversed(pieces))
    if at > 0:
        raise too_long(file, at)
    return b"".join(reversed(pieces))


def too_long(file: File, at: int | None) -> Terminal:
    """Make the error for a line that is too long to be read; `at` is a byte of it."""
    where = f"{file.shown}, near byte {at}" if at is not None else file.shown
    return Terminal(
        "RUNNEL-FILES-LINE",
        f"{where}: a line is longer than {LONGEST_LINE} bytes",
        place=Place(file.shown),
        hint="end each row with a line end",
    )


def lines(file: File, stream: IO[bytes]) -> Iterator[bytes]:
    """Give a file's lines; raise where one is too long, before it is in memory."""
    at = 0
    while line := stream.readline(LONGEST_LINE + 1):
        if len(line) > LONGEST_LINE:
            raise too_long(file, at)
        at += len(line)
        yield line


def texts(file: File, stream: IO[bytes], errors: str = "strict", *, begins: bool = True) -> Iterator[str]:
    """Give a file's lines as text, without a byte-order mark at its beginning; a part may begin further on."""
    for number, line in enumerate(lines(file, stream)):
        yield line.decode("utf-8-sig" if begins and number == 0 else "utf-8", errors)


def _cut(file: File, line: bytes) -> str | None:
    """Say why the last line looks cut off; None when it does not."""
    if line.endswith(b"\n"):
        return None
    if file.format == "csv":
        # 12 may be the beginning of 123: only the line's end proves that the value is whole.
        return "its last line has no end"
    try:
        json.loads(line.decode("utf-8-sig"))
    except (json.JSONDecodeError, UnicodeDecodeError):
        return "its last line is cut"
    except (ValueError, RecursionError):
        return None  # odd, but no sign of a cut: reading it says what is wrong
    return None
