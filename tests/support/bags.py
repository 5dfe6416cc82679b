"""Compares two tables as bags of rows, by their columns' names too; shares no code with what it judges.

Floating-point numbers may differ in their last digits, because sums of them depend on an order that nobody promised.
"""

from __future__ import annotations

import math
from collections import defaultdict
from datetime import datetime
from typing import Any

import pyarrow as pa

NEAR = 1e-9


def bag_difference(found: pa.Table, wanted: pa.Table) -> str:
    """Say in one line how two tables differ in names or rows; '' where they do not."""
    names = [name.lower() for name in found.column_names], [name.lower() for name in wanted.column_names]
    if names[0] != names[1]:
        return f"columns {found.column_names}, wanted {wanted.column_names}"
    waiting: dict[str, list[tuple[Any, ...]]] = defaultdict(list)
    for row in _rows(wanted):
        waiting[repr(_shape(row))].append(row)
    unexpected = []
    for row in _rows(found):
        alike = waiting[repr(_shape(row))]
        at = next((at for at, other in enumerate(alike) if _close(row, other)), None)
        if at is None:
            unexpected.append(row)
        else:
            alike.pop(at)
    missing = [row for rows in waiting.values() for row in rows]
    if not (missing or unexpected):
        return ""
    counts = f"{found.num_rows} rows, wanted {wanted.num_rows}"
    return f"{counts}; unexpected {unexpected[:3]}; missing {missing[:3]}"


def _rows(table: pa.Table) -> list[tuple[Any, ...]]:
    columns = [[_plain(_sorted(v, column.type)) for v in column.to_pylist()] for column in table.columns]
    return list(zip(*columns, strict=True)) if columns else [()] * table.num_rows


def _sorted(value: Any, kind: pa.DataType) -> Any:
    """Give the entries of maps in the order of their keys: a map has no order of its own."""
    if value is None:
        return None
    if pa.types.is_map(kind):
        return sorted(((repr(key), key, _sorted(item, kind.item_type)) for key, item in value), key=lambda one: one[0])
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return [_sorted(item, kind.value_type) for item in value]
    if pa.types.is_struct(kind) and len(value) == kind.num_fields:
        return {field.name: _sorted(value[field.name], field.type) for field in kind}
    return value


def _plain(value: Any) -> Any:
    """Give a value in a form that is equal for equal values: no time zones, no signed zero, structs as tuples."""
    if isinstance(value, datetime) and value.tzinfo is not None:
        return ("instant", value.utctimetuple()[:6], value.microsecond)
    if isinstance(value, dict):
        return tuple((name.lower(), _plain(item)) for name, item in value.items())
    if isinstance(value, list | tuple):
        return tuple(_plain(item) for item in value)
    return value


def _shape(value: Any) -> Any:
    """Leave the floating-point numbers out of a value."""
    if isinstance(value, float):
        return "float"
    return tuple(_shape(item) for item in value) if isinstance(value, tuple) else value


def _close(one: Any, other: Any) -> bool:
    if isinstance(one, tuple):
        return all(_close(a, b) for a, b in zip(one, other, strict=True))
    if isinstance(one, float):
        if math.isnan(one) or math.isnan(other):
            return math.isnan(one) and math.isnan(other)
        return one == other or math.isclose(one, other, rel_tol=NEAR, abs_tol=NEAR)
    return True
