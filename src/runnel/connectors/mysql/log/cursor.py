"""Reads numbers and strings one after the other out of an event's body; past its end it raises `BadBytes`."""

from __future__ import annotations

from runnel.connectors.mysql.log.problems import BadBytes


class Cursor:
    """A place in some bytes that moves on with every read."""

    __slots__ = ("at", "data", "end")

    def __init__(self, data: bytes, at: int = 0, end: int | None = None) -> None:
        """Begin at a place; `end` is where reading must stop."""
        self.data, self.at, self.end = data, at, len(data) if end is None else end

    @property
    def left(self) -> int:
        """How many bytes are left."""
        return self.end - self.at

    def take(self, size: int) -> bytes:
        """Give the next bytes."""
        if size < 0 or size > self.end - self.at:
            raise BadBytes("an event ends within a value")
        found = self.data[self.at : self.at + size]
        self.at += size
        return found

    def number(self, size: int) -> int:
        """Give the next bytes as an unsigned little-endian number."""
        return int.from_bytes(self.take(size), "little")

    def packed(self) -> int:
        """Give a number of one to nine bytes as the protocol packs them."""
        first = self.number(1)
        if first < 251:
            return first
        if first in (252, 253, 254):
            return self.number({252: 2, 253: 3, 254: 8}[first])
        raise BadBytes(f"{first} does not begin a packed number")

    def text(self, size: int) -> bytes:
        """Give a string of some length that ends with a zero byte."""
        found = self.take(size)
        if self.number(1) != 0:
            raise BadBytes("a name does not end with a zero byte")
        return found
