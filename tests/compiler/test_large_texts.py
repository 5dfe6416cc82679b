"""A text of any size is compiled in bounded time, recomputed, or refused with the limit it exceeds; none ends the process."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from runnel.compiler import compile_dml, compile_view
from runnel.compiler.parse import parse_query
from runnel.compiler.text_limits import MOST_BRANCHES, MOST_TERMS, tables_read
from runnel.errors import Terminal
from runnel.model.relation import Column
from runnel.model.types import BIGINT
from tests.compiler.conftest import by_name, table

if TYPE_CHECKING:
    from collections.abc import Mapping

    from runnel.model.relation import Relation

TABLES: dict[str, Relation] = by_name([table("t", "id BIGINT, a BIGINT")])
TOO_LARGE = {
    "or": "SELECT id FROM t WHERE " + " OR ".join(f"a = {i}" for i in range(10_000)),
    "and in brackets": "SELECT id FROM t WHERE (" + " AND ".join(f"(a <> {i})" for i in range(10_000)) + ")",
    "plus": "SELECT " + " + ".join(["a"] * 10_000) + " AS c FROM t",
    "concat": "SELECT " + " || ".join(["'x'"] * 10_000) + " AS c FROM t",
    "union": " UNION ALL ".join(["SELECT id FROM t"] * 300),
    "brackets": "SELECT " + "(" * 5_000 + "a" + ")" * 5_000 + " AS c FROM t",
    "functions": "SELECT " + "abs(" * 190 + "a" + ")" * 190 + " AS c FROM t",
    "cases": "SELECT " + "CASE WHEN a = 1 THEN 1 ELSE " * 300 + "0" + " END" * 300 + " AS c FROM t",
    "selects": "SELECT id FROM (" * 300 + "SELECT id FROM t" + ")" * 300,
    "not": "SELECT id FROM t WHERE " + "NOT " * 3_000 + "a = 1",
}
FULL = {
    "joins": "SELECT t0.id FROM t t0 " + " ".join(f"JOIN t t{i} ON t{i}.id = t{i - 1}.id" for i in range(1, 61)),
    "left joins": "SELECT t0.id FROM t t0 " + " ".join(f"LEFT JOIN t t{i} ON t{i}.id = t0.id" for i in range(1, 31)),
    "unions": " UNION ALL ".join(["SELECT id FROM t"] * 150),
    "doubling": "WITH c0 AS (SELECT id FROM t), "
    + ", ".join(f"c{i} AS (SELECT a.id FROM c{i - 1} a JOIN c{i - 1} b ON a.id = b.id)" for i in range(1, 9))
    + " SELECT id FROM c8",
}


def analyse(_sql: str, _tables: Mapping[str, tuple[Column, ...]]) -> tuple[Column, ...]:
    """Let every query have one column: what an engine makes of a large text is its own affair."""
    return (Column("id", BIGINT),)


@pytest.mark.parametrize("kind", list(TOO_LARGE))
def test_a_text_beyond_a_limit_is_refused_and_says_which(kind: str) -> None:
    with pytest.raises(Terminal) as caught:
        compile_view("v", TOO_LARGE[kind], TABLES, analyse)
    assert caught.value.code == "RUNNEL-VIEW-SIZE"
    assert caught.value.hint
    assert any(
        said in caught.value.message for said in (f"{MOST_TERMS:,} terms", f"{MOST_BRANCHES} branches", "deeply")
    )


@pytest.mark.parametrize("kind", list(FULL))
def test_a_view_of_too_many_tables_is_recomputed_and_says_so(kind: str) -> None:
    program = compile_view("v", FULL[kind], TABLES, analyse)
    assert [o.code for o in program.operators] == ["RUNNEL-FULL-SIZE"]
    with pytest.raises(Terminal, match="tables"):
        compile_view("v", FULL[kind], TABLES, analyse, "incremental")


def test_a_statement_beyond_a_limit_is_refused_too() -> None:
    where = " OR ".join(f"a = {i}" for i in range(10_000))
    with pytest.raises(Terminal) as caught:
        compile_dml(f"DELETE FROM t WHERE {where}", TABLES, analyse)
    assert caught.value.code == "RUNNEL-SQL-SIZE"


def test_a_list_of_values_and_many_rows_are_no_chain() -> None:
    listed = ", ".join(str(-i) for i in range(5_000))
    assert compile_view("v", f"SELECT id FROM t WHERE a IN ({listed})", TABLES, analyse).incremental
    rows = ", ".join(f"({i}, -{i})" for i in range(5_000))
    assert compile_dml(f"INSERT INTO t VALUES {rows}", TABLES, analyse)


def test_tables_of_a_cte_count_for_each_of_its_uses() -> None:
    assert tables_read(parse_query(FULL["doubling"])) == 256
    assert tables_read(parse_query("WITH c AS (SELECT * FROM t, t u) SELECT * FROM c x LEFT JOIN c y ON true")) == 5
    assert tables_read(parse_query("WITH t AS (SELECT * FROM t) SELECT * FROM t")) == 1
