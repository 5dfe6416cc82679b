"""`runnel verify --target`: every row that differs is found, listed and, if asked, written; nothing else is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.connectors.targets.conftest import Front, state
from tests.connectors.targets.test_delivery import fill, same

if TYPE_CHECKING:
    from pathlib import Path

    from tests.connectors.targets.stores import Gate

SPOILT = (
    "DELETE FROM sales WHERE id = 1",
    "INSERT INTO sales (id, region) VALUES (77, 'not ours')",
    "UPDATE sales SET amount = 1000 WHERE id = 2",
    "UPDATE sales SET region = 'S' WHERE id = 3",
)


def test_missing_different_and_extra_rows_are_listed_and_only_they_are_written(sql_front: Front) -> None:
    sql_front.configure("takings", "sales")
    with sql_front.open() as project:
        fill(project)
        project.run(once=True)
    told = sql_front.command("verify", "--target", "front")
    assert "takings as takings: 2 rows compared at epoch" in told
    assert told.count("equal") == 2
    sql_front.store.run(*SPOILT)
    told = sql_front.command("verify", "--target", "front", exit_code=1)
    assert "sales as sales: 3 rows compared" in told
    assert "1 rows missing, 2 rows different, 1 rows unexpected" in told
    found = [line.strip() for line in told.splitlines() if '{"id"' in line]
    assert sorted(found) == ['different {"id": 2}', 'different {"id": 3}', 'missing {"id": 1}', 'unexpected {"id": 77}']
    assert "takings as takings: 2 rows compared" in told
    told = sql_front.command("verify", "takings", "--target", "front")
    assert "sales" not in told
    with sql_front.open() as project:
        (before,) = [
            one for one in project.verify_target("front", repair=True) if not one.difference or not one.difference.ok
        ]
        assert before.ok
        same(sql_front, project)
    assert "unexpected" not in sql_front.command("verify", "--target", "front", "--repair")


def test_a_repair_writes_the_rows_that_differ_and_no_others(sql_front: Front) -> None:
    sql_front.configure("sales")
    with sql_front.open() as project:
        project.create_table("sales", "id INT, region STRING, amount INT", key=["id"])
        project.sql(f"INSERT INTO sales VALUES {', '.join(f'({n}, NULL, {n})' for n in (1, 2, 3, *range(100, 400)))}")
        project.run(once=True)
        sql_front.store.run(*SPOILT)
        head = project.runtime.lake.head()
        (checked,) = project.verify_target("front", repair=True)
        assert checked.difference is not None
        assert checked.difference.counts == {"missing": 1, "different": 2, "unexpected": 1}
        assert (checked.ok, checked.epoch, project.runtime.lake.head()) == (True, head, head)
        same(sql_front, project, "sales")
        assert project.deliver(full=True)["front"].rows == 0


def test_rows_without_a_key_and_keys_that_are_null_are_compared_too(sql_front: Front) -> None:
    sql_front.configure("bag", "grouped")
    with sql_front.open() as project:
        project.create_table("t", "id INT, a STRING, b INT, x DOUBLE", key=["id"])
        project.create_view("bag", "SELECT a, x FROM t")
        project.create_view("grouped", "SELECT a, b, sum(x) AS s FROM t GROUP BY a, b")
        project.sql(
            "INSERT INTO t VALUES (1, 'a', 1, 1), (2, 'a', 1, 1), (3, 'a', 1, 1), (4, NULL, NULL, -0.0), (5, NULL, 2, NULL)"
        )
        project.run(once=True)
        assert all(checked.ok for checked in project.verify_target("front"))
        sql_front.store.run(
            "DELETE FROM bag WHERE a = 'a' AND _runnel_copy = 2",
            "UPDATE bag SET a = 'b' WHERE a IS NULL AND x IS NULL",
            "DELETE FROM grouped WHERE a IS NULL AND b = 2",
            "UPDATE grouped SET s = 9 WHERE a IS NULL AND b IS NULL",
            "INSERT INTO grouped (a, b, s) VALUES (NULL, 7, 1)",
        )
        bag, groups = (checked.difference for checked in project.verify_target("front"))
        assert bag is not None
        assert groups is not None
        assert (bag.counts, bag.checked) == ({"missing": 1, "different": 1, "unexpected": 0}, 5)
        assert groups.counts == {"missing": 1, "different": 1, "unexpected": 1}
        assert [row["b"] for row in groups.rows["missing"]] in ([2], ["2"])
        assert all(checked.ok for checked in project.verify_target("front", repair=True))
        assert all(checked.difference and checked.difference.ok for checked in project.verify_target("front"))


def test_a_target_that_is_behind_is_compared_as_of_the_epoch_it_has(sql_front: Front) -> None:
    sql_front.configure("sales", "takings")
    with sql_front.open() as project:
        fill(project)
        told = sql_front.command("verify", "--target", "front", exit_code=1)
        assert "deliver it first" in told
        project.run(once=True)
        project.sql("UPDATE sales SET amount = 99 WHERE id = 1; INSERT INTO sales VALUES (9, 'z', 1)")
        assert state(project, "sales").behind > 0
        assert all(checked.ok for checked in project.verify_target("front"))
        sql_front.store.run("DELETE FROM sales WHERE id = 2")
        (checked,) = project.verify_target("front", ["sales"], repair=True)
        assert checked.difference is not None
        assert checked.difference.rows["missing"] in ([{"id": 2}], [{"id": "2"}])
        assert checked.ok
        same(sql_front, project, "sales")


def test_a_store_whose_tables_cannot_be_compared_says_so(tmp_path: Path) -> None:
    front = Front(tmp_path, Unreached())
    front.configure("sales")
    with front.open() as project:
        fill(project)
    assert "RUNNEL-VERIFY-TARGET" in front.command("verify", "--target", "front", exit_code=2)
    assert "there is no target 'frnt'" in front.command("verify", "--target", "frnt", exit_code=2)
    assert "RUNNEL-VERIFY-SAMPLE" in front.command("verify", "--target", "front", "--sample", "2", exit_code=2)


class Unreached:
    """A Cassandra that nobody needs to reach."""

    type = "cassandra"
    gate: Gate

    def settings(self) -> dict[str, Any]:
        return {"hosts": ["127.0.0.1"], "port": 1, "keyspace": "k"}

    def run(self, *statements: str) -> None:
        raise NotImplementedError

    def rows(self, table: str) -> list[dict[str, Any]]:
        raise NotImplementedError

    def mark(self, table: str) -> dict[str, Any]:
        raise NotImplementedError

    def put_mark(self, table: str, mark: dict[str, Any]) -> None:
        raise NotImplementedError
