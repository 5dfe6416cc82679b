"""Writes rows for people and for programs: cells, CSV, JSON and Parquet, without losing a digit."""

from __future__ import annotations

import csv
import datetime
import io
import json
import math
from decimal import Decimal
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq

if TYPE_CHECKING:
    import pyarrow as pa


def json_text(value: Any) -> str:
    """Write a value as JSON on one line; decimals are numbers with all their digits.

    >>> json_text({"total": Decimal("1.10"), "at": datetime.date(2026, 1, 2), "none": None})
    '{"total": 1.10, "at": "2026-01-02", "none": null}'
    """
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(str(k))}: {json_text(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(json_text(item) for item in value) + "]"
    if isinstance(value, Decimal):
        return format(value, "f") if value.is_finite() else json.dumps(str(value))
    if isinstance(value, float) and not math.isfinite(value):
        return json.dumps(str(value))
    if value is None or isinstance(value, str | bool | int | float):
        return json.dumps(value, ensure_ascii=False)
    return json.dumps(_plain(value), ensure_ascii=False)


def cell_text(value: Any) -> str:
    """Write a value for a table's cell or a CSV field."""
    if value is None:
        return "NULL"
    if isinstance(value, dict | list | tuple):
        return json_text(value)
    return _plain(value)


def _plain(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, datetime.datetime):
        return value.isoformat(sep=" ")
    if isinstance(value, bytes):
        return value.hex()
    return format(value, "f") if isinstance(value, Decimal) else str(value)


def to_json(table: pa.Table) -> str:
    """Write rows as a JSON array, one row per line."""
    lines = [json_text(row) for row in table.to_pylist()]
    return "[\n" + ",\n".join(lines) + "\n]" if lines else "[]"


def to_csv(table: pa.Table) -> str:
    """Write rows as CSV with a header; NULL is an empty field."""
    lines: list[str] = []
    # With its own line end the writer quotes a carriage return too: readers take one for the end of a row.
    writer = csv.writer(SimpleNamespace(write=lines.append), lineterminator="\r\n")
    writer.writerow(table.column_names)
    for row in table.to_pylist():
        writer.writerow(["" if value is None else cell_text(value) for value in row.values()])
    return "\n".join(line.removesuffix("\r\n") for line in lines)


def to_parquet(table: pa.Table) -> bytes:
    """Write rows as one Parquet file."""
    buffer = io.BytesIO()
    pq.write_table(table, buffer)
    return buffer.getvalue()
