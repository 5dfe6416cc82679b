"""A wrong view is refused with a code, the place in the file, and a hint."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from runnel.compiler import ViewStatement, compile_view, parse_statements
from runnel.errors import Place, Problems, Terminal
from tests.compiler.conftest import table

if TYPE_CHECKING:
    from runnel.engine.duckdb import DuckDbEngine
    from runnel.model.relation import Relation

    Shop = dict[str, Relation]

WRONG = {
    "SELECT amuont FROM orders": ("COLUMN", "1:8", "did you mean 'amount'?"),
    "SELECT o.id\nFROM orders o\nWHERE o.amuont > 1": ("COLUMN", "3:7", "did you mean 'amount'?"),
    "SELECT o.amuont FROM orders o LEFT JOIN customers c ON o.cid = c.cid": ("COLUMN", "1:8", "did you mean 'amount'?"),
    "SELECT cid FROM orders, customers": ("AMBIGUOUS", "1:8", "write orders.cid or customers.cid"),
    "SELECT c.id FROM orders o": ("COLUMN", "1:8", "there is o, id"),
    "SELECT oo.id FROM orders o": ("COLUMN", "1:8", "did you mean 'o'?"),
    "SELECT x.* FROM orders o": ("COLUMN", "1:8", "there is o"),
    "SELECT id, (SELECT max(regon) FROM customers) AS m FROM orders": ("COLUMN", "1:24", "did you mean 'region'?"),
    "SELECT id FROM orders o WHERE EXISTS (SELECT 1 FROM items i WHERE i.oid = o.idd)": ("COLUMN", "1:75", "'id'?"),
    "SELECT 1 AS x FROM ordes": ("TABLE", "1:20", "did you mean 'orders'?"),
    "SELECT max(id) AS m FROM ordes": ("TABLE", "1:26", "did you mean 'orders'?"),
    "SELECT id, id FROM orders": ("REFUSED", "1:8", "rename one"),
    "SELECT o.id, c.id FROM orders o JOIN orders c ON o.id = c.id": ("REFUSED", "1:8", "rename one"),
    "SELECT id, amount + 1 FROM orders": ("REFUSED", "1:12", "AS name"),
    "SELECT id, max(amount) FROM orders GROUP BY id": ("REFUSED", "1:12", "AS name"),
    "SELECT id AS _weight FROM orders": ("REFUSED", "1:8", "choose a name"),
    "SELECT id AS __x FROM orders": ("REFUSED", "1:8", "choose a name"),
    "SELECT rand() AS r FROM orders": ("REFUSED", "1:8", "use a column"),
    "SELECT id FROM orders WHERE current_date > DATE'2020-01-01'": ("REFUSED", "1:29", "use a column"),
    "SELECT uuid() AS u FROM orders": ("REFUSED", "1:8", "use a column"),
    "SELECT id FROM orders TABLESAMPLE (10 PERCENT)": ("REFUSED", "1:36", "hash"),
    "SELECT id, cid FROM orders GROUP BY id": ("GROUP", "1:12", "GROUP BY"),
    "SELECT id FROM orders GROUP BY 7": ("GROUP", "1:1", "1 columns"),
    "SELECT id AS a FROM orders UNION ALL SELECT cid, region FROM customers": ("UNION", "1:45", "same columns"),
    "SELECT id FROM orders WHERE": ("SYNTAX", "1:23", "mind commas"),
    "SELECT id,\n FROM orders WHERE (id = 1": ("SYNTAX", "2:26", "brackets"),
    "SELEC id FROM orders": ("SYNTAX", "1:10", "did you mean 'SELECT'?"),
    "SELECT * FORM orders": ("SYNTAX", "1:15", "did you mean 'FROM'?"),
    "SELECT id FROM orders WHERE note = 'x": ("SYNTAX", "1:36", "close it with '"),
    "SELECT id FROM orders /* all": ("SYNTAX", "1:23", "close it with */"),
    "SELECT id FROM orders; SELECT 2 AS x": ("SYNTAX", "1:1", "SELECT"),
    "DROP TABLE orders": ("SYNTAX", "1:1", "SELECT"),
}


@pytest.mark.parametrize("sql", WRONG)
def test_a_wrong_view_is_refused_with_code_place_and_hint(engine: DuckDbEngine, shop: Shop, sql: str) -> None:
    code, place, hint = WRONG[sql]
    with pytest.raises(Terminal) as caught:
        compile_view("v", sql, shop, engine.analyse, place=Place("views/v.sql", 1, 1))
    assert caught.value.code == f"RUNNEL-VIEW-{code}", caught.value
    assert str(caught.value.place).startswith(f"views/v.sql:{place}"), caught.value
    assert hint in (caught.value.hint or "")
    assert "\n" not in str(caught.value)


UNDERLINED = {
    "SELECT o.id\nFROM orders o\nWHERE o.amuont > 1": """\
  3 | WHERE o.amuont > 1
    |       ^^^^^^^^""",
    "SELECT id, max(amount) FROM orders GROUP BY id": """\
  1 | SELECT id, max(amount) FROM orders GROUP BY id
    |            ^^^^^^^^^^^""",
    "SELECT id, rand() AS r FROM orders": """\
  1 | SELECT id, rand() AS r FROM orders
    |            ^^^^^^""",
    "SELECT id FROM orders WHERE current_date > DATE'2020-01-01'": """\
  1 | SELECT id FROM orders WHERE current_date > DATE'2020-01-01'
    |                             ^^^^^^^^^^^^""",
    "SELECT id\n\tFROM ordes": """\
  2 |  FROM ordes
    |       ^^^^^""",
    "SELECT id FROM orders WHERE id IN (SELECT oidd\n  FROM items)": """\
  1 | SELECT id FROM orders WHERE id IN (SELECT oidd
    |                                           ^^^^""",
    "SELECT summ(id) AS s FROM orders": """\
  1 | SELECT summ(id) AS s FROM orders
    |        ^^^^^^^^""",
    "DROP TABLE orders": """\
  1 | DROP TABLE orders
    | ^^^^""",
}


@pytest.mark.parametrize("sql", UNDERLINED)
def test_the_offending_text_is_underlined(engine: DuckDbEngine, shop: Shop, sql: str) -> None:
    with pytest.raises(Terminal) as caught:
        compile_view("v", sql, shop, engine.analyse, place=Place("views/v.sql", 1, 1))
    assert caught.value.place is not None
    assert caught.value.place.underlined() == UNDERLINED[sql]
    assert UNDERLINED[sql] in caught.value.__notes__, "a traceback shows it too"


def test_text_given_from_python_is_underlined_as_well(engine: DuckDbEngine, shop: Shop) -> None:
    with pytest.raises(Terminal, match="amuont") as caught:
        compile_view("v", "SELECT amuont FROM orders", shop, engine.analyse)
    assert str(caught.value.place) == "SQL:1:8"
    assert caught.value.__notes__ == ["  1 | SELECT amuont FROM orders\n    |        ^^^^^^"]


def test_of_a_long_line_only_the_part_around_is_shown(engine: DuckDbEngine, shop: Shop) -> None:
    sql = f"SELECT {', '.join(f'id AS c{i}' for i in range(100))}, amuont, {', '.join('id' for _ in range(100))} FROM orders"
    with pytest.raises(Terminal) as caught:
        compile_view("v", sql, shop, engine.analyse)
    assert caught.value.place is not None
    line, carets = caught.value.place.underlined().splitlines()
    assert len(line) <= 110
    assert line[carets.index("^") : carets.rindex("^") + 1] == "amuont"


UNFOLLOWED = {
    "SELECT id, row_number() OVER (ORDER BY id) AS n FROM orders": ("RUNNEL-FULL-WINDOW-ALL", "add PARTITION BY"),
    "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 3) SELECT i FROM n": (
        "RUNNEL-FULL-RECURSIVE",
        "leave out mode",
    ),
    "SELECT id FROM orders ORDER BY id OFFSET 2": ("RUNNEL-FULL-LIMIT", "limit when reading"),
}


@pytest.mark.parametrize("sql", UNFOLLOWED)
def test_what_must_be_incremental_and_is_not_says_why_and_how_to_rewrite_it(
    engine: DuckDbEngine, shop: Shop, sql: str
) -> None:
    code, hint = UNFOLLOWED[sql]
    with pytest.raises(Terminal) as caught:
        compile_view("v", sql, shop, engine.analyse, "incremental")
    assert caught.value.code == "RUNNEL-VIEW-NOT-INCREMENTAL"
    assert f"[{code}]" in caught.value.message
    assert hint in (caught.value.hint or "")


def test_an_unknown_mode_is_refused(engine: DuckDbEngine, shop: Shop) -> None:
    with pytest.raises(Terminal) as caught:
        compile_view("v", "SELECT id FROM orders", shop, engine.analyse, mode="incremental ")
    assert caught.value.code == "RUNNEL-VIEW-MODE"


def test_what_only_the_engine_can_refuse_is_said_about_the_users_own_text(engine: DuckDbEngine, shop: Shop) -> None:
    with pytest.raises(Terminal) as caught:
        compile_view(
            "v", "SELECT nosuchfunction(id) AS x FROM orders", shop, engine.analyse, place=Place("v.sql", 4, 2)
        )
    assert "nosuchfunction" in caught.value.message.lower()
    assert str(caught.value.place) == "v.sql:4:9"


def test_a_table_of_two_sources_must_be_called_by_its_full_name(engine: DuckDbEngine) -> None:
    two = {name: table(name, "id BIGINT") for name in ("a.t", "b.t")}
    with pytest.raises(Terminal, match=r"could be any of a\.t, b\.t"):
        compile_view("v", "SELECT id FROM t", two, engine.analyse)
    assert compile_view("v", "SELECT id FROM B.T", two, engine.analyse).inputs == ("b.t",)


def test_every_problem_of_a_file_is_named_at_its_place() -> None:
    text = """CREATE MATERIALIZED VIEW good AS SELECT 1 AS x;
CREATE MATERIALIZED VIEW bad AS
  SELECT a FROM t WHERE;
CREATE VIEW other AS SELECT 1;
CREATE TABLE t (a FOO);
CREATE MATERIALIZED VIEW none"""
    with pytest.raises(Problems) as caught:
        parse_statements(text, "views/x.sql")
    found = [(p.code, str(p.place)) for p in caught.value.problems]
    assert found == [
        ("RUNNEL-VIEW-SYNTAX", "views/x.sql:3:19"),
        ("RUNNEL-VIEW-SYNTAX", "views/x.sql:4:8"),
        ("RUNNEL-TYPE-UNSUPPORTED", "views/x.sql:5:16"),
        ("RUNNEL-VIEW-SYNTAX", "views/x.sql:6:26"),
    ]


def test_errors_inside_a_view_of_a_file_point_into_the_file(engine: DuckDbEngine, shop: Shop) -> None:
    text = "-- views\nCREATE MATERIALIZED VIEW v AS SELECT id,\n  amuont FROM orders;"
    (view,) = parse_statements(text, "views/x.sql")
    assert isinstance(view, ViewStatement)
    with pytest.raises(Terminal) as caught:
        compile_view(view.name, view.sql, shop, engine.analyse, place=view.place)
    assert str(caught.value.place) == "views/x.sql:3:3"
