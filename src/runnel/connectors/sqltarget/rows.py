"""The rows of a delivery as they are sent: values in the order of the view's columns, a hash that tells rows apart, a weight."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from itertools import repeat
from typing import TYPE_CHECKING, Any

from runnel.connectors.marks import Shape, value_problem
from runnel.connectors.sqltarget.json_text import json_text
from runnel.model.relation import WEIGHT, Column

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import pyarrow as pa

    from runnel.connectors.base import Delivery

Convert = Callable[[Shape, Column, list[Any]], list[Any]]
"""Makes what is sent of one column's values; raises `Unheld` for a value that the store cannot hold."""
Row = tuple[tuple[Any, ...], bytes, int]


class Unheld(Exception):
    """A value that the store cannot hold: its place among the values, and what it is."""

    def __init__(self, at: int, what: str) -> None:
        """Note both; the row is known to whoever converts the column."""
        super().__init__(what)
        self.at, self.what = at, what


def signed_rows(delivery: Delivery, convert: Convert, *, hash_keys: bool = False) -> Iterator[Row]:
    """Give the values, the hash and the weight of each row: 1 for one that must exist, -1 with NULLs beside its key for one that must not.

    Without a key the hash is that of the whole row, and the weight says how many copies more or fewer there are. With one it is that
    of the key where `hash_keys` asks for it, else it is empty.
    """
    shape = delivery.shape
    for batch in delivery.rows:
        if shape.key:
            yield from _keyed(shape, shape.columns, batch, convert, 1, hash_keys=hash_keys)
        else:
            values = zip(*_converted(shape, shape.columns, batch, convert), strict=True)
            hashes = row_hashes(shape.columns, batch)
            yield from _added_up(zip(values, hashes, batch.column(WEIGHT).to_pylist(), strict=True))
    if delivery.gone is not None and delivery.gone.num_rows:
        key = [column for column in shape.columns if column.name in shape.key]
        yield from _keyed(shape, key, delivery.gone, convert, -1, hash_keys=hash_keys)


def _keyed(
    shape: Shape, columns: Sequence[Column], rows: pa.Table, convert: Convert, weight: int, *, hash_keys: bool
) -> Iterator[Row]:
    sent: dict[str, Iterable[Any]] = dict(
        zip([column.name for column in columns], _converted(shape, columns, rows, convert), strict=True)
    )
    values = zip(*(sent.get(column.name, repeat(None)) for column in shape.columns), strict=False)
    hashes = row_hashes(hashed_key(shape), rows) if hash_keys else repeat(b"", rows.num_rows)
    yield from zip(values, hashes, repeat(weight), strict=False)


def hashed_key(shape: Shape) -> list[Column]:
    """Give the columns of the key in an order that stays the same when the view's columns are in another one."""
    return sorted((column for column in shape.columns if column.name in shape.key), key=lambda c: c.name.lower())


def _added_up(rows: Iterable[Row]) -> Iterator[Row]:
    """Make one row of those with the same hash: maps may be written in several orders, and zero with a sign."""
    found: dict[bytes, tuple[tuple[Any, ...], int]] = {}
    for values, hashed, weight in rows:
        known, before = found.get(hashed, (values, 0))
        found[hashed] = (known, before + weight)
    yield from ((values, hashed, weight) for hashed, (values, weight) in found.items() if weight)


def _converted(shape: Shape, columns: Sequence[Column], rows: pa.Table, convert: Convert) -> list[list[Any]]:
    made = []
    for column in columns:
        try:
            values = rows.column(column.name).to_pylist()
        except (ValueError, OverflowError) as error:
            raise value_problem(shape, column.name, f"a value Python cannot hold: {error}") from error
        try:
            made.append(convert(shape, column, values))
        except Unheld as error:
            raise value_problem(shape, column.name, error.what + _key_of(shape, rows, error.at)) from error
    return made


def _key_of(shape: Shape, rows: pa.Table, at: int) -> str:
    """Name the row that a value is of, where rows have a key."""
    try:
        key = ", ".join(f"{part} = {rows.column(part)[at].as_py()!r}" for part in shape.key)
    except (ValueError, OverflowError):  # a date beyond Python's
        return ""
    return f", in the row with {key[:200]}" if key else ""


def row_hashes(columns: Sequence[Column], rows: pa.Table) -> list[bytes]:
    """Give a hash of 16 bytes for each row, the same one for equal values of these columns."""
    found = []
    for row in rows.select([column.name for column in columns]).to_pylist():
        text = ",".join(json_text(column.type, row[column.name]) for column in columns)
        found.append(hashlib.sha256(text.encode()).digest()[:16])
    return found
