"""Event views: one row per changed key and epoch, kept for good, the same whether gathered at once or much later."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest

import runnel
from runnel.engine.duckdb import DuckDbEngine
from runnel.errors import RunnelError
from runnel.lake.entries import Commit
from runnel.lake.expiry import expire

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import pyarrow as pa

    from runnel.project import Project

ALL = "SELECT old.id AS was_id, new.id AS id, old.price AS was, new.price AS price, _op AS op FROM CHANGES(products)"
PRICES = "SELECT new.id, old.price AS was, new.price AS now FROM CHANGES(products) WHERE old.price IS DISTINCT FROM new.price"


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Project]:
    """Give a project with two products, one of them there before any view."""
    with runnel.create(tmp_path / "p", engine=DuckDbEngine()) as project:
        project.create_table("products", "id BIGINT, price INT, name STRING, country STRING", key=["id"])
        project.create_table("rates", "country STRING, rate INT", key=["country"])
        project.sql("INSERT INTO products VALUES (1, 10, 'a', 'x'), (2, 20, 'b', 'y')")
        project.sql("INSERT INTO rates VALUES ('x', 2), ('y', 3)")
        yield project


def _rows(project: Project, name: str, at: int | None = None) -> list[tuple[Any, ...]]:
    return sorted((tuple(row.values()) for row in project.view(name).to_arrow(at=at).to_pylist()), key=str)


def test_inserts_updates_deletes_and_key_changes_are_events_and_changes_to_the_same_are_none(shop: Project) -> None:
    shop.create_view("all_changes", ALL)
    assert _rows(shop, "all_changes") == []
    shop.sql("INSERT INTO products VALUES (3, 30, 'c', 'x')")
    shop.sql("UPDATE products SET price = 11 WHERE id = 1")
    shop.sql("UPDATE products SET price = 11 WHERE id = 1")
    shop.sql("UPDATE products SET price = 12 WHERE id = 1; UPDATE products SET price = 11 WHERE id = 1")
    shop.sql("UPDATE products SET id = 9 WHERE id = 2")
    shop.sql("DELETE FROM products WHERE id = 3")
    expected = [
        (None, 3, None, 30, "insert"),
        (1, 1, 10, 11, "update"),
        (2, None, 20, None, "delete"),
        (None, 9, None, 20, "insert"),
        (3, None, 30, None, "delete"),
    ]
    assert _rows(shop, "all_changes") == sorted(expected, key=str)
    assert shop.verify("all_changes").ok
    assert shop.verify("all_changes").rows_checked == 5
    explained = shop.explain("all_changes")
    assert explained.strategies["event view"] == "linear"
    assert "changes(products)__delta" in str(explained)
    assert "only grows" in str(explained)


def test_an_event_says_when_it_happened(shop: Project) -> None:
    sql = "SELECT new.id AS id, _epoch AS at, _time AS moment, _transaction AS tx FROM CHANGES(products)"
    shop.create_view("dated", sql)
    shop.create_view("dated_too", sql)
    first = shop.sql("INSERT INTO products VALUES (3, 30, 'c', 'x'), (4, 40, 'd', 'x')")
    second = shop.sql("INSERT INTO products VALUES (5, 30, 'c', 'x')")
    rows = shop.view("dated").to_pylist()
    assert sorted((row["id"], row["at"], row["tx"]) for row in rows) == [
        (3, first, None),
        (4, first, None),
        (5, second, None),
    ]
    times = {record["epoch"]: record["time"] for record in shop.epochs()}
    assert {(row["at"], row["moment"].isoformat(sep=" ")) for row in rows} == {
        (epoch, times[epoch]) for epoch in (first, second)
    }
    assert _rows(shop, "dated") == _rows(shop, "dated_too")


def test_price_changes_are_told_once_and_other_changes_not_at_all(shop: Project) -> None:
    shop.create_view("price_changes", PRICES)
    told: list[tuple[int, list[dict[str, Any]]]] = []

    def hear(table: pa.Table, epoch: int) -> None:
        told.append((epoch, table.to_pylist()))

    shop.subscribe("price_changes", hear, cursor="listener")
    epoch = shop.sql("UPDATE products SET price = 2 WHERE id = 1")
    shop.sql("UPDATE products SET name = 'z' WHERE id = 1")
    shop.sql("UPDATE products SET price = 2 WHERE id = 1")
    assert told == [(epoch, [{"id": 1, "was": 10, "now": 2, "_weight": 1}])]
    with runnel.open(shop.folder, engine=DuckDbEngine()) as later:
        later.subscribe("price_changes", hear, cursor="listener")
        later.sql("UPDATE products SET price = 5 WHERE id = 2")
    assert [rows[0]["now"] for _, rows in told] == [2, 5]


def test_rows_of_a_table_without_a_key_come_and_go_each_by_itself(shop: Project) -> None:
    shop.create_table("log", "word STRING, n INT")
    shop.create_view("words", "SELECT old.word AS gone, new.word AS come, _op AS op FROM CHANGES(log)")
    with shop.transaction() as tx:
        tx.insert("log", [{"word": "a", "n": 1}] * 3)
    with shop.transaction() as tx:
        tx.apply("log", [{"word": "a", "n": 1, "_weight": -2}, {"word": "b", "n": 1, "_weight": 1}])
    assert _rows(shop, "words") == sorted(
        [(None, "a", "insert")] * 3 + [("a", None, "delete")] * 2 + [(None, "b", "insert")], key=str
    )
    assert shop.verify("words").ok


def test_the_changes_of_a_view_are_events_too(shop: Project) -> None:
    shop.create_view("per_country", "SELECT country AS c, sum(price) AS s FROM products GROUP BY country")
    shop.create_view("whole", "SELECT count(*) AS n FROM products")
    shop.create_view("cheap", "SELECT id FROM products WHERE price < 15")
    shop.create_view("sums", "SELECT new.c, old.s AS was, new.s AS now, _op AS op FROM CHANGES(per_country)")
    shop.create_view("counts", "SELECT old.n AS was, new.n AS now, _op AS op FROM CHANGES(whole)")
    shop.create_view("moves", "SELECT coalesce(old.id, new.id) AS id, _op AS op FROM CHANGES(cheap)")
    shop.create_view("told", "SELECT op, count(*) AS n FROM sums GROUP BY op")
    shop.sql("INSERT INTO products VALUES (3, 30, 'c', 'x'), (4, 5, 'd', 'z')")
    shop.sql("UPDATE products SET price = 50 WHERE id = 4")
    assert _rows(shop, "sums") == sorted(
        [("x", 10, 40, "update"), ("z", None, 5, "insert"), ("z", 5, 50, "update")], key=str
    )
    assert _rows(shop, "counts") == [(2, 4, "update")]
    assert _rows(shop, "moves") == [(4, "delete"), (4, "insert")]
    assert sorted(_rows(shop, "told")) == [("insert", 1), ("update", 2)]
    assert all(report.ok and not report.unchecked for report in shop.verify_all())


def test_an_event_keeps_the_rate_of_its_epoch_and_a_view_takes_the_new_one(shop: Project) -> None:
    join = "JOIN rates r ON r.country ="
    shop.create_view("revenue", f"SELECT p.id, p.price * r.rate AS value FROM products p {join} p.country")
    events = f"SELECT new.id, new.price * r.rate AS value, r.rate FROM CHANGES(products) {join} new.country"
    shop.create_view("booked", events)
    shop.create_view("booked_later", events, refresh="manual")
    ordered = shop.sql("INSERT INTO products VALUES (3, 100, 'c', 'x')")
    both = shop.sql("UPDATE rates SET rate = 7 WHERE country = 'x'; INSERT INTO products VALUES (4, 1, 'd', 'x')")
    shop.sql("UPDATE rates SET rate = 8")
    assert (3, 200) in _rows(shop, "revenue", at=ordered)
    assert (3, 700) in _rows(shop, "revenue", at=both)
    assert _rows(shop, "booked") == [(3, 200, 2), (4, 7, 7)]
    shop.refresh("booked_later")
    assert _rows(shop, "booked_later") == _rows(shop, "booked")
    assert shop.verify("booked").ok
    assert shop.verify("booked_later").ok
    assert shop.verify("revenue").ok


def test_sums_counts_and_averages_of_events_grow_with_them(shop: Project) -> None:
    sql = (
        "SELECT _op AS op, count(*) AS n, sum(new.price) AS s, avg(new.price - old.price) AS up FROM CHANGES(products)"
    )
    shop.create_view("sums", sql + " GROUP BY _op")
    shop.create_view("sums_later", sql + " GROUP BY _op", refresh="manual")
    shop.create_view("number", "SELECT count(*) AS n FROM CHANGES(products)")
    shop.create_view("both", "SELECT new.id AS id FROM CHANGES(products) UNION ALL SELECT new.rate FROM CHANGES(rates)")
    shop.sql("INSERT INTO products VALUES (3, 30, 'c', 'x'), (4, 40, 'd', 'x')")
    shop.sql("UPDATE products SET price = price + 2 WHERE id < 3; INSERT INTO rates VALUES ('q', 77)")
    shop.sql("DELETE FROM products WHERE id = 4")
    assert _rows(shop, "sums") == [("delete", 1, None, None), ("insert", 2, 70, None), ("update", 2, 34, 2.0)]
    assert _rows(shop, "number") == [(5,)]
    assert sorted(row[0] or 0 for row in _rows(shop, "both")) == [0, 1, 2, 3, 4, 77]
    shop.refresh("sums_later")
    assert _rows(shop, "sums_later") == _rows(shop, "sums")
    assert all(report.ok and not report.unchecked for report in shop.verify_all())


def test_gathered_late_is_gathered_the_same_although_epochs_are_folded_and_forgotten(shop: Project) -> None:
    sql = "SELECT old.price AS was, new.price AS now, _epoch AS e, _time AS t, r.rate FROM CHANGES(products)"
    sql += " JOIN rates r ON r.country = new.country"
    shop.create_view("early", sql)
    shop.create_view("late", sql, refresh="manual")
    for number in range(12):
        shop.sql(f"UPDATE products SET price = {number % 3}; UPDATE rates SET rate = {number}")
        if number % 4 == 0:
            shop.compact()
    expire(shop.runtime.lake, 1, grace=0)
    shop.refresh("late")
    assert _rows(shop, "late") == _rows(shop, "early")
    assert len(_rows(shop, "late")) == 24


def test_where_history_is_gone_a_check_says_so_and_calls_nothing_wrong(shop: Project) -> None:
    shop.create_view("price_changes", PRICES)
    for price in range(5):
        shop.sql(f"UPDATE products SET price = {price}")
    shop.compact()
    expire(shop.runtime.lake, 1, grace=0)
    report = shop.verify("price_changes")
    assert report.ok
    assert str(report).startswith("price_changes: NOT CHECKED, not all epochs since")


def test_a_wrong_event_is_found(shop: Project) -> None:
    shop.create_view("price_changes", PRICES)
    shop.sql("UPDATE products SET price = 1")
    lake = shop.runtime.lake
    head = lake.snapshot()
    relation = head.relations["price_changes"]
    table = lake.read(relation, head.files("price_changes")).slice(0, 1)
    lake.publish(Commit(base=head.epoch, add=[lake.write(relation, table)]))
    report = shop.verify("price_changes")
    assert (report.ok, len(report.unexpected)) == (False, 1)


def test_an_event_has_the_number_its_commit_gets_whoever_else_commits(shop: Project) -> None:
    shop.create_view("dated", "SELECT new.id AS id, _epoch AS e FROM CHANGES(products)")
    epochs: dict[int, int] = {}
    problems: list[BaseException] = []

    def write(start: int) -> None:
        try:
            with runnel.open(shop.folder, engine=DuckDbEngine(threads=2), sync=False) as mine:
                for number in range(start, start + 6):
                    epochs[number] = mine.sql(f"INSERT INTO products VALUES ({number}, 1, 'n', 'x')")
                    if number % 3 == 0:
                        mine.compact()
        except BaseException as error:
            problems.append(error)

    writers = [threading.Thread(target=write, args=(start,)) for start in (100, 200)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert problems == []
    assert sorted(_rows(shop, "dated")) == sorted(epochs.items())


def test_an_event_view_outlives_new_definitions_of_what_it_reads(shop: Project) -> None:
    shop.create_view("sums", "SELECT country, sum(price) AS s FROM products GROUP BY country")
    shop.create_view("told", "SELECT new.country, new.s FROM CHANGES(sums)")
    shop.create_view("prices", PRICES)
    shop.create_view("prices_later", PRICES, refresh="manual")
    shop.sql("UPDATE products SET price = 11 WHERE id = 1")
    shop.create_view("sums", "SELECT country, sum(2 * price) AS s FROM products GROUP BY country", replace=True)
    assert _rows(shop, "told") == [("x", 11)]
    shop.sql("UPDATE products SET price = 12 WHERE id = 1")
    assert _rows(shop, "told") == [("x", 11), ("x", 24)]
    assert "made anew" in str(shop.verify("told"))
    shop.alter_table("ALTER TABLE products ADD COLUMN extra INT")
    shop.sql("UPDATE products SET extra = 1")
    shop.sql("UPDATE products SET price = 13 WHERE id = 1")
    shop.refresh("prices_later")
    assert _rows(shop, "prices") == [(1, 10, 11), (1, 11, 12), (1, 12, 13)]
    assert _rows(shop, "prices_later") == _rows(shop, "prices")
    with pytest.raises(RunnelError, match="RUNNEL-VIEW-EVENTS-KEPT"):
        shop.create_view("sums", "SELECT country, CAST(1 AS DOUBLE) AS s FROM products", replace=True)
    with pytest.raises(RunnelError, match="read by told"):
        shop.drop_view("sums")


def test_an_event_is_computed_again_when_its_commit_loses_a_race(
    shop: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    sql = "SELECT new.id, _epoch AS e, r.rate FROM CHANGES(products) JOIN rates r ON r.country = new.country"
    shop.create_view("dated", sql)
    lake, lost = shop.runtime.lake, list[int]()
    publish = lake.publish

    def late(commit: Commit) -> int:
        if not lost:
            lost.append(commit.base)
            with runnel.open(shop.folder, engine=DuckDbEngine(), sync=False) as other:
                other.compact()
                other.sql("UPDATE rates SET rate = 50")
        return publish(commit)

    monkeypatch.setattr(lake, "publish", late)
    epoch = shop.sql("INSERT INTO products VALUES (3, 30, 'c', 'x')")
    assert epoch > lost[0] + 1
    assert _rows(shop, "dated") == [(3, epoch, 50)]
    assert shop.verify("dated").ok


def test_compaction_in_between_is_no_conflict_but_for_events(shop: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    shop.create_view("dated", "SELECT new.id AS id, _epoch AS e FROM CHANGES(products)")
    lake, tries = shop.runtime.lake, list[int]()
    publish = lake.publish

    def late(commit: Commit) -> int:
        tries.append(commit.base)
        if len(tries) == 1:
            with runnel.open(shop.folder, engine=DuckDbEngine(), sync=False) as other:
                other.compact()
        return publish(commit)

    shop.sql("INSERT INTO products VALUES (3, 30, 'c', 'x')")
    monkeypatch.setattr(lake, "publish", late)
    epoch = shop.sql("INSERT INTO products VALUES (4, 30, 'c', 'x')")
    assert len(tries) == 2
    assert (4, epoch) in _rows(shop, "dated")
    tries.clear()
    shop.sql("UPDATE rates SET rate = 9")
    assert len(tries) == 1


def test_whole_rows_before_and_after_are_kept_as_they_were(shop: Project) -> None:
    shop.create_view("spread", "SELECT new.*, c._op AS op FROM CHANGES(products) AS c")
    shop.create_view("nested", "SELECT c.old AS o, c.new AS n FROM CHANGES(products) AS c")
    shop.sql("UPDATE products SET price = 1 WHERE id = 2")
    assert _rows(shop, "spread") == [(2, 1, "b", "y", "update")]
    before = {"id": 2, "price": 20, "name": "b", "country": "y"}
    assert shop.view("nested").to_pylist() == [{"o": before, "n": {**before, "price": 1}}]
    assert all(report.ok and not report.unchecked for report in shop.verify_all())


def test_an_event_view_is_not_recomputed(shop: Project) -> None:
    shop.create_view("price_changes", PRICES)
    shop.create_view("plain", "SELECT id FROM products")
    shop.sql("UPDATE products SET price = 1")
    with pytest.raises(RunnelError, match="RUNNEL-VIEW-EVENTS-MODE"):
        shop.refresh("price_changes", full=True)
    shop.refresh(full=True)
    assert len(_rows(shop, "price_changes")) == 2
    shop.create_view("price_changes", PRICES + " AND new.id > 0", replace=True)
    assert _rows(shop, "price_changes") == []


REFUSED = {
    "SELECT max(new.price) AS m FROM CHANGES(products)": "EVENTS-FORM",
    "SELECT new.id FROM CHANGES(products) LIMIT 1": "EVENTS-FORM",
    "SELECT new.id FROM CHANGES(products) LEFT JOIN rates ON new.country = country": "EVENTS-FORM",
    "SELECT new.id FROM CHANGES(products) WHERE new.country IN (SELECT country FROM rates)": "EVENTS-FORM",
    "SELECT row_number() OVER (PARTITION BY new.country ORDER BY new.id) AS n FROM CHANGES(products)": "EVENTS-FORM",
    "SELECT a.new.id FROM CHANGES(products) a JOIN CHANGES(rates) b ON a.new.id = b.new.rate": "not with another",
    "SELECT new.id FROM CHANGES(products) UNION ALL SELECT id FROM products": "every branch",
    "SELECT _op AS op, count(*) AS n FROM CHANGES(products) GROUP BY _op HAVING count(*) > 1": "EVENTS-FORM",
    "SELECT n FROM (SELECT _op AS op, count(*) AS n FROM CHANGES(products) GROUP BY _op)": "EVENTS-FORM",
    "SELECT new.prise FROM CHANGES(products)": "did you mean 'price'",
    "SELECT new.id FROM CHANGES(prodcts)": "did you mean 'products'",
    "SELECT new.id FROM CHANGES(1)": "EVENTS-SOURCE",
    "SELECT quite_unheard_of(new.id) AS i, _epoch AS e FROM CHANGES(products)": "unknown function 'quite_unheard_of'",
    "SELECT * FROM CHANGES(products)": "reserved",
}


@pytest.mark.parametrize("sql", REFUSED)
def test_what_cannot_stand_over_changes_is_refused_when_it_is_defined(shop: Project, sql: str) -> None:
    with pytest.raises(RunnelError, match=REFUSED[sql]) as refused:
        shop.create_view("wrong", sql)
    assert refused.value.hint


def test_changes_are_read_by_views_only_and_never_recomputed(shop: Project) -> None:
    with pytest.raises(RunnelError, match="RUNNEL-VIEW-EVENTS-MODE"):
        shop.create_view("wrong", ALL, mode="full")
    with pytest.raises(RunnelError, match="RUNNEL-SQL-EVENTS"):
        shop.query("SELECT new.id FROM CHANGES(products)").to_arrow()
    with pytest.raises(RunnelError, match="RUNNEL-SQL-EVENTS"):
        shop.sql("INSERT INTO products (id) SELECT new.id FROM CHANGES(products)")
