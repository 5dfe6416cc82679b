"""The catalog is a DuckLake as DuckDB makes it, and refuses plainly what it cannot be."""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING

import psycopg
import pytest
import sqlalchemy as sa

from runnel.errors import Terminal, Transient, UsageError
from runnel.lake import catalog, tables
from runnel.lake.entries import Commit
from runnel.lake.lake import Lake
from tests.lake.duck import with_ducklake
from tests.lake.samples import ORDERS, change, contents, create

if TYPE_CHECKING:
    from pathlib import Path

    from tests.lake.conftest import Where


def declared(path: str) -> dict[str, list[tuple[str, str, int]]]:
    with sqlite3.connect(path) as connection:
        names = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table' AND name LIKE 'ducklake%'")
        return {
            name: [(c[1], c[2], c[5]) for c in connection.execute(f"PRAGMA table_info({name})")]
            for (name,) in names.fetchall()
        }


def test_the_catalog_has_the_tables_that_duckdb_would_make(sqlite: Where, tmp_path: Path) -> None:
    with with_ducklake() as connection:
        connection.execute(f"ATTACH 'ducklake:sqlite:{tmp_path}/theirs.sqlite' AS l (DATA_PATH '{tmp_path}/d')")
    Lake.create(sqlite.catalog, sqlite.data).close()
    theirs, ours = declared(f"{tmp_path}/theirs.sqlite"), declared(sqlite.catalog.removeprefix("sqlite:"))
    assert ours == theirs


def test_a_catalog_that_is_not_there_is_refused(where: Where) -> None:
    with pytest.raises(Terminal, match="RUNNEL-CATALOG-MISSING"):
        where.open()


@pytest.mark.postgres
def test_a_database_that_is_not_there_is_refused(request: pytest.FixtureRequest, tmp_path: Path) -> None:
    url = request.getfixturevalue("postgres_server").url("nowhere")
    with pytest.raises(Terminal, match="RUNNEL-CATALOG-MISSING"):
        Lake.open(url, str(tmp_path))


def test_a_server_that_is_away_is_transient(tmp_path: Path) -> None:
    with pytest.raises(Transient, match="RUNNEL-CATALOG-UNREACHABLE") as caught:
        Lake.open("postgresql://me:secret@127.0.0.1:1/db", str(tmp_path))
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    "error",
    [
        psycopg.DatabaseError("lost synchronization with server: got message type T"),
        psycopg.errors.ProtocolViolation("unexpected message"),
        psycopg.errors.AdminShutdown("terminating connection"),
        psycopg.errors.TooManyConnections("sorry, too many clients already"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_a_connection_that_broke_is_transient_however_the_driver_says_it(error: psycopg.Error) -> None:
    seen = catalog._as_runnel_error(sa.exc.DatabaseError("SELECT 1", {}, error), "here")
    assert (type(seen).__name__, seen.code) == ("Unreachable", "RUNNEL-CATALOG-UNREACHABLE")


def test_what_the_server_refuses_is_not_tried_again() -> None:
    seen = catalog._as_runnel_error(sa.exc.DatabaseError("x", {}, psycopg.errors.InsufficientPrivilege("no")), "here")
    assert isinstance(seen, Terminal)


def test_another_kind_of_database_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="RUNNEL-CATALOG-URL"):
        Lake.open("mysql://me@127.0.0.1/db", str(tmp_path))


def test_a_catalog_is_not_made_twice(lake: Lake, where: Where) -> None:
    change(lake, ORDERS, (1, "n", None, 1), create=[ORDERS])
    with pytest.raises(Terminal, match="RUNNEL-CATALOG-EXISTS"):
        Lake.create(where.catalog, where.data)
    assert lake.head() == 1


def test_a_catalog_of_a_newer_version_is_refused(lake: Lake, where: Where) -> None:
    with lake.catalog.write() as connection:
        m = tables.runnel_metadata
        connection.execute(m.update().where(m.c.key == "version").values(value=str(catalog.RUNNEL_VERSION + 1)))
    with pytest.raises(Terminal, match="RUNNEL-CATALOG-NEWER"):
        where.open()


def test_a_file_that_is_no_catalog_is_refused(tmp_path: Path) -> None:
    (tmp_path / "c.sqlite").write_bytes(b"this is no database" * 100)
    with pytest.raises(Terminal, match="RUNNEL-CATALOG-BROKEN"):
        Lake.open(f"sqlite:{tmp_path}/c.sqlite", str(tmp_path))


def test_a_locked_catalog_is_transient_and_reading_goes_on(
    lake: Lake, where: Where, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(catalog, "BUSY_SECONDS", 0.2)
    other = where.open()
    with lake.catalog.write():
        assert other.snapshot().epoch == 0
        with pytest.raises(Transient, match="RUNNEL-CATALOG-LOCKED"):
            other.publish(Commit(0))
    assert other.publish(Commit(0)) == 1
    other.close()


def test_a_moved_project_is_found_again(sqlite: Where, tmp_path: Path) -> None:
    first = Lake.create(f"sqlite:{tmp_path}/a/c.sqlite", f"{tmp_path}/a/data")
    create(first, ORDERS)
    change(first, ORDERS, (1, "north", None, 1))
    first.close()
    (tmp_path / "a").rename(tmp_path / "b")
    moved = Lake.open(f"sqlite:{tmp_path}/b/c.sqlite", f"{tmp_path}/b/data")
    assert contents(moved, ORDERS) == [(1, "north", None, 1)]
    with moved.catalog.read() as connection:
        m = tables.ducklake_metadata.c
        assert connection.scalar(sa.select(m.value).where(m.key == "data_path")) == f"{tmp_path}/b/data/"
    moved.close()


def test_sqlite_is_durable_unless_told_otherwise(tmp_path: Path) -> None:
    for durable, level in ((True, 2), (False, 0)):
        made = Lake.create(f"sqlite:{tmp_path}/{durable}.sqlite", f"{tmp_path}/{durable}", durable=durable)
        with made.catalog.read() as connection:
            assert connection.exec_driver_sql("PRAGMA synchronous").scalar() == level
            assert connection.exec_driver_sql("PRAGMA journal_mode").scalar() == "wal"
        made.close()
