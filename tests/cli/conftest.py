"""Runs commands in this process on the DuckDB engine, over projects written file by file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner

import runnel
from runnel.cli import app
from runnel.engine.duckdb import DuckDbEngine

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from typer.testing import Result

TABLES = """CREATE TABLE orders (id BIGINT, customer BIGINT, amount DECIMAL(12,2), PRIMARY KEY (id));
CREATE TABLE customers (id BIGINT, region STRING, PRIMARY KEY (id));
"""
VIEWS = """CREATE MATERIALIZED VIEW takings AS
SELECT region, sum(amount) AS total, count(*) AS n
FROM orders o JOIN customers c ON o.customer = c.id GROUP BY region;
CREATE MATERIALIZED VIEW large AS SELECT id, amount FROM orders WHERE amount >= 100;
"""


def write(folder: Path, **files: str) -> Path:
    """Write a project; `tables_shop` is tables/shop.sql, `toml` is runnel.toml."""
    for name, text in {"toml": '[project]\nname = "shop"\n', **files}.items():
        path = folder / ("runnel.toml" if name == "toml" else name.replace("_", "/", 1) + ".sql")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    monkeypatch.setenv("RUNNEL_ENGINE", "duckdb")
    monkeypatch.setenv("COLUMNS", "200")
    runner = CliRunner()

    def run(*args: object, **extra: Any) -> Result:
        return runner.invoke(app, [str(arg) for arg in args], **extra)

    return run


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    """Give a project with two tables, two views and a little history: epochs with an insert, an update and a delete."""
    folder = write(tmp_path / "shop", tables_shop=TABLES, views_shop=VIEWS)
    with runnel.open(folder, engine=DuckDbEngine()) as project:
        project.sql("INSERT INTO customers VALUES (1, 'north'), (2, 'south')")
        project.sql("INSERT INTO orders VALUES (1, 1, 120.00), (2, 2, 35.50), (3, 1, 240.25)")
        project.sql("UPDATE orders SET amount = 130 WHERE id = 1")
        project.sql("DELETE FROM orders WHERE id = 3")
    return folder
