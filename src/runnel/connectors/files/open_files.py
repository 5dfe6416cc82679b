"""Files that are read in parts, kept open where a part ended.

A zipped file, or a row group of Parquet, can only be read from its beginning. Whoever reads part after part would read the first ones again
and again; a reader that is kept where the last part ended goes on from there. It only saves work: what is not kept is opened again.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Any

from runnel.connectors.files.listing import opened

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from runnel.connectors.files.listing import File

MOST_OPEN = 4
"""Two are used for a zipped file (one finds where parts end, one reads them), one for Parquet."""
_CHUNK = 1 << 20


@dataclass
class Kept:
    """An open reader and the place (byte or row) that it has reached."""

    file: File
    at: int
    reader: Any


class OpenFiles:
    """Readers of files that are taken in parts, the newest last."""

    def __init__(self) -> None:
        """Keep nothing yet."""
        self._kept: list[Kept] = []

    @contextlib.contextmanager
    def at(self, file: File, place: int) -> Iterator[IO[bytes]]:
        """Open a text file's bytes, unzipped, at a place; a zipped one is kept at the place where the reader leaves it."""
        if not file.zipped:
            with file.path.open("rb") as plain:
                plain.seek(place)
                yield plain
            return
        before = [kept for kept in self._kept if kept.file == file and kept.at <= place]
        kept = max(before, key=lambda kept: kept.at, default=None)
        stream = opened(file) if kept is None else self._take(kept)
        try:
            _skip(stream, place - stream.tell())
            yield stream
        except BaseException:
            stream.close()
            raise
        self.keep(file, stream.tell(), stream)

    def exactly_at(self, file: File, place: int) -> Any:
        """Give the reader that is kept at this place; it is not kept any more."""
        found = next((kept for kept in self._kept if kept.file == file and kept.at == place), None)
        return None if found is None else self._take(found)

    def keep(self, file: File, place: int, reader: Any) -> None:
        """Keep a reader for whoever reads on; the one that waited longest is closed where there are too many."""
        self._kept.append(Kept(file, place, reader))
        while len(self._kept) > MOST_OPEN:
            self._kept.pop(0).reader.close()

    def close(self, keep: Callable[[File], bool] = lambda _: False) -> None:
        """Close all readers but those of files to be kept."""
        for kept in self._kept:
            if not keep(kept.file):
                kept.reader.close()
        self._kept = [kept for kept in self._kept if keep(kept.file)]

    def _take(self, kept: Kept) -> Any:
        self._kept.remove(kept)
        return kept.reader


def _skip(stream: IO[bytes], left: int) -> None:
    while left > 0 and (chunk := stream.read(min(_CHUNK, left))):
        left -= len(chunk)
