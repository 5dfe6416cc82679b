"""Who reads a node's log: every reader notes in the folder how far it has got, and nobody deletes what another one needs.

A note is a small file `runnel-readers/ID.json` beside the segments. One that cannot be read holds everything.
"""

from __future__ import annotations

import hashlib
import json
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from runnel.connectors.cassandra.log.positions import START, Position, position_of
from runnel.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path

FOLDER = "runnel-readers"


@dataclass(frozen=True)
class Reader:
    """A reader of a folder: what it calls itself, up to where it has read, and when it said so (seconds since 1970)."""

    name: str
    position: Position
    seen: int


class Readers:
    """The readers of one folder of segments; `name` is this one, the same at every start."""

    def __init__(self, folder: Path, name: str) -> None:
        """Look at a folder; nothing is noted yet."""
        self._folder, self._name = folder / FOLDER, name
        self._own = self._folder / f"{hashlib.sha256(name.encode()).hexdigest()[:24]}.json"
        self._held: Position | None = None

    def hold(self, position: Position) -> bool:
        """Note that everything after a position is still needed; say whether that could be noted."""
        if position == self._held:
            return True
        told = {"reader": self._name, "position": list(position), "seen": int(time.time())}
        try:
            self._folder.mkdir(exist_ok=True)
            new = self._own.with_suffix(".new")
            new.write_text(json.dumps(told), encoding="utf-8")
            new.replace(self._own)
        except OSError:
            return False
        self._held = position
        return True

    def all(self) -> list[Reader]:
        """Give every reader that has left a note."""
        notes = sorted(self._folder.glob("*.json")) if self._folder.is_dir() else []
        return [_read(note) for note in notes]

    def released(self, position: Position) -> Position:
        """Give the position up to which nobody needs the log any more, at most `position`."""
        return min([position, *(reader.position for reader in self.all())])

    def others(self) -> list[Reader]:
        """Give the readers but this one."""
        return [reader for reader in self.all() if reader.name != self._name]


def _read(note: Path) -> Reader:
    try:
        told = json.loads(note.read_text(encoding="utf-8"))
        return Reader(str(told["reader"]), position_of({"": told["position"]}, ""), int(told["seen"]))
    except (OSError, ValueError, KeyError, TypeError, UsageError):
        return Reader(note.name, START, 0)
