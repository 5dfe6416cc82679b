from __future__ import annotations

import pytest

import runnel
from runnel.engine.duckdb import DuckDbEngine
from runnel.errors import RunnelError


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


UNWRITABLE = ["a\0b", "\0", "a\ud800"]


@pytest.mark.parametrize("name", UNWRITABLE, ids=ascii)
def test_a_name_that_not_every_reader_could_write_is_refused_before_anything_is_made(name: str) -> None:
    with runnel.memory(engine=DuckDbEngine()) as project:
        project.create_table("t", "id INT")
        head = project.runtime.lake.head()
        for attempt in (
            lambda: project.create_table(name, "id INT"),
            lambda: project.create_table("u", f"`{name}` INT"),
            lambda: project.create_view(name, "SELECT id FROM t"),
            lambda: project.create_view("v", f"SELECT id AS `{name}` FROM t"),
            lambda: project.alter_table(f"ALTER TABLE t ADD COLUMN `{name}` INT"),
        ):
            with pytest.raises(RunnelError) as refused:
                attempt()
            assert refused.value.code == "RUNNEL-NAME-CHARACTER"
        assert project.runtime.lake.head() == head


def test_a_nul_in_sql_is_refused_with_its_place_unless_it_is_in_a_text() -> None:
    with runnel.memory(engine=DuckDbEngine()) as project:
        project.create_table("t", "id INT")
        with pytest.raises(RunnelError, match=r"RUNNEL-NAME-CHARACTER.*SQL:2:7"):
            project.create_view("v", "SELECT id FROM t\nWHERE `a\0` = 1")


def test_a_column_that_no_view_could_name_is_refused_with_its_table() -> None:
    with runnel.memory(engine=DuckDbEngine()) as project:
        with pytest.raises(RunnelError, match="RUNNEL-COLUMN-RESERVED"):
            project.create_table("t", "id INT, `~1` INT")
        project.create_table("t", "id INT, `~a` INT, `~~1` INT, `1~` INT, `~` INT")
        project.sql("INSERT INTO t VALUES (1, 2, 3, 4, 5)")
        view = project.create_view("v", "SELECT `~a`, sum(`~~1`) AS `~s`, `1~`, `~` FROM t GROUP BY `~a`, `1~`, `~`")
        assert view.to_pylist() == [{"~a": 2, "~s": 3, "1~": 4, "~": 5}]
        assert project.verify("v").ok
