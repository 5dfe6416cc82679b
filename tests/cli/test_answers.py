from __future__ import annotations

import csv
import io
import json
from typing import TYPE_CHECKING

import pyarrow.parquet as pq

import runnel
from runnel.engine.duckdb import DuckDbEngine

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import pytest
    from typer.testing import Result

    Command = Callable[..., Result]

SQL = "SELECT region, total FROM takings ORDER BY region"


def epoch_of(command: Command, shop: Path, op: str) -> int:
    entries = [
        json.loads(line)
        for line in command("history", "orders", "--key", 1, "--json", "--project", shop).stdout.splitlines()
    ]
    return next(int(entry["epoch"]) for entry in entries if entry["op"] == op)


def test_a_query_answers_in_each_format(command: Command, shop: Path, tmp_path: Path) -> None:
    shown = command("query", SQL, "--project", shop)
    assert shown.exit_code == 0
    assert "130.00" in shown.stdout
    assert "2 rows" in shown.stdout
    as_json = json.loads(command("query", SQL, "--format", "json", "--project", shop).stdout)
    assert as_json == [{"region": "north", "total": 130.0}, {"region": "south", "total": 35.5}]
    as_csv = list(csv.DictReader(io.StringIO(command("query", SQL, "--format", "csv", "--project", shop).stdout)))
    assert as_csv == [{"region": "north", "total": "130.00"}, {"region": "south", "total": "35.50"}]
    file = tmp_path / "rows.parquet"
    assert command("query", SQL, "--format", "parquet", "--output", file, "--project", shop).exit_code == 0
    assert pq.read_table(file).column("region").to_pylist() == ["north", "south"]
    piped = command("query", SQL, "--format", "parquet", "--project", shop).stdout_bytes
    assert pq.read_table(io.BytesIO(piped)).num_rows == 2


def test_show_gives_the_rows_now_and_then(command: Command, shop: Path) -> None:
    first = epoch_of(command, shop, "insert")
    now = json.loads(command("show", "large", "--format", "json", "--project", shop).stdout)
    then = json.loads(command("show", "large", "--at", first, "--format", "json", "--project", shop).stdout)
    assert now == [{"id": 1, "amount": 130.0}]
    assert sorted(row["id"] for row in then) == [1, 3]


def test_history_tells_every_change_of_a_row(command: Command, shop: Path) -> None:
    for key in ("1", "id=1"):
        told = command("history", "orders", "--key", key, "--column", "amount", "--json", "--project", shop)
        entries = [json.loads(line) for line in told.stdout.splitlines()]
        assert [(e["op"], e["old"], e["new"]) for e in entries] == [("insert", None, 120.0), ("update", 120.0, 130.0)]
    since = command(
        "history", "orders", "--key", 1, "--since", epoch_of(command, shop, "update"), "--json", "--project", shop
    )
    assert [json.loads(line)["op"] for line in since.stdout.splitlines()] == ["update"]
    assert "update" in command("history", "orders", "--key", 1, "--project", shop).stdout


def test_status_names_tables_and_views(command: Command, shop: Path) -> None:
    facts = json.loads(command("status", "--json", "--project", shop).stdout)
    assert {view["name"]: view["behind"] for view in facts["views"]} == {"takings": 0, "large": 0}
    assert "takings" in command("status", "--project", shop).stdout


def test_explain_gives_the_strategy_and_the_program(command: Command, shop: Path) -> None:
    facts = json.loads(command("explain", "takings", "--json", "--project", shop).stdout)
    assert facts["incremental"] is True
    assert "orders__delta" in command("explain", "takings", "--project", shop).stdout


def test_a_query_can_be_explained_instead_of_run(command: Command, shop: Path) -> None:
    told = command("query", SQL, "--explain", "--project", shop)
    assert told.exit_code == 0
    assert "takings__rows" in told.stdout


def test_a_live_query_says_that_it_cannot_be(command: Command, shop: Path) -> None:
    told = command("query", SQL, "--live", "--project", shop)
    assert told.exit_code == 2
    assert "RUNNEL-QUERY-LIVE" in told.stderr


def test_watch_prints_json_lines_for_pipes(command: Command, shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def change_instead_of_sleeping(_: float) -> None:
        with runnel.open(shop, engine=DuckDbEngine()) as project:
            project.sql("UPDATE orders SET amount = amount + 1 WHERE id = 1")

    monkeypatch.setattr("runnel.cli.answers.time.sleep", change_instead_of_sleeping)
    told = command("watch", "large", "--count", 1, "--project", shop)
    rows = [json.loads(line) for line in told.stdout.splitlines()]
    assert sorted((row["_weight"], row["amount"]) for row in rows) == [(-1, 130.0), (1, 131.0)]


def test_watch_ends_after_its_seconds(command: Command, shop: Path) -> None:
    told = command("watch", "large", "--seconds", 0, "--project", shop)
    assert (told.exit_code, told.stdout) == (0, "")


def test_a_wrong_name_in_a_query_is_underlined(command: Command, shop: Path) -> None:
    told = command("query", "SELECT id,\n  amont FROM orders", "--project", shop)
    assert told.exit_code == 1
    assert told.stderr.splitlines()[-5:] == [
        "error: unknown column 'amont' (SQL:2:3)",
        "  2 |   amont FROM orders",
        "    |   ^^^^^",
        "  hint: did you mean 'amount'?",
        "  code: RUNNEL-VIEW-COLUMN",
    ]
