"""Reads one change file of any format and gives its change sets in order; each holds a bounded number of rows."""

from __future__ import annotations

import contextlib
import itertools
import json
from dataclasses import replace
from decimal import Decimal as Number
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from runnel.connectors.base import OP, ChangeSet
from runnel.connectors.files import columns, csv, envelope
from runnel.connectors.files.envelope import Change
from runnel.connectors.files.listing import half, inspect, lines, translated
from runnel.connectors.files.open_files import OpenFiles
from runnel.connectors.files.parts import WHOLE, Span, opened_span
from runnel.connectors.files.row_reader import BATCH, RowReader
from runnel.connectors.files.values import named_once
from runnel.errors import Place, RunnelError, Terminal
from runnel.model import types
from runnel.model.relation import WEIGHT, Column

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from runnel.connectors.base import TableInfo
    from runnel.connectors.files.listing import File
    from runnel.connectors.files.settings import Settings

_JSON = json.JSONDecoder(parse_float=Number, object_pairs_hook=named_once)
_WEIGHT = Column(WEIGHT, types.BIGINT)


Part = range | Span


def decode(
    file: File, table: TableInfo, settings: Settings, part: Part | None = None, files: OpenFiles | None = None
) -> Iterator[ChangeSet]:
    """Give the changes of a file, or of a part: rows of a Parquet file (counted from 0), a span of a text file.

    Raises `RUNNEL-FILES-HALF` before the first of them if the file is not whole; of a part that was found when it was cut.
    `files` are those that earlier parts left open.
    """
    if part is None and (problem := inspect(file, settings.delimiter).half) is not None:
        raise half(file, problem)
    try:
        with translated(file):
            for changes in _decoded(file, table, settings, part, OpenFiles() if files is None else files):
                yield replace(changes, trusted=settings.trusted and changes.signed is not None)
    except (RunnelError, OSError, MemoryError):
        raise
    except Exception as error:
        # Whatever a file holds, whoever reads the message has to know which file it is.
        raise _odd(file, None, f"{type(error).__name__}: {error}") from error


def _decoded(
    file: File, table: TableInfo, settings: Settings, part: Part | None, files: OpenFiles
) -> Iterator[ChangeSet]:
    if file.format == "parquet":
        yield from _parquet(file, table, settings, part if isinstance(part, range) else None, files)
        return
    span = part if isinstance(part, Span) else WHOLE
    if file.format == "csv":
        for signed in csv.read(file, table, settings, span, files):
            yield _signed(file, table, signed)
    else:
        yield from _change_sets(file, table, _json_changes(file, table, settings, span, files), settings)


def parquet_schema(file: File) -> pa.Schema:
    """Give the columns of the rows in a Parquet file: without `_weight`, and inside an envelope those of `after`."""
    schema = pq.read_schema(file.path)
    if _is_envelope(schema):
        return pa.schema(list(schema.field("after").type))
    return pa.schema([field for field in schema if field.name.lower() != WEIGHT])


def _is_envelope(schema: pa.Schema) -> bool:
    return {"after", "op"} <= set(schema.names) and pa.types.is_struct(schema.field("after").type)


def _signed(file: File, table: TableInfo, rows: pa.Table) -> ChangeSet:
    """Order the columns as the table's, `_weight` last (1 where the file has none)."""
    if WEIGHT in rows.column_names:
        weights = columns.weights(file, rows.column(WEIGHT))
    else:
        weights = pa.chunked_array([pa.array([1] * rows.num_rows, pa.int64())])
    names = [column.name for column in table.columns]
    return ChangeSet(table.name, signed=rows.select(names).append_column(WEIGHT, weights), place=file.shown)


def _parquet(
    file: File, table: TableInfo, settings: Settings, part: range | None, files: OpenFiles
) -> Iterator[ChangeSet]:
    try:
        begin = 0 if part is None else part.start
        reader = files.exactly_at(file, begin) or RowReader(file.path, begin)
        with contextlib.ExitStack() as held:
            held.callback(reader.close)
            batches = reader.upto(reader.rows if part is None else part.stop)
            if _is_envelope(reader.schema) and not columns_named(table, "after", "op"):
                changes = _parquet_changes(file, table, batches, settings)
                yield from _change_sets(file, table, changes, settings)
            else:
                names = columns.match_names(file, table, reader.schema.names, complete=True)
                for row, batch in batches:
                    rows = pa.Table.from_batches([batch]).rename_columns([names[name] for name in batch.schema.names])
                    yield _signed(file, table, _cast(file, table, rows, row))
            if reader.at < reader.rows:
                held.pop_all()
                files.keep(file, reader.at, reader)
    except pa.ArrowInvalid as error:
        message = f"{file.shown} cannot be read: {str(error).splitlines()[0]}"
        raise Terminal("RUNNEL-FILES-BROKEN", message, place=Place(file.shown), hint="write it again") from error


def columns_named(table: TableInfo, *names: str) -> bool:
    """Say whether the table itself has columns of these names."""
    return set(names) <= {column.name.lower() for column in table.columns}


def _cast(file: File, table: TableInfo, rows: pa.Table, first_row: int) -> pa.Table:
    wanted = [*table.columns, *([_WEIGHT] if WEIGHT in rows.column_names else [])]
    cast = {c.name: columns.from_arrow(file, c, rows.column(c.name), first_row) for c in wanted}
    return pa.table(cast)


def _parquet_changes(
    file: File, table: TableInfo, batches: Iterator[tuple[int, pa.RecordBatch]], settings: Settings
) -> Iterator[Change]:
    whole = settings.before != "key"
    for first, batch in batches:
        for row, record in enumerate(batch.to_pylist(), start=first):
            yield from envelope.changes(file, table, row, record, whole_before=whole)


def _json_changes(file: File, table: TableInfo, settings: Settings, span: Span, files: OpenFiles) -> Iterator[Change]:
    """Give each line's changes: a plain row is an insert, `_weight` says how often, an envelope is what it says."""
    known = {column.name.lower() for column in table.columns} | {WEIGHT}
    for line, record in _json_records(file, span, files):
        inner = record if "payload" in known else envelope.unwrapped(record)
        if inner is None:
            continue  # a tombstone: the delete before it said everything
        if envelope.is_envelope(inner, table):
            yield from envelope.changes(file, table, line, inner, whole_before=settings.before != "key")
            continue
        if not isinstance(inner, dict):
            raise _syntax(file, line, "it is no object")
        named = {name.lower(): value for name, value in inner.items()}
        if not named.keys() <= known or len(named) < len(inner):
            columns.match_names(file, table, list(inner), complete=False)
        weight = _weight(file, line, named.pop(WEIGHT, 1))
        yield Change(named, line, weight=weight)


def _weight(file: File, line: int, value: Any) -> int:
    if type(value) is int and -(2**63) <= value < 2**63:
        return value
    if value is None:
        raise columns.bad_value(file, line, _WEIGHT, value, "it is missing")
    return int(columns.from_values(file, _WEIGHT, [value], lambda _: line, None)[0].as_py())


def _json_records(file: File, span: Span, files: OpenFiles) -> Iterator[tuple[int, Any]]:
    with opened_span(file, span, files) as stream:
        for number, line in enumerate(lines(file, stream), start=span.begin.line + 1):
            if line.isspace():
                continue
            try:
                record = _JSON.decode(line.decode("utf-8-sig" if number == 1 else "utf-8"))
            except (json.JSONDecodeError, UnicodeDecodeError) as error:
                raise _syntax(file, number, str(error)) from error
            except RecursionError as error:
                raise _odd(file, number, "it is nested too deeply") from error
            except (ValueError, ArithmeticError) as error:
                raise _odd(file, number, str(error)) from error
            yield number, record


def _odd(file: File, line: int | None, why: str) -> Terminal:
    where = file.shown if line is None else f"{file.shown}, line {line}"
    why = (why.splitlines() or [""])[0]
    return Terminal(
        "RUNNEL-FILES-VALUE",
        f"{where} holds a value that cannot be read: {why[:120]}",
        place=Place(file.shown, line),
        hint="neither this row nor what comes after it was taken; mend the value",
    )


def _syntax(file: File, line: int, why: str) -> Terminal:
    message = f"{file.shown}, line {line} is no JSON row: {why}"
    return Terminal("RUNNEL-FILES-SYNTAX", message, place=Place(file.shown, line), hint="one JSON object per line")


def _change_sets(file: File, table: TableInfo, changes: Iterator[Change], settings: Settings) -> Iterator[ChangeSet]:
    """Group neighbours of the same form, so that the order between signed and keyed rows is kept."""
    for keyed, group in itertools.groupby(changes, lambda change: change.op is not None):
        while rows := list(itertools.islice(group, BATCH)):
            made = _rows(file, table, rows, settings)
            place = f"{file.shown}:{rows[0].line}"
            yield ChangeSet(table.name, keyed=made, place=place) if keyed else ChangeSet(table.name, made, place=place)


def _rows(file: File, table: TableInfo, changes: Sequence[Change], settings: Settings) -> pa.Table:
    known = {column.name.lower() for column in table.columns}
    named = [_named(file, table, change, known) for change in changes]
    arrays: dict[str, pa.Array] = {}
    for column in table.columns:
        values = [row.get(column.name.lower()) for row in named]
        arrays[column.name] = columns.from_values(
            file, column, values, lambda row: changes[row].line, settings.time_unit
        )
    if changes[0].op is not None:
        return pa.table(arrays | {OP: pa.array([change.op for change in changes], pa.string())})
    return pa.table(arrays | {WEIGHT: pa.array([change.weight for change in changes], pa.int64())})


def _named(file: File, table: TableInfo, change: Change, known: set[str]) -> Mapping[str, Any]:
    """Give a row by lower-case column names; a column the table does not have is an error, not lost."""
    if change.row.keys() <= known:
        return change.row
    row = {name.lower(): value for name, value in change.row.items()}
    if not row.keys() <= known or len(row) < len(change.row):
        columns.match_names(file, table, list(change.row), complete=False)
    return row
