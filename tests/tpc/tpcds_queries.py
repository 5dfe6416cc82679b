"""The 99 queries of TPC-DS in Spark's SQL, made from DuckDB's texts, and the values their filters ask for."""

from __future__ import annotations

import functools
from collections import defaultdict
from importlib import import_module
from typing import TYPE_CHECKING

import duckdb
import sqlglot
from sqlglot import exp

if TYPE_CHECKING:
    from collections.abc import Iterator


def connect() -> duckdb.DuckDBPyConnection:
    """Open a database that knows TPC-DS."""
    import_module("duckdb_extensions").import_extension("tpcds")
    connection = duckdb.connect()
    connection.execute("LOAD tpcds")
    return connection


@functools.cache
def originals() -> dict[str, str]:
    """Give the queries by name as DuckDB has them."""
    found = connect().execute("SELECT query_nr, query FROM tpcds_queries() ORDER BY query_nr").fetchall()
    return {f"Q{number}": text for number, text in found}


def views(*, ordered: bool = False) -> dict[str, str]:
    """Give every query as a view in Spark's SQL; `ordered` keeps the ORDER BY and LIMIT of the whole query."""
    return {name: as_view(text, ordered=ordered) for name, text in originals().items()}


def as_view(text: str, *, ordered: bool = False) -> str:
    """Write a query in Spark's SQL, with a name of its own for every column.

    >>> as_view("SELECT a.x, b.x, count(*) FROM a, b GROUP BY ALL ORDER BY 1 LIMIT 3").split()[:9]
    ['SELECT', 'a.x,', 'b.x', 'AS', 'x_2,', 'COUNT(*)', 'AS', 'column_3', 'FROM']
    """
    tree = sqlglot.parse_one(text, dialect="duckdb")
    if not ordered:
        for part in ("order", "limit", "offset"):
            tree.set(part, None)
    seen: set[str] = set()
    for number, output in enumerate(tree.selects, 1):
        given = output.output_name
        name = given if given and given.lower() not in seen else f"{given or 'column'}_{number}"
        seen.add(name.lower())
        if name != given:
            output.replace(exp.alias_(output.unalias().copy(), name, quoted=not name.isidentifier()))
    return tree.sql(dialect="spark", pretty=True)


@functools.cache
def wanted() -> dict[str, tuple[str, ...]]:
    """Give the values that queries compare each column with, as text: at a tiny scale most rows would pass by them."""
    found: dict[str, dict[str, None]] = defaultdict(dict)
    for text in originals().values():
        for column, value in _comparisons(sqlglot.parse_one(text, dialect="duckdb")):
            found[column][value] = None
    return {column: tuple(values)[:40] for column, values in found.items()}


def _comparisons(tree: exp.Expr) -> Iterator[tuple[str, str]]:
    for node in tree.find_all(exp.EQ, exp.In, exp.Between):
        column = node.this
        if isinstance(column, exp.Substring):
            column = column.this
        if isinstance(column, exp.Column):
            values = {"EQ": [node.expression], "In": node.expressions, "Between": [node.args.get("low")]}
            for value in values[type(node).__name__]:
                if isinstance(value, exp.Literal):
                    yield column.name.lower(), value.name
