"""A throw-away project on the in-process engine, for tests of the pipeline."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import runnel
from runnel.engine.duckdb import DuckDbEngine
from tests.servers.postgres import postgres_server

if TYPE_CHECKING:
    from collections.abc import Iterator

    from runnel.project import Project

__all__ = ["postgres_server"]


@pytest.fixture
def project() -> Iterator[Project]:
    """Give a project that is gone after the test."""
    with runnel.memory(engine=DuckDbEngine()) as made:
        yield made


@pytest.fixture
def shop(project: Project) -> Project:
    """Give a project with sales, products and three views."""
    project.create_table("sales", "id STRING, cat INT, amount DECIMAL(12,2)", key=["id"])
    project.create_table("categories", "cat INT, name STRING", key=["cat"])
    with project.transaction() as tx:
        tx.insert("categories", [{"cat": 1, "name": "fruit"}, {"cat": 2, "name": "bread"}])
        tx.insert("sales", [_sale("A", 1, 20), _sale("B", 1, 30), _sale("C", 2, 10)])
    project.create_view("by_cat", "SELECT cat, sum(amount) AS total, count(*) AS n FROM sales GROUP BY cat")
    project.create_view("named", "SELECT s.id, c.name, s.amount FROM sales s JOIN categories c ON s.cat = c.cat")
    project.create_view("rich", "SELECT cat FROM by_cat WHERE total > 25")
    return project


def _sale(id_: str, cat: int, amount: int) -> dict[str, object]:
    return {"id": id_, "cat": cat, "amount": amount}
