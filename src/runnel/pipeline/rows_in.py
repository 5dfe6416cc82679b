"""Turns what a caller hands over (dicts, Arrow, pandas, Spark) into an Arrow table of a relation's columns, or says what is wrong."""

from __future__ import annotations

import decimal
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from runnel.errors import Terminal
from runnel.model import types
from runnel.model.relation import WEIGHT

if TYPE_CHECKING:
    from runnel.model.relation import Column, Relation


def to_table(relation: Relation, rows: Any, *, weighted: bool = False) -> pa.Table:
    """Give the rows as Arrow with the relation's names and types; columns that are not given are left out."""
    if isinstance(rows, Mapping):
        rows = [rows]
    if not isinstance(rows, pa.Table):
        rows = _from_foreign(relation, rows)
    arrays, fields = [], []
    for name in rows.column_names:
        if weighted and name == WEIGHT:
            column_type = pa.int64()
            shown = WEIGHT
        else:
            if name.lower() == WEIGHT:
                raise Terminal(
                    "RUNNEL-COLUMN-RESERVED",
                    f"{relation.name}: the column {WEIGHT!r} is reserved",
                    hint="use tx.apply for signed rows",
                )
            column = relation.column(name)
            column_type, shown = types.to_arrow(column.type), column.name
        fields.append(pa.field(shown, column_type))
        arrays.append(_cast(relation, shown, rows.column(name), column_type))
    return pa.Table.from_arrays(arrays, schema=pa.schema(fields))


def _from_foreign(relation: Relation, rows: Any) -> pa.Table:
    if isinstance(rows, Sequence) and not isinstance(rows, str | bytes):
        return _from_dicts(relation, rows)
    if hasattr(rows, "toArrow"):
        table: pa.Table = rows.toArrow()
        return table
    if hasattr(rows, "__dataframe__") or hasattr(rows, "iloc"):
        return pa.Table.from_pandas(rows, preserve_index=False)
    if isinstance(rows, pa.RecordBatch):
        return pa.Table.from_batches([rows])
    raise Terminal(
        "RUNNEL-ROWS-KIND",
        f"rows of kind {type(rows).__name__} cannot be read",
        hint="give a list of dicts, an Arrow table, a pandas or a Spark DataFrame",
    )


def _from_dicts(relation: Relation, rows: Sequence[Any]) -> pa.Table:
    names: dict[str, str] = {}
    for number, row in enumerate(rows):
        if not isinstance(row, Mapping):
            raise Terminal("RUNNEL-ROWS-KIND", f"row {number} is {type(row).__name__}, not a dict", hint="give dicts")
        for name in row:
            names.setdefault(name.lower() if name.lower() != WEIGHT else WEIGHT, name)
    arrays, fields = [], []
    for name in names.values():
        values = [row.get(name) for row in rows]
        if name == WEIGHT:
            arrays.append(pa.array(values, pa.int64()))
            fields.append(pa.field(WEIGHT, pa.int64()))
            continue
        column = relation.column(name)
        arrays.append(_array(relation, column, values))
        fields.append(pa.field(column.name, arrays[-1].type))
    return pa.Table.from_arrays(arrays, schema=pa.schema(fields))


def _array(relation: Relation, column: Column, values: list[Any]) -> pa.Array:
    wanted = types.to_arrow(column.type)
    if isinstance(column.type, types.Decimal):
        values = [_exact(value) for value in values]
    try:
        return pa.array(values, wanted)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        for number, value in enumerate(values):
            try:
                pa.array([value], wanted)
            except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
                raise _mismatch(relation, column.name, column.type, value, number) from error
        raise


def _exact(value: Any) -> Any:
    """Let numbers and their texts stand for decimals; 0.1 means 0.1, not the nearest binary fraction."""
    if isinstance(value, float | int | str) and not isinstance(value, bool):
        try:
            return decimal.Decimal(str(value))
        except decimal.InvalidOperation:
            return value
    return value


def _cast(relation: Relation, name: str, array: pa.ChunkedArray, wanted: pa.DataType) -> pa.ChunkedArray:
    if array.type == wanted:
        return array
    try:
        return array.cast(wanted)
    except (pa.ArrowException, TypeError) as error:
        if name == WEIGHT:
            raise Terminal("RUNNEL-WEIGHT-TYPE", f"{relation.name}: {WEIGHT} must be whole numbers") from error
        bad = next((v.as_py() for v in array if not _fits(v, wanted)), None)
        raise _mismatch(relation, name, types.from_arrow(wanted), bad, None) from error


def _fits(value: pa.Scalar, wanted: pa.DataType) -> bool:
    try:
        value.cast(wanted)
    except (pa.ArrowException, TypeError):
        return False
    return True


def _mismatch(relation: Relation, name: str, type_: types.Type, value: Any, number: int | None) -> Terminal:
    shown = repr(value)
    shown = shown if len(shown) <= 60 else shown[:57] + "..."
    row = "" if number is None else f" in row {number}"
    return Terminal(
        "RUNNEL-VALUE-TYPE",
        f"{relation.name}.{name} is {type_}, but {shown}{row} is not",
        hint=f"give a value that fits {type_}",
    )
