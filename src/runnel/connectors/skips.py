"""Changes of a source's log that somebody decided to go past, each with the reason: `runnel skip`.

They are written to a file of the project, which is looked at again whenever it has changed, so that a run that has stopped before such a
change goes on without being started again. Positions of the source carry them on, so that a runner with another folder knows them too.
"""

from __future__ import annotations

import json
import os
import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from runnel.errors import Terminal

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path


@dataclass(frozen=True)
class Skip:
    """A decision: the position after the change, in the words of its store, why, and when (seconds since 1970)."""

    position: dict[str, Any]
    reason: str
    decided: int


class Skips:
    """The decisions about one source of a project."""

    def __init__(self, folder: Path, source: str) -> None:
        """Look into a project's folder; nothing is read yet."""
        self._path = folder / ".runnel" / "skipped" / f"{source}.json"
        self._known: tuple[int, list[Skip]] = (-1, [])
        self._carried: list[Skip] = []

    def carry(self, told: Iterable[Mapping[str, Any]]) -> None:
        """Take the decisions that a position carries."""
        self._carried = [Skip(**one) for one in told]

    def carried(self) -> list[dict[str, Any]]:
        """Give the decisions for a position to carry."""
        return [asdict(skip) for skip in self.all()]

    def all(self) -> list[Skip]:
        """Give the decisions so far."""
        own = self._own()
        known = [skip.position for skip in own]
        return [*(skip for skip in self._carried if skip.position not in known), *own]

    def _own(self) -> list[Skip]:
        try:
            changed = self._path.stat().st_mtime_ns
        except FileNotFoundError:
            return []
        if changed != self._known[0]:
            self._known = (changed, self._read())
        return self._known[1]

    def _read(self) -> list[Skip]:
        try:
            return [Skip(**told) for told in json.loads(self._path.read_text(encoding="utf-8"))]
        except (ValueError, TypeError) as error:
            raise Terminal(
                "RUNNEL-SKIP-FILE",
                f"{self._path} does not say which changes are skipped",
                hint="put the file back, or delete it and decide again",
            ) from error

    def add(self, position: dict[str, Any], reason: str) -> None:
        """Decide to go past a change; deciding it twice changes nothing."""
        kept = [skip for skip in self._own() if skip.position != position]
        kept.append(Skip(position, reason, int(time.time())))
        self._path.parent.mkdir(parents=True, exist_ok=True)
        new = self._path.with_suffix(".new")
        with new.open("w", encoding="utf-8") as out:
            json.dump([asdict(skip) for skip in kept], out, indent=1)
            out.flush()
            os.fsync(out.fileno())
        new.replace(self._path)
