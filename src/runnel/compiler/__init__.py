"""Turns SQL into delta programs. Pure: no Spark, no I/O; engines are asked only for the types of queries."""

from __future__ import annotations

from runnel.compiler.bind import bind
from runnel.compiler.calls import called, is_sql_function
from runnel.compiler.changes import events_sql
from runnel.compiler.dml import Dml, compile_dml
from runnel.compiler.outputs import improved
from runnel.compiler.rows import part_sql, rows_delta_sql, rows_sql
from runnel.compiler.serialize import program_from_json, program_to_json
from runnel.compiler.statements import Statement, TableStatement, ViewStatement, parse_statements
from runnel.compiler.support import SUPPORT, Support
from runnel.compiler.unique import unique_columns
from runnel.compiler.views import Analyse, compile_view
from runnel.model.ddl import parse_columns, parse_table

__all__ = [
    "SUPPORT",
    "Analyse",
    "Dml",
    "Statement",
    "Support",
    "TableStatement",
    "ViewStatement",
    "bind",
    "called",
    "compile_dml",
    "compile_view",
    "events_sql",
    "improved",
    "is_sql_function",
    "parse_columns",
    "parse_statements",
    "parse_table",
    "part_sql",
    "program_from_json",
    "program_to_json",
    "rows_delta_sql",
    "rows_sql",
    "unique_columns",
]
