"""Rewrites Spark's SQL as DuckDB's: sqlglot does the most, the rest is listed here."""

from __future__ import annotations

import functools

import sqlglot
from sqlglot import exp

from runnel.compiler.spark import TRANSLATABLE


@functools.lru_cache(maxsize=512)
def to_duckdb(sql: str) -> str:
    """Give a Spark query in DuckDB's dialect."""
    tree = sqlglot.parse_one(sql, dialect=TRANSLATABLE)
    # Children first: what stands inside a rewritten node must be rewritten too.
    for node in reversed(list(tree.walk())):
        rewritten = _rewritten(node)
        if rewritten is not node:
            node.replace(rewritten)
    return tree.sql(dialect="duckdb", comments=False)


def _rewritten(node: exp.Expr) -> exp.Expr:
    match node:
        case exp.TryCast() if not node.args.get("safe"):
            # Spark's CAST raises on what it cannot convert; sqlglot takes it for the older, lenient one.
            return exp.Cast(this=node.this, to=node.to)
        case exp.Select() if node.args.get("hint") is not None:
            node.set("hint", None)
        case exp.Div():
            node.args["safe"] = False
        case exp.IntDiv():
            return _whole_quotient(node.this, node.expression)
        case exp.TsOrDsAdd():
            # A date plus days is a date, not a timestamp.
            return exp.Cast(this=node.copy(), to=exp.DataType.build("date"))
        case exp.Count() if node.expressions:
            return _count([node.this, *node.expressions])
        case exp.CountIf():
            # DuckDB's own gives NULL over no rows.
            return exp.Count(this=exp.Case(ifs=[exp.If(this=node.this, true=exp.Literal.number(1))]))
        case exp.Anonymous() if str(node.this).lower() == "std":
            return exp.Stddev(this=node.expressions[0])
    return node


def _count(arguments: list[exp.Expr]) -> exp.Expr:
    """DuckDB counts one argument only: count the rows in which none is NULL."""
    there = [exp.Not(this=exp.Is(this=exp.paren(a.copy()), expression=exp.Null())) for a in arguments]
    return exp.Count(this=exp.Case(ifs=[exp.If(this=exp.and_(*there), true=exp.Literal.number(1))]))


def _whole_quotient(dividend: exp.Expr, divisor: exp.Expr) -> exp.Expr:
    """DuckDB has no integer division of decimals: take the remainder off first, then the division is exact."""
    rest = exp.Mod(this=exp.paren(dividend.copy()), expression=exp.paren(divisor.copy()))
    whole = exp.paren(exp.Sub(this=exp.paren(dividend.copy()), expression=exp.paren(rest)))
    return exp.Cast(this=exp.Div(this=whole, expression=exp.paren(divisor.copy())), to=exp.DataType.build("bigint"))
