"""Decimals of the log: nine digits in four bytes, on both sides of the point; the sign is the first bit, a negative number inverted."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from runnel.connectors.mysql.log.problems import BadBytes
from runnel.connectors.mysql.log.row_walker import DIGIT_BYTES, decimal_width

MOST_DIGITS = 38
"""Digits that Arrow's and Spark's decimals have; longer ones come as texts."""


def groups(precision: int, scale: int) -> list[tuple[int, int]]:
    """Give the groups of digits in the order of the bytes: how many bytes, how many digits."""
    whole, rest = divmod(precision - scale, 9)
    parts, last = divmod(scale, 9)
    found = [(DIGIT_BYTES[rest], rest)] if rest else []
    found += [(4, 9)] * (whole + parts)
    return [*found, (DIGIT_BYTES[last], last)] if last else found


def decimal_text(data: bytes, precision: int, scale: int) -> str:
    r"""Write one decimal.

    >>> decimal_text(b"\x80\x00\x00\x01\x32", 10, 2), decimal_text(b"\x7f\xff\xff\xfe\xcd", 10, 2)
    ('1.50', '-1.50')
    """
    width = decimal_width(precision, scale)
    if len(data) < width:
        raise BadBytes("a decimal is too short")
    negative = not data[0] & 0x80
    plain = bytes([data[0] ^ 0x80]) + data[1:width]
    if negative:
        plain = bytes(byte ^ 0xFF for byte in plain)
    digits, at = "", 0
    for size, count in groups(precision, scale):
        group = int.from_bytes(plain[at : at + size], "big")
        if group >= 10**count:
            raise BadBytes("a decimal has a group of more digits than it can have")
        digits += f"{group:0{count}d}"
        at += size
    whole = digits[: precision - scale].lstrip("0") or "0"
    fraction = f".{digits[precision - scale :]}" if scale else ""
    return f"{'-' if negative else ''}{whole}{fraction}"


def decimal_array(data: np.ndarray, at: np.ndarray, column: tuple[int, int], null: np.ndarray | None) -> pa.Array:
    """Read decimals at these places of the bytes; those of more than 38 digits come as texts."""
    precision, scale = column
    width = decimal_width(precision, scale)
    if precision > 18:
        return _one_by_one(data, at, column, null)
    matrix = data[at[:, None] + np.arange(width)]
    negative = matrix[:, 0] < 0x80
    matrix[:, 0] ^= 0x80
    matrix[negative] ^= 0xFF
    value, byte = np.zeros(len(at), np.int64), 0
    for size, digits in groups(precision, scale):
        group = np.zeros(len(at), np.int64)
        for n in range(byte, byte + size):
            group = group << 8 | matrix[:, n]
        if (group >= 10**digits).any() and (null is None or (group[~null] >= 10**digits).any()):
            raise BadBytes("a decimal has a group of more digits than it can have")
        value, byte = value * 10**digits + group, byte + size
    words = np.empty((len(at), 2), np.int64)
    words[:, 0] = np.where(negative, -value, value)
    words[:, 1] = words[:, 0] >> 63
    return from_words(words, pa.decimal128(precision, scale), null)


def from_words(words: np.ndarray, type_: pa.DataType, null: np.ndarray | None) -> pa.Array:
    """Give decimals out of their two words."""
    valid = None if null is None else pa.py_buffer(np.packbits(~null, bitorder="little"))
    return pa.Array.from_buffers(type_, len(words), [valid, pa.py_buffer(np.ascontiguousarray(words))])


def _one_by_one(data: np.ndarray, at: np.ndarray, column: tuple[int, int], null: np.ndarray | None) -> pa.Array:
    precision, scale = column
    width, raw = decimal_width(precision, scale), data.tobytes()
    texts = [
        None if null is not None and null[n] else decimal_text(raw[place : place + width], precision, scale)
        for n, place in enumerate(at.tolist())
    ]
    as_texts = pa.array(texts, pa.string())
    return as_texts if precision > MOST_DIGITS else as_texts.cast(pa.decimal128(precision, scale))
