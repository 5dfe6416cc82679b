"""DuckDB, through its own ducklake extension, reads every table and view as we do: now, and as of every kept epoch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import runnel
from runnel.engine.duckdb import DuckDbEngine
from runnel.model.relation import Kind
from tests.lake.duck import attached
from tests.pipeline.random_project import play
from tests.support.rows import comparable

if TYPE_CHECKING:
    from pathlib import Path

    from runnel.project import Project

VIEWS = {
    "picked": "SELECT id, upper(region) AS region, amount FROM orders WHERE amount > 2",
    "joined": "SELECT o.id, n.note FROM orders o JOIN notes n ON o.region = n.region",
    "totals": """SELECT region, sum(amount) AS total, count(*) AS n, count(rate) AS rates, avg(amount) AS mean,
                 sum(rate) AS r, avg(rate) AS ar, avg(id) AS ai FROM orders GROUP BY region""",
    "spread": "SELECT region, stddev(rate) AS s, var_pop(id) AS v, stddev_pop(amount) AS d FROM orders GROUP BY region",
    "overall": "SELECT sum(amount) AS total, count(*) AS n, avg(rate) AS r FROM orders",
    "rich": "SELECT region FROM totals WHERE total > 5",
    "kinds": "SELECT count(DISTINCT region) AS n, max(amount) AS top FROM orders",
    "both": "SELECT region FROM orders UNION ALL SELECT region FROM notes",
}


def _everything(project: Project, at: int | None = None) -> dict[str, list[Any]]:
    snapshot = project.runtime.lake.snapshot(at)
    shown = [r.name for r in snapshot.relations.values() if r.kind is not Kind.STAGE]
    return {name: comparable(project.table(name).to_arrow(at=at).to_pylist()) for name in shown}


def compare_with_duckdb(project: Project, epochs: list[int]) -> None:
    """See that DuckDB reads everything as we do, now and as of these epochs."""
    with attached(str(project.config.state.catalog)) as duck:
        for at in [None, *epochs]:
            version = f" AT (VERSION => {at})" if at is not None else ""
            for name, rows in _everything(project, at).items():
                theirs = duck.execute(f'SELECT * FROM lake."{name}"{version}').to_arrow_table().to_pylist()
                assert comparable(theirs) == rows, (name, at)


def test_duckdb_reads_every_view_now_and_then(tmp_path: Path) -> None:
    with runnel.create(tmp_path / "p", engine=DuckDbEngine()) as project:
        project.create_table("orders", "id BIGINT, region STRING, amount DECIMAL(12,2), rate DOUBLE", key=["id"])
        project.create_table("notes", "region STRING, note STRING, tags ARRAY<STRING>")
        for name, sql in VIEWS.items():
            project.create_view(name, sql)
        first = project.status().epoch
        with project.transaction() as tx:
            tx.insert("orders", [_order(i) for i in range(12)])
            tx.apply("notes", [{"region": "r1", "note": "x", "tags": ["a", None], "_weight": 2}])
        project.sql("UPDATE orders SET amount = amount + 1, region = 'moved' WHERE id < 4")
        project.sql("DELETE FROM orders WHERE id > 8; INSERT INTO notes VALUES (NULL, 'none', NULL)")
        project.compact()
        project.sql("INSERT INTO orders VALUES (100, 'late', 7, NULL)")
        compare_with_duckdb(project, list(range(first, project.status().epoch + 1)))


def _order(number: int) -> dict[str, object]:
    region = None if number % 5 == 0 else f"r{number % 3}"
    return {"id": number, "region": region, "amount": number, "rate": None if number % 4 == 0 else number / 7}


@pytest.mark.parametrize("seed", range(1, 13))
def test_duckdb_reads_random_views(seed: int) -> None:
    with play(DuckDbEngine(threads=2), seed) as project:
        compare_with_duckdb(project, [])
