"""A store that vouches for the old rows of its log costs no look-up in the state; one that does not is held against it."""

from __future__ import annotations

import json
import random
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import runnel
from runnel.connectors.base import ChangeSet, Partition
from runnel.engine.duckdb import DuckDbEngine
from runnel.errors import RunnelError
from runnel.lake import kept
from runnel.model import types
from runnel.model.relation import Column, Kind, Relation
from runnel.pipeline.large_reads import changes_of
from tests.pipeline.test_large_reads import ByTasks, reads_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from runnel.project import Project

ENGINES = {"driver": DuckDbEngine, "spark": ByTasks}
SETTINGS = """[project]
name = "p"
[sources.s]
type = "files"
path = "feed"
before = "{before}"
schema = {{ keyed = "id BIGINT, g STRING, x INT, PRIMARY KEY (id)" }}
"""


def opened(folder: Path, place: str, before: str) -> Project:
    (folder / "feed" / "keyed").mkdir(parents=True, exist_ok=True)
    (folder / "runnel.toml").write_text(SETTINGS.format(before=before))
    return runnel.open(folder, engine=ENGINES[place](threads=1))


class Feed:
    """Writes envelopes with whole old rows, as a log with full images has them."""

    def __init__(self, project: Project, seed: int = 1) -> None:
        self.folder, self.random = project.folder, random.Random(seed)
        self.rows: dict[int, dict[str, Any]] = {}
        self.files = 0

    def write(self, changes: int) -> None:
        self.files += 1
        lines = [json.dumps(self.change()) for _ in range(changes)]
        (self.folder / "feed" / "keyed" / f"{self.files:04}.jsonl").write_text("\n".join(lines) + "\n")

    def change(self) -> dict[str, Any]:
        id_ = self.random.randrange(200)
        old, new = self.rows.get(id_), {"id": id_, "g": self.random.choice("abc"), "x": self.random.randrange(9)}
        if old is not None and self.random.random() < 0.3:
            del self.rows[id_]
            return {"op": "d", "before": old, "after": None}
        self.rows[id_] = new
        return {"op": "c" if old is None else "u", "before": old, "after": new}


@contextmanager
def hidden_rows(project: Project, table: str) -> Iterator[None]:
    """Take the files of a table away, and what is kept of them in memory: whoever reads old rows fails."""
    paths = [Path(file.path) for file in project.runtime.lake.snapshot().files(table)]
    assert paths
    for path in paths:
        kept.drop(str(path))
        path.rename(path.with_name(f"{path.name}.hidden"))
    yield
    for path in paths:
        path.with_name(f"{path.name}.hidden").rename(path)


@pytest.mark.parametrize("place", ENGINES)
def test_trusted_changes_read_nothing_of_the_state_and_give_the_same_rows(tmp_path: Path, place: str) -> None:
    with opened(tmp_path, place, "trusted") as project:
        project.create_view("sums", "SELECT g, sum(x) AS s, count(*) AS n FROM keyed GROUP BY g")
        feed = Feed(project)
        feed.write(300)
        project.run(once=True)
        for _ in range(3):
            feed.write(50)
            feed.write(50)
            with hidden_rows(project, "s.keyed"):
                project.run(once=True)
        assert list(reads_of(project)) == [place]
        rows = sorted(project.table("s.keyed").to_pylist(), key=lambda row: int(row["id"]))
        assert rows == sorted(feed.rows.values(), key=lambda row: int(row["id"]))
        assert project.verify("sums").ok


@pytest.mark.parametrize("place", ENGINES)
def test_changes_that_are_not_trusted_are_held_against_the_state(tmp_path: Path, place: str) -> None:
    with opened(tmp_path, place, "row") as project:
        feed = Feed(project)
        feed.write(100)
        project.run(once=True)
        feed.write(50)
        with hidden_rows(project, "s.keyed"), pytest.raises(RunnelError, match="RUNNEL-FILE-MISSING"):
            project.run(once=True)
        project.run(once=True)
        wrong = {"op": "d", "before": {"id": 999, "g": "a", "x": 1}, "after": None}
        (tmp_path / "feed" / "keyed" / "9998.jsonl").write_text(json.dumps(wrong) + "\n")
        with pytest.raises(RunnelError, match="RUNNEL-ROW-MISSING"):
            project.run(once=True)


@pytest.mark.parametrize("place", ENGINES)
def test_trusted_and_keyed_changes_of_one_epoch_follow_each_other(tmp_path: Path, place: str) -> None:
    with opened(tmp_path, place, "trusted") as project:
        lines = [
            {"op": "r", "before": None, "after": {"id": 1, "g": "a", "x": 1}},  # of a snapshot: an upsert
            {"op": "u", "before": {"id": 1, "g": "a", "x": 1}, "after": {"id": 1, "g": "b", "x": 2}},
            {"op": "r", "before": None, "after": {"id": 1, "g": "c", "x": 3}},
            {"op": "c", "before": None, "after": {"id": 2, "g": "c", "x": 3}},
            {"op": "d", "before": {"id": 2}, "after": None},  # only the key is known
        ]
        text = "".join(json.dumps(line) + "\n" for line in lines)
        (tmp_path / "feed" / "keyed" / "1.jsonl").write_text(text)
        project.run(once=True)
        assert project.table("s.keyed").to_pylist() == [{"id": 1, "g": "c", "x": 3}]


def test_a_partition_that_is_trusted_holds_no_change_that_is_not() -> None:
    relation = Relation("t", Kind.TABLE, (Column("id", types.BIGINT),), ("id",))
    changes = ChangeSet("t", signed=pa.table({"id": [1], "_weight": [1]}))
    with pytest.raises(RunnelError, match="RUNNEL-SOURCE-FAULT"):
        list(changes_of(relation, Partition("t", 1, lambda: iter([changes]), trusted=True), 0))
