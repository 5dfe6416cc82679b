"""CSV files with a header line, read by Arrow in bulk; the exact line is looked up only when something is wrong.

An empty field is NULL (or what the setting `null` says); an empty string is written `""`. Nested values are JSON text.
"""

from __future__ import annotations

import contextlib
import csv
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.csv as pacsv

from runnel.connectors.files import columns
from runnel.connectors.files.listing import opened, texts
from runnel.connectors.files.open_files import OpenFiles
from runnel.connectors.files.parts import opened_span
from runnel.errors import Place, Terminal
from runnel.model import types
from runnel.model.relation import WEIGHT, Column

if TYPE_CHECKING:
    from collections.abc import Iterator

    from runnel.connectors.base import TableInfo
    from runnel.connectors.files.listing import File
    from runnel.connectors.files.parts import Span, Spot
    from runnel.connectors.files.settings import Settings

_BLOCK = 8 * 1024 * 1024


def read(file: File, table: TableInfo, settings: Settings, span: Span, files: OpenFiles) -> Iterator[pa.Table]:
    """Give the rows of a span in blocks, with the table's columns and types, and `_weight` where the file has it."""
    header = _header(file, settings)
    names = columns.match_names(file, table, header, complete=True)
    first = 0
    for batch in _batches(file, settings, header, span, files):
        texts = pa.Table.from_batches([batch]).rename_columns([names[name] for name in header])
        yield _typed(file, table, texts, settings, span.begin, first)
        first += batch.num_rows


def _typed(file: File, table: TableInfo, texts: pa.Table, settings: Settings, begin: Spot, first: int) -> pa.Table:
    wanted = [*table.columns, *([Column(WEIGHT, types.BIGINT)] if WEIGHT in texts.column_names else [])]

    def line(row: int) -> int:
        return line_of_record(file, settings, begin, first + row)

    return pa.table(
        {c.name: columns.from_text(file, c, texts.column(c.name), line, settings.time_unit) for c in wanted}
    )


def _header(file: File, settings: Settings) -> list[str]:
    with opened(file) as stream:
        try:
            return next(csv.reader(texts(file, stream), delimiter=settings.delimiter))
        except (StopIteration, UnicodeDecodeError, csv.Error) as error:
            message = f"{file.shown}, line 1 is no CSV header"
            raise Terminal(
                "RUNNEL-FILES-SYNTAX", message, place=Place(file.shown, 1), hint="name the columns"
            ) from error


def _batches(
    file: File, settings: Settings, header: list[str], span: Span, files: OpenFiles
) -> Iterator[pa.RecordBatch]:
    bad: list[pacsv.InvalidRow] = []

    def refuse(row: pacsv.InvalidRow) -> str:
        bad.append(row)
        return "error"

    try:
        # Arrow drops a byte-order mark at the beginning, where a part may have a value; it passes over empty lines.
        with opened_span(file, span, files, before=b"\n") as stream:
            yield from pacsv.open_csv(
                stream,
                # One thread: only then does Arrow know the number of a bad row.
                read_options=pacsv.ReadOptions(
                    use_threads=False, block_size=_BLOCK, column_names=header if span.begin.at else None
                ),
                parse_options=pacsv.ParseOptions(
                    delimiter=settings.delimiter, newlines_in_values=True, invalid_row_handler=refuse
                ),
                convert_options=pacsv.ConvertOptions(
                    column_types=dict.fromkeys(header, pa.string()),
                    null_values=[settings.null],
                    strings_can_be_null=True,
                    quoted_strings_can_be_null=settings.null != "",
                ),
            )
    except pa.ArrowInvalid as error:
        raise _syntax(file, settings, span.begin, bad, error) from error


def _syntax(
    file: File, settings: Settings, begin: Spot, bad: list[pacsv.InvalidRow], error: pa.ArrowInvalid
) -> Terminal:
    if not bad:
        message = f"{file.shown} is no CSV: {str(error).splitlines()[0]}"
        return Terminal("RUNNEL-FILES-SYNTAX", message, place=Place(file.shown), hint="write it as UTF-8 with a header")
    row = bad[0]
    before = 1 if begin.at else 2  # Arrow counts from 1, a header as well
    line = line_of_record(file, settings, begin, row.number - before) if row.number is not None else None
    message = f"{file.shown}, line {line} has {row.actual_columns} fields where the header has {row.expected_columns}"
    return Terminal(
        "RUNNEL-FILES-SYNTAX", message, place=Place(file.shown, line), hint="quote values that hold the delimiter"
    )


def line_of_record(file: File, settings: Settings, begin: Spot, record: int) -> int:
    """Give the line where the record with this number (from 0, the header not counted) after a spot begins."""
    with contextlib.closing(OpenFiles()) as files, files.at(file, begin.at) as stream:
        reader = csv.reader(texts(file, stream, "replace", begins=begin.at == 0), delimiter=settings.delimiter)
        before, seen = begin.line, 0 if begin.at else -1
        for fields in reader:
            begins, before = before + 1, begin.line + reader.line_num
            if fields:
                if seen == record:
                    return begins
                seen += 1
        return before
