"""Where SQL leaves a choice open, `verify` compares what is determined with the user's own text, and says what is open and why."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import runnel
from runnel.compiler.choices import open_choices
from runnel.engine.duckdb import DuckDbEngine
from runnel.lake.entries import Commit
from runnel.model import types
from runnel.model.relation import WEIGHT, Column, Kind, Relation

if TYPE_CHECKING:
    from collections.abc import Iterator

    from runnel.project import Project


def table(name: str, columns: str, key: tuple[str, ...] = ()) -> Relation:
    """Make a table of numbers."""
    return Relation(name, Kind.TABLE, tuple(Column(c, types.BIGINT) for c in columns.split()), key)


TABLES = {"t": table("t", "id p o x", ("id",)), "u": table("u", "p y")}
RANKED = "SELECT id, p, o, row_number() OVER (PARTITION BY p ORDER BY o) AS rn FROM t"
GROUPED = "SELECT p, any_value(x) AS a FROM t GROUP BY p"
DETERMINED = [
    ("p s", "SELECT p, sum(x) AS s FROM t GROUP BY p"),
    ("id rn", "SELECT id, row_number() OVER (PARTITION BY p ORDER BY o, id) AS rn FROM t"),
    ("p x", "SELECT p, x FROM t ORDER BY id LIMIT 3"),
    ("x", "SELECT x FROM t ORDER BY x LIMIT 3"),
    ("p l", "SELECT p, sort_array(collect_list(x)) AS l FROM t GROUP BY p"),
    ("p l", "SELECT p, listagg(x, ',') WITHIN GROUP (ORDER BY x DESC) AS l FROM t GROUP BY p"),
    ("p l", "SELECT p, string_agg(DISTINCT x) WITHIN GROUP (ORDER BY x) FILTER (WHERE o > 1) AS l FROM t GROUP BY p"),
    ("n", f"SELECT count(*) AS n FROM ({GROUPED}) WHERE p > 3"),
    ("id l", "SELECT id, sum(x) OVER (PARTITION BY p ORDER BY o) AS l FROM t"),
    ("id l", "SELECT id, rank() OVER (PARTITION BY p ORDER BY o) AS l FROM t"),
    ("id l", "SELECT id, last_value(x) OVER (PARTITION BY p ORDER BY o) AS l FROM t"),
    ("id l", "SELECT id, nth_value(x, 2) OVER (PARTITION BY p ORDER BY o) AS l FROM t"),
]
OPEN = [
    ("p a s", "SELECT p, any_value(x) AS a, sum(x) AS s FROM t GROUP BY p", ["p s"]),
    ("id p o rn", RANKED, ["id p o", "p o rn"]),
    ("id p o", f"SELECT id, p, o FROM ({RANKED}) WHERE rn <= 3", ["p o"]),
    ("id p", "SELECT id, p FROM t QUALIFY row_number() OVER (PARTITION BY p ORDER BY o) = 1", ["p"]),
    ("p x", "SELECT p, x FROM t ORDER BY x DESC LIMIT 3", ["x"]),
    ("p x", "SELECT p, x FROM t LIMIT 3", [""]),
    ("p s", "SELECT p, sum(x) AS s FROM t GROUP BY p ORDER BY s DESC LIMIT 3", ["s"]),
    ("p l", "SELECT p, collect_list(x) AS l FROM t GROUP BY p", ["p"]),
    ("p l", "SELECT p, listagg(x) AS l FROM t GROUP BY p", ["p"]),
    ("p l", "SELECT p, listagg(x) WITHIN GROUP (ORDER BY o) AS l FROM t GROUP BY p", ["p"]),
    (
        "p l",
        "SELECT p, listagg(x) WITHIN GROUP (ORDER BY x COLLATE UTF8_LCASE) AS l FROM t GROUP BY p",
        ["p"],
    ),
    (
        "p l",
        "SELECT p, listagg(collate(x, 'UNICODE_CI')) WITHIN GROUP (ORDER BY collate(x, 'UNICODE_CI')) AS l FROM t GROUP BY p",
        ["p"],
    ),
    ("n", f"SELECT count(*) AS n FROM ({GROUPED}) WHERE a > 3", []),
    ("id f", "SELECT id, first_value(x) OVER (PARTITION BY p ORDER BY o) AS f FROM t", ["id"]),
    ("id s", "SELECT id, sum(x) OVER (PARTITION BY p ORDER BY o ROWS 1 PRECEDING) AS s FROM t", ["id"]),
    ("p a y", f"WITH c AS ({GROUPED}) SELECT c.p, c.a, u.y FROM c JOIN u ON c.p = u.p", ["p y"]),
    ("p a y", f"WITH c AS ({GROUPED}) SELECT c.p, c.a, u.y FROM c JOIN u ON c.a = u.p", []),
    ("x", "SELECT any_value(x) AS x FROM t UNION ALL SELECT y FROM u", [""]),
    ("a", f"SELECT DISTINCT a FROM ({GROUPED})", []),
    ("p m", "SELECT p, (SELECT mode(y) FROM u WHERE u.p = t.p) AS m FROM t", ["p"]),
]


@pytest.mark.parametrize(("columns", "sql"), DETERMINED)
def test_what_sql_determines_is_not_called_open(columns: str, sql: str) -> None:
    assert not open_choices(sql, TABLES, columns.split()).any


@pytest.mark.parametrize(("columns", "sql", "families"), OPEN)
def test_the_columns_that_are_determined_together_are_known(columns: str, sql: str, families: list[str]) -> None:
    found = open_choices(sql, TABLES, columns.split())
    assert [" ".join(family) for family in found.families] == families
    assert found.reasons


@pytest.fixture
def project() -> Iterator[Project]:
    """Give a project with a table in which order keys have ties."""
    with runnel.memory(engine=DuckDbEngine(threads=2)) as made:
        made.create_table("t", "id INT, p INT, o INT, x INT", key=["id"])
        with made.transaction() as tx:
            tx.insert("t", [{"id": n, "p": n % 3, "o": n % 2, "x": 100 - n} for n in range(20)])
        yield made


def disturb(project: Project, view: str, *rows: tuple[int, ...]) -> None:
    """Add signed rows to a view behind its back."""
    lake = project.runtime.lake
    relation = lake.snapshot().relations[view]
    names = [*(c.name for c in relation.columns), WEIGHT]
    table = pa.Table.from_pylist([dict(zip(names, row, strict=True)) for row in rows], lake.arrow_schema(relation))
    lake.publish(Commit(base=lake.head(), add=[lake.write(relation, table)]))


def test_a_report_says_which_columns_are_open_and_why(project: Project) -> None:
    project.create_view("v", "SELECT p, count(*) AS n, any_value(x) AS a FROM t GROUP BY p")
    report = project.verify("v")
    assert report.ok
    assert report.open == ("a",)
    assert "SQL leaves open a: ANY_VALUE(x)" in str(report)


def test_wrong_rows_are_found_in_what_the_users_text_determines_and_in_what_it_leaves_open(project: Project) -> None:
    project.create_view("v", "SELECT id, p, o, row_number() OVER (PARTITION BY p ORDER BY o) AS rn FROM t")
    assert project.verify("v").ok
    held = {row["id"]: (row["id"], row["p"], row["o"], row["rn"]) for row in project.view("v").to_arrow().to_pylist()}
    one, other = held[0], held[6]  # the same p and o: the text allows their places to be exchanged, the view does not
    disturb(project, "v", (*one, -1), (*other, -1), (*one[:3], other[3], 1), (*other[:3], one[3], 1))
    assert not project.verify("v").ok
    disturb(project, "v", (*one, 1), (*other, 1), (*one[:3], other[3], -1), (*other[:3], one[3], -1))
    assert project.verify("v").ok
    disturb(project, "v", (*one, -1), (*one[:3], 17, 1))
    report = project.verify("v")
    assert report.unexpected == ({"p": 0, "o": 0, "rn": 17},), report
