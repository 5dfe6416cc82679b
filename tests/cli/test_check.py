from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.cli.conftest import TABLES, write

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from typer.testing import Result

    Command = Callable[..., Result]

TOML = """[project]
name = "bad"

[run]
epok = "100ms"

[sources.feed]
type = "files"
path = "${NO_SUCH_FEED}"
"""
BAD_VIEWS = """CREATE MATERIALIZED VIEW good AS SELECT id, amount FROM orders;
CREATE MATERIALIZED VIEW syntax AS SELECT id FROM orders WHERE;
CREATE MATERIALIZED VIEW misspelt AS
SELECT id,
       amont FROM orders;
CREATE MATERIALIZED VIEW moody AS SELECT id, rand() AS r FROM orders;
CREATE MATERIALIZED VIEW follows AS SELECT id FROM misspelt;
CREATE MATERIALIZED VIEW books AS SELECT id FROM ledger;
"""
MISTAKES = [
    ("RUNNEL-CONFIG-UNKNOWN", "runnel.toml:5"),
    ("RUNNEL-CONFIG-VARIABLE", "runnel.toml:9"),
    ("RUNNEL-COLUMN-RESERVED", "tables/shop.sql:3"),
    ("RUNNEL-VIEW-SYNTAX", "views/bad.sql:2"),
    ("RUNNEL-VIEW-COLUMN", "views/bad.sql:5"),
    ("RUNNEL-VIEW-REFUSED", "views/bad.sql:6"),
    ("RUNNEL-NAME-TWICE", "views/twice.sql:1"),
]


@pytest.fixture
def bad(tmp_path: Path) -> Path:
    return write(
        tmp_path / "bad",
        toml=TOML,
        tables_shop=TABLES + "CREATE TABLE ledger (id BIGINT, _weight BIGINT);\n",
        views_bad=BAD_VIEWS,
        views_twice="CREATE MATERIALIZED VIEW good AS SELECT id FROM orders",
    )


def test_every_mistake_is_named_once_with_file_and_line(command: Command, bad: Path) -> None:
    told = command("check", "--project", bad)
    assert told.exit_code == 1
    errors = told.stderr.split("error: ")[1:]
    found = {(code, place) for code, place in MISTAKES for error in errors if code in error and f"({place}" in error}
    assert found == set(MISTAKES)
    assert len(errors) == len(MISTAKES), "what only follows from a mistake is no mistake of its own"
    assert "Traceback" not in told.output


def test_check_leaves_no_trace(command: Command, bad: Path) -> None:
    command("check", "--project", bad)
    assert sorted(path.name for path in bad.iterdir()) == ["runnel.toml", "tables", "views"]


def test_views_are_checked_whatever_order_they_stand_in(command: Command, tmp_path: Path) -> None:
    views = "CREATE MATERIALIZED VIEW a AS SELECT id FROM b; CREATE MATERIALIZED VIEW b AS SELECT id FROM orders"
    told = command("check", "--project", write(tmp_path, tables_shop=TABLES, views_all=views))
    assert told.exit_code == 0
    assert "no problems" in told.stdout


def test_a_cycle_of_views_is_a_problem(command: Command, tmp_path: Path) -> None:
    views = "CREATE MATERIALIZED VIEW a AS SELECT id FROM b; CREATE MATERIALIZED VIEW b AS SELECT id FROM a"
    told = command("check", "--project", write(tmp_path, tables_shop=TABLES, views_all=views))
    assert told.exit_code == 1
    assert "RUNNEL-VIEW-CYCLE" in told.stderr
    assert "view a reads 'b', which in the end reads a (views/all.sql:1:46)" in told.stderr
    assert "view b reads 'a', which in the end reads b (views/all.sql:1:94)" in told.stderr


def test_a_view_that_reads_itself_is_a_problem(command: Command, tmp_path: Path) -> None:
    views = "CREATE MATERIALIZED VIEW a AS SELECT id FROM a"
    told = command("check", "--project", write(tmp_path, tables_shop=TABLES, views_all=views))
    assert "error: view a reads itself (views/all.sql:1:46)" in told.stderr


def test_the_offending_text_is_underlined_below_the_sentence(command: Command, bad: Path) -> None:
    lines = command("check", "--project", bad).stderr.splitlines()
    at = next(i for i, line in enumerate(lines) if "'amont'" in line)
    assert lines[at : at + 5] == [
        "error: unknown column 'amont' (views/bad.sql:5:8)",
        "  5 |        amont FROM orders",
        "    |        ^^^^^",
        "  hint: did you mean 'amount'?",
        "  code: RUNNEL-VIEW-COLUMN",
    ]
    at = next(i for i, line in enumerate(lines) if "is defined twice" in line)
    assert lines[at : at + 3] == [
        "error: 'good' is defined twice, first at views/bad.sql:1:26 (views/twice.sql:1:26)",
        "  1 | CREATE MATERIALIZED VIEW good AS SELECT id FROM orders",
        "    |                          ^^^^",
    ]


def test_a_source_that_cannot_be_opened_is_a_problem_with_its_line(command: Command, tmp_path: Path) -> None:
    toml = '[project]\nname = "x"\n\n[sources.feed]\ntype = "files"\npaht = "feed"\n'
    told = command(
        "check", "--project", write(tmp_path, toml=toml, views_a="CREATE MATERIALIZED VIEW a AS SELECT 1 FROM orders")
    )
    assert told.exit_code == 1
    assert "runnel.toml:6" in told.stderr
    assert "RUNNEL-VIEW-TABLE" not in told.stderr, "the source's tables are not known"


def test_a_table_that_cannot_become_what_its_file_says_is_a_problem(shop: Path, command: Command) -> None:
    assert command("--project", shop, "check").exit_code == 0
    write(shop, tables_shop=TABLES.replace("amount DECIMAL(12,2)", "amount DECIMAL(14,2), note STRING"))
    assert command("--project", shop, "check").exit_code == 0
    write(
        shop,
        tables_shop=TABLES.replace("DECIMAL(12,2)", "INT").replace("PRIMARY KEY (id));\nCREATE", "x INT);\nCREATE"),
    )
    result = command("--project", shop, "check")
    assert result.exit_code == 1
    assert "RUNNEL-ALTER-KEY" in result.output
    write(shop, tables_shop=TABLES.replace("DECIMAL(12,2)", "INT"))
    result = command("--project", shop, "check")
    assert "RUNNEL-ALTER-TYPE" in result.output
    assert "tables/shop.sql:1" in result.output
