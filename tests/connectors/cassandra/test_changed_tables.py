"""Tables that are dropped, made anew or altered while they are followed: right rows, or an error with a name and nothing lost."""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from runnel import config
from runnel.connectors.cassandra import followed, open_source
from runnel.errors import Terminal
from tests.connectors.cassandra.following import Followed, caught_up, opened, rows_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.connectors.cassandra.conftest import Shop

pytestmark = pytest.mark.cassandra

TABLE = "CREATE TABLE KS.t (k int, c int, v int, x text, PRIMARY KEY (k, c)) WITH cdc = true"


def insert(k: int, c: int, v: int) -> str:
    return f"INSERT INTO KS.t (k, c, v, x) VALUES ({k}, {c}, {v}, 'x{v}')"


@contextmanager
def following(shop: Shop, *statements: str) -> Iterator[Followed]:
    """Make the table, follow it from a snapshot on, and keep the source open."""
    shop.cql(TABLE, *statements)
    shop.configure(tables=["t"])
    source = open_source(config.load(shop.folder).sources[0], shop.folder)
    try:
        reader = Followed(source)
        reader.take(shop)
        yield reader
    finally:
        source.close()


def refused(reader: Followed) -> str:
    """Give the code of the error that the next look ends with; a definition is looked at now and then."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        try:
            reader.source.latest_offset(reader.position, 1_000_000)
        except Terminal as error:
            return error.code
    pytest.fail("the change of the table was not noticed")


def settled(reader: Followed, shop: Shop) -> list[str]:
    """Take changes until the rows are those of the server; give what differs in the end."""
    deadline = time.monotonic() + 60
    reader.take(shop)
    while (found := reader.differing()) and time.monotonic() < deadline:
        reader.take(shop)
    return found


@pytest.mark.parametrize("again", [[], [insert(2, 2, 20), insert(3, 3, 30)]])
def test_a_table_made_anew_is_followed_with_its_new_rows(shop: Shop, again: list[str]) -> None:
    with following(shop, insert(1, 1, 1), insert(2, 2, 2)) as reader:
        shop.cql(insert(4, 4, 4), "DROP TABLE KS.t", TABLE, *again)
        assert settled(reader, shop) == []
        shop.cql(insert(1, 1, 7), "DELETE FROM KS.t WHERE k = 2 AND c = 2")
        assert settled(reader, shop) == []
        assert reader.rows("t")


def test_a_table_made_anew_between_two_runs_is_followed_with_its_new_rows(shop: Shop) -> None:
    shop.cql(TABLE, insert(1, 1, 1), insert(2, 2, 2))
    shop.configure(tables=["t"])
    caught_up(shop)
    shop.cql(insert(5, 5, 5), "DROP TABLE KS.t", TABLE, insert(2, 2, 20), insert(3, 3, 30))
    caught_up(shop)
    assert [(row["k"], row["v"]) for row in rows_of(shop, "shop.t")] == [(2, 20), (3, 30)]
    shop.cql(insert(3, 3, 31))
    caught_up(shop)
    assert [(row["k"], row["v"]) for row in rows_of(shop, "shop.t")] == [(2, 20), (3, 31)]


def test_a_dropped_table_is_an_error_until_it_is_there_again(shop: Shop) -> None:
    with following(shop, insert(1, 1, 1)) as reader:
        shop.cql("DROP TABLE KS.t")
        assert refused(reader) == "RUNNEL-CASSANDRA-DROPPED"
        assert len(reader.rows("t")) == 1, "its rows are kept"
        shop.cql(TABLE, insert(2, 2, 2))
        assert settled(reader, shop) == []


def test_an_added_column_is_followed_with_what_was_written_before_it_was_noticed(shop: Shop) -> None:
    with following(shop, insert(1, 1, 1), insert(3, 3, 3)) as reader:
        shop.cql(
            "ALTER TABLE KS.t ADD added int",
            "INSERT INTO KS.t (k, c, v, added) VALUES (2, 2, 2, 22)",
            "UPDATE KS.t SET v = 10, added = 5 WHERE k = 1 AND c = 1",
        )
        assert settled(reader, shop) == []
        assert "added" in {column.name for info in reader.source.tables() for column in info.columns}
        shop.cql("UPDATE KS.t SET added = 6 WHERE k = 3 AND c = 3")
        assert settled(reader, shop) == []


def test_a_dropped_column_ends_and_the_rows_go_on(shop: Shop) -> None:
    with following(shop, insert(1, 1, 1), insert(2, 2, 2)) as reader:
        shop.cql("ALTER TABLE KS.t DROP x", "INSERT INTO KS.t (k, c, v) VALUES (3, 3, 3)")
        assert settled(reader, shop) == []
        shop.cql("UPDATE KS.t SET v = 10 WHERE k = 1 AND c = 1", "DELETE FROM KS.t WHERE k = 2")
        assert settled(reader, shop) == []


def test_columns_that_come_and_go_reach_tables_and_views(shop: Shop) -> None:
    shop.cql(TABLE, insert(1, 1, 1), insert(2, 2, 2))
    shop.configure(tables=["t"])
    (shop.folder / "views").mkdir()
    (shop.folder / "views" / "all.sql").write_text("CREATE MATERIALIZED VIEW everything AS SELECT k, x FROM t;\n")
    caught_up(shop)
    shop.cql("ALTER TABLE KS.t ADD added int", "UPDATE KS.t SET added = 5 WHERE k = 1 AND c = 1")
    caught_up(shop)
    assert [(row["k"], row["v"], row["added"]) for row in rows_of(shop, "shop.t")] == [(1, 1, 5), (2, 2, None)]
    shop.cql("ALTER TABLE KS.t DROP x", insert(3, 3, 3).replace(", x)", ", added)").replace("'x3'", "33"))
    caught_up(shop)
    expected = [(1, None, 5), (2, None, None), (3, None, 33)]
    assert [(row["k"], row["x"], row["added"]) for row in rows_of(shop, "shop.t")] == expected
    with opened(shop) as project:
        shown = sorted(project.view("everything").to_arrow().to_pylist(), key=str)
        assert shown == [{"k": k, "x": None} for k in (1, 2, 3)]
        project.create_view("more", "SELECT k, added FROM t WHERE added IS NOT NULL")
        assert project.view("more").to_arrow().num_rows == 2


def test_a_key_that_gets_another_name_is_an_error_and_nothing_is_lost(shop: Shop) -> None:
    with following(shop, insert(1, 1, 1)) as reader:
        shop.cql("ALTER TABLE KS.t RENAME c TO d")
        assert refused(reader) == "RUNNEL-CASSANDRA-CHANGED"
        shop.cql("ALTER TABLE KS.t RENAME d TO c", "INSERT INTO KS.t (k, c, v) VALUES (2, 2, 2)")
        assert settled(reader, shop) == []


def test_a_column_dropped_and_added_again_has_lost_its_values_everywhere(shop: Shop) -> None:
    with following(shop, insert(1, 1, 1), insert(2, 2, 2)) as reader:
        shop.cql("ALTER TABLE KS.t DROP x", "ALTER TABLE KS.t ADD x text", insert(3, 3, 3))
        assert settled(reader, shop) == []
        assert sum("'x'" not in row for row in reader.rows("t")) == 2


def test_a_table_made_anew_without_its_log_is_an_error(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(followed, "LOOK_SECONDS", 0.1)
    with following(shop, insert(1, 1, 1)) as reader:
        shop.cql("DROP TABLE KS.t", TABLE.replace("true", "false"), insert(2, 2, 2))
        assert refused(reader) == "RUNNEL-CASSANDRA-CDC"
        shop.cql("ALTER TABLE KS.t WITH cdc = true")
        assert settled(reader, shop) == []


def test_a_batch_with_a_table_that_was_dropped_before_is_read(shop: Shop) -> None:
    shop.configure(tables=["t"])
    shop.cql(
        TABLE,
        "CREATE TABLE KS.gone (k int PRIMARY KEY, v int) WITH cdc = true",
        f"BEGIN BATCH INSERT INTO KS.gone (k, v) VALUES (1, 1); {insert(1, 1, 1)}; APPLY BATCH",
        "DROP TABLE KS.gone",
    )
    assert shop.told("log-partial") == ["ups v:1", "ups x:x1"]


@pytest.mark.parametrize(
    "columns",
    [
        "k int PRIMARY KEY, v int",
        "k int, c int, v int, PRIMARY KEY (k, c)",
        "k int, c int, d int, PRIMARY KEY (k, c, d)",
    ],
)
def test_tables_with_compact_storage_are_refused_with_the_reason(shop: Shop, columns: str) -> None:
    shop.cql(TABLE, f"CREATE TABLE KS.dense ({columns}) WITH COMPACT STORAGE AND cdc = true")
    shop.configure()
    for technique in ("scan", "log", "snapshot"):
        said = shop.run("capture", "shop", "--technique", technique, exit_code=1)
        assert "RUNNEL-CASSANDRA-COMPACT" in said
    assert "COMPACT STORAGE" in shop.run("check", exit_code=1)
    shop.configure(tables=["t"])
    shop.cql(
        insert(1, 1, 1),
        "INSERT INTO KS.dense (k, c, v) VALUES (1, 1, 1)" if ", c int, v" in columns else insert(2, 2, 2),
    )
    assert shop.told("scan")
    assert shop.told("log")
