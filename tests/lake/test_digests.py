"""What the catalog says is held against digests: a row that is changed, missing or too many is an error when it is loaded."""

from __future__ import annotations

import shutil
import sqlite3
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import runnel
from runnel.engine.duckdb import DuckDbEngine
from runnel.errors import RunnelError
from runnel.lake import digests, epochs, files
from runnel.lake.lake import Lake

if TYPE_CHECKING:
    from runnel.project import Project


def build(folder: Path) -> Path:
    """Make a state with tables, views, a compacted run and several epochs; give its catalog."""
    with runnel.create(folder, engine=DuckDbEngine()) as project:
        project.create_table("t", "id BIGINT, v INT", key=["id"])
        project.create_view("n", "SELECT v, count(*) AS n FROM t GROUP BY v")
        for number in range(4):
            change(project, number)
        project.compact()
        change(project, 9)
        path = project.runtime.lake.catalog.path
    assert path is not None
    return path


def change(project: Project, number: int) -> None:
    with project.transaction() as tx:
        tx.insert("t", [{"id": 10 * number + n, "v": n % 3} for n in range(10)])


def take_digests_away(path: Path) -> None:
    """Leave a catalog as the version before had it."""
    with sqlite3.connect(path) as connection:
        for table, column in (("runnel_file", "digest"), ("runnel_file", "entry"), ("runnel_epoch", "digest")):
            connection.execute(f"ALTER TABLE {table} DROP COLUMN {column}")
        connection.execute("DROP TABLE runnel_changes")
        connection.execute("UPDATE runnel_metadata SET value = '2' WHERE key = 'version'")
        connection.execute("DELETE FROM runnel_metadata WHERE key = 'digests'")
    connection.close()


DAMAGES = {
    "a file list without one file": "DELETE FROM runnel_file WHERE data_file_id = (SELECT max(data_file_id) FROM runnel_file)",
    "a file that ended in another epoch": "UPDATE ducklake_data_file SET end_snapshot = NULL WHERE end_snapshot IS NOT NULL",
    "another path": "UPDATE ducklake_data_file SET path = replace(path, 'a', 'b')",
    "another number of rows": "UPDATE ducklake_data_file SET record_count = record_count + 1",
    "another range": "UPDATE ducklake_file_column_stats SET min_value = '2' WHERE min_value = '0'",
    "a range that is gone": "DELETE FROM ducklake_file_column_stats WHERE column_id = 1",
    "another definition": "UPDATE runnel_view SET definition = replace(definition, 'count', 'sum')",
    "text that is no definition": "UPDATE runnel_relation SET definition = '{'",
    "another frontier": "UPDATE runnel_epoch SET frontiers = replace(frontiers, '[', '[1')",
    "a record that is gone": "UPDATE runnel_epoch SET digest = NULL",
    "a newest epoch that is gone": "DELETE FROM ducklake_snapshot WHERE snapshot_id = (SELECT max(snapshot_id) FROM ducklake_snapshot)",
    "another digest of a file": "UPDATE runnel_file SET digest = replace(digest, ':', ':0')",
}


@pytest.mark.parametrize("what", DAMAGES)
def test_no_changed_row_of_the_catalog_is_believed(tmp_path: Path, what: str) -> None:
    """Whatever the row decides: which files, which rows of them, what a view is."""
    path = build(tmp_path / "p")
    with sqlite3.connect(path) as connection:
        assert connection.execute(DAMAGES[what]).rowcount > 0
    connection.close()
    with pytest.raises(RunnelError) as error, runnel.open(tmp_path / "p", engine=DuckDbEngine()) as project:
        project.view("n").to_arrow()
    assert error.value.code == "RUNNEL-CATALOG-DAMAGED"


CHANGES = {
    "a change that is gone": "DELETE FROM runnel_file WHERE data_file_id = (SELECT min(data_file_id) FROM runnel_file WHERE change)",
    "a change that is none": "UPDATE runnel_file SET change = 0 WHERE data_file_id = 1",
    "changes kept since another epoch": "UPDATE runnel_relation SET changes_from = 3",
    "a change of another epoch": "UPDATE ducklake_data_file SET begin_snapshot = 1000 WHERE data_file_id = 1",
    "another sum": "UPDATE runnel_changes SET added_up = '0000000000000000'",
}


@pytest.mark.parametrize("what", CHANGES)
def test_no_list_of_changes_is_believed_that_lacks_one(tmp_path: Path, what: str) -> None:
    """Changes that were folded away are no longer shown by the newest epoch, and are asked for all the same."""
    path = build(tmp_path / "p")
    with sqlite3.connect(path) as connection:
        assert connection.execute(CHANGES[what]).rowcount > 0
    connection.close()
    lake = Lake.open(f"sqlite:{path}", str(path.parent / "data"))
    with pytest.raises(RunnelError) as error:
        for name in ("t", "n"):
            lake.snapshot().kept_changes(name)
    lake.close()
    assert error.value.code == "RUNNEL-CATALOG-DAMAGED"


def test_whose_range_it_is_follows_from_the_file(tmp_path: Path) -> None:
    """The relation is written beside each range for DuckDB; a wrong one there must not lend a range to another column."""
    path = build(tmp_path / "p")
    lake = Lake.open(f"sqlite:{path}", str(path.parent / "data"))
    right = [lake.snapshot().files(name) for name in ("t", "n")]
    lake.close()
    with sqlite3.connect(path) as connection:
        ids = connection.execute("SELECT DISTINCT table_id FROM ducklake_file_column_stats ORDER BY 1").fetchall()
        assert len(ids) > 1
        connection.execute("UPDATE ducklake_file_column_stats SET table_id = ?", ids[0])
    connection.close()
    lake = Lake.open(f"sqlite:{path}", str(path.parent / "data"))
    assert [lake.snapshot().files(name) for name in ("t", "n")] == right
    lake.close()


def test_sums_of_changes_as_the_version_before_wrote_them_are_written_anew(tmp_path: Path) -> None:
    """They had the files, not the epochs; what was wrong in them is still noticed."""
    path = build(tmp_path / "p")
    lake = Lake.open(f"sqlite:{path}", str(path.parent / "data"))
    ids = [lake.snapshot().table_id(name) for name in ("t", "n")]
    lake.close()
    with sqlite3.connect(path) as connection:
        listed = connection.execute(
            "SELECT f.table_id, r.entry FROM ducklake_data_file f JOIN runnel_file r USING (data_file_id) WHERE r.change"
        ).fetchall()
        now = dict(connection.execute("SELECT table_id, added_up FROM runnel_changes").fetchall())
        for number in now:
            row = epochs.changes_row(number, -1, digests.total(int(entry, 16) for of, entry in listed if of == number))
            connection.execute(
                "UPDATE runnel_changes SET added_up = :added_up, entry = :entry WHERE table_id = :table_id", row
            )
        connection.execute("UPDATE runnel_metadata SET value = '3' WHERE key = 'version'")
    connection.close()
    copy = tmp_path / "q.sqlite"
    shutil.copy(path, copy)
    with runnel.open(tmp_path / "p", engine=DuckDbEngine()) as project:
        change(project, 30)
        assert project.fsck().ok
    with sqlite3.connect(path) as connection:
        after = dict(connection.execute("SELECT table_id, added_up FROM runnel_changes").fetchall())
        assert all(after[number] not in (0, now[number]) for number in ids)
    connection.close()
    with sqlite3.connect(copy) as connection:
        connection.execute("UPDATE runnel_file SET change = 0 WHERE data_file_id = 1")
    connection.close()
    with pytest.raises(RunnelError, match="RUNNEL-CATALOG-DAMAGED"):
        Lake.open(f"sqlite:{copy}", str(path.parent / "data"))


def test_a_commit_does_not_make_a_damaged_catalog_right(tmp_path: Path) -> None:
    """The sum of an epoch follows from the one before, not from what is there."""
    path = build(tmp_path / "p")
    with runnel.open(tmp_path / "p", engine=DuckDbEngine()) as project:
        project.view("n").to_arrow()
        with sqlite3.connect(path) as connection:
            connection.execute("UPDATE ducklake_data_file SET end_snapshot = begin_snapshot WHERE end_snapshot IS NULL")
        connection.close()
        change(project, 20)
    with pytest.raises(RunnelError) as error, runnel.open(tmp_path / "p", engine=DuckDbEngine()) as project:
        project.view("n").to_arrow()
    assert error.value.code == "RUNNEL-CATALOG-DAMAGED"


def test_a_state_without_digests_goes_on_and_has_them_from_then_on(tmp_path: Path) -> None:
    """As the version before left it: columns are added when it is opened, and every new epoch and file is covered."""
    path = build(tmp_path / "p")
    take_digests_away(path)
    with runnel.open(tmp_path / "p", engine=DuckDbEngine()) as project:
        assert project.verify("n").ok
        assert {file.digest for file in project.runtime.lake.snapshot().files("t")} == {None}
        change(project, 30)
        project.compact()
        change(project, 40)
        assert project.fsck().ok
        assert None not in {file.digest for file in project.runtime.lake.snapshot().files("t")}
        assert project.verify("n").ok
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE ducklake_data_file SET record_count = 1 WHERE end_snapshot IS NULL")
    connection.close()
    with pytest.raises(RunnelError, match="RUNNEL-CATALOG-DAMAGED"):
        runnel.open(tmp_path / "p", engine=DuckDbEngine())


def test_a_state_without_digests_that_can_only_be_read_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is added to it then."""
    path = build(tmp_path / "p")
    take_digests_away(path)
    monkeypatch.setattr("runnel.lake.catalog._closed_to_us", lambda _: True)
    lake = Lake.open(f"sqlite:{path}", str(path.parent / "data"))
    relation = lake.snapshot().relations["t"]
    assert lake.read(relation, lake.snapshot().files("t")).num_rows == 50
    lake.close()


def test_the_tail_of_a_large_file_is_checked_before_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A flipped bit anywhere in the footer is an error that names the file, at the first read of a process."""
    monkeypatch.setattr(digests, "WHOLE_BYTES", 0)
    build(tmp_path / "p")
    with runnel.open(tmp_path / "p", engine=DuckDbEngine()) as project:
        snapshot = project.runtime.lake.snapshot()
        relation, file = snapshot.relations["t"], snapshot.files("t")[0]
        whole = Path(file.path).read_bytes()
        assert file.digest is not None
        for at in range(digests.Digest.parse(file.digest).tail_from, len(whole)):
            bad = bytearray(whole)
            bad[at] ^= 1
            Path(file.path).write_bytes(bad)
            files.forget_checks()
            with pytest.raises(RunnelError) as error:
                files.read(relation, [file])
            assert error.value.code == "RUNNEL-FILE-BROKEN"
            assert error.value.place is not None
            assert error.value.place.file == file.path
        Path(file.path).write_bytes(whole)
        assert files.read(relation, [file]).num_rows == file.rows


def test_files_of_an_engine_have_a_digest_too(tmp_path: Path) -> None:
    """It is computed when they are adopted."""
    with runnel.create(tmp_path / "p", engine=DuckDbEngine()) as project:
        project.runtime.large = 0
        project.create_table("t", "id BIGINT, v INT", key=["id"])
        change(project, 1)
        project.create_view("plain", "SELECT id, v FROM t")
        (file,) = project.runtime.lake.snapshot().files("plain")
        assert file.digest is not None
        data = pa.py_buffer(Path(file.path).read_bytes())
        known = digests.Digest.parse(file.digest)
        assert digests.of_whole(data, known.tail_from) == known


def test_a_damaged_schema_is_an_error_with_a_code_even_where_it_cannot_be_decoded(tmp_path: Path) -> None:
    """SQLite repeats the damaged bytes in its message, which is then not UTF-8."""
    path = build(tmp_path / "p")
    data = path.read_bytes()
    assert b"INDEX runnel_ix_stats ON" in data
    path.write_bytes(data.replace(b"INDEX runnel_ix_stats ON", b"INDEX runnel_ix_stats \xccN"))
    with pytest.raises(RunnelError) as error, runnel.open(tmp_path / "p", engine=DuckDbEngine()):
        pass
    assert error.value.code == "RUNNEL-CATALOG-BROKEN"
