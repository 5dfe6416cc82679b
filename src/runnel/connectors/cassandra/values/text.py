r"""The text of a CQL value in a delta, and the way back: text that the server's own `fromJson` reads.

Text stands as it is, blobs as `0x...`, times in ISO 8601, collections, tuples and user-defined types as JSON. A value of no
bytes is empty text.

>>> from runnel.connectors.cassandra.values.types import parse
>>> to_text(parse("int"))(bytes.fromhex("00000059")), to_json(parse("text"), 'say "hi"')
('89', '"say \\"hi\\""')
"""

from __future__ import annotations

import datetime as dt
import json
import math
import struct
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from runnel.connectors.cassandra.values.beyond import Beyond, raw_number
from runnel.connectors.cassandra.values.decode import decoder
from runnel.connectors.cassandra.values.types import CqlType, Custom, ListOf, MapOf, TupleOf, Udt, Vector

if TYPE_CHECKING:
    from collections.abc import Callable
    from decimal import Decimal

BARE = ("bigint", "boolean", "counter", "double", "float", "int", "smallint", "tinyint")
"""Types that stand in JSON without quotes; decimals are quoted, because the server reads bare ones as doubles."""
_NANOSECONDS = 1_000_000_000


@lru_cache(maxsize=4096)
def to_text(type_: CqlType) -> Callable[[bytes], str]:
    """Give the function that writes the bytes of a value of a type as text."""
    decode = decoder(type_)
    if _nested(type_):
        return lambda value: "" if not value else _json(type_, decode(value))
    plain = _PLAIN.get(type_.name, str)
    if isinstance(type_, Custom):
        plain = _hex

    def text(value: bytes) -> str:
        decoded = decode(value)
        if decoded is None:
            return ""
        return decoded.text if isinstance(decoded, Beyond) else plain(decoded)

    return text


def decoded_text(type_: CqlType, value: Any) -> str:
    """Write a value that was decoded already."""
    return "" if value is None else _unquoted(type_, value)


def to_json(type_: CqlType, text: str) -> str:
    """Give the JSON that the server reads as the value whose text this is."""
    if _nested(type_) or (type_.name in BARE and text not in ("NaN", "Infinity", "-Infinity")):
        return text
    if type_.name in ("date", "timestamp"):
        text = raw_number(text) or text
    return json.dumps(text, ensure_ascii=False)


def _nested(type_: CqlType) -> bool:
    return isinstance(type_, ListOf | MapOf | TupleOf | Udt | Vector)


def _json(type_: CqlType, value: Any) -> str:
    """Write a decoded value as JSON, nested as deep as its type."""
    if value is None:
        return "null"
    match type_:
        case ListOf(_, _, element) | Vector(_, _, element):
            return "[" + ", ".join(_json(element, item) for item in value) + "]"
        case MapOf(_, _, key, item):
            pairs = [f"{json.dumps(_unquoted(key, k), ensure_ascii=False)}: {_json(item, v)}" for k, v in value]
            return "{" + ", ".join(pairs) + "}"
        case TupleOf(_, _, items):
            return "[" + ", ".join(_json(t, v) for t, v in zip(items, value.values(), strict=True)) + "]"
        case Udt(_, _, fields):
            pairs = [f"{json.dumps(name, ensure_ascii=False)}: {_json(field, value[name])}" for name, field in fields]
            return "{" + ", ".join(pairs) + "}"
    return to_json(type_, _unquoted(type_, value))


def _unquoted(type_: CqlType, value: Any) -> str:
    if isinstance(value, Beyond):
        return value.text
    if _nested(type_):
        return _json(type_, value)
    return _hex(value) if isinstance(type_, Custom) else str(_PLAIN.get(type_.name, str)(value))


def _hex(value: bytes) -> str:
    return f"0x{value.hex()}"


def _boolean(value: bool) -> str:  # noqa: FBT001 - one of the functions by type
    return "true" if value else "false"


def _double(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    return repr(value)


def _float(value: float) -> str:
    """Write the shortest text that a 32-bit number is read back from."""
    if not math.isfinite(value):
        return _double(value)
    for digits in range(6, 10):
        text = f"{value:.{digits}g}"
        if abs(float(text)) <= 3.4028235e38 and struct.pack(">f", float(text)) == struct.pack(">f", value):
            return _double(float(text))
    return _double(value)


def _timestamp(value: dt.datetime) -> str:
    return value.astimezone(dt.UTC).strftime("%Y-%m-%d %H:%M:%S.").rjust(20, "0") + f"{value.microsecond // 1000:03d}Z"


def _time(value: int) -> str:
    seconds, rest = divmod(value, _NANOSECONDS)
    return f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}.{rest:09d}"


def _duration(value: dict[str, int]) -> str:
    sign = "-" if min(value.values()) < 0 else ""
    return f"{sign}{abs(value['months'])}mo{abs(value['days'])}d{abs(value['nanoseconds'])}ns"


def _decimal(value: Decimal) -> str:
    return str(value)


_PLAIN: dict[str, Callable[[Any], str]] = {
    "blob": _hex,
    "boolean": _boolean,
    "date": dt.date.isoformat,
    "decimal": _decimal,
    "double": _double,
    "duration": _duration,
    "empty": _hex,
    "float": _float,
    "time": _time,
    "timestamp": _timestamp,
}
