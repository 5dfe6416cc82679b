"""What only PostgreSQL promises: one transaction for all views, few privileges, secrets that are never shown."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from runnel.errors import RunnelError
from tests.connectors.targets.conftest import Front, state

if TYPE_CHECKING:
    from pathlib import Path

    from tests.connectors.targets.stores import PostgresStore

pytestmark = pytest.mark.postgres


@pytest.fixture
def front(postgres_store: PostgresStore, tmp_path: Path) -> Front:
    return Front(tmp_path, postgres_store)


def url_of(front: Front, user: str) -> dict[str, Any]:
    return {"url": front.store.settings()["url"].replace("postgres@", f"{user}@")}


def test_a_role_needs_no_more_than_the_documentation_says(front: Front, postgres_store: PostgresStore) -> None:
    database = postgres_store.url.rpartition("/")[2]
    makes, fills = f"makes_{database}", f"fills_{database}"
    front.store.run(
        f"CREATE ROLE {makes} LOGIN",
        f"CREATE ROLE {fills} LOGIN",
        f"REVOKE ALL ON DATABASE {database} FROM PUBLIC",
        f"GRANT CONNECT, TEMPORARY ON DATABASE {database} TO {makes}, {fills}",
        "REVOKE ALL ON SCHEMA public FROM PUBLIC",
        f"GRANT USAGE ON SCHEMA public TO {fills}",
    )
    front.configure("t", **url_of(front, makes))
    with front.open() as project:
        project.create_table("t", "id INT, a STRING", key=["id"])
        project.sql("INSERT INTO t VALUES (1, 'a')")
        with pytest.raises(RunnelError, match=r"RUNNEL-POSTGRES-PERMISSION.*docs/targets.md"):
            project.run(once=True)
    assert "RUNNEL-POSTGRES-PERMISSION" in front.command("check", exit_code=1)
    front.store.run(f"GRANT USAGE, CREATE ON SCHEMA public TO {makes}")
    front.command("check")
    front.command("run", "--once")
    assert front.rows("t") == [("a", 1)]
    front.store.run(f"GRANT SELECT, INSERT, UPDATE, DELETE ON t, _runnel TO {fills}")
    front.configure("t", **url_of(front, fills))
    with front.open() as project:
        project.sql("INSERT INTO t VALUES (2, 'b'); UPDATE t SET a = 'c' WHERE id = 1")
    front.command("check")
    front.command("run", "--once")
    assert front.rows("t") == [("b", 2), ("c", 1)]


def test_a_password_is_never_shown(front: Front) -> None:
    port = front.store.gate.port
    front.store.gate.shut()
    front.configure("t", url=f"postgresql://me:hunter2@127.0.0.1:{port}/x")
    with front.open() as project:
        project.create_table("t", "id INT", key=["id"])
    for command in (["run", "--once"], ["check"], ["status"], ["deliver", "--debug"]):
        exit_code = {"run": 3, "check": 1, "status": 0, "deliver": 3}[command[0]]
        assert "hunter2" not in front.command(*command, exit_code=exit_code)


def test_all_views_move_in_one_transaction(front: Front) -> None:
    front.configure("t", "v")
    with front.open() as project:
        project.create_table("t", "id INT, x INT", key=["id"])
        project.create_view("v", "SELECT id, sum(x) AS s FROM t GROUP BY id")
        project.sql("INSERT INTO t VALUES (1, 1)")
        project.run(once=True)
        for number in range(2, 6):
            project.sql(f"UPDATE t SET x = {number} WHERE id = 1")
            project.run(once=True)
            # The server's now() is the time a transaction began.
            query = "SELECT count(*), count(DISTINCT delivered_at), count(DISTINCT epoch) FROM _runnel"
            with psycopg.connect(front.store.url) as connection:  # type: ignore[attr-defined]
                assert connection.execute(query).fetchone() == (2, 1, 1)


def test_rows_that_stay_equal_are_not_written(front: Front) -> None:
    front.configure("t")
    with front.open() as project:
        project.create_table("t", "id INT, x INT", key=["id"])
        project.sql("INSERT INTO t VALUES (1, 1), (2, 2), (3, 3)")
        project.run(once=True)
        project.sql("UPDATE t SET x = 9 WHERE id = 2")
        with psycopg.connect(front.store.url) as connection:  # type: ignore[attr-defined]
            before: dict[int, str] = dict(connection.execute("SELECT id, xmin::text FROM t").fetchall())
            assert project.deliver(full=True)["front"].rows == 1
            after: dict[int, str] = dict(connection.execute("SELECT id, xmin::text FROM t").fetchall())
        assert {key for key in before if before[key] != after[key]} == {2}


def test_somebody_elses_lock_delays_a_delivery_and_nothing_else(front: Front) -> None:
    front.configure("t", timeout="200ms")
    with front.open() as project:
        project.create_table("t", "id INT, x INT", key=["id"])
        project.sql("INSERT INTO t VALUES (1, 1)")
        project.run(once=True)
        project.sql("UPDATE t SET x = 2 WHERE id = 1")
        with psycopg.connect(front.store.url) as connection:  # type: ignore[attr-defined]
            connection.execute("SELECT * FROM t FOR UPDATE")
            with pytest.raises(RunnelError, match="RUNNEL-POSTGRES-BUSY"):
                project.run(once=True)
        assert "RUNNEL-POSTGRES-BUSY" in (state(project, "t").error or "")
        project.run(once=True)
        assert front.rows("t") == [(1, 2)]
        assert state(project, "t").error is None


@pytest.mark.parametrize(
    ("table", "told"),
    [
        ("nowhere.t", "RUNNEL-POSTGRES-SCHEMA"),
        ("a.b.c", "RUNNEL-TARGET-NAME"),
        ("public.", "RUNNEL-TARGET-NAME"),
        ("pg_catalog.pg_stat_activity", "RUNNEL-POSTGRES-TABLE"),
    ],
)
def test_a_name_that_leads_nowhere_is_told(front: Front, table: str, told: str) -> None:
    front.configure("t")
    text = (front.folder / "runnel.toml").read_text()
    (front.folder / "runnel.toml").write_text(text.replace('"t" = "t"', f'"t" = "{table}"'))
    with front.open() as project:
        project.create_table("t", "id INT", key=["id"])
        with pytest.raises(RunnelError, match=told):
            project.run(once=True)
    assert told in front.command("check", exit_code=1)
