"""Cassandra's variable-length integers: the leading one bits of the first byte count the bytes that follow it.

>>> read_unsigned(bytes.fromhex("81a4"), 0), write_unsigned(420).hex(), read_signed(write_signed(-3), 0)
((420, 2), '81a4', (-3, 1))
"""

from __future__ import annotations

EXTRA = tuple(next((n for n in range(8) if not byte & (0x80 >> n)), 8) for byte in range(256))
"""Bytes that follow a first byte."""

MASKS = tuple((1 << (7 * extra + 7)) - 1 if extra < 8 else (1 << 64) - 1 for extra in range(9))
"""The bits of the whole that belong to the number, by the bytes that follow."""


def read_unsigned(data: bytes, at: int) -> tuple[int, int]:
    """Give the number and where it ends; raise `IndexError` where the bytes end before it does."""
    first = data[at]
    if first < 0x80:
        return first, at + 1
    extra = EXTRA[first]
    end = at + extra + 1
    if end > len(data):
        raise IndexError(end)
    return int.from_bytes(data[at:end], "big") & MASKS[extra], end


def read_signed(data: bytes, at: int) -> tuple[int, int]:
    """Give a number written in zigzag and where it ends."""
    number, at = read_unsigned(data, at)
    return (number >> 1) ^ -(number & 1), at


def write_unsigned(number: int) -> bytes:
    """Write a number of up to 64 bits."""
    number &= MASKS[8]
    extra = next((n for n in range(8) if number <= MASKS[n]), 8)
    if extra == 8:
        return b"\xff" + number.to_bytes(8, "big")
    lead = (0xFF00 >> extra) & 0xFF
    return (number | lead << (8 * extra)).to_bytes(extra + 1, "big")


def write_signed(number: int) -> bytes:
    """Write a number in zigzag."""
    return write_unsigned((number << 1) ^ (number >> 63))
