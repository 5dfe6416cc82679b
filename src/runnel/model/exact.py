"""Values from outside on their way into Arrow: exactly as they are, or refused with `ValueError`.

Arrow reads a decimal of more than 38 digits modulo 2^128, one with an exponent of -999 as 0, and dies of one of -9,999,999. So
digits and exponents are bounded here before Arrow sees them, also inside lists, maps and structs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal, InvalidOperation
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

MOST_DIGITS = 38
LARGEST_FLOAT = 3.4028235677973366e38
"""From here on a number rounds to infinity as a FLOAT."""


def exact_decimal(number: Decimal, precision: int, scale: int) -> Decimal:
    """Give a number with `scale` digits after the point; nothing is rounded.

    >>> exact_decimal(Decimal("1e1"), 4, 2)
    Decimal('10.00')
    >>> exact_decimal(Decimal("1e-9999999"), 4, 2)
    Traceback (most recent call last):
    ValueError: it has more than 2 digits after the point
    """
    if not number.is_finite():
        raise ValueError("it is not a number")
    sign, digits, exponent = number.as_tuple()
    if exponent == -scale and len(digits) <= precision:
        return number
    text = "".join(map(str, digits)).lstrip("0")
    kept = text.rstrip("0")
    # Only digits are counted and moved: decimal's own arithmetic rounds to 28 of them and overflows.
    zeros = int(exponent) + len(text) - len(kept) + scale if kept else 0
    if zeros < 0:
        raise ValueError(f"it has more than {scale} digits after the point")
    if len(kept) + zeros > precision:
        raise ValueError(f"it has more than {precision - scale} digits before the point")
    return Decimal((sign, tuple(int(digit) for digit in (kept + "0" * zeros) or "0"), -scale))


def arrow_reads(values: Sequence[Decimal | int | None]) -> bool:
    """Say whether Arrow takes all of these numbers for decimals as they are: short, and without an exponent."""
    try:
        texts = list(map(str, values))
    except ValueError:  # Python writes out no integer of thousands of digits
        return False
    return max(map(len, texts), default=0) <= MOST_DIGITS and "E" not in "".join(texts)


def arrow_reads_texts(texts: Any) -> bool:
    """Say whether Arrow parses all of these texts as decimals as they are."""
    longest = pc.max(pc.utf8_length(texts)).as_py() or 0
    return longest <= MOST_DIGITS and not pc.any(pc.match_substring(texts, "e", ignore_case=True)).as_py()


def exact_value(value: Any, type_: pa.DataType) -> Any:
    """Give a value with its decimals made exact for an Arrow type, at any depth; other values are left to Arrow."""
    if value is None or not holds_decimals(type_):
        return value
    if pa.types.is_decimal(type_):
        plain = isinstance(value, Decimal | int | str) and not isinstance(value, bool)
        return exact_decimal(_number(value), type_.precision, type_.scale) if plain else value
    if pa.types.is_map(type_) and isinstance(value, Mapping | Sequence):
        pairs = value.items() if isinstance(value, Mapping) else value
        return [(exact_value(key, type_.key_type), exact_value(item, type_.item_type)) for key, item in pairs]
    if pa.types.is_struct(type_) and isinstance(value, Mapping):
        fields = {field.name: field.type for field in type_}
        return {name: exact_value(item, fields[name]) if name in fields else item for name, item in value.items()}
    if pa.types.is_list(type_) and not isinstance(value, str | bytes | Mapping):
        return [exact_value(item, type_.value_type) for item in value]
    return value


def exact_array(values: Sequence[Any], type_: pa.DataType) -> pa.Array:
    """Make an Arrow array of Python values, decimals exact or refused."""
    return pa.array([exact_value(value, type_) for value in values] if holds_decimals(type_) else values, type_)


def holds_decimals(type_: pa.DataType) -> bool:
    """Say whether a type is a decimal, or has one inside."""
    if pa.types.is_nested(type_):
        return any(holds_decimals(type_.field(at).type) for at in range(type_.num_fields))
    return bool(pa.types.is_decimal(type_))


def exact_cast(given: pa.ChunkedArray, wanted: pa.DataType) -> pa.ChunkedArray:
    """Cast an Arrow column; raise `ArrowInvalid` where a number would be another one afterwards.

    A double is taken for the shortest decimal that means it: 0.1 is 0.1, and 0.001 is refused by DECIMAL(10,2).
    """
    if given.type == wanted:
        return given
    if pa.types.is_dictionary(given.type):
        return exact_cast(given.cast(given.type.value_type), wanted)
    if holds_decimals(wanted) and _holds_text(given.type):
        try:
            return pa.chunked_array([exact_array(given.to_pylist(), wanted)])
        except ValueError as error:
            raise pa.ArrowInvalid(str(error)) from error
    named = _named(given.type, wanted)
    if named != given.type:
        given = pa.chunked_array([chunk.view(named) for chunk in given.chunks], named)
    cast = given.cast(wanted)
    if _loses_some(given.type, wanted) and not cast.cast(given.type).equals(given):
        raise pa.ArrowInvalid(f"a {given.type} is more than a {wanted}")
    if holds_decimals(wanted) and _holds(given.type, pa.types.is_floating) and not cast.cast(given.type).equals(given):
        raise pa.ArrowInvalid("a floating-point number has more digits than the decimal can hold")
    if pa.types.is_float32(wanted) and pc.any(pc.and_(pc.is_inf(cast), pc.invert(_infinite(given)))).as_py():
        raise pa.ArrowInvalid("a number is out of range")
    return cast


def _loses_some(given: pa.DataType, wanted: pa.DataType) -> bool:
    """Say whether Arrow leaves a part of a value out without a word: the time of a day, which number is true."""
    return bool(
        (pa.types.is_timestamp(given) and pa.types.is_date(wanted))
        or (pa.types.is_boolean(wanted) and (pa.types.is_integer(given) or pa.types.is_floating(given)))
    )


def _named(given: pa.DataType, wanted: pa.DataType) -> pa.DataType:
    """Give a type with its structs' fields spelled as they are wanted: Arrow makes NULL of one spelled in another case."""
    if pa.types.is_struct(given) and pa.types.is_struct(wanted):
        known = {field.name.lower(): field for field in wanted}
        fields = []
        for field in given:
            like = known.get(field.name.lower())
            fields.append(field if like is None else pa.field(like.name, _named(field.type, like.type)))
        return pa.struct(fields)
    if pa.types.is_list(given) and pa.types.is_list(wanted):
        return pa.list_(_named(given.value_type, wanted.value_type))
    if pa.types.is_map(given) and pa.types.is_map(wanted):
        return pa.map_(_named(given.key_type, wanted.key_type), _named(given.item_type, wanted.item_type))
    return given


def _infinite(given: pa.ChunkedArray) -> Any:
    if pa.types.is_floating(given.type):
        return pc.is_inf(given)
    return pa.chunked_array([pa.repeat(pa.scalar(value=False), given.length())])


def _number(value: Decimal | int | str) -> Decimal:
    try:
        return Decimal(value)
    except InvalidOperation:
        raise ValueError("it is not a number") from None


def _holds_text(type_: pa.DataType) -> bool:
    return _holds(type_, lambda t: pa.types.is_string(t) or pa.types.is_large_string(t))


def _holds(type_: pa.DataType, kind: Any) -> bool:
    if pa.types.is_nested(type_):
        return any(_holds(type_.field(at).type, kind) for at in range(type_.num_fields))
    return bool(kind(type_))
