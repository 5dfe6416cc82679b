"""`runnel rebuild` and `[rebuild.*]`: the state becomes equal to its store again, whatever went wrong, while the log goes on (L4, L.d)."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner

import runnel
from runnel.cli import app
from runnel.connectors import guarded_source
from runnel.engine.duckdb import DuckDbEngine
from runnel.errors import RunnelError
from runnel.pipeline.reread import Part, rebuild
from tests.connectors.sources.conftest import Shop
from tests.connectors.sources.stores import STORES
from tests.connectors.targets.conftest import wait_until
from tests.connectors.targets.stores import MysqlStore as MysqlTarget
from tests.connectors.targets.stores import PostgresStore as PostgresTarget

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from runnel.connectors.base import ChangeSet, Handover, Offset, RereadableSource, Reread, Source
    from runnel.project import Project

SERVERS = ("mariadb", "mysql", "mysql-trusted", "postgres", "postgres-full")
SPOILT = (
    "UPDATE s.t SET x = 99 WHERE id = 1; DELETE FROM s.t WHERE id = 2; INSERT INTO s.t VALUES (77, 'wrong', 7)",
    (1, 2, 77),
)
"""What is done to the state behind its store's back, and the keys that differ then."""


def row(id_: int, g: str = "a", x: int = 1) -> dict[str, Any]:
    return {"id": id_, "g": g, "x": x}


@pytest.fixture(params=[pytest.param(name, marks=STORES[name][1]) for name in SERVERS])
def shop(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Shop]:
    """Give a project over each server in turn, which has captured three rows."""
    store = STORES[request.param][0](tmp_path, request)
    found = Shop(tmp_path, store)
    store.put(row(1), row(2), row(3, "b"))
    found.run()
    yield found
    store.close()


@contextmanager
def running(shop: Shop) -> Iterator[Project]:
    """Run the project in a thread for as long as the block lasts."""
    with shop.open() as project:
        failed: list[BaseException] = []

        def work() -> None:
            try:
                project.run()
            except BaseException as error:
                failed.append(error)

        thread = threading.Thread(target=work)
        thread.start()
        try:
            yield project
        finally:
            project.stop()
            thread.join(60)
        assert not failed


def test_a_rebuild_makes_the_state_equal_to_the_store_and_a_second_one_writes_nothing(shop: Shop) -> None:
    with shop.open() as project:
        project.sql(SPOILT[0])
        before = project.runtime.lake.head()
        done = project.rebuild("s.t")
        assert (done.rows_read, done.rows_changed, done.epoch, done.published) == (3, 3, before + 1, True)
        assert project.epochs()[-1]["rebuilt"] == {"s.t": 3}
        assert project.epochs()[-1]["views"]["sums"]["strategy"] == "incremental"
        again = project.rebuild("s.t")
        assert (again.rows_read, again.rows_changed, again.epoch, again.published) == (3, 0, done.epoch, False)
    shop.check()
    shop.store.put(row(1, "b"), row(4))
    shop.store.delete(3)
    shop.run()
    shop.check()


def test_a_rebuild_goes_ahead_of_a_log_that_nobody_follows_and_nothing_is_applied_twice(shop: Shop) -> None:
    with shop.open() as project:
        project.sql(SPOILT[0])
        shop.store.put(row(1, "c", 5), row(5))
        shop.store.delete(3)
        done = project.rebuild("s.t")
        assert done.ahead
        assert done.rows_changed == 5
    shop.check()
    shop.store.put(row(5, "d", 8), row(3, "again"))
    shop.store.delete(1)
    shop.run()
    shop.check()
    with shop.open() as project:
        assert project.rebuild("s.t").rows_changed == 0


class Interrupted:
    """A source of which somebody else does something once its rows are read, or before a handover with this number is given."""

    def __init__(self, source: Any, meanwhile: Callable[[], None], at: int = 0) -> None:
        self.source, self.meanwhile, self.at = source, meanwhile, at
        self.handovers: list[Handover | None] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self.source, name)

    def reread(self, start: Offset, tables: frozenset[str] | None = None) -> Reread:
        self.reading = self.source.reread(start, tables)
        self.tables, self.place, self.close = self.reading.tables, self.reading.place, self.reading.close
        return self  # type: ignore[return-value]

    def rows(self) -> Iterator[ChangeSet]:
        yield from self.reading.rows()
        if self.at == 0:
            self.meanwhile()

    def handover(self, have: Offset) -> Handover | None:
        found = self.reading.handover(have)
        self.handovers.append(found)
        if self.at == len(self.handovers):
            self.meanwhile()
        return found


@pytest.mark.parametrize("at", [0, 1, 2])
def test_a_log_that_goes_on_while_rows_are_read_or_compared_is_neither_lost_nor_applied_twice(
    shop: Shop, at: int
) -> None:
    with shop.open() as project:
        project.sql("UPDATE s.t SET x = 99 WHERE id = 1; INSERT INTO s.t VALUES (77, 'wrong', 7)")

        def meanwhile() -> None:
            shop.store.put(row(2, "moved", 4), row(4), row(5))
            shop.store.delete(3, 5)
            shop.store.put(row(3, "again", 9))
            shop.run()

        source = Interrupted(guarded_source(project.config.sources[0], shop.folder), meanwhile, at)
        try:
            done, _ = rebuild(project.runtime, source, Part("s", frozenset(["t"])))  # type: ignore[arg-type]
        finally:
            source.source.close()
        assert source.handovers[-1] is not None
        assert source.handovers[-1].changes
        assert not done.ahead
        assert done.rows_changed == 2
        assert project.rebuild("s.t").rows_changed == 0
    shop.check()
    shop.store.put(row(1, "z", 3))
    shop.store.delete(2)
    shop.run()
    shop.check()


def test_while_changes_flow_a_rebuild_beside_a_run_heals_and_the_second_one_writes_nothing(shop: Shop) -> None:
    """L.d: the log path goes on beside two rebuilds in another process's place; the second one finds nothing."""
    shop.store.put(*(row(n) for n in range(100, 160)))
    shop.run()
    over = threading.Event()

    def write() -> None:
        number = 0
        while not over.is_set():
            number += 1
            shop.store.put(row(number % 20 + 200, f"g{number % 3}", number))
            if number % 7 == 0:
                shop.store.delete(number % 20 + 200)

    writer = threading.Thread(target=write)
    with running(shop), runnel.open(shop.folder, engine=DuckDbEngine(), sync=False) as other:
        writer.start()
        try:
            for _ in range(3):
                before = other.runtime.lake.head()
                other.sql("UPDATE s.t SET x = 99 WHERE id >= 100 AND id < 110; DELETE FROM s.t WHERE id = 150")
                first, second = other.rebuild("s.t"), other.rebuild("s.t")
                assert (first.rows_changed, second.rows_changed) == (11, 0)
                assert not first.ahead
                wait_until(lambda before=before: other.runtime.lake.head() > before + 5)  # type: ignore[misc]
        finally:
            over.set()
            writer.join()
        end = other.position("s")
        other.wait("s", end, timeout=60)
    shop.check()


def test_where_names_the_rows_that_are_written_by_what_they_are_here_or_there(shop: Shop) -> None:
    with shop.open() as project:
        project.sql("UPDATE s.t SET g = 'b', x = 9 WHERE id = 2; UPDATE s.t SET x = 8 WHERE id = 1; DELETE FROM s.t WHERE id = 3")
        done = project.rebuild("s.t", where="t.g = 'b'")
        assert (done.rows_changed, done.ahead) == (2, False)
        assert {r["id"]: r["x"] for r in project.table("s.t").to_pylist()} == {1: 8, 2: 1, 3: 1}
        assert project.rebuild("s.t", where="g = 'b' -- nothing else").rows_changed == 0
        assert project.rebuild("s.t", where="x > 5").rows_changed == 1
    shop.check()


@pytest.mark.parametrize(
    ("name", "where", "said"),
    [
        ("s.tt", None, "RUNNEL-REBUILD-TABLE.*source s has no table 'tt'.*t"),
        ("nobody.t", None, "RUNNEL-SOURCE-UNKNOWN.*no source 'nobody'"),
        ("s.t", "amount > 3", "RUNNEL-REBUILD-WHERE.*amount > 3.*s.t"),
        ("s.t", "x +", "RUNNEL-REBUILD-WHERE"),
        ("s", "x > 1", "RUNNEL-REBUILD-WHERE.*s is a source"),
    ],
)
def test_what_cannot_be_rebuilt_is_refused_by_name(shop: Shop, name: str, where: str | None, said: str) -> None:
    with shop.open() as project:
        head = project.runtime.lake.head()
        with pytest.raises(RunnelError, match=said):
            project.rebuild(name, where)
        assert project.runtime.lake.head() == head
