"""What was read of files and is kept in memory, within a bound of bytes; what is kept of a file goes when the file is deleted."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Any, Generic, TypeVar

T = TypeVar("T")


_ALL: list[Kept[Any]] = []


class Kept(Generic[T]):
    """Values by file and part of it; those used longest ago give way. Every operation takes the same time however much is kept."""

    def __init__(self, most: int) -> None:
        """Keep up to `most` bytes."""
        self.most, self.bytes = most, 0
        self._values: OrderedDict[tuple[str, str], tuple[T, int]] = OrderedDict()
        self._parts: dict[str, set[str]] = {}
        self._lock = threading.Lock()
        _ALL.append(self)

    def get(self, path: str, part: str = "") -> T | None:
        """Give a value that is kept, else None."""
        with self._lock:
            known = self._values.get((path, part))
            if known is None:
                return None
            self._values.move_to_end((path, part))
            return known[0]

    def put(self, path: str, value: T, size: int, part: str = "") -> None:
        """Keep a value that takes so many bytes."""
        with self._lock:
            self._remove(path, part)
            self._values[path, part] = (value, size)
            self._parts.setdefault(path, set()).add(part)
            self.bytes += size
            while len(self._values) > 1 and self.bytes > self.most:
                self._remove(*next(iter(self._values)))

    def _remove(self, path: str, part: str) -> None:
        known = self._values.pop((path, part), None)
        if known is None:
            return
        self.bytes -= known[1]
        self._parts[path].discard(part)
        if not self._parts[path]:
            del self._parts[path]

    def drop(self, path: str) -> None:
        """Let go of all parts of a file."""
        with self._lock:
            for part in tuple(self._parts.get(path, ())):
                self._remove(path, part)

    def clear(self) -> None:
        """Let go of everything."""
        with self._lock:
            self._values.clear()
            self._parts.clear()
            self.bytes = 0

    def __len__(self) -> int:
        """Count the values that are kept."""
        return len(self._values)

    def __contains__(self, path: str) -> bool:
        """Say whether a whole file is kept."""
        return (path, "") in self._values

    def parts(self) -> list[tuple[str, str]]:
        """List the files, and parts of files, that are kept."""
        with self._lock:
            return list(self._values)


def drop(path: str) -> None:
    """Let go of everything that is kept of a file: it is deleted."""
    for kept in _ALL:
        kept.drop(path)
