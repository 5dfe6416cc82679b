"""A program is made of what the parser read: whatever it left out of a text, or added to it, is not followed."""

from __future__ import annotations

import pytest

from runnel.compiler import compile_view
from runnel.compiler.faithful import misread
from runnel.compiler.parse import parse_query
from runnel.compiler.spark import DIALECT
from runnel.engine.duckdb import DuckDbEngine
from runnel.errors import Terminal
from runnel.model.program import Strategy
from tests.compiler.conftest import by_name, table


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT listagg(a) AS x FROM t",
        "SELECT listagg(DISTINCT a) WITHIN GROUP (ORDER BY a DESC) AS x FROM t",
        "SELECT string_agg(a) FILTER (WHERE b > 1) AS x FROM t",
        "SELECT percentile(a, 0.5, b) AS x FROM t",
        "SELECT max_by(a, b, 3) AS x FROM t",
        "SELECT decode(a, 1, 'x', 'y') AS x FROM t",
        "SELECT convert(a, b) AS x FROM t",
        "SELECT CAST(a AS TIME) AS x FROM t",
        "WITH b AS (WITH t AS (SELECT a FROM u) SELECT * FROM t) SELECT t.a AS a FROM t JOIN b ON t.a = b.a",
    ],
)
def test_what_is_read_is_written_back_as_it_was(sql: str) -> None:
    tree = parse_query(sql)
    assert tree.sql(dialect=DIALECT).lower().replace(" ", "") == sql.lower().replace(" ", "")
    assert misread(sql, tree) == ""


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("SELECT a FROM t ORDER BY `all` LIMIT 2", "'all' is lost"),
        ("SELECT CAST(a AS TIME(3)) AS x FROM t", "'3' is lost"),
        ("SELECT CAST(a AS TIMESTAMP WITHOUT TIME ZONE) AS x FROM t", "'without' is lost"),
        ("SELECT array_agg(a ORDER BY b) AS x FROM t", "'b' is lost"),
    ],
)
def test_what_is_read_in_another_way_is_noticed(sql: str, said: str) -> None:
    assert misread(sql, parse_query(sql)) == said


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT a FROM t WHERE b < INTERVAL '1 day' OR b > INTERVAL ' -2  months' OR b = INTERVAL '1 day 2 hours' OR b = INTERVAL '1-2' YEAR TO MONTH",
        "SELECT a FROM t WHERE b < INTERVAL -3 SECONDS ORDER BY a DESC NULLS LAST, b NULLS FIRST LIMIT 2",
        "SELECT trim(BOTH 'x' FROM a), substring(a FROM 2 FOR 3), position('a' IN b), 1L, .5, -1e3, X'0F', r'a\\b' FROM t",
        "SELECT first(a, true), any_value(a) IGNORE NULLS, a IS UNKNOWN, a::int, a <=> b, a IS NOT TRUE FROM t",
        "SELECT * FROM t QUALIFY row_number() OVER (PARTITION BY a ORDER BY b) = 1",
        "SELECT sum(a) OVER (w) FROM t LATERAL VIEW OUTER explode(b) e AS c WINDOW w AS (DISTRIBUTE BY b SORT BY c)",
        "FROM t |> AGGREGATE sum(a) AS s GROUP BY b |> WHERE s > 1",
    ],
)
def test_other_words_for_the_same_are_no_difference(sql: str) -> None:
    assert misread(sql, parse_query(sql)) == ""


def test_a_view_that_is_read_in_another_way_is_recomputed() -> None:
    shop = by_name([table("t", "a INT, b INT")])
    sql = "SELECT a, CAST(b AS CHAR(3)) AS s FROM t"
    engine = DuckDbEngine(threads=1)
    program = compile_view("v", sql, shop, engine.analyse)
    assert program.strategy is Strategy.FULL
    assert [o.code for o in program.operators if o.code] == ["RUNNEL-FULL-FORM"]
    with pytest.raises(Terminal, match="RUNNEL-VIEW-NOT-INCREMENTAL"):
        compile_view("v", sql, shop, engine.analyse, "incremental")
