"""Random views over random changes, delivered as they go: the store's tables equal the views, in every store."""

from __future__ import annotations

import json
import math
import os
import random
import zlib
from collections import Counter
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest

from runnel import config
from runnel.compiler import unique_columns
from runnel.connectors import open_target
from runnel.connectors.postgres.types import column_type
from runnel.connectors.sqltarget.json_text import json_text
from runnel.engine.duckdb import DuckDbEngine
from runnel.errors import Place
from runnel.model.types import nested
from runnel.pipeline.deliver import deliver, known_in
from tests.pipeline.random_project import play

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from runnel.errors import RunnelError
    from runnel.model.relation import Column
    from runnel.project import Project
    from tests.connectors.targets.stores import CassandraStore, MysqlStore, PostgresStore, Store

SEED = int(os.environ.get("RUNNEL_SEED", "700001")) or random.SystemRandom().randrange(1, 10**9)
CASES = max(4, int(os.environ.get("RUNNEL_CASES", "300")) // 40)


class Check:
    """Delivers a project's views after every step, and compares."""

    def __init__(self, store: Store, folder: Path, seed: int) -> None:
        self.store, self.folder, self.seed = store, folder, seed
        self.compared = 0

    def __call__(self, project: Project, what: str) -> None:
        relations = project.runtime.lake.snapshot().shown
        needs_key = self.store.type == "cassandra"
        known = known_in(project.runtime.lake.snapshot())
        keyed = {name for name, relation in relations.items() if unique_columns(relation, known.relations, known.texts)}
        names = [name for name in relations if name in keyed or not needs_key]
        # Cassandra's names of tables are letters, digits and underscores.
        views = {name: f"s{self.seed}_{zlib.crc32(name.encode()):08x}" for name in names}
        wanted = config.Target("front", self.store.type, views, self.store.settings(), Place("runnel.toml"))
        target = open_target(wanted, self.folder)
        done = deliver(project.runtime, wanted, target)
        target.close()
        for name in names:
            if name in done.problems:
                assert self._may_be_refused(done.problems[name]), f"seed {self.seed}, {what}: {done.problems[name]}"
                continue
            columns = relations[name].rows
            expected = Counter(self._row(columns, row) for row in project.table(name).to_pylist())
            found = Counter(self._row(columns, row) for row in self.store.rows(views[name]))
            assert found == expected, f"seed {self.seed}, {what}: {name}"
            self.compared += 1

    def _may_be_refused(self, problem: RunnelError) -> bool:
        """Say whether a store cannot hold something: keys or NULLs in Cassandra, NaN or names with emoji in MariaDB and MySQL."""
        if self.store.type == "cassandra":
            return problem.code in ("RUNNEL-TARGET-KEY-NULL", "RUNNEL-TARGET-VALUE")
        not_a_number = problem.code == "RUNNEL-TARGET-VALUE" and "which is not a number" in problem.message
        not_a_name = problem.code == "RUNNEL-TARGET-COLUMN" and "no column can be named" in problem.message
        return self.store.type != "postgres" and (not_a_number or not_a_name)

    def _row(self, columns: tuple[Column, ...], row: dict[str, Any]) -> str:
        by_name = {name.lower(): value for name, value in row.items()}
        return str([self._value(column, by_name[column.name.lower()]) for column in columns])

    def _value(self, column: Column, value: Any) -> Any:
        """Give one form for what is equal: JSON as the store has it, zeros without sign, times without zone."""
        if self.store.type in ("mariadb", "mysql") and nested(column.type):
            text = value if isinstance(value, str) or value is None else json_text(column.type, value)
            return (
                text if text is None else json.dumps(json.loads(text, parse_float=Decimal), sort_keys=True, default=str)
            )
        if self.store.type == "postgres" and column_type(column.type) == "jsonb":
            text = json_text(column.type, value) if not isinstance(value, dict) or column.type.name == "struct" else ""
            value = json.loads(text, parse_float=Decimal) if text else value
            return json.dumps(value, sort_keys=True, default=str)
        if self.store.type == "cassandra" and column.type.name == "struct" and isinstance(value, dict):
            value = tuple(value.values())  # its tuples have no names
        return _plain(value)


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else value + 0.0
    if isinstance(value, dict):
        return sorted((str(name), _plain(item)) for name, item in value.items())
    if isinstance(value, list) and value and isinstance(value[0], tuple):
        return sorted((str(name), _plain(item)) for name, item in value)
    if isinstance(value, list):
        return list(map(_plain, value))
    if isinstance(value, tuple):
        return tuple(map(_plain, value))
    return value.replace(tzinfo=None) if hasattr(value, "tzinfo") else value


def check(store: Store, folder: Path, say: Callable[[str], None]) -> None:
    engine, compared = DuckDbEngine(threads=2), 0
    for seed in range(SEED, SEED + CASES):
        follow = Check(store, folder, seed)
        with play(engine, seed, follow):
            compared += follow.compared
    say(f"{compared} tables compared in {CASES} cases, RUNNEL_SEED={SEED}")
    assert compared > CASES


@pytest.mark.postgres
def test_random_views_are_the_same_in_postgres(
    postgres_store: PostgresStore, tmp_path: Path, say: Callable[[str], None]
) -> None:
    check(postgres_store, tmp_path, say)


@pytest.mark.cassandra
def test_random_views_are_the_same_in_cassandra(
    cassandra_store: CassandraStore, tmp_path: Path, say: Callable[[str], None]
) -> None:
    check(cassandra_store, tmp_path, say)


@pytest.mark.mariadb
def test_random_views_are_the_same_in_mariadb(
    mariadb_store: MysqlStore, tmp_path: Path, say: Callable[[str], None]
) -> None:
    check(mariadb_store, tmp_path, say)


@pytest.mark.mysql
def test_random_views_are_the_same_in_mysql(
    mysql_store: MysqlStore, tmp_path: Path, say: Callable[[str], None]
) -> None:
    check(mysql_store, tmp_path, say)
