"""Tables whose columns change: rows stay, views that do not care go on untouched, views that do are made anew or refuse."""

from __future__ import annotations

import itertools
import threading
from typing import TYPE_CHECKING, Any

import pytest

import runnel
from runnel.engine.duckdb import DuckDbEngine
from runnel.errors import Problems, RunnelError
from runnel.pipeline import maintain, swap
from tests.project.test_duckdb_reads import compare_with_duckdb
from tests.support.rows import comparable

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from runnel.project import Project

SUMS = "SELECT region, count(*) AS n, sum(amount) AS s FROM orders GROUP BY region"
VIEWS = {
    "all_of_it": "SELECT * FROM orders",
    "distinct_rows": "SELECT count(*) AS n FROM (SELECT DISTINCT * FROM orders)",
    "natural": "SELECT * FROM orders NATURAL JOIN notes",
    "sums": SUMS,
    "staged": f"SELECT region, n FROM ({SUMS}) WHERE n > 1",
    "ids": "SELECT id FROM orders WHERE id > 3",
    "joined": "SELECT o.id, n.note FROM orders o JOIN notes n ON o.region = n.region",
    "joined_sums": "SELECT n.note, sum(o.amount) AS s FROM orders o JOIN notes n ON o.region = n.region GROUP BY n.note",
    "notes_only": "SELECT note FROM notes",
}


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Project]:
    """Give a project with orders, notes and views; `late` is behind."""
    with runnel.create(tmp_path / "p", engine=DuckDbEngine()) as project:
        project.create_table("orders", "id INT, region STRING, amount INT, spare STRING", key=["id"])
        project.create_table("notes", "region STRING, note STRING")
        with project.transaction() as tx:
            tx.insert("orders", [_order(i) for i in range(12)])
            tx.insert("notes", [{"region": f"r{i % 3}", "note": f"n{i}"} for i in range(4)])
        yield project


def _order(number: int) -> dict[str, object]:
    return {"id": number, "region": f"r{number % 4}", "amount": number, "spare": "x" * number}


def _with_views(project: Project, *left_out: str) -> Project:
    for name, sql in VIEWS.items():
        if name not in left_out:
            project.create_view(name, sql)
    project.create_view("late", f"SELECT region, s FROM ({SUMS}) WHERE s > 2", refresh="manual")
    project.sql("INSERT INTO orders VALUES (50, 'r1', 50, 'late')")
    return project


def _right(project: Project) -> bool:
    assert [v.error for v in project.status().views if v.error] == []
    return all(report.ok for report in project.verify_all())


def _facts(project: Project) -> dict[str, tuple[Any, ...]]:
    """Give what each view is, how far it has come apart."""
    head = project.runtime.lake.snapshot()
    return {name: (head.table_id(name), entry.sql) for name, entry in head.entries.items()}


def _columns(project: Project, name: str) -> list[str]:
    return [str(column) for column in project.table(name).relation.rows]


def test_an_added_column_is_null_in_old_rows_and_no_view_is_touched(shop: Project) -> None:
    _with_views(shop)
    before, epoch = _facts(shop), shop.status().epoch
    rows = shop.table("orders").to_pylist()
    shop.sql("ALTER TABLE orders ADD COLUMN note STRING")
    assert shop.status().epoch == epoch + 1
    assert _facts(shop) == before
    assert comparable(shop.table("orders").to_pylist()) == comparable([{**row, "note": None} for row in rows])
    assert _columns(shop, "all_of_it") == ["id int", "region string", "amount int", "spare string"]
    assert _right(shop)
    shop.sql("INSERT INTO orders VALUES (100, 'r1', 1, 's', 'n0'); UPDATE orders SET note = 'twice' WHERE id < 3")
    shop.refresh()
    assert _right(shop)
    assert shop.view("distinct_rows").to_pylist() == [{"n": 14}]
    assert shop.query("SELECT count(*) AS n FROM orders WHERE note = 'twice'").to_pylist() == [{"n": 3}]
    shop.create_view("noted", "SELECT note, count(*) AS n FROM orders GROUP BY note")
    assert len(shop.view("noted").to_pylist()) == 3
    compare_with_duckdb(shop, [epoch, epoch + 1])


def test_a_dropped_column_goes_and_views_that_do_not_read_it_go_on(shop: Project) -> None:
    _with_views(shop, "all_of_it", "distinct_rows", "natural")
    before = _facts(shop)
    assert shop.alter_table("ALTER TABLE orders DROP COLUMN spare") == ["table orders: spare dropped"]
    assert _facts(shop) == before
    assert _columns(shop, "orders") == ["id int", "region string", "amount int"]
    assert _right(shop)
    shop.sql("UPDATE orders SET amount = 0 WHERE id = 50; DELETE FROM orders WHERE id = 3")
    assert _right(shop)
    shop.refresh()
    assert _right(shop)
    compare_with_duckdb(shop, [])


@pytest.mark.parametrize(
    ("statement", "view"),
    [
        ("ALTER TABLE orders DROP COLUMN spare", "all_of_it"),
        ("ALTER TABLE orders DROP COLUMN amount", "sums"),
        ("ALTER TABLE orders RENAME COLUMN spare TO extra", "all_of_it"),
        ("ALTER TABLE orders RENAME COLUMN amount TO price", "sums"),
        ("ALTER TABLE notes RENAME COLUMN note TO words", "natural"),
    ],
)
def test_a_column_that_a_view_reads_is_not_taken_from_it(shop: Project, statement: str, view: str) -> None:
    others = {
        "sums": ("all_of_it", "distinct_rows", "natural", "staged", "joined_sums"),
        "natural": ("joined", "joined_sums", "notes_only"),
    }
    _with_views(shop, *others.get(view, ()))
    before, epoch = _facts(shop), shop.status().epoch
    with pytest.raises(RunnelError, match=f"view {view} ") as refused:
        shop.sql(statement)
    assert refused.value.hint
    assert (_facts(shop), shop.status().epoch) == (before, epoch)
    assert _right(shop)


def test_a_renamed_column_keeps_its_values_and_its_place_in_the_key(shop: Project) -> None:
    shop.create_view("regions", "SELECT region, count(*) AS n FROM orders GROUP BY region")
    before, rows = _facts(shop), shop.table("orders").to_pylist()
    shop.sql("ALTER TABLE orders RENAME COLUMN id TO number; ALTER TABLE orders RENAME COLUMN spare TO extra")
    assert shop.table("orders").key == ("number",)
    named = [{"number": r["id"], "region": r["region"], "amount": r["amount"], "extra": r["spare"]} for r in rows]
    assert comparable(shop.table("orders").to_pylist()) == comparable(named)
    assert _facts(shop) == before
    with pytest.raises(RunnelError, match="RUNNEL-KEY-DUPLICATE"):
        shop.sql("INSERT INTO orders VALUES (1, 'r', 1, 'x')")
    shop.sql("UPDATE orders SET region = 'moved' WHERE number = 1")
    assert _right(shop)


def test_a_widened_column_has_the_views_that_read_it_made_anew_and_says_so(shop: Project) -> None:
    _with_views(shop)
    before = _facts(shop)
    said = shop.alter_table("ALTER TABLE orders ALTER COLUMN amount TYPE BIGINT")
    after = _facts(shop)
    changed = {name for name in before if before[name] != after.get(name)}
    assert {"all_of_it", "natural"} <= changed
    assert not changed & {"ids", "notes_only"}
    assert said[0] == "table orders: amount widened to bigint"
    assert "view all_of_it made anew, because it reads what changed" in said
    assert _columns(shop, "all_of_it")[2] == "amount bigint"
    shop.sql(f"INSERT INTO orders VALUES (100, 'r1', {2**40}, 's')")
    shop.refresh()
    assert _right(shop)
    compare_with_duckdb(shop, [])


@pytest.mark.parametrize(
    ("statement", "code"),
    [
        ("ALTER TABLE orders DROP COLUMN id", "RUNNEL-ALTER-KEY"),
        ("ALTER TABLE orders DROP COLUMN nothing", "RUNNEL-COLUMN-UNKNOWN"),
        ("ALTER TABLE orders ADD COLUMN amount INT", "RUNNEL-COLUMN-TWICE"),
        ("ALTER TABLE orders ADD COLUMN _weight INT", "RUNNEL-COLUMN-RESERVED"),
        ("ALTER TABLE orders RENAME COLUMN amount TO region", "RUNNEL-COLUMN-TWICE"),
        ("ALTER TABLE orders ALTER COLUMN amount TYPE SMALLINT", "RUNNEL-ALTER-TYPE"),
        ("ALTER TABLE orders ALTER COLUMN region TYPE INT", "RUNNEL-ALTER-TYPE"),
        ("ALTER TABLE orders ALTER COLUMN amount TYPE DECIMAL(9,0)", "RUNNEL-ALTER-TYPE"),
        ("ALTER TABLE nothing ADD COLUMN a INT", "RUNNEL-TABLE-UNKNOWN"),
        ("ALTER TABLE ids ADD COLUMN a INT", "RUNNEL-TABLE-IS-VIEW"),
        ("ALTER TABLE orders ADD a", "RUNNEL-SQL-SYNTAX"),
        ("ALTER TABLE orders PAINT it", "RUNNEL-SQL-SYNTAX"),
        ("ALTER TABLE orders DROP COLUMN spare; DELETE FROM orders", "RUNNEL-SQL-SYNTAX"),
    ],
)
def test_what_cannot_be_changed_is_refused_and_nothing_happens(shop: Project, statement: str, code: str) -> None:
    shop.create_view("ids", VIEWS["ids"])
    epoch = shop.status().epoch
    with pytest.raises(RunnelError) as refused:
        shop.sql(statement)
    assert refused.value.code == code
    assert shop.status().epoch == epoch


def test_earlier_epochs_keep_the_columns_they_had(shop: Project) -> None:
    epoch = shop.status().epoch
    shop.sql("ALTER TABLE orders DROP COLUMNS (spare, amount)")
    shop.sql("ALTER TABLE orders ADD COLUMNS (a INT, b STRING)")
    now = shop.status().epoch
    assert list(shop.table("orders").to_arrow(at=epoch).column_names) == ["id", "region", "amount", "spare"]
    with pytest.raises(RunnelError, match="made anew with other columns"):
        shop.changes("orders", since=epoch)
    shop.sql("UPDATE orders SET a = 1 WHERE id = 1")
    assert [row["_weight"] for row in shop.changes("orders", since=now).to_pylist()] in ([-1, 1], [1, -1])
    assert [entry["op"] for entry in shop.history("orders", {"id": 1})] == ["update"]
    compare_with_duckdb(shop, list(range(epoch, shop.status().epoch + 1)))


def test_what_is_written_while_a_table_is_rewritten_is_not_lost(shop: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    _with_views(shop)

    def hydrate(*arguments: Any) -> Any:
        made = maintain.hydrate(*arguments)
        monkeypatch.setattr(swap, "hydrate", maintain.hydrate)
        shop.sql("INSERT INTO orders VALUES (200, 'r1', 7, 'meanwhile'); DELETE FROM orders WHERE id = 2")
        return made

    monkeypatch.setattr(swap, "hydrate", hydrate)
    shop.sql("ALTER TABLE orders ALTER COLUMN amount TYPE BIGINT")
    assert sorted(row["id"] for row in shop.table("orders").to_pylist()) == [0, 1, *range(3, 12), 50, 200]
    assert _right(shop)
    shop.sql("DELETE FROM orders WHERE id IN (200, 5)")
    shop.refresh()
    assert _right(shop)


def test_tables_change_while_others_write_to_them(shop: Project) -> None:
    _with_views(shop)
    stop, problems = threading.Event(), list[BaseException]()

    def write() -> None:
        try:
            with runnel.open(shop.folder, engine=DuckDbEngine(threads=2), sync=False) as mine:
                for number in itertools.takewhile(lambda _: not stop.is_set(), itertools.count(1000)):
                    with mine.transaction() as tx:
                        tx.insert("orders", [{"id": number, "region": f"r{number % 7}", "amount": number}])
        except BaseException as error:
            problems.append(error)

    writer = threading.Thread(target=write)
    writer.start()
    for number in range(3):
        shop.sql(f"ALTER TABLE orders ADD COLUMN c{number} INT")
    shop.sql("ALTER TABLE orders ALTER COLUMN amount TYPE BIGINT; ALTER TABLE orders DROP COLUMN c1")
    stop.set()
    writer.join()
    assert problems == []
    shop.refresh()
    assert _right(shop)
    written = [row["id"] for row in shop.table("orders").to_pylist() if row["id"] >= 1000]
    assert sorted(written) == list(range(1000, 1000 + len(written)))


def test_a_changed_table_file_changes_the_table(shop: Project) -> None:
    _with_views(shop)
    folder = shop.folder
    (folder / "tables").mkdir()
    text = folder / "tables" / "orders.sql"

    def opened(columns: str) -> Project:
        text.write_text(f"CREATE TABLE orders ({columns}, PRIMARY KEY (id))")
        return runnel.open(folder, engine=DuckDbEngine(), sync=False)

    with opened("id INT, region STRING, amount INT, spare STRING") as project:
        assert project.sync() == []
    with opened("id BIGINT, region STRING, amount INT, spare STRING, note STRING") as project:
        said = project.sync()
        assert said[0] == "table orders: note added, id widened to bigint"
        assert "view ids made anew, because it reads what changed" in said
        assert project.sync() == []
        assert _right(project)
        assert len(project.table("orders").to_pylist()) == 13
    for columns in ("id BIGINT, region STRING, amount INT", "id BIGINT, region STRING, amount INT, spare INT"):
        with opened(columns) as project, pytest.raises(Problems) as refused:
            project.sync()
        assert "tables/orders.sql" in str(refused.value) or "view" in str(refused.value)


def test_a_failed_view_must_be_mended_before_its_table_changes(shop: Project) -> None:
    project = shop
    project.create_table("t", "id INT, x INT", key=["id"])
    project.create_view("bad", "SELECT id, CAST(concat('1', CASE WHEN x = 0 THEN 'x' ELSE '' END) AS INT) AS y FROM t")
    project.sql("INSERT INTO t VALUES (1, 0)")
    with pytest.raises(RunnelError, match="RUNNEL-ENGINE-SQL"):
        project.sql("ALTER TABLE t ADD COLUMN z INT")
    project.sql("UPDATE t SET x = 1")
    project.sql("ALTER TABLE t ADD COLUMN z INT")
    assert _right(project)
