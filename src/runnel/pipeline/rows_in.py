"""Turns what a caller hands over (dicts, Arrow, pandas, Spark) into an Arrow table of a relation's columns, or says what is wrong."""

from __future__ import annotations

import datetime
import decimal
import math
import numbers
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from runnel.errors import Terminal, nearest
from runnel.model import types
from runnel.model.exact import LARGEST_FLOAT, MOST_DIGITS, exact_cast, exact_decimal
from runnel.model.relation import WEIGHT

if TYPE_CHECKING:
    from collections.abc import Iterator

    from runnel.model.relation import Column, Relation

    _Row = tuple[int, dict[str, Any]]


# What Arrow and Python raise for a value that does not fit; ArithmeticError holds overflows.
_MISFITS = (pa.ArrowException, TypeError, ValueError, ArithmeticError)


def to_table(relation: Relation, rows: Any, *, weighted: bool = False) -> pa.Table:
    """Give the rows as Arrow with the relation's names and types; columns that are not given are left out."""
    if isinstance(rows, Mapping):
        rows = [rows]
    if not isinstance(rows, pa.Table):
        rows = _from_foreign(relation, rows)
    return _typed(relation, rows, weighted=weighted)


def by_given_columns(relation: Relation, rows: Any) -> list[pa.Table]:
    """Give dict rows as one table for each set of columns they name, each in the order of the rows; others as one table."""
    if isinstance(rows, Mapping):
        rows = [rows]
    if not isinstance(rows, Sequence) or isinstance(rows, str | bytes):
        return [to_table(relation, rows)]
    groups: dict[frozenset[str], list[_Row]] = {}
    for row in _lowered(relation, rows):
        groups.setdefault(frozenset(row[1]), []).append(row)
    return [_typed(relation, _from_lowered(relation, group), weighted=False) for group in groups.values()]


def _typed(relation: Relation, rows: pa.Table, *, weighted: bool) -> pa.Table:
    arrays, fields, seen = [], [], set()
    for at, name in enumerate(rows.column_names):
        if name.lower() in seen:
            raise _twice(relation, name)
        seen.add(name.lower())
        if weighted and name.lower() == WEIGHT:
            column_type, shown = pa.int64(), WEIGHT
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
        arrays.append(_cast(relation, shown, rows.column(at), column_type))
    return pa.Table.from_arrays(arrays, schema=pa.schema(fields))


def _from_foreign(relation: Relation, rows: Any) -> pa.Table:
    if isinstance(rows, Sequence) and not isinstance(rows, str | bytes):
        return _from_dicts(relation, rows)
    if hasattr(rows, "toArrow"):
        table: pa.Table = rows.toArrow()
        return table
    if hasattr(rows, "__dataframe__") or hasattr(rows, "iloc"):
        return _from_pandas(relation, rows)
    if isinstance(rows, pa.RecordBatch):
        return pa.Table.from_batches([rows])
    raise Terminal(
        "RUNNEL-ROWS-KIND",
        f"rows of kind {type(rows).__name__} cannot be read",
        hint="give a list of dicts, an Arrow table, a pandas or a Spark DataFrame",
    )


def _from_pandas(relation: Relation, rows: Any) -> pa.Table:
    try:
        return pa.Table.from_pandas(rows, preserve_index=False)
    except _MISFITS as error:
        raise Terminal(
            "RUNNEL-ROWS-KIND",
            f"{relation.name}: the frame cannot be read: {str(error).splitlines()[0]}",
            hint="give each column values of one kind, and a name of its own",
        ) from error


def _from_dicts(relation: Relation, rows: Sequence[Any]) -> pa.Table:
    return _from_lowered(relation, list(_lowered(relation, rows)))


def _lowered(relation: Relation, rows: Sequence[Any]) -> Iterator[_Row]:
    """Give each row's number and its values by lower-case names."""
    for number, row in enumerate(rows):
        if not isinstance(row, Mapping):
            raise Terminal("RUNNEL-ROWS-KIND", f"row {number} is {type(row).__name__}, not a dict", hint="give dicts")
        lowered: dict[str, Any] = {}
        for name, value in row.items():
            if not isinstance(name, str):
                raise Terminal(
                    "RUNNEL-COLUMN-NAME",
                    f"{relation.name}: row {number} names the column {name!r}, which is no string",
                    hint="columns are named by strings",
                )
            if name.lower() in lowered:
                raise _twice(relation, name, f" in row {number}")
            lowered[name.lower()] = value
        yield number, lowered


def _from_lowered(relation: Relation, rows: Sequence[_Row]) -> pa.Table:
    names = dict.fromkeys(name for _, row in rows for name in row)
    if rows and not names:
        raise Terminal(
            "RUNNEL-ROWS-EMPTY", f"{relation.name}: the rows name no column", hint="name one at least, if only as None"
        )
    places = [number for number, _ in rows]
    arrays, fields = [], []
    for name in names:
        values = [row.get(name) for _, row in rows]
        if name == WEIGHT:
            arrays.append(_weights(relation, values, places))
            fields.append(pa.field(WEIGHT, pa.int64()))
            continue
        column = relation.column(name)
        arrays.append(_array(relation, column, values, places))
        fields.append(pa.field(column.name, arrays[-1].type))
    return pa.Table.from_arrays(arrays, schema=pa.schema(fields))


def _weights(relation: Relation, values: list[Any], places: list[int]) -> pa.Array:
    fitting = []
    for value, number in zip(values, places, strict=True):
        try:
            weight = _fitting(value, types.BIGINT)
        except _MISFITS:
            weight = value
        # None is told apart later: a missing weight is another error than a wrong one.
        if weight is not None and not (type(weight) is int and -(2**63) <= weight < 2**63):
            raise _no_weight(relation, f", not {_shown(value)} as in row {number}")
        fitting.append(weight)
    return pa.array(fitting, pa.int64())


def _array(relation: Relation, column: Column, values: list[Any], places: list[int]) -> pa.Array:
    wanted = types.to_arrow(column.type)
    try:
        return pa.array([_fitting(value, column.type) for value in values], wanted)
    except _MISFITS as misfit:
        for value, number in zip(values, places, strict=True):
            try:
                pa.array([_fitting(value, column.type)], wanted)
            except _MISFITS as error:
                raise _mismatch(relation, column.name, column.type, value, number) from error
        raise _mismatch(relation, column.name, column.type, values, None) from misfit


def _fitting(value: Any, type_: types.Type) -> Any:
    """Give a number as its column's kind where that is exact; raise `ValueError` for a fraction in a whole number."""
    match type_:
        case types.Decimal(_, precision, scale):
            number = _exact(value)
            return exact_decimal(number, precision, scale) if isinstance(number, decimal.Decimal) else number
        case types.Array(_, element) if isinstance(value, list | tuple):
            return [_fitting(item, element) for item in value]
        case types.Map(_, key, item_type) if isinstance(value, Mapping | list | tuple):
            pairs = value.items() if isinstance(value, Mapping) else value
            return [(_fitting(name, key), _fitting(item, item_type)) for name, item in pairs]
        case types.Struct(_, fields) if isinstance(value, Mapping):
            return _of_fields(value, fields)
    if type_.name == "date" and isinstance(value, datetime.datetime) and value.time() != datetime.time():
        raise ValueError(f"{value!r} is no date alone")
    if type_.name == "float" and _is_numeric(value) and math.isfinite(value) and abs(value) >= LARGEST_FLOAT:
        raise ValueError(f"{value!r} is out of range")
    if type_.name in types.INTEGERS and _is_numeric(value):
        if isinstance(value, decimal.Decimal) and value and value.adjusted() >= MOST_DIGITS:
            raise ValueError("it is out of range")  # its digits alone might fill the memory
        if int(value) != value:
            raise ValueError(f"{value!r} is no whole number")
        return int(value)
    return value


def _of_fields(value: Mapping[Any, Any], fields: tuple[tuple[str, types.Type], ...]) -> dict[str, Any]:
    """Give a struct's values by its own names; those not given are NULL, a name that is none of its is refused."""
    known = {name.lower(): (name, type_) for name, type_ in fields}
    found: dict[str, Any] = {}
    for name, item in value.items():
        own, type_ = known.get(str(name).lower(), (None, None))
        if own is None or type_ is None or own in found:
            raise ValueError(f"{name!r} is no field of it, or is given twice")
        found[own] = _fitting(item, type_)
    return found


def _exact(value: Any) -> Any:
    """Let numbers and their texts stand for decimals; 0.1 means 0.1, not the nearest binary fraction."""
    if isinstance(value, float | int | str) and not isinstance(value, bool):
        try:
            return decimal.Decimal(value if isinstance(value, int) else str(value))
        except decimal.InvalidOperation:
            return value
    return value


def _cast(relation: Relation, name: str, array: pa.ChunkedArray, wanted: pa.DataType) -> pa.ChunkedArray:
    if array.type == wanted:
        return array
    _refuse_other_fields(relation, name, array.type, wanted)
    if name == WEIGHT and not (_is_number(array.type) or pa.types.is_null(array.type)):
        raise _no_weight(relation, f", not {array.type}")
    try:
        return exact_cast(array, wanted)
    except _MISFITS as error:
        if name == WEIGHT:
            raise _no_weight(relation, "") from error
        bad = next((v.as_py() for v in array if not _fits(v, wanted)), None)
        raise _mismatch(relation, name, types.from_arrow(wanted), bad, None) from error


def _refuse_other_fields(relation: Relation, name: str, given: pa.DataType, wanted: pa.DataType) -> None:
    """Refuse structs with fields that the column's have not: they would be left out."""
    if pa.types.is_struct(given) and pa.types.is_struct(wanted):
        known = {field.name.lower(): field for field in wanted}
        for field in given:
            if field.name.lower() not in known:
                raise Terminal(
                    "RUNNEL-COLUMN-UNKNOWN",
                    f"{relation.name}.{name} has no field {field.name!r}",
                    hint=nearest(field.name, [one.name for one in wanted]),
                )
            _refuse_other_fields(relation, name, field.type, known[field.name.lower()].type)
    elif pa.types.is_nested(given) and pa.types.is_nested(wanted) and given.num_fields == wanted.num_fields:
        for at in range(given.num_fields):
            _refuse_other_fields(relation, name, given.field(at).type, wanted.field(at).type)


def _fits(value: pa.Scalar, wanted: pa.DataType) -> bool:
    try:
        exact_cast(pa.chunked_array([pa.array([value.as_py()], value.type)]), wanted)
    except _MISFITS:
        return False
    return True


def _is_numeric(value: Any) -> bool:
    return isinstance(value, numbers.Real | decimal.Decimal) and not isinstance(value, bool)


def _is_number(type_: pa.DataType) -> bool:
    return bool(pa.types.is_integer(type_) or pa.types.is_floating(type_) or pa.types.is_decimal(type_))


def _twice(relation: Relation, name: str, where: str = "") -> Terminal:
    return Terminal(
        "RUNNEL-COLUMN-TWICE",
        f"{relation.name}: the column {name!r} is given twice{where}",
        hint="names are compared without their case; give each column once",
    )


def _no_weight(relation: Relation, what: str) -> Terminal:
    return Terminal(
        "RUNNEL-WEIGHT-TYPE",
        f"{relation.name}: {WEIGHT} must be whole numbers{what}",
        hint="give +n or -n, such as 1 or -1",
    )


def _mismatch(relation: Relation, name: str, type_: types.Type, value: Any, number: int | None) -> Terminal:
    row = "" if number is None else f" in row {number}"
    return Terminal(
        "RUNNEL-VALUE-TYPE",
        f"{relation.name}.{name} is {type_}, but {_shown(value)}{row} is not",
        hint=f"give a value that fits {type_}",
    )


def _shown(value: Any) -> str:
    try:
        shown = repr(value)
    except ValueError:  # Python writes out no integer of thousands of digits
        shown = "a number of thousands of digits"
    return shown if len(shown) <= 60 else shown[:57] + "..."
