"""`fsck` names what is damaged in a state and rebuilds what can be rebuilt from what; what cannot is said plainly."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import runnel
from runnel.engine.duckdb import DuckDbEngine
from runnel.errors import RunnelError
from runnel.lake import files, footers, lookup

if TYPE_CHECKING:
    from collections.abc import Iterator

    from runnel.lake.entries import DataFile
    from runnel.project import Project


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    """Make a table, a plain view, one with stages, and a view over a view."""
    with runnel.create(tmp_path / "p", engine=DuckDbEngine()) as made:
        made.create_table("t", "id BIGINT, g INT, v DECIMAL(10,2), s STRING", key=["id"])
        insert(made, 0, 300)
        made.create_view("plain", "SELECT id, v FROM t WHERE v > 10")
        made.create_view("least", "SELECT g, min(v) AS low, count(DISTINCT s) AS n FROM t GROUP BY g")
        made.create_view("over", "SELECT count(*) AS n FROM plain")
        insert(made, 300, 20)
        yield made


def insert(project: Project, first: int, count: int) -> None:
    rows = [{"id": n, "g": n % 7, "v": n % 50, "s": f"s{n % 11}"} for n in range(first, first + count)]
    with project.transaction() as tx:
        tx.insert("t", rows)


def flip(file: DataFile, at: int = 200) -> None:
    """Flip a bit of a file, and forget what this process knows of it."""
    data = bytearray(Path(file.path).read_bytes())
    data[at] ^= 4
    Path(file.path).write_bytes(data)
    forget()


def forget() -> None:
    lookup.forget()
    footers._kept.clear()
    files.forget_checks()


def live(project: Project, name: str) -> DataFile:
    return project.runtime.lake.snapshot().files(name)[0]


def catalog(project: Project) -> sqlite3.Connection:
    path = project.runtime.lake.catalog.path
    assert path is not None
    return sqlite3.connect(path, isolation_level=None)


def test_a_healthy_state_is_read_whole_and_nothing_is_damaged(project: Project) -> None:
    """Files of the newest and of earlier epochs are read, and all epochs are added up."""
    project.compact()
    found = project.fsck()
    assert found.ok, str(found)
    lake = project.runtime.lake
    assert found.checked.files > sum(len(lake.snapshot().files(name)) for name in lake.snapshot().relations)
    assert found.checked.epochs == lake.head() + 1
    assert "nothing is damaged" in str(found)


def test_a_damaged_view_is_named_and_rebuilt_from_its_tables(project: Project) -> None:
    """The views over it are rebuilt with it; afterwards only earlier epochs are damaged."""
    right = project.view("plain").to_arrow().sort_by("id")
    bad = live(project, "plain")
    flip(bad)
    with pytest.raises(RunnelError, match="RUNNEL-FILE-BROKEN"):
        project.view("plain").to_arrow()
    found = project.fsck()
    assert [(d.relation, d.code, d.file and d.file.path) for d in found.damages] == [
        ("plain", "RUNNEL-FILE-BROKEN", bad.path)
    ]
    repaired = project.fsck(repair=True)
    assert "plain: rebuilt from what it reads" in repaired.rebuilt
    assert not [damage for damage in repaired.damages if damage.live]
    assert project.view("plain").to_arrow().sort_by("id").equals(right)
    insert(project, 400, 30)
    assert all(report.ok for report in project.verify_all())


def test_a_missing_file_of_a_stage_is_rebuilt_with_the_views_over_it(project: Project) -> None:
    """A stage has no text of its own: its view is planned again with it."""
    head = project.runtime.lake.snapshot()
    stage = next(name for name in head.views["least"].stages if head.files(name))
    right = project.view("least").to_arrow().sort_by("g")
    Path(live(project, stage).path).unlink()
    forget()
    assert [damage.code for damage in project.fsck().damages] == ["RUNNEL-FILE-MISSING"]
    repaired = project.fsck(repair=True)
    assert "least: rebuilt from what it reads" in repaired.rebuilt
    assert not [damage for damage in repaired.damages if damage.live]
    assert project.view("least").to_arrow().sort_by("g").equals(right)
    insert(project, 500, 30)
    assert all(report.ok for report in project.verify_all())


def test_a_managed_table_is_not_rebuilt_and_that_is_said(project: Project) -> None:
    """Neither is a damaged view that reads it."""
    flip(live(project, "t"))
    flip(live(project, "plain"))
    found = project.fsck(repair=True)
    assert any("a managed table is nowhere else" in line for line in found.not_rebuilt)
    assert any(line.startswith("plain: not rebuilt: it reads t") for line in found.not_rebuilt)
    assert {damage.relation for damage in found.damages if damage.live} == {"t", "plain"}


def test_a_compacted_file_is_written_again_from_the_files_it_was_made_of(project: Project) -> None:
    """As long as those are kept, even a managed table is rebuilt."""
    right = project.table("t").to_arrow().sort_by("id")
    project.compact()
    (made,) = project.runtime.lake.snapshot().files("t")
    flip(made)
    repaired = project.fsck(repair=True)
    assert repaired.rebuilt == ("t: a compacted file was written again from the files it was made of",)
    assert not [damage for damage in repaired.damages if damage.live]
    assert project.table("t").to_arrow().sort_by("id").equals(right)


def test_statistics_that_do_not_hold_are_damage(project: Project) -> None:
    """A range in the catalog that leaves values out would skip their rows."""
    with catalog(project) as connection:
        connection.execute(
            "UPDATE ducklake_file_column_stats SET max_value = '3' WHERE column_id = 1 AND max_value = '299'"
        )
    codes = {damage.code for damage in project.fsck().damages}
    assert codes == {"RUNNEL-CATALOG-DAMAGED", "RUNNEL-FILE-STATISTICS"}


def test_rows_that_the_catalog_does_not_count_are_damage(project: Project) -> None:
    """The file is read to its end and counted."""
    number = live(project, "t").id
    with catalog(project) as connection:
        connection.execute(f"UPDATE ducklake_data_file SET record_count = 299 WHERE data_file_id = {number}")
    found = project.fsck(repair=True)
    assert {"RUNNEL-CATALOG-DAMAGED", "RUNNEL-FILE-ROWS"} <= {damage.code for damage in found.damages}


def test_what_only_duckdb_reads_of_the_catalog_is_checked_too(project: Project) -> None:
    """The text of a DuckLake view is what runnel would write."""
    with catalog(project) as connection:
        connection.execute("UPDATE ducklake_view SET sql = 'SELECT 1' WHERE view_name = 'plain'")
    (damage,) = project.fsck().damages
    assert (damage.relation, damage.code) == ("plain", "RUNNEL-CATALOG-DAMAGED")


def test_an_index_that_disagrees_with_its_table_is_damage(tmp_path: Path) -> None:
    """SQLite's own check of its trees is part of it."""
    with runnel.create(tmp_path / "p", engine=DuckDbEngine()) as project:
        project.create_table("t", "id BIGINT", key=["id"])
        with project.transaction() as tx:
            tx.insert("t", [{"id": 1}])
        with catalog(project) as connection:
            connection.execute("PRAGMA writable_schema = ON")
            connection.execute("DELETE FROM sqlite_master WHERE name = 'runnel_ix_stats'")
    with runnel.open(tmp_path / "p", engine=DuckDbEngine()) as project:
        assert "RUNNEL-CATALOG-BROKEN" in {damage.code for damage in project.fsck().damages}


def test_a_table_of_a_source_is_not_rebuilt_and_that_is_said(tmp_path: Path) -> None:
    """It names the source, and the file that has to be brought back."""
    folder = tmp_path / "p"
    (folder / "feed" / "orders").mkdir(parents=True)
    (folder / "feed" / "orders" / "0001.jsonl").write_text('{"id": 1, "v": 5}\n{"id": 2, "v": 7}\n')
    schema = 'schema = { orders = "id BIGINT, v INT, PRIMARY KEY (id)" }'
    (folder / "runnel.toml").write_text(f'[sources.shop]\ntype = "files"\npath = "feed"\n{schema}\n')
    with runnel.open(folder, engine=DuckDbEngine()) as project:
        project.run(once=True)
        bad = live(project, "shop.orders")
        flip(bad, 20)
        (said,) = project.fsck(repair=True).not_rebuilt
    assert said.startswith("shop.orders: not rebuilt: its rows came from the source shop")
    assert bad.path in said
