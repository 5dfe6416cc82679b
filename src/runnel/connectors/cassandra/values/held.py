"""What becomes of values on their way into the state, and of those that it cannot hold: `unrepresentable` of a source.

| policy | a value that cannot be held |
|---|---|
| `error` | is refused with `ValueError`, which says why |
| `null` | is NULL; in a key it is refused |
| `text` | is text, as are all values of columns whose type has such values: dates, timestamps, decimals, varints, and what holds them |
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from runnel.connectors.cassandra.values.beyond import Beyond
from runnel.connectors.cassandra.values.text import decoded_text
from runnel.connectors.cassandra.values.types import CqlType, ListOf, MapOf, TupleOf, Udt, Vector
from runnel.model import types as model
from runnel.model.exact import exact_array

if TYPE_CHECKING:
    from collections.abc import Sequence

POLICIES = ("error", "null", "text")
WIDER = ("date", "decimal", "timestamp", "varint")
"""Native types with values that the state's types do not hold."""


@lru_cache(maxsize=4096)
def is_wider(type_: CqlType) -> bool:
    """Say whether a type has values that its runnel type does not hold.

    >>> from runnel.connectors.cassandra.values.types import parse
    >>> is_wider(parse("map<text, date>")), is_wider(parse("list<int>"))
    (True, False)
    """
    match type_:
        case ListOf(_, _, element) | Vector(_, _, element):
            return is_wider(element)
        case MapOf(_, _, key, value):
            return is_wider(key) or is_wider(value)
        case TupleOf(_, _, items):
            return any(map(is_wider, items))
        case Udt(_, _, fields):
            return any(is_wider(field) for _, field in fields)
    return type_.name in WIDER


def held_type(type_: CqlType, policy: str) -> model.Type:
    """Give the runnel type that holds a column of a type."""
    return model.STRING if policy == "text" and is_wider(type_) else type_.model_type


def held_array(type_: CqlType, policy: str, values: Sequence[Any], *, key: bool = False) -> pa.Array:
    """Give decoded values as Arrow; `NotHeld` names the first that cannot be held."""
    arrow = model.to_arrow(held_type(type_, policy))
    if policy == "text" and is_wider(type_):
        return pa.array([None if value is None else decoded_text(type_, value) for value in values], arrow)
    try:
        return exact_array(values, arrow)
    except (pa.ArrowException, OverflowError, ValueError, TypeError):
        return _one_by_one(arrow, policy, values, key=key)


class NotHeld(ValueError):
    """A value, by its place among others, that cannot be held."""

    def __init__(self, at: int, why: str) -> None:
        """Say which, and why."""
        super().__init__(why)
        self.at = at


def _one_by_one(arrow: pa.DataType, policy: str, values: Sequence[Any], *, key: bool) -> pa.Array:
    held: list[Any] = []
    for at, value in enumerate(values):
        try:
            exact_array([value], arrow)
            held.append(value)
        except (pa.ArrowException, OverflowError, ValueError, TypeError) as error:
            if policy != "null" or key:
                raise NotHeld(at, _why(value, error)) from error
            held.append(None)
    return exact_array(held, arrow)


def _why(value: Any, error: Exception) -> str:
    if isinstance(value, Beyond):
        shown = value.text
        reason = "its year is not in 1 to 9999" if value.type in ("date", "timestamp") else "it has too many digits"
    else:
        shown, reason = str(value), str(error).splitlines()[0]
    return f"{shown if len(shown) <= 60 else shown[:57] + '...'} cannot be held: {reason}"
