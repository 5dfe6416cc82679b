"""Operators are written back so that Spark reads them as the user wrote them, whatever binds tighter."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest

from runnel.compiler.parse import parse_query
from runnel.compiler.spark import DIALECT
from runnel.engine.reduction import plan

if TYPE_CHECKING:
    from runnel.engine.spark import SparkEngine

NUMBERS = ("*", "/", "%", "div", "+", "-", "<<", ">>", ">>>", "&", "^", "|", "||")
COMPARISONS = ("=", "==", "!=", "<>", "<=>", "<", "<=", ">", ">=", "IS DISTINCT FROM", "IS NOT DISTINCT FROM")
LOGIC = ("AND", "OR")
BEFORE = ("-", "~", "- -", "- ~")  # a plus before a number is not written back, and means nothing
WRITTEN = {
    "SELECT a >>> 2 & 3": "SELECT a >>> 2 & 3",
    "SELECT a & 3 >> 1": "SELECT a & 3 >> 1",
    "SELECT a | 1 << 2 ^ b": "SELECT a | 1 << 2 ^ b",
    "SELECT CAST(a AS ARRAY<ARRAY<ARRAY<INT>>>) AS b": "SELECT CAST(a AS ARRAY<ARRAY<ARRAY<INT>>>) AS b",
    "SELECT when(a, b), CASE WHEN (a) THEN when(b, c) WHEN (b) THEN 2 ELSE when(a, 1) END": (
        "SELECT WHEN(a, b), CASE WHEN (a) THEN WHEN(b, c) WHEN (b) THEN 2 ELSE WHEN(a, 1) END"
    ),
    "SELECT CASE a WHEN (1) THEN 2 END": "SELECT CASE a WHEN (1) THEN 2 END",
}


def chains() -> list[str]:
    """Write expressions of two operators after each other."""
    numbers = [f"7 {one} 5 {other} 3" for one, other in itertools.product(NUMBERS, repeat=2)]
    compared = [f"7 {one} 5 {other} 3" for one, other in itertools.product(COMPARISONS, NUMBERS)]
    compared += [f"7 {one} 5 {other} 3" for one, other in itertools.product(NUMBERS, COMPARISONS)]
    logic = [f"{a} {one} {b} {two} {c}" for one, two in itertools.product(LOGIC, repeat=2)
             for a, b, c in itertools.product(("true", "false"), repeat=3)]  # fmt: skip
    logic += [f"{no} {a} {op} {b}" for no in ("NOT", "!") for op in (*LOGIC, "=", "<=>")
              for a, b in itertools.product(("true", "false", "NULL"), repeat=2)]  # fmt: skip
    logic += [f"{no} {rest}" for no in ("NOT", "!")
              for rest in ("NULL IS NULL", "1 IN (1, 2)", "2 BETWEEN 1 AND 3 OR true", "'a' LIKE 'b'", "1 < 2")]  # fmt: skip
    before = [f"{sign} 7 {op} 2" for sign, op in itertools.product(BEFORE, NUMBERS)]
    before += [f"7 {op} {sign} 2" for sign, op in itertools.product(BEFORE, NUMBERS[:-1])]
    return [*numbers, *compared, *logic, *before]


@pytest.mark.parametrize("sql", WRITTEN)
def test_operators_and_calls_that_look_like_clauses_are_written_as_they_were_read(sql: str) -> None:
    assert parse_query(sql).sql(dialect=DIALECT) == WRITTEN[sql]


def test_the_drivers_lane_reads_calls_that_look_like_clauses() -> None:
    """A step that it could not parse once failed the view, with an error of the parser."""
    sql = "SELECT window_time(window(`t`, '10 minutes')) AS a, when(`b`, 1) AS c, `i` >>> 2 AS d FROM `things__delta`"
    assert plan(sql, (), frozenset()) is not None


@pytest.mark.spark
def test_spark_reads_what_is_written_back_as_what_was_read(spark_engine: SparkEngine) -> None:
    parser = spark_engine.session._jsparkSession.sessionState().sqlParser()
    texts = chains()
    written = [parse_query(f"SELECT {text}").expressions[0].sql(dialect=DIALECT) for text in texts]
    read = [[parser.parseExpression(one).toString() for one in pair] for pair in zip(texts, written, strict=True)]
    wrong = [f"{text}: {mine}, {theirs}" for text, (mine, theirs) in zip(texts, read, strict=True) if mine != theirs]
    assert wrong == []
