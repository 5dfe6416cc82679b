"""The 99 queries of TPC-DS in Spark's SQL, made from DuckDB's texts, and the values their filters ask for."""

from __future__ import annotations

import functools
import re
from collections import defaultdict
from importlib import import_module
from typing import TYPE_CHECKING

import duckdb
import sqlglot
from sqlglot import exp

if TYPE_CHECKING:
    from collections.abc import Iterator

EMPTY = tuple(
    f"Q{n}"
    for n in (13, 15, 16, 20, 23, 25, 26, 29, 30, 31, 34, 37, 38, 41, 49, 56, 58, 64, 69, 83, 85, 91, 92, 94, 95)
)
"""Queries that find nothing, or nothing new, in the data of `tpcds.make`."""
THING = re.compile(r"(i|s|ca|cd|hd|c|cc|w|web|wp|sm|p|r|ib|cp|ss|cs|ws|sr|cr|wr|inv)_|d_moy$|cnt$", re.IGNORECASE)
"""Columns of things, not of time."""
ALIKE = {"s_county": "ca_county", "s_state": "ca_state", "s_zip": "ca_zip", "s_city": "ca_city"}
"""Columns that queries compare with each other."""


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


def names() -> list[str]:
    """Name every view: the queries, and behind them those that find nothing, `relaxed`."""
    return [f"Q{number}" for number in range(1, 100)] + [f"{name} relaxed" for name in EMPTY]


def view(name: str, *, ordered: bool = False) -> str:
    """Give a view's text in Spark's SQL; `ordered` keeps the ORDER BY and LIMIT of the whole query."""
    return as_view(originals()[name.split()[0]], ordered=ordered, relaxed=name.endswith("relaxed"))


def as_view(text: str, *, ordered: bool = False, relaxed: bool = False) -> str:
    """Write a query in Spark's SQL, with a name of its own for every column.

    >>> as_view("SELECT a.x, b.x, count(*) FROM a, b GROUP BY ALL ORDER BY 1 LIMIT 3").split()[:9]
    ['SELECT', 'a.x,', 'b.x', 'AS', 'x_2,', 'COUNT(*)', 'AS', 'column_3', 'FROM']
    """
    tree = sqlglot.parse_one(text, dialect="duckdb", into=exp.Select)
    if not ordered:
        for part in ("order", "limit", "offset"):
            tree.set(part, None)
    if relaxed:
        for node in [node for node in tree.walk() if _is_filter(node)]:
            node.replace(exp.true())
    seen: set[str] = set()
    for number, output in enumerate(tree.selects, 1):
        given = output.output_name
        name = given if given and given.lower() not in seen else f"{given or 'column'}_{number}"
        seen.add(name.lower())
        if name != given or isinstance(output, exp.Paren):
            output.replace(exp.alias_(output.unalias().copy(), name, quoted=not name.isidentifier()))
    return tree.sql(dialect="spark", pretty=True)


def _is_filter(node: exp.Expr) -> bool:
    """Say whether a condition, one of several that must all hold, compares a column of a thing with constants."""
    if isinstance(node.parent, exp.Having):
        return isinstance(node, exp.GT) and isinstance(node.this, exp.Count)
    if not isinstance(node, (exp.EQ, exp.In, exp.Between, exp.GT, exp.LT, exp.GTE, exp.LTE, exp.Paren)):
        return False
    if not isinstance(node.parent, (exp.And, exp.Where)):
        return False
    columns = list(node.find_all(exp.Column))
    joins = any(e.find(exp.Column) and e.expression.find(exp.Column) for e in node.find_all(exp.Binary) if _compares(e))
    return bool(columns) and all(THING.match(c.name) for c in columns) and not joins and node.find(exp.Query) is None


def _compares(node: exp.Expr) -> bool:
    return isinstance(node, exp.Predicate) and not isinstance(node, exp.Connector)


@functools.cache
def wanted() -> dict[str, tuple[str, ...]]:
    """Give the values that queries compare each column with, as text: at a tiny scale most rows would pass by them."""
    found: dict[str, dict[str, None]] = defaultdict(dict)
    for text in originals().values():
        for column, value in _comparisons(sqlglot.parse_one(text, dialect="duckdb")):
            found[column][value] = None
    few = {column: tuple(values)[: 4 if column in ALIKE.values() else 12] for column, values in found.items()}
    return few | {column: few[other] for column, other in ALIKE.items()}


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
