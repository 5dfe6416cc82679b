"""A transaction of the source is one of the target: whole, at its commit, with what belongs to it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.connectors.sync.conftest import BOTH

if TYPE_CHECKING:
    from tests.connectors.sync.conftest import Pair

pytestmark = BOTH

DOWNLOAD = "CREATE TABLE download (id INT PRIMARY KEY, name VARCHAR(20))"


def test_a_transaction_comes_at_its_commit_whole_and_nothing_else(pair: Pair) -> None:
    """L.a: two inserts into `download` and one into a table that is filtered out, committed, and then rolled back."""
    pair.sql(DOWNLOAD, "CREATE TABLE scratch (id INT PRIMARY KEY)")
    pair.deliver({"shop.download": "download"}, tables=["download"])
    with pair.running():
        for first, ending in ((10, "COMMIT"), (20, "ROLLBACK")):
            with pair.server.connect(pair.database, autocommit=False) as writer, writer.cursor() as cursor:
                cursor.execute(f"INSERT INTO download VALUES ({first + 1}, 'one')")
                cursor.execute(f"INSERT INTO scratch VALUES ({first})")
                cursor.execute(f"INSERT INTO download VALUES ({first + 2}, 'two')")
                # Somebody else's commit arrives, and what is still open does not come with it.
                pair.sql(f"INSERT INTO download VALUES ({first}, 'before')")
                pair.wait_for("SELECT id FROM download WHERE id = %s", first)
                assert pair.arrived(f"SELECT id FROM download WHERE id > {first}") == []
                cursor.execute(ending)
            pair.sql(f"INSERT INTO download VALUES ({first + 3}, 'after')")
            pair.wait_for("SELECT id FROM download WHERE id = %s", first + 3)
    there = dict(pair.arrived("SELECT id, xmin::text FROM download"))
    assert sorted(there) == [10, 11, 12, 13, 20, 23]
    assert there[11] == there[12], "the rows of one transaction were written by two"
    assert there[10] != there[11]
    assert pair.arrived("SELECT tablename FROM pg_tables WHERE schemaname = 'public'") == [("_runnel",), ("download",)]


REVENUE = "SELECT o.id, o.amount * r.rate AS revenue FROM orders o JOIN rates r ON o.country = r.country"
BOOKED = (
    "SELECT new.id, new.amount * r.rate AS revenue FROM CHANGES(orders) JOIN rates r ON new.country = r.country "
    "WHERE _op = 'insert'"
)


def test_what_a_transaction_is_joined_with_is_seen_as_of_that_transaction(pair: Pair) -> None:
    """L.f: an order and a new rate of its country, both committed while nobody follows."""
    pair.sql(
        "CREATE TABLE rates (country CHAR(2) PRIMARY KEY, rate DECIMAL(6,2))", "INSERT INTO rates VALUES ('nl', 2)"
    )
    pair.sql("CREATE TABLE orders (id INT PRIMARY KEY, country CHAR(2), amount DECIMAL(8,2))")
    pair.view("revenue", REVENUE)
    pair.view("booked", BOOKED)
    pair.deliver({"revenue": "revenue", "booked": "booked"}, keys={"revenue": ["id"]})
    pair.catch_up()
    pair.sql("INSERT INTO orders VALUES (1, 'nl', 10)", "UPDATE rates SET rate = 3")
    with pair.open() as project:
        before = project.status().epoch
        project.run(once=True)
        order, rate = sorted(epoch["epoch"] for epoch in project.epochs() if epoch["epoch"] > before)
        for view in ("revenue", "booked"):
            assert [str(row["revenue"]) for row in project.view(view).to_pylist(at=order)] == ["20.0000"], view
        assert [str(row["revenue"]) for row in project.view("revenue").to_pylist(at=rate)] == ["30.0000"]
        assert [str(row["revenue"]) for row in project.view("booked").to_pylist()] == ["20.0000"]
        assert project.verify("revenue").ok
    assert pair.arrived("SELECT id, revenue FROM revenue") == [(1, 30)]
    assert pair.arrived("SELECT id, revenue FROM booked") == [(1, 20)]


MERGED = (
    "SELECT album, max(CASE WHEN name = 'title' THEN value END) AS title, max(CASE WHEN name = 'artist' THEN value END) "
    "AS artist, max(CASE WHEN name = 'label' THEN value END) AS label FROM attribute GROUP BY album"
)
GROUPED = "SELECT album, sum(price) AS total, count(*) AS n FROM download GROUP BY album"
SPLIT = (
    "SELECT id, 'shop' AS share, price - fee AS amount FROM download "
    "UNION ALL SELECT id, 'artist' AS share, fee AS amount FROM download"
)
INDEX = "SELECT d.album, count(DISTINCT d.buyer) AS buyers, max(d.id) AS newest FROM download d GROUP BY d.album"
VIEWS = {"merged": MERGED, "grouped": GROUPED, "split": SPLIT, "by_album": INDEX}
ATTRIBUTES = "INSERT INTO attribute VALUES ({0}, 'title', 't{0}'), ({0}, 'artist', 'a{0}'), ({0}, 'label', 'l{0}')"
TRANSACTIONS = [
    [ATTRIBUTES.format(1)],
    ["INSERT INTO download VALUES (1, 1, 'ada', 1.50, 0.50), (2, 1, 'ben', 2.00, 0.75)"],
    ["INSERT INTO download VALUES (3, 1, 'ada', 4.00, 1.00)"],  # joins the group of an earlier transaction
    [ATTRIBUTES.format(2), "INSERT INTO download VALUES (4, 2, 'cy', 9.99, 3.00)"],
    [
        "UPDATE attribute SET value = 'renamed' WHERE album = 1 AND name = 'title'",
        "UPDATE download SET price = price + 1",
    ],
    ["UPDATE download SET album = 2 WHERE id = 3", "DELETE FROM attribute WHERE album = 2 AND name = 'label'"],
    ["DELETE FROM download WHERE album = 1"],
    ["DELETE FROM attribute", "DELETE FROM download"],
]


def test_rows_are_merged_grouped_and_split_in_step_with_every_transaction(pair: Pair) -> None:
    """L.g: the target is what the views' SQL gives on the source itself, and all of its tables have moved in one transaction."""
    pair.sql(
        "CREATE TABLE attribute (album INT, name VARCHAR(10), value VARCHAR(40), PRIMARY KEY (album, name))",
        "CREATE TABLE download (id INT PRIMARY KEY, album INT, buyer VARCHAR(10), price DECIMAL(8,2), fee DECIMAL(8,2))",
    )
    for name, sql in VIEWS.items():
        pair.view(name, sql)
    pair.deliver({name: name for name in VIEWS}, keys={"split": ["id", "share"]})
    pair.catch_up()
    moved = set()
    for statements in TRANSACTIONS:
        before = _marks(pair)
        with pair.server.connect(pair.database, autocommit=False) as writer, writer.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)
            writer.commit()
        pair.catch_up()
        for name, sql in VIEWS.items():
            shown = ", ".join(f'"{column}"' for column in COLUMNS[name])
            there = sorted(pair.server.sql(sql, database=pair.database), key=repr)
            assert _plain(pair.arrived(f"SELECT {shown} FROM {name}")) == _plain(there), (name, statements)
        after = _marks(pair)
        written = {name for name in VIEWS if after[name] != before[name]}
        assert len({after[name] for name in written}) == 1, "the tables were written by several transactions"
        moved |= {frozenset(written)}
    assert frozenset({"grouped", "split", "by_album"}) in moved
    assert frozenset(VIEWS) in moved


COLUMNS = {
    "merged": ["album", "title", "artist", "label"],
    "grouped": ["album", "total", "n"],
    "split": ["id", "share", "amount"],
    "by_album": ["album", "buyers", "newest"],
}


def _marks(pair: Pair) -> dict[str, Any]:
    """Give when the transaction began that marked each table last; savepoints have numbers of their own, but that time."""
    return dict(pair.arrived("SELECT table_name, delivered_at FROM _runnel"))


def _plain(rows: list[tuple[Any, ...]]) -> list[tuple[str, ...]]:
    return sorted(tuple(map(str, row)) for row in rows)
