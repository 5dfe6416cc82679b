"""Rows as values that can be sorted and compared: floats to nine digits, nested values as text."""

from __future__ import annotations

import math
from datetime import datetime
from typing import Any


def comparable(rows: list[dict[str, Any]]) -> list[Any]:
    """Give rows in an order of their own, so that two bags are equal when these lists are."""
    return sorted((tuple(_plain(value) for value in row.values()) for row in rows), key=repr)


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return "nan" if math.isnan(value) else float(f"{value:.9g}") + 0.0
    if isinstance(value, list | tuple):
        return tuple(_plain(item) for item in value)
    if isinstance(value, dict):
        return tuple((key, _plain(item)) for key, item in value.items())
    if isinstance(value, datetime) and value.tzinfo is not None:
        return value.timestamp()
    return value
