"""Turns the bytes of rows into Arrow, column by column: numpy gathers the values of a column, Python looks at them one by one only where it must.

The types are the same as those of a snapshot by SELECT, and so are the values: `tests/connectors/mysql/test_types.py`.
"""

from __future__ import annotations

import ipaddress
import uuid
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from runnel.connectors.mysql.log import times
from runnel.connectors.mysql.log.charsets import BINARY, UTF8, codec_of, decoded
from runnel.connectors.mysql.log.decimals import decimal_array, from_words
from runnel.connectors.mysql.log.partial_json import text_of
from runnel.connectors.mysql.log.problems import BadBytes
from runnel.connectors.mysql.log.row_walker import width_of
from runnel.connectors.mysql.log.table_map import LoggedColumn, Type

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from runnel.connectors.mysql.log.row_walker import Places
    from runnel.connectors.mysql.log.times import Zero

PADDING = 16
"""Bytes that must follow the last row, so that what is gathered for a NULL at the end is not outside."""
_INTEGERS = {
    Type.TINY: ("<i1", "<u1", pa.int8(), pa.int16()),
    Type.SHORT: ("<i2", "<u2", pa.int16(), pa.int32()),
    Type.LONG: ("<i4", "<u4", pa.int32(), pa.int64()),
}


class ZeroDate(BadBytes):
    """A date that does not exist, such as 0000-00-00, in a column of the log."""


def column_array(data: np.ndarray, column: LoggedColumn, places: Places, zero: Zero) -> pa.Array:
    """Give the values of one column; raise `BadBytes` for bytes that cannot be values of its type."""
    kind, at, null = column.type, places.at, places.null
    if kind in _INTEGERS:
        signed, unsigned, narrow, wide = _INTEGERS[Type(kind)]
        if column.unsigned:
            return _array(gather(data, at, unsigned).astype(wide.to_pandas_dtype()), wide, null)
        return _array(gather(data, at, signed), narrow, null)
    if kind == Type.LONGLONG:
        return _longs(data, at, column, null)
    read = _READERS.get(kind)
    if read is None:
        raise BadBytes(f"type {kind} of column {column.name} cannot be read")
    return read(data, column, places, zero)


def gather(data: np.ndarray, at: np.ndarray, type_: str) -> np.ndarray:
    """Read a number of this type at each place."""
    size = np.dtype(type_).itemsize
    found: np.ndarray = np.ndarray((len(data) - size + 1,), type_, data, strides=(1,))[at]
    return found


def _big_endian(data: np.ndarray, at: np.ndarray, size: int) -> np.ndarray:
    value = np.zeros(len(at), np.int64)
    for n in range(size):
        value = value << 8 | data[at + n]
    return value


def _little_endian(data: np.ndarray, at: np.ndarray, size: int) -> np.ndarray:
    value = np.zeros(len(at), np.int64)
    for n in range(size):
        value |= data[at + n].astype(np.int64) << (8 * n)
    return value


def _array(values: np.ndarray, type_: pa.DataType, null: np.ndarray | None) -> pa.Array:
    return pa.array(values, type_, mask=null)


def _longs(data: np.ndarray, at: np.ndarray, column: LoggedColumn, null: np.ndarray | None) -> pa.Array:
    low = gather(data, at, "<i8")
    return _unsigned_longs(low, null) if column.unsigned else _array(low, pa.int64(), null)


def _unsigned_longs(low: np.ndarray, null: np.ndarray | None) -> pa.Array:
    return from_words(np.stack([low, np.zeros_like(low)], axis=1), pa.decimal128(20, 0), null)


def _int24(data: np.ndarray, column: LoggedColumn, places: Places, zero: Zero) -> pa.Array:
    value = _little_endian(data, places.at, 3)
    if not column.unsigned:
        value = (value ^ 0x800000) - 0x800000
    return _array(value.astype(np.int32), pa.int32(), places.null)


def _floats(type_: str, arrow: pa.DataType) -> _Read:
    def read(data: np.ndarray, column: LoggedColumn, places: Places, zero: Zero) -> pa.Array:
        values = gather(data, places.at, type_)
        return pa.array(values, arrow, mask=places.null, from_pandas=False)

    return read


def _decimals(data: np.ndarray, column: LoggedColumn, places: Places, zero: Zero) -> pa.Array:
    return decimal_array(data, places.at, (column.meta >> 8, column.meta & 0xFF), places.null)


def _years(data: np.ndarray, column: LoggedColumn, places: Places, zero: Zero) -> pa.Array:
    value = data[places.at].astype(np.int16)
    return _array(np.where(value == 0, 0, value + 1900).astype(np.int16), pa.int16(), places.null)


def _bits(data: np.ndarray, column: LoggedColumn, places: Places, zero: Zero) -> pa.Array:
    value = _big_endian(data, places.at, width_of(column).fixed)
    bits = (column.meta >> 8) * 8 + (column.meta & 0xFF)
    if bits == 1:
        return _array(value != 0, pa.bool_(), places.null)
    return _unsigned_longs(value, places.null) if bits == 64 else _array(value, pa.int64(), places.null)


def _checked(
    values: np.ndarray, wrong: np.ndarray, type_: pa.DataType, places: Places, column: LoggedColumn, zero: Zero
) -> pa.Array:
    null = places.null
    if null is not None:
        wrong = wrong & ~null
    if wrong.any():
        if zero == "error":
            raise ZeroDate(f"column {column.name} has a zero date, or one that does not exist")
        null = wrong if null is None else null | wrong
    if type_ == pa.date32():
        return pa.array(values.astype(np.int32), pa.int32(), mask=null).view(type_)
    return pa.array(values, pa.int64(), mask=null).view(type_)


def _dates(data: np.ndarray, column: LoggedColumn, places: Places, zero: Zero) -> pa.Array:
    days, wrong = times.date_parts(_little_endian(data, places.at, 3))
    return _checked(days, wrong, pa.date32(), places, column, zero)


def _micros(data: np.ndarray, at: np.ndarray, digits: int) -> np.ndarray:
    """Read the fraction of a second: two digits a byte, an odd one with a zero after it."""
    size = (digits + 1) // 2
    found: np.ndarray = _big_endian(data, at, size) * 10 ** (6 - 2 * size)
    return found


def _datetimes(data: np.ndarray, column: LoggedColumn, places: Places, zero: Zero) -> pa.Array:
    packed = _big_endian(data, places.at, 5) - times.DATETIME_BASE
    values, wrong = times.datetime_parts(packed, _micros(data, places.at + 5, column.meta))
    return _checked(values, wrong, pa.timestamp("us"), places, column, zero)


def _old_datetimes(data: np.ndarray, column: LoggedColumn, places: Places, zero: Zero) -> pa.Array:
    values, wrong = times.old_datetime_parts(gather(data, places.at, "<i8"))
    return _checked(values, wrong, pa.timestamp("us"), places, column, zero)


def _timestamps(data: np.ndarray, column: LoggedColumn, places: Places, zero: Zero) -> pa.Array:
    old = column.type == Type.TIMESTAMP
    seconds = _little_endian(data, places.at, 4) if old else _big_endian(data, places.at, 4)
    micros = 0 if old else _micros(data, places.at + 4, column.meta)
    return _checked(seconds * 1_000_000 + micros, seconds == 0, pa.timestamp("us", tz="UTC"), places, column, zero)


def _times(data: np.ndarray, column: LoggedColumn, places: Places, zero: Zero) -> pa.Array:
    digits, size = column.meta, (column.meta + 1) // 2
    if column.type == Type.TIME:
        value = _little_endian(data, places.at, 3)
        value = (value ^ 0x800000) - 0x800000
        plain = np.abs(value)
        seconds = plain // 10_000 * 3600 + plain // 100 % 100 * 60 + plain % 100
        parts = zip((value < 0).tolist(), seconds.tolist(), [0] * len(value), strict=True)
        return _objects([times.clock_text(*part, 0) for part in parts], places.null, pa.string())
    whole = _big_endian(data, places.at, 3 + size) - (times.TIME_BASE << (8 * size))
    packed = (np.abs(whole) >> (8 * size) << 24) | ((np.abs(whole) & ((1 << (8 * size)) - 1)) * 10 ** (6 - 2 * size))
    signed = np.where(whole < 0, -packed, packed)
    return _objects(
        [times.clock_text(*times.time_of(one), digits) for one in signed.tolist()], places.null, pa.string()
    )


def _objects(values: Sequence[Any], null: np.ndarray | None, type_: pa.DataType) -> pa.Array:
    if null is not None:
        values = [None if gone else value for value, gone in zip(values, null.tolist(), strict=True)]
    return pa.array(values, type_)


def _enums(data: np.ndarray, column: LoggedColumn, places: Places, zero: Zero) -> pa.Array:
    members = _members(column)
    index = _little_endian(data, places.at, column.meta)
    if places.null is not None:
        index[places.null] = 0
    if (index > len(members)).any():
        raise BadBytes(f"column {column.name} has a member that its enumeration does not have")
    # Number 0 is the empty text that stands for a value that was refused.
    return pa.array(["", *members], pa.string()).take(pa.array(index, mask=places.null))


def _sets(data: np.ndarray, column: LoggedColumn, places: Places, zero: Zero) -> pa.Array:
    members, known = _members(column), dict[int, str]()
    for bits in np.unique(gather_bits := _little_endian(data, places.at, column.meta)).tolist():
        known[bits] = ",".join(member for n, member in enumerate(members) if bits >> n & 1)
    return _objects([known[bits] for bits in gather_bits.tolist()], places.null, pa.string())


def _members(column: LoggedColumn) -> tuple[str, ...]:
    if column.members is None:
        raise BadBytes(f"the members of column {column.name} are not known")
    return column.members


def _raw(data: np.ndarray, column: LoggedColumn, places: Places) -> pa.Array:
    """Give values of varying length as bytes.

    Rows lie one after the other, so values and what is between them make up one array of Arrow; every second element is a value.
    """
    prefix = width_of(column).prefix
    size = _little_endian(data, places.at, prefix)
    begin = places.at + prefix
    if places.null is not None:
        begin, size = np.where(places.null, places.at, begin), np.where(places.null, 0, size)
    offsets = np.empty(2 * len(size), np.int32)
    offsets[0::2], offsets[1::2] = begin, begin + size
    both = pa.Array.from_buffers(pa.binary(), len(offsets) - 1, [None, pa.py_buffer(offsets), pa.py_buffer(data)])
    return both.take(pa.array(np.arange(0, len(offsets), 2), pa.int64(), mask=places.null))


def _strings(data: np.ndarray, column: LoggedColumn, places: Places, zero: Zero) -> pa.Array:
    raw = _raw(data, column, places)
    if column.special:
        return pa.array([_special(column, value) for value in raw.to_pylist()], pa.string())
    if column.charset == BINARY:
        return _padded(raw, column.meta) if column.type == Type.STRING else raw
    codec = codec_of(column.charset)
    if codec != UTF8:
        return pa.array([None if v is None else decoded(v, column.charset) for v in raw.to_pylist()], pa.string())
    texts = raw.view(pa.string())
    try:
        texts.validate(full=True)
    except pa.ArrowInvalid as error:
        raise BadBytes(f"a text of column {column.name} is not UTF-8") from error
    return texts


def _padded(raw: pa.Array, size: int) -> pa.Array:
    """Give back the zero bytes at the end of a BINARY value, which the log leaves out."""
    return pa.array([None if value is None else value.ljust(size, b"\0") for value in raw.to_pylist()], pa.binary())


def _special(column: LoggedColumn, value: bytes | None) -> str | None:
    """Write a value of a type that the log has as bytes of fixed length."""
    if value is None:
        return None
    whole = value.ljust(column.meta, b"\0")
    if column.special == "inet4":
        return str(ipaddress.IPv4Address(whole[:4]))
    if column.special == "inet6":
        return inet6_text(whole[:16])
    return uuid_text(whole[:16])


def inet6_text(value: bytes) -> str:
    """Write an address as the server does: addresses of IPv4 inside keep their dots."""
    address = ipaddress.IPv6Address(value)
    if value[:12] == b"\0" * 10 + b"\xff\xff":
        return f"::ffff:{ipaddress.IPv4Address(value[12:])}"
    if value[:12] == b"\0" * 12 and value[12:14] != b"\0\0":
        return f"::{ipaddress.IPv4Address(value[12:])}"
    return str(address)


def uuid_text(value: bytes) -> str:
    """Write a UUID of MariaDB, which stores the parts of versions 1 to 5 in reverse order, so that they sort by time."""
    if value[6] & 0x80 and 0 < value[8] < 0x60:
        value = value[12:16] + value[10:12] + value[8:10] + value[6:8] + value[:6]
    return str(uuid.UUID(bytes=value))


def _json(data: np.ndarray, column: LoggedColumn, places: Places, zero: Zero) -> pa.Array:
    raw = _raw(data, column, places)
    return pa.array([None if value is None else text_of(value) for value in raw.to_pylist()], pa.string())


def _bytes(data: np.ndarray, column: LoggedColumn, places: Places, zero: Zero) -> pa.Array:
    return _raw(data, column, places)


if TYPE_CHECKING:
    _Read = Callable[[np.ndarray, LoggedColumn, Places, Zero], pa.Array]

_READERS: dict[int, _Read] = {
    Type.INT24: _int24,
    Type.FLOAT: _floats("<f4", pa.float32()),
    Type.DOUBLE: _floats("<f8", pa.float64()),
    Type.NEWDECIMAL: _decimals,
    Type.YEAR: _years,
    Type.BIT: _bits,
    Type.DATE: _dates,
    Type.DATETIME2: _datetimes,
    Type.DATETIME: _old_datetimes,
    Type.TIMESTAMP2: _timestamps,
    Type.TIMESTAMP: _timestamps,
    Type.TIME2: _times,
    Type.TIME: _times,
    Type.ENUM: _enums,
    Type.SET: _sets,
    Type.VARCHAR: _strings,
    Type.VAR_STRING: _strings,
    Type.STRING: _strings,
    Type.BLOB: _strings,
    Type.JSON: _json,
    Type.GEOMETRY: _bytes,
    Type.VECTOR: _bytes,
}
