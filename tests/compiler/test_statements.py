"""A file's statements keep the user's own text, its options and its place."""

from __future__ import annotations

from runnel.compiler import TableStatement, ViewStatement, parse_statements
from runnel.errors import Place
from runnel.model.relation import Column
from runnel.model.types import BIGINT, decimal

TEXT = """-- takings
CREATE MATERIALIZED VIEW shop.takings
COMMENT 'what''s in; the till'
TBLPROPERTIES ('refresh' = '5 seconds', mode = 'full')
AS SELECT prod, -- the product
  sum(cost) AS s FROM events GROUP BY prod;

create table if not exists events (eid BIGINT, cost DECIMAL(12,2), PRIMARY KEY (eid));
CREATE OR REPLACE MATERIALIZED VIEW IF NOT EXISTS `odd name` AS (SELECT ';' AS x)
"""


def test_statements_keep_text_options_and_place() -> None:
    takings, events, odd = parse_statements(TEXT, "views/a.sql")
    assert takings == ViewStatement(
        "shop.takings",
        "SELECT prod, -- the product\n  sum(cost) AS s FROM events GROUP BY prod",
        "what's in; the till",
        {"refresh": "5 seconds", "mode": "full"},
        Place("views/a.sql", 5, 4),
    )
    columns = (Column("eid", BIGINT), Column("cost", decimal(12, 2)))
    assert events == TableStatement("events", columns, ("eid",), Place("views/a.sql", 8, 35))
    assert isinstance(odd, ViewStatement)
    assert (odd.name, odd.sql) == ("odd name", "(SELECT ';' AS x)")


def test_a_file_of_comments_has_no_statements() -> None:
    assert parse_statements("-- nothing yet\n;;\n", "views/a.sql") == []
