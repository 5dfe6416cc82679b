"""Makes Arrow columns of a table's types, and finds the exact value to blame when one does not fit."""

from __future__ import annotations

from decimal import Decimal as Number
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from runnel.connectors.files.values import convert
from runnel.errors import Place, Terminal, nearest
from runnel.model import exact, types
from runnel.model.relation import WEIGHT, Column

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from runnel.connectors.base import TableInfo
    from runnel.connectors.files.listing import File

    Line = Callable[[int], int]

# Python kinds that Arrow takes as we do: exactly, or with an error.
_EXACT: dict[str, set[type]] = {
    **{name: {int} for name in types.INTEGERS},
    "boolean": {bool},
    "string": {str},
    "decimal": {Number, int},
}
_FROM_TEXT = (*types.INTEGERS, "double", "date", "timestamp", "timestamp_ntz", "decimal")
_ARROW_MISFITS = (pa.ArrowException, ValueError, TypeError, ArithmeticError)
_SHOWN = 60


def from_values(file: File, column: Column, values: Sequence[Any], line: Line, time_unit: str | None) -> pa.Array:
    """Convert Python values; `line` tells the line of the i-th, asked only when it is wrong."""
    bulk = _in_bulk(column, values)
    if bulk is not None:
        return bulk
    converted = []
    for row, value in enumerate(values):
        try:
            converted.append(convert(value, column.type, time_unit))
        except (ValueError, TypeError, ArithmeticError, RecursionError) as error:
            raise bad_value(file, line(row), column, value, str(error)) from error
    return _stored(file, column, values, converted, line)


def _stored(file: File, column: Column, values: Sequence[Any], converted: list[Any], line: Line) -> pa.Array:
    """Hand values to Arrow; what it alone finds too large is told like the rest."""
    wanted = types.to_arrow(column.type)
    try:
        return pa.array(converted, wanted)
    except _ARROW_MISFITS as misfit:
        for row, value in enumerate(converted):
            try:
                pa.array([value], wanted)
            except _ARROW_MISFITS as error:
                raise bad_value(file, line(row), column, values[row], str(error)) from error
        raise bad_value(file, line(0), column, values, str(misfit)) from misfit


def from_text(file: File, column: Column, texts: pa.ChunkedArray, line: Line, time_unit: str | None) -> pa.ChunkedArray:
    """Convert a column of strings: all at once where Arrow reads them as we do, one by one otherwise."""
    if column.type == types.STRING:
        return texts
    bulk = _parsed_in_bulk(column, texts)
    if bulk is not None:
        return bulk
    return pa.chunked_array([from_values(file, column, texts.to_pylist(), line, time_unit)])


def _in_bulk(column: Column, values: Sequence[Any]) -> pa.Array | None:
    """Let Arrow convert values it takes exactly; None when it does not, and the slow way has to say why."""
    kinds = set(map(type, values)) - {type(None)}
    name = column.type.name
    if kinds == {str} and name in _FROM_TEXT:
        try:
            return _parsed_in_bulk(column, pa.array(values, pa.string()))
        except UnicodeEncodeError:
            return None
    if not kinds <= _EXACT.get(name, set()) or (name == "decimal" and not exact.arrow_reads(values)):
        return None
    try:
        return pa.array(values, types.to_arrow(column.type))
    except (pa.ArrowException, OverflowError, ValueError):
        return None


def _parsed_in_bulk(column: Column, texts: Any) -> Any | None:
    name, wanted = column.type.name, types.to_arrow(column.type)
    # Arrow takes 0x10 for 16; we do not.
    if name not in _FROM_TEXT or (
        name in types.INTEGERS and pc.any(pc.match_substring(texts, "x", ignore_case=True)).as_py()
    ):
        return None
    if name == "decimal" and not exact.arrow_reads_texts(texts):
        return None
    try:
        parsed = pc.cast(texts, wanted)
        # Arrow takes 1e400 for infinity; we do not.
        return None if name == "double" and pc.any(pc.is_inf(parsed)).as_py() else parsed
    except pa.ArrowInvalid:
        return _local_times_in_bulk(texts) if name == "timestamp" else None


def _local_times_in_bulk(texts: Any) -> Any | None:
    """Read timestamps that all lack a zone, as UTC."""
    try:
        return pc.assume_timezone(pc.cast(texts, pa.timestamp("us")), "UTC")
    except pa.ArrowInvalid:
        return None


def from_arrow(file: File, column: Column, given: pa.ChunkedArray, first_row: int) -> pa.ChunkedArray:
    """Cast a Parquet column without loss: a floating-point number is refused by a decimal that cannot hold its digits."""
    wanted = types.to_arrow(column.type)
    try:
        return exact.exact_cast(given, wanted)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
        for row, value in enumerate(given):
            try:
                exact.exact_cast(pa.chunked_array([pa.array([value.as_py()], given.type)]), wanted)
            except pa.ArrowException:
                raise bad_value(file, first_row + row, column, value.as_py(), "", what="row") from error
        message = f"{file.shown}: column {column.name!r} holds {given.type}, which is no {column.type}"
        raise Terminal("RUNNEL-FILES-TYPE", message, place=Place(file.shown), hint="change the schema") from error


def weights(file: File, given: pa.ChunkedArray) -> pa.ChunkedArray:
    """Check a column of weights: whole numbers, none missing."""
    if given.null_count:
        message = f"{file.shown}: a row has no {WEIGHT}"
        raise Terminal("RUNNEL-FILES-VALUE", message, place=Place(file.shown), hint="give each row a whole number")
    return given


def match_names(file: File, table: TableInfo, given: Sequence[str], *, complete: bool) -> dict[str, str]:
    """Map each of the file's columns to the table's, without regard to case; `complete` wants them all there."""
    by_name = {column.name.lower(): column.name for column in table.columns} | {WEIGHT: WEIGHT}
    found: dict[str, str] = {}
    for name in given:
        column = by_name.get(name.lower())
        if column is None or column in found.values():
            problem = f"has the unknown column {name!r}" if column is None else f"has two columns named {column!r}"
            raise _column_error(file, problem, nearest(name, by_name) or f"{table.name} has {', '.join(by_name)}")
        found[name] = column
    missing = [column.name for column in table.columns if column.name not in found.values()]
    if complete and missing:
        raise _column_error(file, f"lacks the column {missing[0]!r}", "every column of the table must be in the file")
    return found


def bad_value(file: File, line: int, column: Column, value: Any, why: str, what: str = "line") -> Terminal:
    """Make the error for a value that its column cannot hold."""
    try:
        text = repr(value)
    except RecursionError:
        text = "a deeply nested value"
    shown = text if len(text) <= _SHOWN else text[: _SHOWN - 3] + "..."
    reason = f" ({why})" if why and len(why) < 2 * _SHOWN else ""
    return Terminal(
        "RUNNEL-FILES-VALUE",
        f"{file.shown}, {what} {line}, column {column.name!r}: {shown} is no {column.type}{reason}",
        place=Place(file.shown, line),
        hint="neither this row nor what comes after it was taken; mend the value, or change the column's type",
    )


def _column_error(file: File, problem: str, hint: str) -> Terminal:
    return Terminal("RUNNEL-FILES-COLUMN", f"{file.shown} {problem}", place=Place(file.shown), hint=hint)
