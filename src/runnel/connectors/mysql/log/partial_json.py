"""Updates that log only what changed inside a JSON value (`binlog_row_value_options=PARTIAL_JSON`), made whole again.

The old row is in the log in full, so the new value is the old one with the differences applied. It is put back into the row as text, behind
a mark that no log can have.
"""

from __future__ import annotations

import json
import os
import re
from typing import TYPE_CHECKING, Any

from runnel.connectors.mysql.log.cursor import Cursor
from runnel.connectors.mysql.log.json_text import json_text, json_value, written
from runnel.connectors.mysql.log.problems import BadBytes
from runnel.connectors.mysql.log.row_walker import width_of
from runnel.connectors.mysql.log.table_map import Type

if TYPE_CHECKING:
    from collections.abc import Sequence

    from runnel.connectors.mysql.log.table_map import LoggedColumn

TEXT_MARK = b"\xfe" + os.urandom(16)
_REPLACE, _INSERT, _REMOVE = range(3)
_LEG = re.compile(r'\.(?:"((?:[^"\\]|\\.)*)"|([^.\[\]"\s]+))|\[\s*(\d+)\s*\]')


def text_of(value: bytes) -> str:
    """Write a JSON value of a row, which is binary as the server logged it, or text behind the mark."""
    return value[len(TEXT_MARK) :].decode() if value.startswith(TEXT_MARK) else json_text(value)


def completed(columns: Sequence[LoggedColumn], data: bytes) -> bytes:
    """Give the rows of a partial update as old and new rows in full."""
    made: list[bytes] = []
    cursor = Cursor(data)
    while cursor.left:
        begin = cursor.at
        old = _values(cursor, columns, _null_bits(cursor, len(columns)))
        made.append(data[begin : cursor.at])
        made.append(_new_row(cursor, columns, old))
    return b"".join(made)


def _null_bits(cursor: Cursor, count: int) -> int:
    return cursor.number((count + 7) // 8) & ((1 << count) - 1)


def _values(cursor: Cursor, columns: Sequence[LoggedColumn], nulls: int) -> list[bytes | None]:
    return [None if nulls >> at & 1 else _value(cursor, column) for at, column in enumerate(columns)]


def _value(cursor: Cursor, column: LoggedColumn) -> bytes:
    """Give one value without its length."""
    width = width_of(column)
    return cursor.take(cursor.number(width.prefix) if width.prefix else width.fixed)


def _new_row(cursor: Cursor, columns: Sequence[LoggedColumn], old: Sequence[bytes | None]) -> bytes:
    documents = [at for at, column in enumerate(columns) if column.type == Type.JSON]
    options = cursor.packed()
    partial: set[int] = set()
    if options & 1:
        bits = cursor.number((len(documents) + 7) // 8)
        partial = {at for n, at in enumerate(documents) if bits >> n & 1}
    nulls = _null_bits(cursor, len(columns))
    made = [nulls.to_bytes((len(columns) + 7) // 8, "little")]
    for at, column in enumerate(columns):
        if nulls >> at & 1:
            continue
        value = _value(cursor, column)
        if at in partial:
            before = old[at]
            if before is None:
                raise BadBytes("a part of a JSON value changed that was NULL")
            value = TEXT_MARK + written(_applied(json_value(before), value)).encode()
        width = width_of(column)
        made.append((len(value).to_bytes(width.prefix, "little") if width.prefix else b"") + value)
    return b"".join(made)


def _applied(document: Any, differences: bytes) -> Any:
    cursor = Cursor(differences)
    while cursor.left:
        operation = cursor.number(1)
        legs = _legs(cursor.take(cursor.packed()).decode("utf-8", "replace"))
        value = json_value(cursor.take(cursor.packed())) if operation != _REMOVE else None
        if operation not in (_REPLACE, _INSERT, _REMOVE) or not legs:
            raise BadBytes("a difference of a JSON value is unknown")
        parent = document
        for leg in legs[:-1]:
            parent = _inside(parent, leg)
        _change(parent, legs[-1], operation, value)
    return document


def _legs(path: str) -> list[str | int]:
    r"""Read a path.

    >>> _legs('$.a."b c"[3]')
    ['a', 'b c', 3]
    """
    legs, at = list[str | int](), 1
    while at < len(path):
        leg = _LEG.match(path, at)
        if leg is None:
            raise BadBytes(f"{path!r} is not a path of JSON")
        quoted, name, index = leg.groups()
        legs.append(int(index) if index is not None else name if name is not None else json.loads(f'"{quoted}"'))
        at = leg.end()
    return legs


def _inside(value: Any, leg: str | int) -> Any:
    try:
        if (isinstance(value, dict) and isinstance(leg, str)) or (isinstance(value, list) and isinstance(leg, int)):
            return value[leg]  # type: ignore[index]
    except (KeyError, IndexError):
        pass
    if leg == 0:
        return value  # a scalar counts as an array of itself
    raise BadBytes("a difference of a JSON value is for a part that does not exist")


def _change(parent: Any, leg: str | int, operation: int, value: Any) -> None:
    if isinstance(parent, dict) and isinstance(leg, str):
        if operation == _REMOVE:
            parent.pop(leg, None)
        else:
            parent[leg] = value
    elif isinstance(parent, list) and isinstance(leg, int):
        if operation == _INSERT:
            parent.insert(leg, value)
        elif leg >= len(parent):
            raise BadBytes("a difference of a JSON value is for a part that does not exist")
        elif operation == _REMOVE:
            del parent[leg]
        else:
            parent[leg] = value
    else:
        raise BadBytes("a difference of a JSON value is for a part that does not exist")
