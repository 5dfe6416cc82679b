"""`runnel rebuild` and `[rebuild.*]`: the state becomes equal to its store again, whatever went wrong, while the log goes on (L4, L.d)."""

from __future__ import annotations

import json
import threading
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any, cast

import pytest
from typer.testing import CliRunner

import runnel
from runnel.cli import app
from runnel.connectors import guarded_source
from runnel.engine.duckdb import DuckDbEngine
from runnel.engine.spark import SparkEngine
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

    from runnel.connectors.base import ChangeSet, Handover, Offset, Reread, RereadableSource
    from runnel.connectors.guarded import GuardedSource
    from runnel.pipeline.reread import Rebuilt
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


def run(shop: Shop, *statements: str) -> None:
    """Run statements in the store."""
    cast("Any", shop.store)._run(*statements)


@contextmanager
def running(shop: Shop) -> Iterator[Project]:
    """Run the project in a thread for as long as the block lasts; give another opening of it, as another process has it."""
    with open_as_it_is(shop) as job, open_as_it_is(shop) as other:
        failed: list[BaseException] = []

        def work() -> None:
            try:
                job.run()
            except BaseException as error:
                failed.append(error)

        thread = threading.Thread(target=work)
        thread.start()
        try:
            yield other
        finally:
            job.stop()
            thread.join(60)
        assert not failed


def open_as_it_is(shop: Shop) -> Project:
    return runnel.open(shop.folder, engine=DuckDbEngine(), sync=False)


@contextmanager
def writing(write: Callable[[int], None]) -> Iterator[None]:
    """Write again and again for as long as the block lasts, with a number that grows."""
    over = threading.Event()

    def work() -> None:
        number = 0
        while not over.is_set():
            number += 1
            write(number)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


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

    def __init__(self, source: GuardedSource, meanwhile: Callable[[], None], at: int = 0) -> None:
        self.source, self.meanwhile, self.at = source, meanwhile, at
        self.handovers: list[Handover | None] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self.source, name)

    def reread(self, start: Offset, tables: frozenset[str] | None = None) -> Reread:
        return InterruptedReading(self, self.source.reread(start, tables))


class InterruptedReading:
    def __init__(self, source: Interrupted, reading: Reread) -> None:
        self.source, self.reading = source, reading
        self.tables, self.place = reading.tables, reading.place

    def rows(self) -> Iterator[ChangeSet]:
        yield from self.reading.rows()
        if self.source.at == 0:
            self.source.meanwhile()

    def handover(self, have: Offset) -> Handover | None:
        found = self.reading.handover(have)
        self.source.handovers.append(found)
        if self.source.at == len(self.source.handovers):
            self.source.meanwhile()
        return found

    def close(self) -> None:
        self.reading.close()


def rebuilt(shop: Shop, project: Project, meanwhile: Callable[[], None], at: int = 0) -> tuple[Rebuilt, Interrupted]:
    """Rebuild the table while somebody else does something."""
    with closing(guarded_source(project.config.sources[0], shop.folder)) as opened:
        source = Interrupted(opened, meanwhile, at)
        done, _ = rebuild(project.runtime, cast("RereadableSource", source), Part("s", frozenset(["t"])))
        return done, source


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

        done, source = rebuilt(shop, project, meanwhile, at)
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

    def write(number: int) -> None:
        shop.store.put(row(number % 20 + 200, f"g{number % 3}", number))
        if number % 7 == 0:
            shop.store.delete(number % 20 + 200)

    with running(shop) as project:
        with writing(write):
            for _ in range(3):
                before = project.runtime.lake.head()
                project.sql("UPDATE s.t SET x = 99 WHERE id >= 100 AND id < 110; DELETE FROM s.t WHERE id = 150")
                first, second = project.rebuild("s.t"), project.rebuild("s.t")
                assert (first.rows_changed, second.rows_changed) == (11, 0)
                assert not first.ahead
                wait_until(lambda before=before: project.runtime.lake.head() > before + 5)  # type: ignore[misc]
        project.wait("s", timeout=60)
    shop.check()


def test_where_names_the_rows_that_are_written_by_what_they_are_here_or_there(shop: Shop) -> None:
    with shop.open() as project:
        project.sql(
            "UPDATE s.t SET g = 'b', x = 9 WHERE id = 2; UPDATE s.t SET x = 8 WHERE id = 1; DELETE FROM s.t WHERE id = 3"
        )
        done = project.rebuild("s.t", where="t.g = 'b'")
        assert (done.rows_changed, done.ahead) == (2, False)
        assert {r["id"]: r["x"] for r in project.table("s.t").to_pylist()} == {1: 8, 2: 1, 3: 1}
        assert project.rebuild("s.t", where="g = 'b' -- nothing else").rows_changed == 0
        assert project.rebuild("s.t", where="x > 5").rows_changed == 1
    shop.check()


@pytest.mark.spark
def test_conditions_are_read_by_spark(shop: Shop, spark_engine: SparkEngine) -> None:
    run(shop, "INSERT INTO far VALUES (1, '2001-01-01'), (2, '2999-01-01')")
    shop.run()
    recent = "d > current_date - INTERVAL 7 DAYS AND rlike(string(id), '^[0-9]+$')"
    with shop.open(SparkEngine(spark_engine.session)) as project:
        project.sql("UPDATE s.far SET d = DATE'2002-02-02'")
        with pytest.raises(RunnelError, match=r"RUNNEL-REBUILD-WHERE.*'id' is no condition|RUNNEL-REBUILD-WHERE"):
            project.rebuild("s.far", where="id")
        assert project.rebuild("s.far", where=recent).rows_changed == 1
        assert {one["id"]: one["d"].year for one in project.table("s.far").to_pylist()} == {1: 2002, 2: 2999}
        assert project.rebuild("s.far", where=recent).rows_changed == 0
        assert project.rebuild("s.far").rows_changed == 1


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


def test_before_the_first_capture_there_is_nothing_to_rebuild(shop: Shop) -> None:
    (shop.folder / "views" / "v.sql").unlink()
    shop.folder = shop.folder / "fresh"
    (shop.folder / "views").mkdir(parents=True)
    with shop.open() as project, pytest.raises(RunnelError, match=r"RUNNEL-REBUILD-START.*`runnel run`"):
        project.rebuild("s.t")


def test_a_source_that_stopped_at_a_row_that_is_wrong_goes_on_after_a_rebuild(shop: Shop) -> None:
    with shop.open() as project:
        project.sql("DELETE FROM s.t WHERE id = 2")
        shop.store.delete(2)
        shop.store.put(row(8), row(1, "c", 4))
        if shop.configure().settings.get("before") != "trusted" and getattr(shop.store, "identity", "") != "FULL":
            with pytest.raises(RunnelError, match=r"RUNNEL-(ROW|KEY)-MISSING"):
                project.run(once=True)
        assert project.rebuild("s.t").ahead
        project.run(once=True)
    shop.check()
    shop.store.put(row(2, "back"), row(8, "d"))
    shop.run()
    shop.check()


def test_a_table_that_is_redefined_while_it_is_read_is_read_again(shop: Shop) -> None:
    with shop.open() as project:
        project.sql(SPOILT[0])
        done: list[bool] = []

        def meanwhile() -> None:
            if not done:
                done.append(True)
                run(shop, "ALTER TABLE t ADD COLUMN note varchar(9) DEFAULT 'none'")
                shop.run()

        rebuilt(shop, project, meanwhile)
        rows = sorted(project.table("s.t").to_pylist(), key=lambda one: int(one["id"]))
        assert rows == [known | {"note": "none"} for known in shop.store.rows()]
        assert project.rebuild("s.t").rows_changed == 0


def test_all_tables_of_a_source_are_rebuilt_as_of_one_place_and_tables_that_went_are_emptied(shop: Shop) -> None:
    run(shop, "CREATE TABLE gone (id int PRIMARY KEY)", "INSERT INTO gone VALUES (1)")
    shop.run()
    with shop.open() as project:
        assert len(project.table("s.gone").to_pylist()) == 1
        project.sql(SPOILT[0])
        run(shop, "DROP TABLE gone", "INSERT INTO far VALUES (5, '2024-02-29')")
        done = project.rebuild("s")
        assert {one.name: (one.rows_read, one.rows_changed) for one in done.tables} == {
            "s.far": (1, 1),
            "s.gone": (0, 1),
            "s.t": (3, 3),
        }
        assert not done.ahead
        assert project.table("s.gone").to_pylist() == []
    shop.store.put(row(1, "z"))
    shop.run()
    shop.check()
    with shop.open() as project:
        assert project.rebuild("s").rows_changed == 0


def test_the_command_says_what_was_read_and_what_differed(shop: Shop) -> None:
    def command(*args: str, exit_code: int = 0) -> str:
        done = CliRunner(env={"RUNNEL_ENGINE": "duckdb"}).invoke(app, ["--project", str(shop.folder), *args])
        assert done.exit_code == exit_code, f"{done.output}\n{done.stderr}\n{done.exception!r}"
        return done.stdout + done.stderr

    with shop.open() as project:
        project.sql(SPOILT[0])
    said = command("rebuild", "s.t", "--where", "id < 50")
    assert "s.t: 3 rows read, 2 differed" in said
    assert "written as epoch" in said
    assert "s.t: 3 rows read, 1 differed" in command("rebuild", "s.t")
    assert "nothing to write at epoch" in command("rebuild", "s.t")
    assert "RUNNEL-REBUILD-TABLE" in command("rebuild", "s.nothing", exit_code=2)
    shop.check()


def test_check_holds_scheduled_rebuilds_against_their_sources(shop: Shop) -> None:
    schedule(
        shop,
        '[rebuild.fine]\ntables = ["s.t"]\nwhere = "x > 3"\nevery = "1 day"',
        '[rebuild.table]\ntables = ["s.tt"]\nevery = "1 day"',
        '[rebuild.where]\ntables = ["s.t"]\nwhere = "amount > 3"\nevery = "1 day"',
    )
    done = CliRunner(env={"RUNNEL_ENGINE": "duckdb"}).invoke(app, ["--project", str(shop.folder), "check"])
    said = " ".join((done.stdout + done.stderr).split())
    assert done.exit_code == 1
    assert said.count("RUNNEL-REBUILD-") == 2
    assert "RUNNEL-REBUILD-TABLE" in said
    assert "'amount > 3' is no condition over the columns of s.t" in said


def schedule(shop: Shop, *sections: str) -> None:
    """Add sections to the settings for as long as the shop does not write them anew."""
    shop.configure()
    path = shop.folder / "runnel.toml"
    path.write_text("\n".join([path.read_text(), *sections]))


RECENT = '[rebuild.recent]\ntables = ["s.t"]\nevery = "1 second"'


def test_a_schedule_rebuilds_beside_the_log_and_status_says_when_and_what_it_found(shop: Shop) -> None:
    """L.d: by `[rebuild.*]`; a section that cannot be carried out is told with its code, and stops nothing else."""
    schedule(shop, RECENT, '[rebuild.wrong]\ntables = ["s.nothing"]\nevery = "1 second"')
    with running(shop) as project:
        wait_until(lambda: project.status().rebuilds[0].last is not None)
        wait_until(lambda: "RUNNEL-REBUILD-TABLE" in (project.status().rebuilds[1].error or ""))
        project.sql(SPOILT[0])
        wait_until(lambda: project.status().rebuilds[0].rows_changed == 3)
        shop.store.put(row(4), row(1, "b"))
        project.wait("s", timeout=60)
        wait_until(lambda: project.status().rebuilds[0].rows_changed == 0)
        recent, wrong = project.status().rebuilds
        said = str(project.status())
    assert (recent.rows_read, recent.error, wrong.last) == (4, None, None)
    assert "rebuild recent: s.t every 1 s, last at " in said
    assert "rebuild wrong: s.nothing every 1 s, never done ERROR RUNNEL-REBUILD-TABLE: source s has no" in said
    shop.check()


def test_rows_of_a_target_and_of_the_state_that_were_spoilt_are_those_of_the_source_again(
    shop: Shop, request: pytest.FixtureRequest
) -> None:
    """L.d: target rows are deleted and spoilt, and those of the state; rebuild and repair, twice, while the log flows."""
    server = request.getfixturevalue(f"{shop.store.TYPE}_server")
    target = PostgresTarget(server) if shop.store.TYPE == "postgres" else MysqlTarget(server)
    target.gate.open()
    known = "\n".join(f"{name} = {json.dumps(value)}" for name, value in target.settings().items())
    views = 'views = { sums = "sums" }\nkeys = { sums = ["g"] }'
    schedule(shop, f'[targets.front]\ntype = "{target.type}"\n{known}\n{views}')

    def there() -> list[tuple[Any, ...]]:
        return sorted((one["g"], one["s"], one["n"]) for one in target.rows("sums"))

    def groups() -> list[str]:
        return [group for group, _, _ in there()]

    with running(shop) as project:
        wait_until(lambda: project.status().targets[0].epoch is not None)
        with writing(lambda number: shop.store.put(row(number % 9 + 20, "flows", number))):
            wait_until(lambda: groups() == ["a", "b", "flows"])
            project.sql("UPDATE s.t SET x = 99, g = 'lost' WHERE id = 1; DELETE FROM s.t WHERE id = 3")
            wait_until(lambda: groups() == ["a", "flows", "lost"])
            assert [project.rebuild("s.t").rows_changed for _ in range(2)] == [2, 0]
            wait_until(lambda: groups() == ["a", "b", "flows"])
            target.run("DELETE FROM sums WHERE g = 'b'", "UPDATE sums SET s = 1000 WHERE g = 'a'")
        project.wait("s", timeout=60)
        wait_until(lambda: project.status().targets[0].behind == 0)
        (repaired,) = project.verify_target("front", repair=True)
        assert repaired.ok
        assert repaired.difference is not None
        assert repaired.difference.counts == {"missing": 1, "different": 1, "unexpected": 0}
        (again,) = project.verify_target("front", repair=True)
        assert (again.ok, again.repaired) == (True, None)
        assert project.rebuild("s.t").rows_changed == 0
    sums: dict[str, list[int]] = {}
    for one in shop.store.rows():
        sums.setdefault(one["g"], []).append(one["x"])
    assert there() == sorted((g, sum(xs), len(xs)) for g, xs in sums.items())
    target.gate.shut()
