from __future__ import annotations

import pytest

import runnel
from runnel.engine.duckdb import DuckDbEngine


@pytest.mark.parametrize(
    ("sql", "key"),
    [
        ("SELECT g, sum(x) AS s FROM t GROUP BY g", ("g",)),
        ("SELECT sum(x) AS s, g AS h, count(*) AS n FROM t GROUP BY g", ("h",)),
        ("SELECT sum(x) AS g FROM t GROUP BY g", ()),
        ("SELECT sum(x) AS s FROM t", ()),
        ("SELECT DISTINCT g, x FROM t", ("g", "x")),
        ("SELECT id, x FROM t", ()),
    ],
)
def test_the_unique_columns_of_a_view_are_those_it_shows(sql: str, key: tuple[str, ...]) -> None:
    with runnel.memory(engine=DuckDbEngine()) as project:
        project.create_table("t", "id INT, g STRING, x INT", key=["id"])
        assert project.create_view("v", sql).relation.unique == key
        assert project.table("t").key == ("id",)
