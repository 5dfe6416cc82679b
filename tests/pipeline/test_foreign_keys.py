"""Foreign keys of tables: what is declared is kept and shown, what is enforced always holds, and what holds is used."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import runnel
from runnel.engine.duckdb import DuckDbEngine
from runnel.engine.inputs import IN_MEMORY
from runnel.errors import Problems, RunnelError, UsageError
from runnel.model.relation import ForeignKey, Trust

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from runnel.engine.base import Input
    from runnel.model.relation import Column
    from runnel.project import Project

PEOPLE = "cid INT, name STRING, PRIMARY KEY (cid)"
ORDERS = "id INT, cid INT, n INT, PRIMARY KEY (id), FOREIGN KEY (cid) REFERENCES people (cid)"
NAMED = "SELECT o.id, p.name FROM orders o JOIN people p ON o.cid = p.cid"
BROKEN = "RUNNEL-FOREIGN-KEY-BROKEN"


class Watched(DuckDbEngine):
    """DuckDB that remembers which inputs its queries were given."""

    def __init__(self) -> None:
        """Remember nothing yet."""
        super().__init__()
        self.given: list[str] = []

    def rows(self, sql: str, inputs: Mapping[str, Input], columns: Sequence[Column] | None = None) -> pa.Table:
        """Note the inputs, and run the query."""
        self.given += inputs
        return super().rows(sql, inputs, columns)


@pytest.fixture
def shop(project: Project) -> Project:
    """Give people who order, and a view over both."""
    project.create_table("people", PEOPLE)
    project.create_table("orders", ORDERS)
    with project.transaction() as tx:
        tx.insert("people", [{"cid": 1, "name": "Ann"}, {"cid": 2, "name": "Bo"}])
        tx.insert("orders", [{"id": 1, "cid": 1, "n": 1}, {"id": 2, "cid": 1, "n": 2}, {"id": 3, "cid": None, "n": 3}])
    project.create_view("named", NAMED)
    return project


def refused(project: Project, sql: str) -> str:
    """Give what a transaction is refused with; nothing of it may be seen."""
    before = project.status().epoch
    with pytest.raises(RunnelError) as told:
        project.sql(sql)
    assert told.value.code == BROKEN
    assert project.status().epoch == before
    return told.value.message


def test_a_row_that_refers_to_nothing_is_refused_and_named(shop: Project) -> None:
    assert refused(shop, "INSERT INTO orders VALUES (4, 9, 1)") == (
        "orders: a row refers to cid=9, which people does not have"
    )
    assert "cid=9" in refused(shop, "UPDATE orders SET cid = 9 WHERE id = 1")
    assert "cid=2" in refused(shop, "DELETE FROM people WHERE cid = 2; UPDATE orders SET cid = 2 WHERE id = 2")


def test_a_key_that_is_referred_to_stays(shop: Project) -> None:
    assert refused(shop, "DELETE FROM people WHERE cid = 1") == (
        "orders: a row still refers to cid=1, which goes from people"
    )
    assert "cid=1" in refused(shop, "UPDATE people SET cid = 7 WHERE cid = 1")
    assert "cid=1" in refused(shop, "DELETE FROM people WHERE cid = 1; DELETE FROM orders WHERE id = 1")


@pytest.mark.parametrize(
    "sql",
    [
        "DELETE FROM people WHERE cid = 2",
        "INSERT INTO orders VALUES (4, NULL, 1)",
        "INSERT INTO orders VALUES (4, 8, 1); INSERT INTO people VALUES (8, 'Cy')",
        "DELETE FROM people WHERE cid = 1; DELETE FROM orders WHERE cid = 1",
        "DELETE FROM people WHERE cid = 1; UPDATE orders SET cid = 2 WHERE cid = 1",
        "UPDATE people SET cid = 7 WHERE cid = 1; UPDATE orders SET cid = 7 WHERE cid = 1",
        "UPDATE people SET name = 'Anne' WHERE cid = 1; UPDATE orders SET n = 9 WHERE cid = 1",
        "DELETE FROM people WHERE cid = 1; INSERT INTO people VALUES (1, 'another')",
        "INSERT INTO orders VALUES (4, 9, 1); DELETE FROM orders WHERE id = 4",
    ],
)
def test_what_keeps_the_keys_is_taken_and_seen_in_the_view(shop: Project, sql: str) -> None:
    shop.sql(sql)
    assert shop.verify("named").ok


def test_a_key_of_two_columns_and_one_to_the_table_itself_are_enforced(project: Project) -> None:
    project.create_table("goods", "pid INT, version INT, PRIMARY KEY (pid, version)")
    project.create_table(
        "parts", "id INT PRIMARY KEY, v INT, p INT, whole INT", references={("p", "v"): "goods", "whole": "parts"}
    )
    project.sql(
        "INSERT INTO goods VALUES (1, 2); INSERT INTO parts VALUES (1, 2, 1, NULL), (2, NULL, 5, 1), (3, 2, 1, 3)"
    )
    assert project.table("parts").references == (ForeignKey(("p", "v"), "goods"), ForeignKey(("whole",), "parts"))
    assert "p=2, v=1" in refused(project, "INSERT INTO parts VALUES (4, 1, 2, NULL)")
    assert "whole=1" in refused(project, "DELETE FROM parts WHERE id = 1")
    project.sql("DELETE FROM parts WHERE id IN (1, 2)")
    project.sql("DELETE FROM parts WHERE id = 3")
    project.sql("DELETE FROM goods WHERE pid = 1")


def test_signed_rows_are_checked_even_where_they_are_trusted(shop: Project) -> None:
    with pytest.raises(RunnelError) as told, shop.transaction() as tx:
        tx.apply("orders", [{"id": 9, "cid": 99, "n": 1, "_weight": 1}], trusted=True)
    assert told.value.code == BROKEN


def test_new_rows_of_a_referenced_table_do_not_look_up_what_refers_to_it() -> None:
    engine = Watched()
    with runnel.memory(engine=engine) as project:
        project.create_table("people", PEOPLE)
        project.create_table("orders", ORDERS)
        project.sql("INSERT INTO people VALUES (1, 'Ann'); INSERT INTO orders VALUES (1, 1, 1)")
        project.create_view("named", NAMED)
        project.create_view(
            "sums", "SELECT p.name, sum(o.n) AS s FROM orders o JOIN people p USING (cid) GROUP BY p.name"
        )
        for sql, looked_up in (
            ("INSERT INTO people VALUES (2, 'Bo'), (3, 'Cy')", False),
            ("DELETE FROM people WHERE cid = 3", False),
            ("INSERT INTO people VALUES (4, 'Di'); INSERT INTO orders VALUES (2, 4, 1)", False),
            ("DELETE FROM people WHERE cid = 4; DELETE FROM orders WHERE id = 2", False),
            ("UPDATE people SET name = 'Anne' WHERE cid = 1", True),
        ):
            with project.transaction() as tx:
                tx.sql(sql)
                engine.given.clear()
            given = [name for name in engine.given if name in ("orders__old", "orders__new")]
            assert bool(given) == looked_up, sql
            assert all(report.ok for report in project.verify_all()), sql


def test_explain_and_status_say_what_a_foreign_key_is_good_for(shop: Project) -> None:
    shown = str(shop.explain("named"))
    assert "foreign key to people: linear  its new and removed rows are not looked up, only updated ones" in shown
    assert "[RUNNEL-SAVED-LOOKUP]" in shown
    assert "  (cid) references people, enforced" in str(shop.status())


def test_a_deferred_view_takes_many_changes_of_both_tables_at_once(shop: Project) -> None:
    shop.create_view("late", NAMED.replace("JOIN", "LEFT JOIN"), refresh="manual")
    for sql in (
        "INSERT INTO people VALUES (5, 'Ed'); INSERT INTO orders VALUES (5, 5, 1), (6, 5, 2)",
        "UPDATE people SET name = 'Eddy' WHERE cid = 5; DELETE FROM orders WHERE id = 1",
        "UPDATE orders SET cid = NULL WHERE cid = 5; DELETE FROM people WHERE cid = 5",
        "INSERT INTO people VALUES (5, 'Eve'); UPDATE orders SET cid = 5 WHERE id = 6",
    ):
        shop.sql(sql)
    shop.refresh("late")
    assert shop.verify("late").ok


def test_referenced_rows_may_hold_nested_values_and_keys_of_any_plain_type(project: Project) -> None:
    project.create_table(
        "things", "d DATE, w STRING, c DECIMAL(5,2), b BOOLEAN, tags ARRAY<INT>, PRIMARY KEY (d, w, c, b)"
    )
    project.create_table(
        "uses", "d DATE, w STRING, c DECIMAL(5,2), b BOOLEAN, FOREIGN KEY (d, w, c, b) REFERENCES things"
    )
    project.create_view("used", "SELECT u.w, size(t.tags) AS n FROM uses u JOIN things t USING (d, w, c, b)")
    key = "DATE'2024-01-02', 'x', 1.50, true"
    project.sql(f"INSERT INTO things VALUES ({key}, array(1)), (DATE'2024-01-03', 'y', 2, false, array(1, 2))")
    project.sql(f"INSERT INTO uses VALUES ({key})")
    project.sql("UPDATE things SET tags = array(1, 2, 3) WHERE w = 'x'; DELETE FROM things WHERE w = 'y'")
    assert project.view("used").to_pylist() == [{"w": "x", "n": 3}]
    assert "w='x'" in refused(project, "DELETE FROM things WHERE w = 'x'")


def test_a_change_too_large_for_memory_is_sorted_by_key_as_well(shop: Project) -> None:
    many = IN_MEMORY // 2 + 10
    names = [f"p{i}" for i in range(many)]
    with shop.transaction() as tx:
        tx.insert("people", pa.table({"cid": pa.array(range(10, many + 10), pa.int32()), "name": names}))
        tx.insert("orders", [{"id": 10, "cid": 10, "n": 1}, {"id": 11, "cid": 11, "n": 1}])
    shop.sql(
        "UPDATE people SET name = concat(name, '!'); DELETE FROM orders WHERE id = 11; DELETE FROM people WHERE cid = 11"
    )
    assert shop.verify("named").ok
    assert {"id": 10, "name": "p0!"} in shop.view("named").to_pylist()


@pytest.mark.parametrize(
    ("ddl", "code"),
    [
        ("id INT, x INT REFERENCES poeple", "RUNNEL-FOREIGN-KEY-TABLE"),
        ("id INT, x INT REFERENCES named (id)", "RUNNEL-FOREIGN-KEY-TABLE"),
        ("id INT, x INT, FOREIGN KEY (y) REFERENCES people (cid)", "RUNNEL-COLUMN-UNKNOWN"),
        ("id INT, x INT, FOREIGN KEY (x) REFERENCES people (cidd)", "RUNNEL-COLUMN-UNKNOWN"),
        ("id INT, x STRING REFERENCES people (name)", "RUNNEL-FOREIGN-KEY-TARGET"),
        ("id INT, x INT, FOREIGN KEY (x, id) REFERENCES people (cid)", "RUNNEL-FOREIGN-KEY-COLUMNS"),
        ("id INT, x STRING REFERENCES people (cid)", "RUNNEL-FOREIGN-KEY-TYPE"),
        ("id INT, x INT REFERENCES bag", "RUNNEL-FOREIGN-KEY-TARGET"),
    ],
)
def test_a_foreign_key_that_cannot_be_is_refused(shop: Project, ddl: str, code: str) -> None:
    shop.create_table("bag", "x INT")
    with pytest.raises(RunnelError) as told:
        shop.create_table("t", ddl)
    assert told.value.code == code
    assert told.value.message.startswith(("t:", "people", "t "))


@pytest.mark.parametrize(
    "text", ["x INT, FOREIGN KEY x REFERENCES t", "x INT, FOREIGN KEY (x) REFERENCES t (id) ON DELETE CASCADE"]
)
def test_a_foreign_key_that_cannot_be_read_is_a_usage_error(project: Project, text: str) -> None:
    with pytest.raises(UsageError) as told:
        project.create_table("u", text)
    assert told.value.code == "RUNNEL-SCHEMA-SYNTAX"


def test_a_promise_that_is_broken_shows_in_verify(project: Project) -> None:
    project.create_table("people", PEOPLE)
    project.create_table("orders", f"{ORDERS} NOT ENFORCED RELY")
    project.create_view("named", NAMED)
    project.sql("INSERT INTO orders VALUES (1, 1, 1)")
    project.sql("INSERT INTO people VALUES (1, 'Ann')")
    assert project.table("orders").references[0].trust is Trust.RELY
    assert not project.verify("named").ok
    project.refresh("named", full=True)
    assert project.verify("named").ok


def test_what_is_not_enforced_and_not_relied_on_changes_nothing(project: Project) -> None:
    project.create_table("people", PEOPLE)
    project.create_table("orders", f"{ORDERS} NOT ENFORCED")
    project.create_view("named", NAMED)
    project.sql("INSERT INTO orders VALUES (1, 1, 1)")
    project.sql("INSERT INTO people VALUES (1, 'Ann')")
    assert project.verify("named").ok
    assert "RUNNEL-SAVED" not in str(project.explain("named"))


def test_columns_of_foreign_keys_may_be_renamed_on_both_sides(shop: Project) -> None:
    shop.drop_view("named")
    shop.alter_table("ALTER TABLE people RENAME COLUMN cid TO number; ALTER TABLE orders RENAME COLUMN cid TO buyer")
    shop.create_view("named", "SELECT o.id, p.name FROM orders o JOIN people p ON o.buyer = p.number")
    assert "RUNNEL-SAVED-LOOKUP" in str(shop.explain("named"))
    assert "buyer=9" in refused(shop, "INSERT INTO orders VALUES (9, 9, 9)")


@pytest.mark.parametrize(
    ("statement", "code"),
    [
        ("ALTER TABLE orders DROP COLUMN cid", "RUNNEL-ALTER-KEY"),
        ("ALTER TABLE people ALTER COLUMN cid TYPE DECIMAL(12, 0)", "RUNNEL-FOREIGN-KEY-TYPE"),
        ("ALTER TABLE orders ALTER COLUMN cid TYPE DOUBLE", "RUNNEL-FOREIGN-KEY-TYPE"),
        ("ALTER TABLE orders ADD COLUMN x INT REFERENCES people", "RUNNEL-SCHEMA-SYNTAX"),
    ],
)
def test_a_table_does_not_lose_its_foreign_key_by_the_way(shop: Project, statement: str, code: str) -> None:
    with pytest.raises(RunnelError) as told:
        shop.alter_table(statement)
    assert told.value.code == code
    assert shop.verify("named").ok


def test_a_wider_whole_number_goes_on_as_a_foreign_key(shop: Project) -> None:
    shop.create_view("ids", "SELECT o.id, p.cid FROM orders o JOIN people p ON o.cid = p.cid")
    shop.alter_table("ALTER TABLE people ALTER COLUMN cid TYPE BIGINT")
    shop.sql("INSERT INTO people VALUES (5, 'Ed'); INSERT INTO orders VALUES (5, 5, 1)")
    assert "cid=6" in refused(shop, "INSERT INTO orders VALUES (6, 6, 1)")
    assert all(report.ok for report in shop.verify_all())


# -- projects of files


def write(folder: Path, **tables: str) -> None:
    """Write tables/*.sql."""
    (folder / "tables").mkdir(parents=True, exist_ok=True)
    for name, text in tables.items():
        (folder / "tables" / f"{name}.sql").write_text(text)


@pytest.fixture
def files(tmp_path: Path) -> Iterator[Path]:
    """Give a project folder whose first table in order refers to the second."""
    folder = tmp_path / "p"
    write(folder, a_orders=f"CREATE TABLE orders ({ORDERS});", b_people=f"CREATE TABLE people ({PEOPLE});")
    (folder / "runnel.toml").write_text('[project]\nname = "p"\n')
    (folder / "views").mkdir()
    (folder / "views" / "v.sql").write_text(f"CREATE MATERIALIZED VIEW named AS {NAMED};")
    yield folder


def test_files_may_name_a_table_before_the_one_it_refers_to(files: Path) -> None:
    with runnel.open(files, engine=DuckDbEngine()) as project:
        assert project.table("orders").references == (ForeignKey(("cid",), "people"),)
    with runnel.open(files, engine=DuckDbEngine()) as again:
        assert again.sync() == []
        assert "enforced" in str(again.status())


def test_a_foreign_key_can_be_given_up_and_the_views_no_longer_rest_on_it(files: Path) -> None:
    with runnel.open(files, engine=DuckDbEngine()) as project:
        project.sql("INSERT INTO people VALUES (1, 'Ann'); INSERT INTO orders VALUES (1, 1, 1)")
        write(files, a_orders="CREATE TABLE orders (id INT, cid INT, n INT, PRIMARY KEY (id));")
    with runnel.open(files, engine=DuckDbEngine()) as project:
        assert project.table("orders").references == ()
        project.sql("INSERT INTO orders VALUES (2, 2, 1)")
        project.sql("INSERT INTO people VALUES (2, 'Bo')")
        assert project.verify("named").ok


def test_a_foreign_key_is_not_added_to_rows_that_were_never_checked(files: Path) -> None:
    write(files, a_orders="CREATE TABLE orders (id INT, cid INT, n INT, PRIMARY KEY (id));")
    runnel.open(files, engine=DuckDbEngine()).close()
    write(files, a_orders=f"CREATE TABLE orders ({ORDERS});")
    with pytest.raises(Problems) as told:
        runnel.open(files, engine=DuckDbEngine())
    assert [p.code for p in told.value.problems] == ["RUNNEL-ALTER-FOREIGN-KEY"]
    write(files, a_orders=f"CREATE TABLE orders ({ORDERS} RELY);")
    with runnel.open(files, engine=DuckDbEngine()) as project:
        assert "RUNNEL-SAVED-LOOKUP" in str(project.explain("named"))


FEED = """
[project]
name = "fed"

[sources.feed]
type = "files"
path = "feed"

[sources.feed.schema]
orders = "{orders}"
people = "{people}"
"""


def feed(folder: Path, table: str, *rows: dict[str, Any]) -> None:
    """Put a file of rows into a table's feed."""
    place = folder / "feed" / table
    number = len(list(place.glob("*"))) + 1
    (place / f"{number:04}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


@pytest.mark.parametrize(("words", "trust"), [("", Trust.NONE), (" RELY", Trust.RELY)])
def test_a_source_is_trusted_only_where_the_settings_say_so(tmp_path: Path, words: str, trust: Trust) -> None:
    for table in ("orders", "people"):
        (tmp_path / "feed" / table).mkdir(parents=True)
    (tmp_path / "runnel.toml").write_text(FEED.format(orders=ORDERS + words, people=PEOPLE))
    (tmp_path / "views").mkdir()
    (tmp_path / "views" / "v.sql").write_text(f"CREATE MATERIALIZED VIEW named AS {NAMED};")
    with runnel.open(tmp_path, engine=DuckDbEngine()) as project:
        feed(tmp_path, "people", {"cid": 1, "name": "Ann"})
        feed(tmp_path, "orders", {"id": 1, "cid": 1, "n": 1})
        project.run(once=True)
        assert project.table("feed.orders").references == (ForeignKey(("cid",), "feed.people", trust),)
        assert ("RUNNEL-SAVED" in str(project.explain("named"))) == (trust is Trust.RELY)
        feed(tmp_path, "people", {"cid": 2, "name": "Bo"})
        project.run(once=True)
        feed(tmp_path, "orders", {"id": 2, "cid": 2, "n": 1})
        project.run(once=True)
        assert project.verify("named").ok
        if trust is Trust.NONE:  # what is not promised may come late
            feed(tmp_path, "orders", {"id": 3, "cid": 3, "n": 1})
            project.run(once=True)
            feed(tmp_path, "people", {"cid": 3, "name": "Cy"})
            project.run(once=True)
            assert project.verify("named").ok


def test_a_managed_table_refers_to_an_outside_one_only_on_somebodys_word(tmp_path: Path) -> None:
    for table in ("orders", "people"):
        (tmp_path / "feed" / table).mkdir(parents=True)
    (tmp_path / "runnel.toml").write_text(FEED.format(orders=ORDERS, people=PEOPLE))
    with runnel.open(tmp_path, engine=DuckDbEngine()) as project:
        with pytest.raises(RunnelError) as told:
            project.create_table("mine", "cid INT REFERENCES feed.people (cid)")
        assert told.value.code == "RUNNEL-FOREIGN-KEY-OUTSIDE"
        project.create_table("mine", "cid INT REFERENCES feed.people (cid) RELY")
