"""Names and texts of users are never taken for names of ours."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import sqlglot

import runnel
from runnel.compiler.spark import DIALECT, TRANSLATABLE
from runnel.engine.duckdb import DuckDbEngine
from runnel.errors import Terminal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlglot.dialects.dialect import Dialect

    from runnel.project.project import Project


@pytest.fixture
def project() -> Iterator[Project]:
    made = runnel.memory(engine=DuckDbEngine())
    made.create_table("q", "k INT, t5 INT, t6 INT, s STRING")
    made.create_table("o", "_argument_1 INT, b INT, _old INT, _weigh INT")
    made.create_table("t__rows", "k INT, v INT")
    made.create_table("t", "k INT, v INT")
    made.sql("INSERT INTO q VALUES (1, 10, 100, '#stage'), (1, 20, 50, '{terms}'), (2, 7, 70, '~1')")
    made.sql("INSERT INTO o VALUES (1, 4, 1, 2), (2, 5, 3, 4), (2, 6, 5, 6)")
    made.sql("INSERT INTO t__rows VALUES (1, 1), (2, 2)")
    made.sql("INSERT INTO t VALUES (3, 3)")
    yield made
    made.close()


VIEWS = {
    "SELECT k, max(t5) AS a, max(t6) AS b FROM q GROUP BY k": {(1, 20, 100), (2, 7, 70)},
    "SELECT k, sum(t6) * 2 AS s FROM q GROUP BY k HAVING sum(t6) > 1": {(1, 300), (2, 140)},
    "SELECT k, sum(t5) * 2 AS s FROM q GROUP BY k HAVING sum(t5) > 1": {(1, 60), (2, 14)},
    "SELECT k, max(t5) AS m FROM q WHERE s = '#stage' GROUP BY k": {(1, 10)},
    "SELECT k, max(t5) AS m FROM q WHERE s = '{terms}' GROUP BY k": {(1, 20)},
    "SELECT k, '{terms}' AS m, count(*) AS n FROM q GROUP BY k": {(1, "{terms}", 2), (2, "{terms}", 1)},
    "SELECT k, count(*) AS n FROM q WHERE s = '{terms}' OR s = '`q__delta`' GROUP BY k": {(1, 1)},
    "SELECT _argument_1, sum(b) AS n FROM o GROUP BY _argument_1": {(1, 4), (2, 11)},
    "SELECT _argument_1, count(DISTINCT b) AS _value_1 FROM o GROUP BY _argument_1": {(1, 1), (2, 2)},
    "SELECT _old, _argument_1 AS _known, b AS _was FROM o ORDER BY b DESC LIMIT 2": {(5, 2, 6), (3, 2, 5)},
    "SELECT _old, rank() OVER (PARTITION BY _argument_1 ORDER BY b) AS _w1 FROM o": {(1, 1), (3, 1), (5, 2)},
    "SELECT _weight FROM (SELECT b + 1 AS _weight FROM o) WHERE _weight > 5": None,
    "SELECT w FROM (SELECT _weight AS w FROM (SELECT b + 1 AS _weight FROM o)) WHERE w > 5": {(6,), (7,)},
    "SELECT a._c1, b._c1 AS d FROM (SELECT b AS _c1 FROM o) a LEFT JOIN (SELECT 4 AS _c1) b ON a._c1 = b._c1": {
        (4, 4),
        (5, None),
        (6, None),
    },
    "SELECT max(_key_1) AS _key_1 FROM (SELECT b AS _key_1, _old AS g FROM o) GROUP BY g > 2": {(4,), (6,)},
    "SELECT k, v FROM t__rows": {(1, 1), (2, 2)},
    "SELECT k, sum(v) AS v FROM t GROUP BY k": {(3, 3)},
    "SELECT `~1` FROM (SELECT k AS `~1` FROM t)": None,
    "WITH t__rows AS (SELECT 7 AS k) SELECT t.k FROM t JOIN t__rows USING (k)": None,
    "SELECT t.k FROM t JOIN t__rows ON t.k > t__rows.k": None,
    "SELECT k /* ` */ FROM t -- it's \\": {(3,)},
}


@pytest.mark.parametrize("sql", VIEWS)
def test_names_and_literals_that_look_like_ours_are_the_users_own(project: Project, sql: str) -> None:
    wanted = VIEWS[sql]
    if wanted is None:
        with pytest.raises(Terminal) as refused:
            project.create_view("v", sql)
        assert refused.value.code == "RUNNEL-VIEW-REFUSED"
        assert "reserved" in refused.value.message
        return
    project.create_view("v", sql)
    assert {tuple(row.values()) for row in project.view("v").to_pylist()} == wanted
    with project.transaction() as tx:
        for table in ("q", "o", "t", "t__rows"):
            rows = project.table(table).to_pylist()
            tx.delete(table, rows[:1])
            tx.insert(table, rows[:1])
            tx.insert(table, rows[-1:])
    assert project.verify("v").ok


def test_two_views_whose_columns_are_named_like_aliases_have_a_stage_each(project: Project) -> None:
    five = project.create_view("five", "SELECT k, sum(t5) * 2 AS s FROM q GROUP BY k HAVING sum(t5) > 1")
    six = project.create_view("six", "SELECT k, sum(t6) * 2 AS s FROM q GROUP BY k HAVING sum(t6) > 1")
    assert sorted(row["s"] for row in five.to_pylist()) == [14, 60]
    assert sorted(row["s"] for row in six.to_pylist()) == [140, 300]


@pytest.mark.parametrize("dialect", [DIALECT, TRANSLATABLE], ids=["as written", "translatable"])
def test_a_generators_alias_keeps_its_quotes(dialect: Dialect) -> None:
    sql = "SELECT x FROM t LATERAL VIEW OUTER explode(xs) `~2 a``b` AS x LATERAL VIEW explode(ys) u AS y"
    written = sqlglot.parse_one(sql, dialect=dialect).sql(dialect)
    assert "`~2 a``b` AS x" in written
    assert sqlglot.parse_one(written, dialect=dialect).sql(dialect) == written


@pytest.mark.parametrize("hint", ["BROADCAST(c)", "MERGE(o, c), REPARTITION(3, o)", "SHUFFLE_HASH(nobody)"])
def test_a_hint_names_aliases_and_no_tables(project: Project, hint: str) -> None:
    project.create_table("left_one", "k INT, v INT")
    project.create_table("c", "k INT, v INT")
    project.create_view(
        "hinted", f"SELECT /*+ {hint} */ o.v, c.w FROM left_one o JOIN (SELECT k, v AS w FROM c) c ON o.k = c.k"
    )
    project.sql("INSERT INTO left_one VALUES (1, 2); INSERT INTO c VALUES (1, 3)")
    assert project.explain("hinted").incremental
    assert project.view("hinted").to_pylist() == [{"v": 2, "w": 3}]
