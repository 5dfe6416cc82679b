"""What every target promises: its tables equal their views, whatever happened in between."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from typing import TYPE_CHECKING, Any

import pytest

from runnel.errors import RunnelError, Unreachable
from runnel.failpoints import KILL_AT
from runnel.pipeline import upkeep
from tests.connectors.targets.conftest import state, wait_until

if TYPE_CHECKING:
    from runnel.project import Project
    from tests.connectors.targets.conftest import Front


def fill(project: Project) -> None:
    """Make a table and a view over it."""
    project.create_table("sales", "id INT, region STRING, amount INT", key=["id"])
    project.create_view("takings", "SELECT region, sum(amount) AS total, count(*) AS n FROM sales GROUP BY region")
    project.sql("INSERT INTO sales VALUES (1, 'n', 10), (2, 'n', 5), (3, 's', 7)")


def shown(project: Project, name: str) -> list[tuple[Any, ...]]:
    """Give the rows of a view or table as the store's are given."""
    rows = project.table(name).to_pylist()
    return sorted((tuple(row[column] for column in sorted(row)) for row in rows), key=lambda row: str(row))


def same(front: Front, project: Project, *names: str) -> None:
    """Hold the store's tables against their views."""
    for name in names or ("sales", "takings"):
        assert front.rows(name) == shown(project, name), name


def test_views_and_tables_follow_inserts_updates_and_deletes(front: Front) -> None:
    front.configure("takings", "sales")
    with front.open() as project:
        fill(project)
        project.run(once=True)
        assert front.rows("takings") == [(1, "s", 7), (2, "n", 15)]
        project.sql("INSERT INTO sales VALUES (4, 'w', NULL), (5, 's', 1); UPDATE sales SET amount = NULL WHERE id = 1")
        project.sql("UPDATE sales SET region = 'e' WHERE id = 2; DELETE FROM sales WHERE id = 3")
        project.run(once=True)
        same(front, project)
        assert front.rows("sales") == [(1, None, "n"), (2, 5, "e"), (4, None, "w"), (5, 1, "s")] or front.rows(
            "sales"
        ) == sorted([(None, 1, "n"), (5, 2, "e"), (None, 4, "w"), (1, 5, "s")], key=str)
        project.sql("DELETE FROM sales")
        project.run(once=True)
        assert front.rows("takings") == front.rows("sales") == []
        project.sql("INSERT INTO sales VALUES (3, 's', 70)")
        project.run(once=True)
        same(front, project)
        assert state(project, "takings").behind == 0


def test_many_epochs_come_in_one_step_and_an_idle_target_is_not_written_to(front: Front) -> None:
    front.configure("takings", "sales")
    with front.open() as project:
        fill(project)
        project.run(once=True)
        for number in range(10, 20):
            project.sql(f"INSERT INTO sales VALUES ({number}, 'n', 1); DELETE FROM sales WHERE id = {number - 1}")
        before = front.store.mark("takings")
        assert state(project, "takings").behind >= 10
        project.run(once=True)
        same(front, project)
        assert front.store.mark("takings")["epoch"] > before["epoch"]
        marked = front.store.mark("takings")
        assert {name: done.rows for name, done in project.deliver().items()} == {"front": 0}
        assert front.store.mark("takings") == marked


def test_a_mark_does_not_fall_out_of_the_epochs_that_are_kept(front: Front) -> None:
    front.configure("takings", "sales", keep=8)
    with front.open() as project:
        fill(project)
        project.create_table("other", "id INT")
        project.run(once=True)
        marks = set()
        for number in range(20):
            project.sql(f"INSERT INTO other VALUES ({number})")
            project.run(once=True)
            marks.add(front.store.mark("takings")["epoch"])
            assert state(project, "takings").behind == 0
        assert project.runtime.lake.head() - max(marks) <= 2
        assert len(marks) <= 12


def test_a_replayed_epoch_changes_nothing(front: Front) -> None:
    front.configure("takings", "sales")
    with front.open() as project:
        fill(project)
        project.run(once=True)
        before = {name: front.store.mark(name) for name in ("takings", "sales")}
        project.sql("DELETE FROM sales WHERE id = 3; UPDATE sales SET amount = 1 WHERE id = 2")
        project.run(once=True)
        same(front, project)
        for name, mark in before.items():
            front.store.put_mark(name, mark)
            project.deliver()
            same(front, project)


def run_child(front: Front, kill_at: str) -> None:
    env = os.environ | {KILL_AT: kill_at}
    command = [sys.executable, "-m", "tests.connectors.targets.deliver_child", str(front.folder)]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr[-2000:]


@pytest.mark.parametrize("point", ["deliver:rows-written", "deliver:marked"])
def test_a_kill_while_delivering_loses_nothing_though_the_change_is_taken_back_meanwhile(
    front: Front, point: str
) -> None:
    front.configure("takings", "sales")
    with front.open() as project:
        fill(project)
        project.run(once=True)
        project.sql("UPDATE sales SET amount = 99 WHERE id = 1; DELETE FROM sales WHERE id = 2")
    run_child(front, point)
    with front.open() as project:
        project.sql("UPDATE sales SET amount = 10 WHERE id = 1; INSERT INTO sales VALUES (2, 'n', 5)")
        project.run(once=True)
        same(front, project)


def test_a_kill_in_a_first_load_is_made_up_for(front: Front) -> None:
    front.configure("takings", "sales")
    with front.open() as project:
        fill(project)
    run_child(front, "deliver:rows-written")
    with front.open() as project:
        project.sql("DELETE FROM sales WHERE id = 3")
        project.run(once=True)
        same(front, project)


def test_a_target_that_is_away_holds_up_nothing_and_catches_up_when_it_is_back(front: Front) -> None:
    front.configure("takings", "sales")
    with front.open() as project:
        fill(project)
        project.run(once=True)
        front.store.gate.shut()
        thread = threading.Thread(target=project.run)
        thread.start()
        try:
            for number in range(10, 15):
                project.sql(f"INSERT INTO sales VALUES ({number}, 'x', {number})")
            wait_until(lambda: state(project, "takings").error is not None)
            found = state(project, "takings")
            assert found.error is not None
            assert "does not answer" in found.error or "no node answers" in found.error or "replicas" in found.error
            assert found.behind > 0
            assert all(view.behind == 0 for view in project.status().views)
            front.store.gate.open()
            wait_until(lambda: state(project, "takings").error is None)
            project.sql("DELETE FROM sales WHERE id = 1")
            wait_until(lambda: state(project, "sales").behind == 0 == state(project, "takings").behind)
        finally:
            project.stop()
            thread.join(timeout=60)
        assert not thread.is_alive()
        same(front, project)


def test_once_ends_with_a_clear_error_while_the_target_is_away(front: Front) -> None:
    front.configure("takings")
    with front.open() as project:
        fill(project)
        front.store.gate.shut()
        with pytest.raises(Unreachable, match=r"targets\.front"):
            project.run(once=True)
        told = state(project, "takings")
        assert (told.epoch, told.error is not None) == (None, True)
    assert "targets.front" in front.command("deliver", exit_code=3)
    assert "targets.front" in front.command("check", exit_code=1)
    front.store.gate.open()
    assert "front: at epoch" in front.command("deliver")
    assert "(0 behind)" in front.command("status")


def test_history_that_is_no_longer_kept_brings_a_whole_load(front: Front) -> None:
    front.configure("takings", "sales", keep=2)
    with front.open() as project:
        fill(project)
        project.run(once=True)
        front.store.run("INSERT INTO sales (id, region) VALUES (77, 'not ours')")
        project.sql("DELETE FROM sales WHERE id = 3")
        for number in range(30, 40):
            project.sql(f"INSERT INTO sales VALUES ({number}, 'n', 1)")
        upkeep.compact(project.runtime, project.runtime.lake.snapshot(), all_files=True)
        project.runtime.grace = 0.0
        project.compact()
        assert state(project, "sales").behind > 0
        project.run(once=True)
        same(front, project)


def test_a_full_delivery_heals_what_somebody_else_did(front: Front) -> None:
    front.configure("takings", "sales")
    with front.open() as project:
        fill(project)
        project.run(once=True)
        front.store.run(
            "DELETE FROM sales WHERE id = 1",
            "INSERT INTO sales (id, region) VALUES (77, 'not ours')",
            "UPDATE sales SET amount = 1000 WHERE id = 2",
        )
        assert front.rows("sales") != shown(project, "sales")
        assert project.deliver("front", full=True)["front"].rows >= 3
        same(front, project)
        project.sql("DELETE FROM sales WHERE id = 2")
        project.run(once=True)
        same(front, project)


def test_a_table_that_was_dropped_is_made_again(front: Front) -> None:
    front.configure("takings", "sales")
    with front.open() as project:
        fill(project)
        project.run(once=True)
        front.store.run("DROP TABLE sales")
        project.run(once=True)
        same(front, project)


def test_a_view_that_is_made_anew_replaces_the_rows_and_brings_its_new_columns(front: Front) -> None:
    front.configure("takings", "sales")
    with front.open() as project:
        fill(project)
        project.run(once=True)
        sql = "SELECT region, sum(amount) AS total, count(*) AS n FROM sales WHERE amount > 6 GROUP BY region"
        project.create_view("takings", sql, replace=True)
        project.run(once=True)
        assert front.rows("takings") == [(1, "n", 10), (1, "s", 7)]
        more = "SELECT region, sum(amount) AS total, count(*) AS n, sum(id) AS ids FROM sales GROUP BY region"
        project.create_view("takings", more, replace=True)
        project.run(once=True)
        same(front, project)
        project.sql("DELETE FROM sales WHERE id = 2")
        project.run(once=True)
        same(front, project)


def test_a_view_that_is_gone_is_told_and_the_others_go_on(front: Front) -> None:
    front.configure("takings", "sales")
    with front.open() as project:
        fill(project)
        project.run(once=True)
        project.drop_view("takings")
        project.sql("DELETE FROM sales WHERE id = 2")
        with pytest.raises(RunnelError, match="no table or view 'takings'"):
            project.run(once=True)
        same(front, project, "sales")
        assert front.rows("takings") == [(1, "s", 7), (2, "n", 15)]
        assert "takings" in (state(project, "takings").error or "")


def test_a_key_that_a_user_names_is_held_to(front: Front) -> None:
    front.configure("named", keys={"named": ["id"]})
    with front.open() as project:
        fill(project)
        project.create_view("named", "SELECT id % 10 AS id, region FROM sales")
        project.run(once=True)
        same(front, project, "named")
        project.sql("INSERT INTO sales VALUES (12, 'x', 1)")
        with pytest.raises(RunnelError, match=r"RUNNEL-TARGET-KEY-TWICE.*id=2"):
            project.run(once=True)
        assert state(project, "named").behind > 0
        project.sql("DELETE FROM sales WHERE id = 2")
        project.run(once=True)
        same(front, project, "named")
        project.sql("INSERT INTO sales VALUES (11, 'x', 1)")
        project.create_view("named", "SELECT id % 10 AS id, concat(region, '!') AS region FROM sales", replace=True)
        with pytest.raises(RunnelError, match="RUNNEL-TARGET-KEY-TWICE"):
            project.run(once=True)


def test_somebody_who_comes_late_changes_nothing(front: Front) -> None:
    """Two deliver at once: the one whose work is older must not win."""
    from runnel.connectors import open_target
    from runnel.errors import Conflict
    from runnel.pipeline import deliver as delivering

    front.configure("sales")
    with front.open() as project:
        fill(project)
        project.run(once=True)
        wanted = project.config.targets[0]
        late = open_target(wanted, front.folder)
        project.sql("UPDATE sales SET amount = 50 WHERE id = 1; DELETE FROM sales WHERE id = 2")
        head = project.runtime.lake.snapshot()
        shape = delivering.shape_of(delivering.known_in(head), wanted, "sales", needs_key=True)
        mark = late.marks([shape])["sales"]
        old = delivering._Plan(project.runtime, head, shape, wanted, mark).delivery(full=False)
        assert old is not None
        project.sql("UPDATE sales SET amount = 60 WHERE id = 1; INSERT INTO sales VALUES (2, 'back', 1)")
        project.run(once=True)
        try:
            late.apply([old])
        except Conflict:
            assert front.store.type != "cassandra"
        late.close()
        same(front, project, "sales")
        project.sql("DELETE FROM sales WHERE id = 3")
        project.run(once=True)
        same(front, project, "sales")


def test_check_tells_what_does_not_fit(front: Front) -> None:
    front.configure("sales", "takings", "nothing")
    with front.open() as project:
        fill(project)
    front.store.run(
        "CREATE TABLE sales (id int PRIMARY KEY, region int, amount int)",
        "CREATE TABLE takings (region text, total bigint, n bigint, PRIMARY KEY (n))",
    )
    told = front.command("check", exit_code=1)
    assert "does not fit sales: column 'region' is" in told
    assert "RUNNEL-TARGET-COLUMN" in told
    assert "RUNNEL-TARGET-KEY-INDEX" in told
    assert "no table or view 'nothing'" in told
    front.store.run("DROP TABLE sales", "DROP TABLE takings")
    front.configure("sales", "takings")
    assert "no problems" in front.command("check")
    front.configure("sales", colour="red")
    assert "unknown key 'colour'" in front.command("check", exit_code=1)
    assert "unknown key 'colour'" in front.command("run", "--once", exit_code=2)


def test_a_table_of_somebody_elses_making_is_filled_as_it_is(front: Front) -> None:
    wide = "region text" if front.store.type == "cassandra" else "region varchar(9)"
    front.configure("takings")
    front.store.run(f'CREATE TABLE takings ({wide} PRIMARY KEY, "TOTAL" bigint, n bigint, note text)')
    with front.open() as project:
        fill(project)
        project.run(once=True)
        assert front.rows("takings", "region", "TOTAL", "n", "note") == [("n", 15, 2, None), ("s", 7, 1, None)]


def test_a_table_of_rows_without_a_key_is_refused_once_there_is_one(sql_front: Front) -> None:
    """Its hash of whole rows must not be NULL, and rows with a key have none."""
    sql_front.configure("v")
    with sql_front.open() as project:
        fill(project)
        project.create_view("v", "SELECT id, region FROM sales UNION ALL SELECT 10, 'x'")
        project.run(once=True)
        same(sql_front, project, "v")
    sql_front.configure("v", keys={"v": ["id"]})
    with sql_front.open() as project:
        project.sql("UPDATE sales SET region = 'y' WHERE id = 1")
        with pytest.raises(RunnelError, match=r"RUNNEL-TARGET-COLUMN.*'_runnel_row'.*must not be NULL"):
            project.run(once=True)
        sql_front.store.run("DROP TABLE v")
        project.run(once=True)
        same(sql_front, project, "v")


def test_a_change_is_not_written_into_a_table_that_was_dropped_meanwhile(sql_front: Front) -> None:
    from runnel.connectors import open_target
    from runnel.errors import Conflict
    from runnel.pipeline import deliver as delivering

    sql_front.configure("sales")
    with sql_front.open() as project:
        fill(project)
        project.run(once=True)
        wanted = project.config.targets[0]
        target = open_target(wanted, sql_front.folder)
        project.sql("UPDATE sales SET amount = 50 WHERE id = 1")
        head = project.runtime.lake.snapshot()
        shape = delivering.shape_of(delivering.known_in(head), wanted, "sales", needs_key=False)
        mark = target.marks([shape])["sales"]
        change = delivering._Plan(project.runtime, head, shape, wanted, mark).delivery(full=False)
        assert change is not None
        sql_front.store.run("DROP TABLE sales")
        with pytest.raises(Conflict):
            target.apply([change])
        target.close()
        project.run(once=True)
        same(sql_front, project, "sales")
