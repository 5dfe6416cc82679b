"""A project whose catalog is a PostgreSQL: the same answers, and two open projects that see each other's epochs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import runnel
from runnel.engine.duckdb import DuckDbEngine
from runnel.errors import RunnelError

if TYPE_CHECKING:
    from pathlib import Path

    from tests.servers.postgres import PostgresServer

pytestmark = pytest.mark.postgres

SQL = "SELECT g, sum(x) AS s FROM t GROUP BY g"


def _write(folder: Path, catalog: str) -> Path:
    folder.mkdir()
    (folder / "tables").mkdir()
    (folder / "runnel.toml").write_text(f'[project]\nname = "shared"\n[state]\ncatalog = "{catalog}"\n')
    (folder / "tables" / "t.sql").write_text("CREATE TABLE t (id INT, g STRING, x INT, PRIMARY KEY (id));")
    return folder


def test_two_open_projects_share_one_state(tmp_path: Path, postgres_server: PostgresServer) -> None:
    folder = _write(tmp_path / "p", postgres_server.database())
    with runnel.open(folder, engine=DuckDbEngine()) as one, runnel.open(folder, engine=DuckDbEngine()) as two:
        one.create_view("v", SQL)
        for number in range(6):
            (one, two)[number % 2].sql(f"INSERT INTO t VALUES ({number}, 'g{number % 2}', {number})")
        assert sorted(row["s"] for row in two.view("v").to_pylist()) == [6, 9]
        one.compact()
        two.sql("DELETE FROM t WHERE id = 5")
        assert sorted(row["s"] for row in one.view("v").to_pylist()) == [4, 6]
        assert all(report.ok for report in [*one.verify_all(), *two.verify_all()])
        assert two.epochs()[-1]["views"]["v"]["strategy"] == "incremental"


def test_a_catalog_that_is_away_is_one_sentence(tmp_path: Path) -> None:
    folder = _write(tmp_path / "p", "postgresql://nobody:secret-word@127.0.0.1:1/none")
    with pytest.raises(RunnelError) as caught:
        runnel.open(folder, engine=DuckDbEngine())
    assert "secret-word" not in str(caught.value)
    assert caught.value.exit_code == 3


def test_definitions_that_one_process_changes_are_those_of_the_other(
    tmp_path: Path, postgres_server: PostgresServer
) -> None:
    folder = _write(tmp_path / "p", postgres_server.database())
    with runnel.open(folder, engine=DuckDbEngine()) as one, runnel.open(folder, engine=DuckDbEngine()) as two:
        for number, project in enumerate((one, two, one, two)):
            project.create_view(f"v{number}", f"SELECT g, s + {number} AS s FROM ({SQL}) WHERE s > {number}")
            project.sql(f"INSERT INTO t VALUES ({number}, 'g{number % 2}', {number + 10})")
        assert len(two.runtime.lake.snapshot().entries) == 5
        one.create_view("v0", SQL, replace=True)
        two.sql("ALTER TABLE t ADD COLUMN note STRING; ALTER TABLE t ALTER COLUMN x TYPE BIGINT")
        one.sql("INSERT INTO t VALUES (9, 'g1', 3000000000, 'large')")
        assert {row["g"]: row["s"] for row in two.view("v0").to_pylist()} == {"g0": 22, "g1": 3000000024}
        for name in ("v1", "v2", "v3"):
            two.drop_view(name)
        assert set(one.runtime.lake.snapshot().entries) == {"v0"}
        assert all(report.ok for report in [*one.verify_all(), *two.verify_all()])
