"""What makes two rows the same one: identical values, bit by bit, in every column.

SQL's own GROUP BY takes more for equal than that: 0.0 and -0.0 are one group, and a map comes out with its entries sorted (of one inside
a struct or an array, Spark 4 reads a NULL as 0). Stored rows that were netted that way would no longer be the rows that were written:
`CAST(d AS STRING)`, `to_json(m)` and their like would then give another answer than they gave for the row that came in.

So columns that can hold such values are grouped by an *identity* of the value, and any of the identical values is shown. `of_value` is the
same for values in Python.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from runnel.model import types
from runnel.model.program import quote as quoted

if TYPE_CHECKING:
    from collections.abc import Iterable

    from runnel.model.relation import Column


def identical(columns: Iterable[Column], prefix: str = "") -> tuple[str, str]:
    """Write columns for the SELECT and for the GROUP BY of a sum over identical rows.

    >>> from runnel.model.relation import Column
    >>> identical([Column("a", types.parse("int")), Column("d", types.parse("double"))])
    ('`a`, any_value(`d`) AS `d`', '`a`, `d`, CASE WHEN `d` = 0 THEN CAST(`d` AS STRING) END')
    """
    return _written(columns, prefix, ordered=True)


def equal(columns: Iterable[Column]) -> tuple[str, str]:
    """Write columns as `identical` does, but maps with the same entries in another order are one: for comparisons of results.

    >>> from runnel.model.relation import Column
    >>> equal([Column("m", types.parse("map<string,int>"))])
    ('any_value(`m`) AS `m`', 'array_sort(map_entries(`m`))')
    """
    return _written(columns, "", ordered=False)


def _written(columns: Iterable[Column], prefix: str, *, ordered: bool) -> tuple[str, str]:
    shown, by = [], []
    for column in columns:
        name = f"{prefix}{quoted(column.name)}"
        if not needs_identity(column.type):
            shown.append(name)
            by.append(name)
            continue
        shown.append(f"any_value({name}) AS {quoted(column.name)}")
        if column.type.name in types.FLOATS:
            # Only zeros are written as text, which is slow.
            by += [name, f"CASE WHEN {name} = 0 THEN CAST({name} AS STRING) END"]
        else:
            by.append(_identity(column.type, name, 0, ordered=ordered))
    return ", ".join(shown), ", ".join(by)


def of_value(value: Any) -> Any:
    """Give something hashable that is equal for identical values only; every NaN is the same one.

    >>> of_value([0.0]) == of_value([-0.0]), of_value({"x": float("nan")}) == of_value({"x": float("nan")})
    (False, True)
    """
    if isinstance(value, dict):
        return tuple((name, of_value(inner)) for name, inner in value.items())
    if isinstance(value, (list, tuple)):
        return tuple(of_value(inner) for inner in value)
    return ("float", value.hex()) if isinstance(value, float) else value


def needs_identity(type_: types.Type) -> bool:
    """Say whether values of this type can be equal for SQL without being identical."""
    return types.holds_map(type_) or types.floating(type_)


def _identity(type_: types.Type, value: str, depth: int, *, ordered: bool) -> str:
    """Write an expression that is equal for identical values only, made of types that GROUP BY compares bit by bit."""
    if not needs_identity(type_):
        return value
    one = f"_runnel_{depth}"
    match type_:
        case types.Map(_, key, item):
            entries = f"map_entries({value})" if ordered else f"array_sort(map_entries({value}))"
            if not (needs_identity(key) or needs_identity(item)):
                return entries
            parts = [
                _identity(part, f"{one}.{name}", depth + 1, ordered=ordered)
                for part, name in ((key, "key"), (item, "value"))
            ]
            return f"transform({entries}, {one} -> struct({', '.join(parts)}))"
        case types.Array(_, element):
            return f"transform({value}, {one} -> {_identity(element, one, depth + 1, ordered=ordered)})"
        case types.Struct(_, fields):
            parts = [_identity(field, f"{value}.{quoted(name)}", depth, ordered=ordered) for name, field in fields]
            return f"CASE WHEN {value} IS NOT NULL THEN struct({', '.join(parts)}) END"
        case _:
            return f"CAST({value} AS STRING)"
