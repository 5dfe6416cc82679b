"""A node's log folder that is served elsewhere, as a folder here: indexes are copied at every look, segments when they are read.

Bytes of a segment that its index names do not change any more, so they are copied once, and whoever copies them at the same time writes the same.
The folder is a copy: what is deleted in it is only not needed any more. The server's own segments are its operator's to delete.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from runnel.connectors.cassandra.log.positions import END_OF_SEGMENT
from runnel.connectors.cassandra.log.segment import NAME, Segment, segment_files
from runnel.connectors.served.server import LARGEST_RANGE
from runnel.errors import Terminal, Transient

if TYPE_CHECKING:
    from pathlib import Path

    from runnel.connectors.cassandra.log.positions import Position
    from runnel.connectors.cassandra.log.segment import SegmentFile
    from runnel.connectors.served.client import LogClient

INDEX = re.compile(r"CommitLog-(?:\d+-)?\d+_cdc\.idx")
_NUMBER = re.compile(r"\d+")


class Mirror:
    """Keeps a folder here like one that is served."""

    def __init__(self, client: LogClient, folder: Path) -> None:
        """Copy into this folder, which is made."""
        self.client, self.folder = client, folder
        self._sizes: dict[str, int] = {}
        self._kept = 0
        self._needed_from = 0
        folder.mkdir(parents=True, exist_ok=True)

    def look(self) -> None:
        """Copy the names of segments, and their indexes. Copies of what the server does not have any more stay until they are read."""
        listed = self.client.listing(NAME, INDEX)
        sizes = {one.name: one.size for one in listed if one.text is None}
        self._sizes |= sizes
        self._kept = sum(sizes.values())
        for one in listed:
            path = self.folder / one.name
            if int(_NUMBER.findall(one.name)[-1]) < self._needed_from:
                continue
            if one.text is None:
                path.touch()
            elif one.text:
                _replaced(path, one.text)

    def fetch(self, segment: SegmentFile, until: int, *, completed: bool) -> None:
        """See that a segment is here up to a position; of one that is completed, or not plain, all there is.

        How large it is says the server when it is asked, not the listing: that may be older than the index that names the position.
        """
        have = segment.path.stat().st_size
        try:
            have = self._copied(segment.path, have, until)
            if have and (completed or not _is_plain(segment.path)):
                have = self._copied(segment.path, have, END_OF_SEGMENT)
        except FileNotFoundError:
            if not completed or not have or have != self._sizes.get(segment.path.name):
                raise  # else all of it is here
        if not completed and _is_plain(segment.path) and have < until:
            raise Transient(
                "RUNNEL-SERVED-SHORT",
                f"{self.client.url}: {segment.path.name} ends at {have}, before {until} that its index names",
                hint="it is tried again",
            )

    def _copied(self, path: Path, have: int, wanted: int) -> int:
        """Copy up to a byte, or to the end of the file; give how much is here."""
        with path.open("r+b") as file:
            while have < wanted:
                data, size = self.client.part(path.name, have, min(LARGEST_RANGE, wanted - have))
                if have > size:
                    raise Terminal(
                        "RUNNEL-SERVED-OTHER",
                        f"{self.client.url}: {path.name} has {size} bytes, and had {have}",
                        hint="another log is served there now; begin with a new state and a new snapshot",
                    )
                if not data:
                    break
                os.pwrite(file.fileno(), data, have)
                have += len(data)
        return have

    def forget(self, before: Position) -> None:
        """Delete the copies of segments before a position: nobody here needs them again."""
        self._needed_from = max(self._needed_from, before.segment)
        for segment in segment_files(self.folder):
            if segment.id < before.segment:
                segment.path.unlink(missing_ok=True)
                segment.index.unlink(missing_ok=True)
                self._sizes.pop(segment.path.name, None)

    def kept(self) -> int:
        """Give the bytes that the server keeps."""
        return self._kept


def _is_plain(path: Path) -> bool:
    with Segment(path) as opened:
        return opened.plain


def _replaced(path: Path, text: str) -> None:
    """Write an index so that nobody sees half of it."""
    if path.exists() and path.read_text() == text:
        return
    new = path.with_name(f".{path.name}.{os.getpid()}.new")
    new.write_text(text)
    new.replace(path)
